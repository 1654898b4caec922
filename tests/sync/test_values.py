"""Odd values survive the way from the provider to the DataFrame, to the character."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

import nftsync
from nftsync import frames
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World

WALLET = "11111111-1111-4111-8111-111111111111"
AMOUNTS = [str(2**256 - 1), "0", "0007", "1.5", "", "-1", "1" * 101, "٣"]
EXACT = [2**256 - 1, 0, 7, None, None, None, None, None]
NAMES = ["🚀 to the moon 🌕", "شجرة الزيتون", "\u202eevil\u202c", "nul\x00inside", " padded ", ""]


def token_id(number: int) -> str:
    return f"22222222-2222-4222-8222-{number:012}"


@contextmanager
def served(lines: list[str], database: Path) -> Iterator[SandboxServer]:
    world_file = database.with_suffix(".jsonl")
    world_file.write_text("\n".join(lines))
    with SandboxServer(World.load(world_file)) as server:
        yield server


def sync(server: SandboxServer, database: Path, *wallets: str, **more: Any) -> nftsync.SyncResult:
    return nftsync.sync(
        wallets or None, base_url=server.url, database=database, progress=False, **more
    )


def sync_world(entries: list[str], database: Path, *, tokens: bool = False) -> None:
    with served([world_line(entries)], database) as server:
        sync(server, database, WALLET, tokens=tokens)


def world_line(entries: list[str], wallet: str = WALLET) -> str:
    return f'{{"walletId":"{wallet}","nftTokenBalances":[{",".join(entries)}]}}'


def entry(number: int, amount: str = "1", token: str = "null") -> str:
    return f'{{"tokenId":"{token_id(number)}","amount":{json.dumps(amount)},"token":{token}}}'


def test_amounts_come_out_exact_and_as_sent(database: Path) -> None:
    sync_world([entry(n, a) for n, a in enumerate(AMOUNTS)], database)
    frame = frames.holdings(database).sort_values("token_id")
    assert frame["amount"].dtype == object
    assert frame["amount"].tolist() == EXACT
    assert frame["amount_text"].tolist() == AMOUNTS
    assert frame["amount"].dropna().sum() == 2**256 - 1 + 7


def test_names_come_out_as_sent_and_what_is_absent_as_missing(database: Path) -> None:
    named = [{"id": token_id(n), "metadata": {"name": name}} for n, name in enumerate(NAMES)]
    absent = ["null", "{}", '{"metadata":null}', '{"metadata":{}}', '{"metadata":{"name":null}}']
    tokens = [*map(json.dumps, named), *absent]
    sync_world([entry(n, token=token) for n, token in enumerate(tokens)], database)
    frame = frames.holdings(database).sort_values("token_id")
    assert frame["name"].tolist()[: len(NAMES)] == NAMES
    assert frame["name"].iloc[len(NAMES) :].isna().all()
    assert frame["edition_id"].isna().all()
    assert set(frame["amount"]) == {1}


def test_unknown_fields_keep_their_digits_and_their_place(database: Path) -> None:
    big = str(2**64 + 1)
    token = (
        f'{{"id":"{token_id(1)}","blockchainTokenId":"115792089237316195423570985008687907853269'
        f'984665640564039457584007913129639935","rank":{big},"metadata":{{"editionId":{big},'
        f'"name":["not","text"],"attributes":[{{"value":1.10}}],"totalEdition":0}}}}'
    )
    sync_world([entry(1, token=token)], database, tokens=True)
    row = frames.tokens(database).iloc[0]
    assert pd.isna(row["edition_id"])
    assert pd.isna(row["name"])
    assert row["total_edition"] == 0
    assert row["blockchain_token_id"] == str(2**256 - 1)
    assert row["extra"] == (
        f'{{"metadata":{{"attributes":[{{"value":1.10}}],"editionId":{big},'
        f'"name":["not","text"]}},"rank":{big}}}'
    )


def test_a_field_only_the_detail_read_shows_stays_until_such_a_read_drops_it(
    database: Path,
) -> None:
    """The list and the detail of a token may differ; both here come from the sandbox's world."""
    with_rarity = json.dumps({"id": token_id(1), "metadata": {"name": "n"}, "rarity": 5})
    plain = json.dumps({"id": token_id(1), "metadata": {"name": "n"}})
    sync_world([entry(1, token=with_rarity)], database, tokens=True)
    # The list no longer shows it, but the last detail read did.
    sync_world([entry(1, token=plain)], database)
    assert frames.tokens(database)["extra"].tolist() == ['{"rarity":5}']
    sync_world([entry(1, token=plain)], database, tokens=True)
    assert frames.tokens(database)["extra"].isna().tolist() == [True]


def test_a_token_held_by_many_wallets_is_read_and_counted_once(database: Path) -> None:
    wallets = [f"11111111-1111-4111-8111-{n:012}" for n in range(25)]
    token = json.dumps({"id": token_id(1), "metadata": {"name": "shared"}})
    lines = [world_line([entry(1, "2", token)], wallet) for wallet in wallets]
    with served(lines, database) as server:
        result = sync(server, database, *wallets, tokens=True)
        assert (result.tokens.added, result.requests) == (1, len(wallets) + 1)
        server.world.edit_metadata(token_id(1), {"name": "renamed"})
        result = sync(server, database)
        assert (result.tokens.changed, result.wallets.unchanged) == (1, len(wallets) - 1)
        assert sync(server, database).wallets.unchanged == len(wallets)
    changes = frames.token_changes(database)
    assert [msgspec.json.decode(text) for text in changes["before"]] == [{"name": "shared"}]
    assert [msgspec.json.decode(text) for text in changes["after"]] == [{"name": "renamed"}]


def test_a_change_and_its_reversal_do_not_leave_the_token_wrong(database: Path) -> None:
    """Two wallets hold the token; only the digest of the one that saw the change is new."""
    other = WALLET.replace("1", "3")
    token = json.dumps({"id": token_id(1), "metadata": {"name": "first"}})
    lines = [world_line([entry(1, "1", token)], wallet) for wallet in (WALLET, other)]
    with served(lines, database) as server:
        sync(server, database, WALLET, other)
        server.world.edit_metadata(token_id(1), {"name": "second"})
        sync(server, database, WALLET)
        server.world.edit_metadata(token_id(1), {"name": "first"})
        sync(server, database, other)  # the very answer it gave before
    assert frames.tokens(database)["name"].tolist() == ["first"]


def test_full_text_search_follows_names(database: Path) -> None:
    token = json.dumps({"id": token_id(1), "metadata": {"name": "Quiet Harbour"}})

    def found(word: str) -> int:
        with closing(sqlite3.connect(database)) as connection:
            query = "SELECT count(*) FROM tokens_fts WHERE tokens_fts MATCH ?"
            return int(connection.execute(query, (word,)).fetchone()[0])

    sync_world([entry(1, token=token)], database)
    assert (found("harbour"), found("ferry")) == (1, 0)
    sync_world([entry(1, token=token.replace("Harbour", "Ferry"))], database)
    assert (found("harbour"), found("ferry")) == (0, 1)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO tokens_fts (tokens_fts) VALUES ('integrity-check')")
