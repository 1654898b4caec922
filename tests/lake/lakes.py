"""Lakes for the tests of what reads them, made of a database without a cluster."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa

from nftsync.lake.ledger import Ledger
from nftsync.lake.rows import BUCKET, TABLES, bucket_of, from_mirror, to_mirror
from nftsync.lake.setup import create_tables
from nftsync.lake.storage import Commit, Lake
from nftsync.store.mirror import Mirror

_KNOWN = (
    "WHERE token_no IN (SELECT token_no FROM balance_rows UNION SELECT token_no"
    " FROM balance_change_rows)"
)


def lake_of(database: Path, folder: Path, buckets: int = 3) -> str:
    """Make a lake of one run that has all that a database has."""
    lake = Lake(str(folder))
    create_tables(lake)
    ledger = Ledger(lake)
    run = ledger.begin("", buckets, 0.0)
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        connection = transaction.connection
        for name in TABLES:
            if name != "known_tokens":
                for bucket, rows in _divided(connection, name, buckets).items():
                    write(lake, name, rows, bucket, run.run_id)
        for bucket, rows in _known(connection, buckets).items():
            write(lake, "known_tokens", rows, bucket, run.run_id)
        (ended,) = connection.execute("SELECT max(finished_at) FROM sync_runs").fetchone()
    run.versions = {name: at for name, at in lake.versions().items() if name in TABLES}
    run.status, run.finished_at = "ok", ended or run.started_at
    run.started_at = run.finished_at
    ledger.save(run)
    return lake.url


def write(lake: Lake, name: str, rows: pa.Table, bucket: int, run: int) -> None:
    """Put rows into a bucket of a table."""
    commit = Commit(run, "test", bucket, 0, {})
    put = lake.append if TABLES[name].log else lake.replace
    put(name, rows.to_batches(), commit)


def _divided(connection: sqlite3.Connection, name: str, buckets: int) -> dict[int, pa.Table]:
    batches = list(from_mirror(connection, name, 0))
    if not batches:
        return {}
    table = pa.Table.from_batches(batches)
    key = TABLES[name].key
    if not key:
        return {0: table}
    places = [bucket_of(each, buckets) for each in table[key].to_pylist()]
    return _chosen(table, places, buckets)


def _chosen(table: pa.Table, places: list[int], buckets: int) -> dict[int, pa.Table]:
    found = {}
    for bucket in range(buckets):
        some = table.filter(pa.array([place == bucket for place in places]))
        at = table.schema.get_field_index(BUCKET)
        numbers = pa.array([bucket] * some.num_rows, pa.int32())
        found[bucket] = some.set_column(at, table.schema.field(at), numbers)
    return {bucket: some for bucket, some in found.items() if some.num_rows}


def _known(connection: sqlite3.Connection, buckets: int) -> dict[int, pa.Table]:
    """The tokens that each bucket's wallets hold or held."""
    known: dict[int, set[str]] = {}
    for table in ("balance_rows", "balance_change_rows"):
        for wallet, token in connection.execute(
            f"SELECT wallet_id, token_id FROM {table} JOIN wallets USING (wallet_no)"
            " JOIN tokens USING (token_no)"
        ):
            known.setdefault(bucket_of(wallet, buckets), set()).add(token)
    found: dict[int, pa.Table] = {}
    batches = list(from_mirror(connection, "known_tokens", 0))
    for bucket, tokens in known.items():
        table = pa.Table.from_batches(batches)
        places = [bucket if each in tokens else -1 for each in table["token_id"].to_pylist()]
        found |= _chosen(table, places, buckets)
    return found


def one_file(url: str, path: Path) -> Path:
    """Put all buckets of a lake's last run into one database."""
    lake = Lake(url)
    runs = Ledger(lake).runs()
    versions = runs[-1].versions or {}
    with Mirror(path) as mirror, mirror.transaction() as transaction:
        for name in (
            "tokens",
            *(each for each in TABLES if each not in {"tokens", "known_tokens"}),
        ):
            for bucket in range(runs[-1].buckets):
                rows = lake.batches(name, versions[name], f"{BUCKET} = {bucket}")
                to_mirror(transaction.connection, name, rows)
        for run in runs:
            transaction.connection.execute(
                "INSERT INTO sync_runs (run_id, kind, status, started_at, finished_at, wallets_ok)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *(run.run_id, run.kind, run.status, run.started_at, run.finished_at),
                    run.counts.wallets_ok,
                ),
            )
    return path
