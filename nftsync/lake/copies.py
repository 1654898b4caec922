"""Copies of databases in lakes, and the reverse, with all history and all ids."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nftsync.errors import InputError
from nftsync.lake.bucket import (
    RUN_COLUMNS,
    bucket_of,
    columns_of,
    facts_of,
    store_database,
    temporary_path,
)
from nftsync.lake.folder import private_files
from nftsync.lake.ledger import Ledger, default_buckets
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.manifest import Manifest, Names, add_tokens, digests_of, write_manifest
from nftsync.lake.merging import CHOSEN, attached, join_buckets
from nftsync.lake.names import name_contracts, samples_of
from nftsync.lake.pinned import Pinned, pinned
from nftsync.lake.reasons import explained
from nftsync.lake.setup import create_lake
from nftsync.lake.storage import Lake
from nftsync.lake.tables import DataFile, check_tables, commit_files, write_files
from nftsync.store import database as store
from nftsync.store.database import named_rows
from nftsync.store.history import last_observed
from nftsync.store.mirror import Mirror
from nftsync.store.runs import Counts, end_all_work
from nftsync.store.schema import empty_store, open_store, opened
from nftsync.terminal import progress_bar
from nftsync.times import now
from nftsync.whole_files import whole_file

_log = logging.getLogger(__name__)
#: Limits of a bucket: beyond them, each change moves much data.
_MANY_BYTES, _MANY_BALANCES = 10**9, 2_000_000

#: Buckets of a database's wallets, of its tokens, and of ids of rows without a wallet.
_SPLIT = """
    CREATE TABLE split_wallets (bucket INTEGER, wallet_no INTEGER,
        PRIMARY KEY (bucket, wallet_no)) WITHOUT ROWID;
    INSERT INTO split_wallets SELECT bucket_of(wallet_id), wallet_no FROM wallets;
    CREATE TABLE split_tokens (bucket INTEGER, token_no INTEGER,
        PRIMARY KEY (bucket, token_no)) WITHOUT ROWID;
    INSERT INTO split_tokens SELECT DISTINCT bucket, token_no FROM split_wallets JOIN (
        SELECT wallet_no, token_no FROM balance_rows
        UNION ALL SELECT wallet_no, token_no FROM balance_change_rows
        UNION ALL SELECT wallet_no, token_no FROM removal_rows) USING (wallet_no);
    INSERT OR IGNORE INTO split_tokens SELECT bucket_of(token_id), token_no FROM tokens
        WHERE token_no NOT IN (SELECT token_no FROM split_tokens)
        OR token_no IN (SELECT token_no FROM removal_rows WHERE wallet_no = 0);
    CREATE TABLE split_ids (bucket INTEGER, id TEXT, PRIMARY KEY (bucket, id)) WITHOUT ROWID;
    INSERT INTO split_ids SELECT bucket_of(id), id FROM (
        SELECT webhook_id AS id FROM webhooks UNION SELECT resource_id FROM resources
        UNION SELECT coalesce(contract, token_id) FROM hidden
        UNION SELECT token_id FROM removal_rows JOIN tokens USING (token_no) WHERE wallet_no = 0)
"""
_WALLETS = "wallet_no IN (SELECT wallet_no FROM whole.split_wallets WHERE bucket = ?1)"
_TOKENS = "token_no IN (SELECT token_no FROM whole.split_tokens WHERE bucket = ?1)"
_IDS = "IN (SELECT id FROM whole.split_ids WHERE bucket = ?1)"
#: Which rows of each table are a bucket's. Names, runs, alerts and the full-text index are not in
#: bucket files.
_ROWS_OF = {
    "wallets": _WALLETS,
    "tokens": _TOKENS,
    "token_sources": _TOKENS,
    "token_faults": _TOKENS,
    "balance_rows": _WALLETS,
    "balance_change_rows": f"{_WALLETS} ORDER BY change_id",
    "token_change_rows": f"{_TOKENS} ORDER BY change_id",
    "wallet_state_rows": f"{_WALLETS} ORDER BY state_id",
    "partial_spans": "?1 IS NOT NULL",
    "new_fields": "?1 IS NOT NULL",
    "removal_rows": f"{_WALLETS} OR (wallet_no = 0 AND token_no IN"
    f" (SELECT token_no FROM whole.tokens WHERE token_id {_IDS}))",
    "hidden": f"coalesce(contract, token_id) {_IDS}",
    "webhooks": f"webhook_id {_IDS}",
    "resources": f"resource_id {_IDS}",
}
_APPROVED = """
    UPDATE main.mirror_state SET approved_balance_change = w.approved_balance_change,
        approved_token_change = w.approved_token_change FROM whole.mirror_state w
"""
#: Which rows of each table of a bucket are in an export; spans are copies in all buckets.
_JOINED = {
    **dict.fromkeys(_ROWS_OF, "true"),
    **dict.fromkeys(("tokens", "token_sources", "token_faults"), CHOSEN),
    "partial_spans": "(run_id, began_at, ended_at) NOT IN (SELECT * FROM main.partial_spans)",
}


def import_database(
    database: Path, lake: str, *, buckets: int | None = None, takeover_after: float = 60.0
) -> LakeRun:
    """Copy a database, as it is at one moment, into a new lake.

    The database may come from this or an earlier release, and may be written meanwhile. Returns the
    lake's first run. Raises `InputError` if the lake already has runs.
    """
    tables = Lake(lake)
    with _snapshot(database) as whole, explained(lake), private_files():
        create_lake(tables)
        ledger = Ledger(tables)
        with closing(sqlite3.connect(whole, isolation_level=None)) as connection:
            (wallets,) = connection.execute("SELECT count(*) FROM wallets").fetchone()
            buckets = buckets or default_buckets(wallets)
            run = ledger.begin_import(_history(connection, buckets), buckets, takeover_after)
            with ledger.heartbeat(run, takeover_after):
                connection.create_function("bucket_of", 1, lambda key: bucket_of(key, buckets))
                connection.executescript(f"BEGIN; {_SPLIT}; COMMIT")
                check_tables(tables, {})  # creates them
                manifest = _manifest(tables, connection)
                files: list[DataFile] = []
                with progress_bar("Importing", buckets, unit="buckets") as bar:
                    for bucket in range(buckets):
                        ledger.check(run)
                        files += _store_bucket(tables, whole, bucket, manifest)
                        bar.update(1)
                manifest.tables = commit_files(tables, {}, files, lambda: ledger.check(run))
                run.manifest = write_manifest(tables, manifest, run.run_id)
                run.status, run.finished_at = "ok", now()
                ledger.save(run)
    return run


@contextmanager
def _snapshot(database: Path) -> Iterator[Path]:
    """Yield a copy of a database in which nothing is under way."""
    with temporary_path() as path:
        with (
            opened(database) as source,
            closing(sqlite3.connect(path)) as copy,
            store.explained(database),
        ):
            copy.execute("PRAGMA synchronous = OFF")
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = OFF").fetchone()
            end_all_work(copy, now())
            copy.commit()
        yield path


def _history(connection: sqlite3.Connection, buckets: int) -> list[LakeRun]:
    runs = []
    for row in named_rows(connection.execute(f"SELECT {', '.join(RUN_COLUMNS)} FROM sync_runs")):
        counts = Counts(**{name: row.pop(name) for name in Counts.__struct_fields__})
        runs.append(LakeRun(**row, counts=counts, buckets=buckets))
    return runs


def _manifest(lake: Lake, connection: sqlite3.Connection) -> Manifest:
    (sequence,) = connection.execute("SELECT greatest_sequence FROM mirror_state").fetchone()
    columns = (name for name in columns_of(connection, "webhooks") if name != "body")
    webhooks = f"SELECT {', '.join(columns)} FROM webhooks WHERE state <> 'done'"
    manifest = Manifest(
        buckets=[],
        sequence=sequence,
        changed_at=last_observed(connection) or "",
        webhooks=named_rows(connection.execute(webhooks)),
    )
    tokens = (row[0] for row in connection.execute("SELECT token_id FROM tokens"))
    add_tokens(lake, manifest, [digests_of(tokens)])
    name_contracts(lake, manifest, [samples_of(connection, "", 0, 1)])
    # The database's guesses are from other samples.
    manifest.names |= {
        contract: Names(*names)
        for contract, *names in connection.execute(
            "SELECT contract, contract_address, given_name, file_name, guessed_name FROM contracts"
        )
    }
    return manifest


def _store_bucket(lake: Lake, whole: Path, bucket: int, manifest: Manifest) -> list[DataFile]:
    """Store a bucket of a database; return the files to publish."""
    with temporary_path() as path:
        path.write_bytes(empty_store())
        with store.explained(path), closing(open_store(path)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # a copy
            with attached(connection, whole, "whole"):
                for table, condition in _ROWS_OF.items():
                    columns = ", ".join(columns_of(connection, table))
                    connection.execute(
                        f"INSERT INTO main.{table} ({columns}) SELECT {columns}"
                        f" FROM whole.{table} WHERE {condition}",
                        (bucket,),
                    )
                connection.execute(_APPROVED)
            entry = facts_of(connection)
            files = write_files(lake, connection, bucket, entry)
        entry.file = store_database(lake, bucket, path)
    entry.publish()
    size, balances = entry.file.content_size, entry.rows.balances
    if size > _MANY_BYTES or balances > _MANY_BALANCES:
        _log.warning(
            "Bucket %d has %d MB and %d balances; import it with more --buckets for faster runs.",
            *(bucket, size // 10**6, balances),
        )
    manifest.buckets.append(entry)
    for name in ("change", "state", "token_change"):
        setattr(manifest, name, max(getattr(manifest, name), getattr(entry, name)))
    return files


# From a lake --------------------------------------------------------------------------------------


def export_lake(lake: str, database: Path, *, run_id: int | None = None) -> LakeRun:
    """Copy a finished run of a lake into a new database that only its owner can read.

    The database appears once it is complete. Returns the run. Raises `InputError` if `database`
    exists.
    """
    pin = pinned(lake, run_id)
    with _new_database(database, pin, None) as connection:
        join_buckets(connection, pin, _JOINED)
    return pin.run


#: A database's own changes, by count. A run counts the changes of all buckets, and also the changes
#: of tokens that an export merges.
_OWN_CHANGES = {
    "balances_added": "balance_change_rows WHERE old_amount IS NULL",
    "balances_removed": "balance_change_rows WHERE new_amount IS NULL",
    "balances_changed": "balance_change_rows WHERE old_amount <> new_amount",
    "tokens_changed": "token_change_rows WHERE true",
}


def fetch_bucket(lake: str, bucket: int, database: Path, run: int | None = None) -> LakeRun:
    """Copy one bucket of a lake into a new database, as `export_lake` copies all."""
    pin = pinned(lake, run)
    if not 0 <= bucket < pin.run.buckets:
        raise InputError(f"{lake} has no bucket {bucket}; its last is {pin.run.buckets - 1}")
    with _new_database(database, pin, bucket):
        return pin.run


@contextmanager
def _new_database(database: Path, pin: Pinned, bucket: int | None) -> Iterator[sqlite3.Connection]:
    """Yield a bucket, None: an empty database, that appears as a database with an own id."""
    database = Path(os.path.abspath(database))  # noqa: PTH100 - a link at its place is not followed
    with whole_file(database) as path, store.explained(database):
        pin.open(bucket, path)
        with Mirror(path, write_gap=0.0) as mirror:
            mirror.connection.execute("PRAGMA synchronous = OFF")  # `whole_file` syncs it
            yield mirror.connection
            mirror.index_tokens()
            with mirror.transaction() as transaction:
                transaction.connection.execute(
                    "UPDATE mirror_state SET database_id = lower(hex(randomblob(16)))"
                )
                for name, rows in _OWN_CHANGES.items():
                    transaction.connection.execute(
                        "WITH own AS MATERIALIZED"
                        f" (SELECT run_id, count(*) AS n FROM {rows} GROUP BY 1)"
                        f" UPDATE sync_runs SET {name} = min({name}, coalesce("
                        "(SELECT n FROM own WHERE own.run_id = sync_runs.run_id), 0))"
                    )
        # Without a log of writes, which `whole_file` does not move.
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
