"""Odd values survive the way from the provider to the DataFrame, to the character."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import nftsync
from nftsync import frames
from tests.kit.provider import Provider, token, wallet

AMOUNTS = [str(2**256 - 1), "0", "0007", "1.5", "", "-1", "1" * 101, "٣", "1", "1", "1"]
EXACT = [2**256 - 1, 0, 7, None, None, None, None, None, 1, 1, 1]
NAMES = ["🚀 to the moon 🌕", "شجرة الزيتون", "\u202eevil\u202c", "nul\x00inside", " padded ", ""]
ABSENT = [None, {}, {"metadata": None}, {"metadata": {}}, {"metadata": {"name": None}}]


def listed(number: int, amount: str, about: Any) -> dict[str, Any]:
    return {"tokenId": token(number), "amount": amount, "token": about}


def named(number: int, name: str) -> dict[str, Any]:
    return {"id": token(number), "metadata": {"name": name}}


def sync(lying: Provider, database: Path, wallets: int, **more: Any) -> nftsync.SyncResult:
    ids = [wallet(number) for number in range(wallets)]
    return nftsync.sync(ids, base_url=lying.url, database=database, progress=False, **more)


def test_amounts_and_names_come_out_as_sent_and_what_is_absent_as_missing(
    lying: Provider, database: Path
) -> None:
    tokens = [*(named(number, name) for number, name in enumerate(NAMES)), *ABSENT]
    both = zip(AMOUNTS, tokens, strict=True)
    lying.holds(wallet(0), *(listed(number, *each) for number, each in enumerate(both)))
    sync(lying, database, 1)
    frame = frames.holdings(database).sort_values("token_id")
    assert frame["amount"].dtype == object
    assert frame["amount"].tolist() == EXACT
    assert frame["amount_text"].tolist() == AMOUNTS
    assert frame["name"].tolist()[: len(NAMES)] == NAMES
    assert frame["name"].iloc[len(NAMES) :].isna().all()
    assert frame["edition_id"].isna().all()


def test_a_token_held_by_many_is_counted_once_and_full_text_search_follows_its_name(
    lying: Provider, database: Path
) -> None:
    def found(word: str) -> int:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("INSERT INTO tokens_fts (tokens_fts) VALUES ('integrity-check')")
            query = "SELECT count(*) FROM tokens_fts WHERE tokens_fts MATCH ?"
            return int(connection.execute(query, (word,)).fetchone()[0])

    def rename(name: str) -> None:
        for number in range(25):
            lying.holds(wallet(number), listed(1, "2", named(1, name)))
        lying.bodies[f"/v1/tokens/{token(1)}"] = json.dumps(named(1, name)).encode()

    rename("Quiet Harbour")
    result = sync(lying, database, 25, tokens=True)
    assert (result.tokens.added, result.requests) == (1, 25 + 1)
    assert (found("harbour"), found("ferry")) == (1, 0)
    rename("Quiet Ferry")
    result = sync(lying, database, 25)
    assert (result.tokens.changed, result.wallets.unchanged) == (1, 25 - 1)
    assert (found("harbour"), found("ferry")) == (0, 1)
    assert sync(lying, database, 25).wallets.unchanged == 25
    changes = frames.token_changes(database)
    assert [json.loads(text) for text in changes["before"]] == [{"name": "Quiet Harbour"}]
    assert [json.loads(text) for text in changes["after"]] == [{"name": "Quiet Ferry"}]
