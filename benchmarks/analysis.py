"""Analyses, charts and the gallery, on a generated database of 1,000,000 balances.

It has 600 collections, a few of them large, and 100,000 webhooks. A sixth of the amounts is over
2**63. Later, 1 % of the balances change, half of them by transfers between wallets.
"""

from __future__ import annotations

import random
import re
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import nftsync
from benchmarks.figure import Figure
from benchmarks.frames import fill, measured, moment, uuid
from nftsync import charts, frames
from nftsync.errors import NftsyncWarning
from nftsync.store.schema import open_store

BEFORE_CHANGES, CHANGES = moment(15_000), 20_000  # `CHANGES` in seconds, as `fill` counts them
CONTRACTS = 600
COMPARED = "`frames.holdings` of this database"
WEBHOOKS = 100_000
#: Calls that the document does not list, because others are much the same.
UNLISTED = re.compile("of a frame|by token|everything|at=|notebook|charts.(?!holdings_over_time)")


def make(path: Path, wallets: int, each: int, tokens: int) -> None:
    fill(path, wallets, each, tokens, (6_000, 20_000, 40_000))
    chance = random.Random(11)
    with closing(open_store(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        _shape(connection, tokens, chance)
        _change(connection, wallets, wallets * each // 100, chance)
        _webhooks(connection, chance)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _shape(connection: sqlite3.Connection, tokens: int, chance: random.Random) -> None:
    """Make collections uneven, some amounts large, and some metadata invalid."""
    contracts = [f"0x{chance.getrandbits(160):040x}" for _ in range(CONTRACTS)]
    connection.executemany(
        "UPDATE tokens SET contract_address = ? WHERE token_no = ?",
        (
            (contracts[int(CONTRACTS * chance.random() ** 3)], number)
            for number in range(1, tokens + 1)
        ),
    )
    large = str(10**60 + 7)
    for statement in (
        "UPDATE tokens SET name = substr(name, 1, instr(name, '#')) || edition_id",
        "UPDATE tokens SET edition_id = NULL WHERE token_no % 10 = 0",
        "UPDATE tokens SET image = NULL WHERE token_no % 20 = 1",
        "UPDATE tokens SET image = 'http://example.com/' || token_no WHERE token_no % 20 = 2",
        "UPDATE tokens SET name = '  ' WHERE token_no % 50 = 3",
        (
            'UPDATE tokens SET edition_id = NULL, extra = \'{"metadata":{"editionId":"three"}}\''
            " WHERE token_no % 50 = 4"
        ),
        "UPDATE wallets SET wallet_group = 'group ' || wallet_no % 7",
        f"UPDATE balance_rows SET amount = '{large}' WHERE amount = '100'",
        f"UPDATE balance_change_rows SET new_amount = '{large}' WHERE new_amount = '100'",
    ):
        connection.execute(statement)


def _change(
    connection: sqlite3.Connection, wallets: int, count: int, chance: random.Random
) -> None:
    """Change some holdings; every other one goes to another wallet."""
    held = connection.execute("SELECT wallet_no, token_no, amount FROM balance_rows").fetchall()
    pairs = {(wallet, token) for wallet, token, _ in held}
    for number, (wallet, token, amount) in enumerate(chance.sample(held, count)):
        seen = moment(CHANGES + number / 10)
        taker = chance.randint(1, wallets)
        if number % 2 and (taker, token) not in pairs:
            pairs.add((taker, token))
            connection.execute(
                "DELETE FROM balance_rows WHERE wallet_no = ? AND token_no = ?", (wallet, token)
            )
            connection.execute(
                "INSERT INTO balance_rows VALUES (?, ?, ?, ?, ?, ?)",
                (taker, token, amount, seen, seen, seen),
            )
            log = [(wallet, token, amount, None, seen), (taker, token, None, amount, seen)]
        else:
            new = str(int(amount) + 1)
            connection.execute(
                "UPDATE balance_rows SET amount = ?, updated_at = ?"
                " WHERE wallet_no = ? AND token_no = ?",
                (new, seen, wallet, token),
            )
            log = [(wallet, token, amount, new, seen)]
        connection.executemany(
            "INSERT INTO balance_change_rows"
            " (wallet_no, token_no, old_amount, new_amount, observed_at, baseline)"
            " VALUES (?, ?, ?, ?, ?, 0)",
            log,
        )


def _webhooks(connection: sqlite3.Connection, chance: random.Random) -> None:
    def rows() -> Iterator[tuple[object, ...]]:
        for number in range(WEBHOOKS):
            sent = CHANGES + number / 50
            received = sent + chance.expovariate(5)
            done = number < WEBHOOKS * 0.99
            yield (
                uuid(chance), moment(sent).replace("Z", "0+00:00"), "Wallet", uuid(chance),
                moment(received), "done" if done else "pending",
                moment(received + chance.expovariate(10)) if done else None,
            )  # fmt: skip

    connection.executemany(
        "INSERT INTO webhooks (webhook_id, created_at_utc, resource_type, resource_id,"
        " received_at, state, finished_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows(),
    )


def cases(path: Path, folder: Path) -> dict[str, Callable[[], object]]:
    held = frames.holdings(path)
    gallery = partial(nftsync.gallery, held, limit=2_000)
    return {
        COMPARED: lambda: frames.holdings(path),
        "`frames.diff`, 1 % changed": lambda: frames.diff(path, BEFORE_CHANGES),
        "`frames.diff`, everything new": lambda: frames.diff(path, moment(0)),
        "`frames.transfers`, 1 % changed": lambda: frames.transfers(path),
        "`frames.concentration` of a frame": lambda: frames.concentration(held),
        "`frames.concentration` by token": lambda: frames.concentration(held, by="token_id"),
        "`frames.concentration`": lambda: frames.concentration(path),
        "`frames.overlap` of a frame": lambda: frames.overlap(held),
        "`frames.overlap`": lambda: frames.overlap(path),
        "`frames.editions` of a frame": lambda: frames.editions(held),
        "`frames.editions`": lambda: frames.editions(path),
        "`frames.holding_ages`": lambda: frames.holding_ages(path),
        "`frames.holding_ages(at=…)`": lambda: frames.holding_ages(path, at=BEFORE_CHANGES),
        "`frames.quality`": lambda: frames.quality(path),
        "`frames.freshness`": lambda: frames.freshness(path),
        "`charts.holdings_by_collection`": lambda: charts.holdings_by_collection(held),
        "`charts.holders`": lambda: charts.holders(held),
        "`charts.concentration`": lambda: charts.concentration(held),
        "`charts.overlap`": lambda: charts.overlap(held),
        "`charts.holdings_over_time`": lambda: charts.holdings_over_time(path),
        "`charts.arrivals_and_departures`": lambda: charts.arrivals_and_departures(path),
        "`charts.holding_ages`": lambda: charts.holding_ages(path),
        "`charts.webhook_lag`": lambda: charts.webhook_lag(path),
        "`charts.webhook_backlog`": lambda: charts.webhook_backlog(path),
        "gallery of 2,000 NFTs in a notebook": lambda: gallery()._repr_html_(),
        "gallery of 2,000 NFTs as a file": lambda: gallery().save(folder / "gallery.html"),
    }


def figures(*, small: bool = False) -> list[Figure]:
    """Measure each call; about 4 minutes."""
    wallets, tokens, repeats = (50, 500, 1) if small else (50_000, 500_000, 3)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", NftsyncWarning)  # a difference begins before the history
        path = Path(folder) / "analysis.db"
        make(path, wallets, 20, tokens)
        took = {name: measured(work, repeats) for name, work in cases(path, Path(folder)).items()}
    whole = took.pop(COMPARED)
    return [
        Figure(COMPARED, f"{whole:.2f} s", listed=False),
        *(
            Figure(
                name,
                f"{each:.2f} s",
                f"{each / whole:.2f} × `holdings`",
                listed=not UNLISTED.search(name),
            )
            for name, each in took.items()
        ),
    ]
