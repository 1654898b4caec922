"""Odd values survive the way from the provider to the DataFrame, to the character."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

import nftsync
from nftsync import frames
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World

AMOUNTS = [str(2**256 - 1), "0", "0007", "1.5", "", "-1", "1" * 101, "٣", "1", "1", "1"]
EXACT = [2**256 - 1, 0, 7, None, None, None, None, None, 1, 1, 1]
NAMES = ["🚀 to the moon 🌕", "شجرة الزيتون", "\u202eevil\u202c", "nul\x00inside", " padded ", ""]
ABSENT = ["null", "{}", '{"metadata":null}', '{"metadata":{}}', '{"metadata":{"name":null}}']


def token_id(number: int) -> str:
    return f"22222222-2222-4222-8222-{number:012}"


def named(number: int, name: str) -> str:
    return json.dumps({"id": token_id(number), "metadata": {"name": name}})


def entry(number: int, amount: str, token: str) -> str:
    return f'{{"tokenId":"{token_id(number)}","amount":{json.dumps(amount)},"token":{token}}}'


@contextmanager
def served(entries: list[str], database: Path, count: int) -> Iterator[SandboxServer]:
    """A provider with so many wallets, which all hold this."""
    held = ",".join(entries)
    file = database.with_suffix(".jsonl")
    ids = (f"11111111-1111-4111-8111-{number:012}" for number in range(count))
    file.write_text(
        "\n".join(f'{{"walletId":"{wallet}","nftTokenBalances":[{held}]}}' for wallet in ids)
    )
    with SandboxServer(World.load(file)) as server:
        yield server


def sync(server: SandboxServer, database: Path, **more: Any) -> nftsync.SyncResult:
    wallets = server.world.wallets()
    return nftsync.sync(wallets, base_url=server.url, database=database, progress=False, **more)


def test_amounts_and_names_come_out_as_sent_and_what_is_absent_as_missing(database: Path) -> None:
    tokens = [*(named(number, name) for number, name in enumerate(NAMES)), *ABSENT]
    entries = [entry(n, *each) for n, each in enumerate(zip(AMOUNTS, tokens, strict=True))]
    with served(entries, database, 1) as server:
        sync(server, database)
    frame = frames.holdings(database).sort_values("token_id")
    assert frame["amount"].dtype == object
    assert frame["amount"].tolist() == EXACT
    assert frame["amount_text"].tolist() == AMOUNTS
    assert frame["name"].tolist()[: len(NAMES)] == NAMES
    assert frame["name"].iloc[len(NAMES) :].isna().all()
    assert frame["edition_id"].isna().all()


def test_a_token_held_by_many_is_counted_once_and_full_text_search_follows_its_name(
    database: Path,
) -> None:
    def found(word: str) -> int:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("INSERT INTO tokens_fts (tokens_fts) VALUES ('integrity-check')")
            query = "SELECT count(*) FROM tokens_fts WHERE tokens_fts MATCH ?"
            return int(connection.execute(query, (word,)).fetchone()[0])

    with served([entry(1, "2", named(1, "Quiet Harbour"))], database, 25) as server:
        result = sync(server, database, tokens=True)
        assert (result.tokens.added, result.requests) == (1, 25 + 1)
        assert (found("harbour"), found("ferry")) == (1, 0)
        server.world.edit_metadata(token_id(1), {"name": "Quiet Ferry"})
        result = sync(server, database)
        assert (result.tokens.changed, result.wallets.unchanged) == (1, 25 - 1)
        assert (found("harbour"), found("ferry")) == (0, 1)
        assert sync(server, database).wallets.unchanged == 25
    changes = frames.token_changes(database)
    assert [msgspec.json.decode(text) for text in changes["before"]] == [{"name": "Quiet Harbour"}]
    assert [msgspec.json.decode(text) for text in changes["after"]] == [{"name": "Quiet Ferry"}]
