"""The content of a lake, and its invariants."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from nftsync.lake.bucket import bucket_of, facts_of
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.manifest import Manifest
from nftsync.lake.pinned import pinned
from nftsync.lake.storage import Lake
from nftsync.store.catalog import TABLES
from nftsync.store.database import named_rows

Rows = list[dict[str, Any]]
#: Amounts by wallet and token.
Amounts = dict[tuple[str, str], str]


def manifest_of(lake: Path | str, run: int | None = None) -> Manifest:
    """Return the manifest of a finished run, by default the last."""
    return pinned(lake, run).manifest


def files(lake: Path | str, run: int | None = None) -> list[str | None]:
    return [entry.file.name if entry.file else None for entry in manifest_of(lake, run).buckets]


def runs_of(lake: Path | str) -> list[LakeRun]:
    return Ledger(Lake(str(lake))).runs()


def staged(lake: Path) -> int:
    """Return the number of buckets whose reads are stored, in unfinished runs."""
    return len({file.name.split("-")[0] for file in (lake / "steps").glob("*/*-*-*")})


@contextmanager
def opened(fetch: Callable[[Path], object]) -> Iterator[sqlite3.Connection]:
    with TemporaryDirectory() as folder:
        fetch(path := Path(folder, "bucket.db"))
        with closing(sqlite3.connect(path)) as connection:
            yield connection


def databases(lake: Path | str, run: int | None = None) -> Iterator[tuple[int, sqlite3.Connection]]:
    """Yield the databases of all buckets, completed with the lake's data."""
    pin = pinned(lake, run)
    for bucket, entry in enumerate(pin.manifest.buckets):
        if entry.file is not None:
            with opened(partial(pin.open, bucket)) as connection:
                yield bucket, connection


def _rows(connection: sqlite3.Connection, bucket: int, name: str) -> Rows:
    found = named_rows(connection.execute(f"SELECT * FROM {name}"))
    return [{**row, "bucket": bucket} for row in found]


def rows(lake: Path | str, name: str, run: int | None = None) -> Rows:
    return [row for bucket, own in databases(lake, run) for row in _rows(own, bucket, name)]


def published_rows(lake: Path | str, name: str, version: int | None = None) -> Rows:
    return pa.table(DeltaTable(f"{lake}/{name}", version=version).scan()).to_pylist()


def held(lake: Path | str, run: int | None = None) -> Amounts:
    """Return the amounts in a lake by wallet and token."""
    return _held(rows(lake, "balances", run))


def published(lake: Path | str) -> Amounts:
    """Return the amounts in a lake's newest published table."""
    return _held(published_rows(lake, "balances"))


def played(lake: Path | str, run: int | None = None) -> Amounts:
    """Return the amounts that all changes of a lake add up to."""
    return _played(rows(lake, "balance_changes", run))


def _held(balances: Rows) -> Amounts:
    amounts = {(row["wallet_id"], row["token_id"]): row["amount"] for row in balances}
    assert len(amounts) == len(balances), "a balance is there twice"
    return amounts


def _played(changes: Rows) -> Amounts:
    amounts: Amounts = {}
    for row in sorted(changes, key=lambda row: int(row["change_id"])):
        key = row["wallet_id"], row["token_id"]
        assert amounts.pop(key, None) == row["old_amount"], (key, row)
        if row["new_amount"] is not None:
            amounts[key] = row["new_amount"]
    return amounts


#: Tables, with the column that is unique in a lake.
_UNIQUE = {"wallets": "wallet_id", "balance_changes": "change_id", "wallet_states": "state_id"}
_UNIQUE |= {"token_changes": "change_id"}
#: Facts about a database in the manifest.
_FACTS = ("rows", "change", "state", "token_change", "changed_at", "holdings", "freshness")
#: Data of the ledger and of unfinished runs, which no bucket file has.
_NOT_STORED = (
    *("sync_runs", "contracts", "leases", "partial_spans WHERE ended_at > '9999'"),
    "sqlite_schema WHERE name = 'waiting_reads'",
    "mirror_state WHERE sequence_offset <> 0",
)


def check_lake(lake: Path | str, run: int | None = None) -> dict[str, Rows]:
    """Check the invariants of each database and over all buckets; return the tables' rows."""
    manifest = manifest_of(lake, run)
    found: dict[str, Rows] = {name: [] for name in (*_UNIQUE, "balances", *manifest.tables)}
    for bucket, connection in databases(lake, run):
        entry = manifest.buckets[bucket]
        for check in ("integrity_check", "foreign_key_check"):
            assert connection.execute(f"PRAGMA {check}").fetchall() in ([("ok",)], []), bucket
        facts = facts_of(connection)
        for name in _FACTS:
            assert getattr(facts, name) == getattr(entry, name), (bucket, name)
        for here, there in zip(facts.removals, entry.removals, strict=True):
            names = {name: there[name] for name in ("collection", "nft")}  # the lake adds names
            assert here | names == there
        assert facts.losses <= entry.losses  # earlier losses may have been approved since
        for name, of_lake in found.items():
            of_lake += _rows(connection, bucket, name)
        assert entry.file is not None
        with opened(partial(Lake(str(lake)).fetch, entry.file)) as stored:
            for source in _NOT_STORED:
                assert stored.execute(f"SELECT count(*) FROM {source}").fetchone() == (0,), source
    for row in found["wallets"]:
        assert row["bucket"] == bucket_of(row["wallet_id"], len(manifest.buckets))
    for name, key in _UNIQUE.items():
        assert len({row[key] for row in found[name]}) == len(found[name]), name
    assert _played(found["balance_changes"]) == _held(found["balances"])
    for name in ("change", "state", "token_change", "changed_at"):
        of_buckets = [getattr(entry, name) for entry in manifest.buckets]
        assert getattr(manifest, name) >= max(of_buckets), name
    assert manifest.sequence >= max((row["sequence"] for row in found["wallets"]), default=0)
    for name, table in manifest.tables.items():
        columns = [*TABLES[name].columns, "bucket"]
        expected, shown = (
            sorted(([row[column] for column in columns] for row in rows), key=repr)
            for rows in (found[name], published_rows(lake, name, table.version))
        )
        assert shown == expected, name
    return found
