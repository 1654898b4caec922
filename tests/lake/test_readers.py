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

from nftsync import lake as lakes
from nftsync.lake.tables import PUBLISHED
from nftsync.store.catalog import TABLES
from tests.kit.lake_cluster import held, rows
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import Outcome
from tests.lake.conftest import BUCKETS, Sync

WALLETS = [wallet(number) for number in range(6)]
NASTY = "\u2028\x1f\"',\n" + chr(0x1F600)
Rows = list[tuple[Any, ...]]


@pytest.fixture
def synced(sync: Sync, lake: Path, provider: Provider) -> Path:
    """A lake whose buckets were published twice, except for one."""
    for number, each in enumerate(WALLETS):
        provider.holds(
            each, entry(token(number), "1", metadata={"name": NASTY}), entry(token(9), "2")
        )
    assert sync(provider.url, WALLETS).code == 0
    provider.holds(WALLETS[0], entry(token(20), "3.5"))
    assert sync(provider.url, WALLETS, "--allow-removals").code == 0
    return lake


def by_duckdb(table: str, version: int, columns: str) -> Rows:
    uris = DeltaTable(table, version=version).file_uris()
    query = f"SELECT {columns} FROM read_parquet($files, hive_partitioning = true)"
    return duckdb.sql(query, params={"files": uris}).fetchall()


def by_polars(table: str, version: int, columns: str) -> Rows:
    return pl.read_delta(table, version=version).select(columns.split(", ")).rows()


def by_delta_kernel(table: str, version: int, columns: str) -> Rows:
    """The newest version; it shares no code with delta-rs."""
    engine = kernel.PythonInterface(f"file://{table}")
    snapshot = kernel.Table(f"file://{table}").snapshot(engine)
    assert snapshot.version() == version
    found = pa.table(kernel.ScanBuilder(snapshot).build().execute(engine))
    return [tuple(row.values()) for row in found.select(columns.split(", ")).to_pylist()]


@pytest.mark.parametrize("reader", [by_duckdb, by_polars, by_delta_kernel])
def test_other_readers_see_the_rows_of_all_buckets(
    synced: Path, reader: Callable[[str, int, str], Rows]
) -> None:
    versions = lakes.versions(synced)
    for name in PUBLISHED:
        columns = [*TABLES[name].columns, "bucket"]
        expected = [tuple(row[x] for x in columns) for row in rows(synced, name)]
        found = reader(str(synced / name), versions[name], ", ".join(columns))
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert {row[-1] for row in found} == set(range(BUCKETS))


def test_a_fetched_bucket_is_a_database_for_every_program(
    synced: Path, provider: Provider, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    where = ("--base-url", provider.url)
    amounts = {}
    for bucket in range(BUCKETS):
        file = tmp_path / f"bucket{bucket}.db"
        assert command("lake", "fetch", synced, bucket, file).code == 0
        assert command("verify", "--sample", 0, "--database", file, *where).code == 0
        runs = sqlite_utils.Database(file).query("SELECT run_id, status FROM sync_runs")
        assert [tuple(run.values()) for run in runs] == [(1, "ok"), (2, "ok")]
        path = f"/bucket{bucket}/balances.json?_shape=array&_size=max"
        words = (sys.executable, "-m", "datasette", "-i", file, "--get", path)
        shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        for row in json.loads(shown):
            amounts[row["wallet_id"], row["token_id"]] = row["amount"]
    assert amounts == held(synced)
