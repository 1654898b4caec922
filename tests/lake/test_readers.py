"""Other programs read the tables that a lake publishes, and the databases that it fetches."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import delta_kernel_rust_sharing_wrapper as kernel
import duckdb
import polars as pl
import pyarrow as pa
import pytest
import sqlite_utils
from deltalake import DeltaTable

from nftsync import lake as frames
from nftsync.lake.tables import PUBLISHED
from nftsync.store.catalog import TABLES
from tests.kit.lake_cluster import Amounts, command, held, rows
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import made_once, mirrored
from tests.lake.conftest import BUCKETS, Sync
from tests.lake.lakes import show

WALLETS = [wallet(number) for number in range(6)]
NASTY = "\u2028\x1f\"',\n" + chr(0x1F600)
Rows = list[tuple[Any, ...]]


@pytest.fixture
def synced(sync: Sync, provider: Provider, shared: Path) -> Path:
    """A lake whose buckets were published twice, except for one."""

    def make(folder: Path) -> None:
        show(provider, WALLETS, str(2**256 - 1), 2, metadata={"name": NASTY})
        sync(WALLETS, to=folder / "lake").says()
        provider.holds(WALLETS[0], entry(token(20), "3.5"))
        sync(WALLETS, "--allow-removals", to=folder / "lake").says()

    return made_once(shared, "readers", make) / "lake"


def by_duckdb(table: str, version: int, columns: str) -> Rows:
    uris = DeltaTable(table, version=version).file_uris()
    query = f"SELECT {columns} FROM read_parquet($files, hive_partitioning = true)"
    return duckdb.sql(query, params={"files": uris}).fetchall()


def by_polars(table: str, version: int, columns: str) -> Rows:
    return pl.read_delta(table, version=version).select(columns.split(", ")).rows()


def by_delta_kernel(table: str, version: int, columns: str) -> Rows:
    """Read the newest version; this shares no code with delta-rs."""
    engine = kernel.PythonInterface(f"file://{table}")
    snapshot = kernel.Table(f"file://{table}").snapshot(engine)
    assert snapshot.version() == version
    found = pa.table(kernel.ScanBuilder(snapshot).build().execute(engine))
    return [tuple(row.values()) for row in found.select(columns.split(", ")).to_pylist()]


@pytest.mark.parametrize("reader", [by_duckdb, by_polars, by_delta_kernel])
def test_other_readers_see_the_rows_of_all_buckets(
    synced: Path, reader: Callable[[str, int, str], Rows]
) -> None:
    versions = frames.versions(synced)
    for name in PUBLISHED:
        columns = [*TABLES[name].columns, "bucket"]
        expected = [tuple(row[x] for x in columns) for row in rows(synced, name)]
        found = reader(str(synced / name), versions[name], ", ".join(columns))
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert {row[-1] for row in found} == set(range(BUCKETS))


def test_a_fetched_bucket_is_a_database_for_every_program(synced: Path) -> None:
    amounts: Amounts = {}
    for bucket in range(BUCKETS):
        file = f"bucket{bucket}.db"
        command("lake", "fetch", synced, bucket, file).says()
        command("verify", "--sample", 0, "-d", file).says()
        runs = sqlite_utils.Database(file).query("SELECT run_id, status FROM sync_runs")
        assert [tuple(run.values()) for run in runs] == [(1, "ok"), (2, "ok")]
        amounts |= mirrored(Path(file))
    assert amounts == held(synced)
    path = "/bucket0/balances.json?_shape=array&_size=max"
    words = (sys.executable, "-m", "datasette", "-i", "bucket0.db", "--get", path)
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    amounts = {(row["wallet_id"], row["token_id"]): row["amount"] for row in json.loads(shown)}
    assert amounts == mirrored(Path("bucket0.db"))
    refused = command("lake", "fetch", synced, BUCKETS, "none.db")
    refused.says(f"has no bucket {BUCKETS}", code=2)
