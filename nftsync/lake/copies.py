"""Copies of databases in lakes, and the reverse, with all history."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from nftsync.lake.folder import private_files
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.reasons import explained
from nftsync.lake.rows import TABLES, default_buckets, from_database, to_mirror
from nftsync.lake.setup import create_tables
from nftsync.lake.storage import Lake, Versions
from nftsync.store import database as store
from nftsync.store.database import named_rows
from nftsync.store.history import last_observed
from nftsync.store.mirror import Mirror
from nftsync.store.runs import Counts, end_all_work
from nftsync.store.schema import reading
from nftsync.terminal import progress_bar
from nftsync.times import now
from nftsync.whole_files import whole_file

#: Tables that an export copies; each bucket's `known_tokens` are copies of `tokens`.
_EXPORTED = [name for name in TABLES if name not in {"known_tokens", "contracts"}]
_SUMS = Counts.__struct_fields__
_RUN = ("run_id", "kind", "status", "started_at", "finished_at", "wallets_total", "error")
_COLUMNS = (*_RUN, *_SUMS)
_WALLETS = "SELECT count(*) FROM wallets"
_GREATEST = {
    "greatest_sequence": "SELECT greatest_sequence FROM mirror_state",
    "greatest_change": "SELECT max(change_id) FROM balance_change_rows",
    "greatest_state": "SELECT max(state_id) FROM wallet_state_rows",
    "greatest_token_change": "SELECT max(change_id) FROM token_change_rows",
}


def import_database(
    database: Path, lake: str, *, buckets: int | None = None, takeover_after: float = 60.0
) -> LakeRun:
    """Copy a database, as it is at one moment, into a new lake.

    The database may come from this or an earlier release, and may be written meanwhile. Returns the
    lake's first run. Raises `InputError` if the lake already has runs.
    """
    tables = Lake(lake)
    with reading(database) as connection, explained(lake), private_files():
        create_tables(tables)
        ledger = Ledger(tables)
        if buckets is None:
            buckets = default_buckets(connection.execute(_WALLETS).fetchone()[0])
        run = ledger.begin_import(_history(connection, buckets), buckets, takeover_after)
        with ledger.heartbeat(run, takeover_after):
            versions = _copy(connection, tables, ledger, run)
            run.applied_at = last_observed(connection) or now()
            for column, query in _GREATEST.items():
                setattr(run, column, connection.execute(query).fetchone()[0] or 0)
            tables.sync_to_disk({}, versions)
            run.status, run.finished_at, run.versions = "ok", now(), versions
            ledger.save(run)
    return run


def _copy(connection: sqlite3.Connection, tables: Lake, ledger: Ledger, run: LakeRun) -> Versions:
    versions = {}
    with progress_bar("Importing", len(TABLES), unit="tables") as bar:
        for name in TABLES:
            ledger.check(run)
            versions[name] = tables.overwrite(name, from_database(connection, name, run.buckets))
            bar.update(1)
    return versions


def _history(connection: sqlite3.Connection, buckets: int) -> list[LakeRun]:
    runs = []
    for row in named_rows(connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM sync_runs")):
        counts = Counts(**{name: row.pop(name) for name in _SUMS})
        if row["status"] == "running":
            row["status"] = "interrupted"
        runs.append(LakeRun(**row, counts=counts, buckets=buckets))
    return runs


def export_lake(lake: str, database: Path, *, run_id: int | None = None) -> LakeRun:
    """Copy a finished run of a lake into a new database that only its owner can read.

    The database appears once it is complete. Returns the run. Raises `InputError` if `database`
    exists.
    """
    database = Path(os.path.abspath(database))  # noqa: PTH100 - a link at its place is not followed
    tables = Lake(lake)
    with explained(lake):
        ledger = Ledger(tables)
        run = ledger.finished(run_id)
        runs = [row for row in ledger.runs() if row.run_id <= run.run_id]
    with whole_file(database) as partial, store.explained(database):
        with Mirror(partial, write_gap=0.0) as mirror:
            mirror.connection.execute("PRAGMA synchronous = OFF")  # `whole_file` syncs it
            _fill(mirror, tables, run, runs)
        with closing(sqlite3.connect(partial, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    return run


def _fill(mirror: Mirror, lake: Lake, run: LakeRun, runs: list[LakeRun]) -> None:
    connection = mirror.connection
    versions = run.versions or {}
    # Tables that other tables refer to come first, and contracts last.
    names = sorted(_EXPORTED, key=lambda name: name not in {"wallets", "tokens"})
    with progress_bar("Exporting", len(names) + 1, unit="tables") as bar:
        for name in (*names, "contracts"):
            if name == "contracts":
                mirror.index_tokens()
                connection.execute("DELETE FROM contracts")  # the lake has more names than tokens
            with explained(lake.url), mirror.transaction():
                to_mirror(connection, name, lake.stored(name, versions))
            bar.update(1)
    with mirror.transaction():
        connection.execute(
            "UPDATE mirror_state SET greatest_sequence = ?", (run.greatest_sequence,)
        )
        put_runs(connection, [row for row in runs if row.status != "running"])
        end_all_work(connection, now())


def put_runs(connection: sqlite3.Connection, runs: Iterable[LakeRun]) -> None:
    """Insert a lake's syncs and replays into a mirror without runs."""
    own = [run for run in runs if run.kind in {"sync", "replay"}]
    rows = [{**msgspec.structs.asdict(x), **msgspec.structs.asdict(x.counts)} for x in own]
    connection.executemany(
        f"INSERT INTO sync_runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})",
        [[row[name] for name in _COLUMNS] for row in rows],
    )
