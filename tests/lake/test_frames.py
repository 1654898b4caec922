"""A lake's frames and measures equal a database's; other programs read its tables and buckets."""

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dask
import delta_kernel_rust_sharing_wrapper as kernel
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sqlite_utils
from deltalake import DeltaTable
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from nftsync import frames, lake
from nftsync.errors import InputError, NftsyncWarning, StoreError
from nftsync.lake.tables import PUBLISHED
from nftsync.store.catalog import TABLES
from tests.kit import lakes
from tests.kit.database import Builder, at, wallet_id
from tests.kit.held_frames import CONTRACTS
from tests.kit.histories import READS, Histories, moment
from tests.kit.lake_cluster import BUCKETS, lake_of, refused, show
from tests.kit.lakes import Amounts
from tests.kit.provider import entry, token, wallet
from tests.kit.worlds import made_once, mirrored
from tests.kit.worlds import run_command as command

GREATEST = 2**256 - 1
WALLETS = [wallet(number) for number in range(6)]
NASTY = "\u2028\x1f\"',\n" + chr(0x1F600)
Rows = list[tuple[Any, ...]]
#: Columns by which rows are put in order.
KEYS = {"observed_at", "wallet_id", "token_id", "from_wallet_id", "to_wallet_id", "field"}
KEYS |= {"body_sha256", "change_id"}


@pytest.fixture(autouse=True)
def _in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def in_order(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    return frame.sort_values(list(names), ignore_index=True)


def build(path: Path) -> Path:
    """Make a database of wallets of several buckets that share tokens, with unusual values."""
    made = Builder(path)
    for number in range(1, 9):
        made.wallet(number, seen=number, label=f"W{number}", synced_at=at(20 + number), status="ok")
    made.wallet(9, status="failed", error="HTTP 500", synced_at=at(3))
    made.wallet(10, seen=4)
    made.wallet(11, tracked=0, synced_at=at(0), status="ok")
    for number, contract in enumerate((None, *CONTRACTS)):
        made.token(number, seen=number % 3, contract_address=contract, name=f"N{number}")
    for number in range(1, 9):
        for place in range(number, number + 6):
            amount = str(GREATEST) if place == 3 else ["1", "0", "1.5", "", "7"][place % 5]
            made.balance(number, place % (len(CONTRACTS) + 1), amount)
    named = "0x" + "cd" * 20
    made.insert("contracts", contract=named, contract_address=named, given_name="The <b>Named</b>")
    made.insert(
        "sync_runs", kind="sync", status="ok", started_at=at(50), finished_at=at(60), wallets_ok=0
    )
    return made.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("lakes")
    return lake_of(build(folder / "small.db"), folder / "lake")


@pytest.fixture(scope="module")
def file(made, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("one") / "one.db"
    command("lake", "export", made, path).says()
    return path


@settings(max_examples=5)
@given(reads=READS, past=st.integers(-1, 12), buckets=st.integers(1, 2))
def test_all_frames_of_any_history_are_those_of_a_database(tmp_path_factory, reads, past, buckets):
    """As of any time. Names of wallets are distinct in a bucket, and these ids look alike."""
    folder, time = tmp_path_factory.mktemp("past"), moment(past)
    histories = Histories(folder)
    histories.play(reads)
    path = histories.path
    url = lake_of(path, folder / "lake", buckets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NftsyncWarning)  # of a time before the first read
        pairs = (
            (lake.holdings(url, as_of=time), frames.holdings(path, as_of=time, amounts="exact")),
            (lake.tokens(url, time), frames.tokens(path, time)),
            (lake.changes(url), frames.changes(path, amounts="exact")),
            (lake.changes(url, since=time), frames.changes(path, time, amounts="exact")),
            (lake.transfers(url), frames.transfers(path, amounts="exact")),
            (lake.transfers(url, time), frames.transfers(path, time, amounts="exact")),
            (lake.holding_ages(url, time), frames.holding_ages(path, at=time, amounts="exact")),
            (lake.wallet_states(url), frames.wallet_states(path)),
            (lake.wallet_states(url, until=time), frames.wallet_states(path, until=time)),
            (lake.quality(url, required="name"), frames.quality(path, required="name")),
        )
        computed = [(found.compute(), known) for found, known in pairs]
    for (found, known), (result, _) in zip(pairs, computed, strict=True):
        assert_frame_equal(found._meta, known.iloc[:0])
        # Any bad amount is an example.
        left_out = {*(["wallet"] if buckets > 1 else []), *(["value"] if "field" in known else [])}
        two = [x.drop(columns=left_out & {*known}) for x in (result, known)]
        keys = KEYS & {*two[1]}
        assert_frame_equal(*(in_order(x, *sorted(keys)) for x in two))


def test_rows_and_measures_are_those_of_a_database(made, file):
    """By any column, with any partitions, and of a part of the rows."""
    holdings = lake.holdings(made)
    rows = in_order(holdings.compute(), "wallet_id", "token_id")
    known = frames.holdings(file, amounts="exact")
    assert_frame_equal(rows, in_order(known, "wallet_id", "token_id"))
    few = ["amount", "wallet_id"]
    computed = in_order(holdings[["token_id", *few]].compute(), "wallet_id", "token_id")
    assert_frame_equal(computed[few], rows[few])
    types = {str(each.dtypes.to_dict()) for each in dask.compute(*holdings.to_delayed())}
    assert (types, holdings.npartitions) == ({str(known.dtypes.to_dict())}, 2)
    pair = (lake.tokens(made).compute(), frames.tokens(file))
    assert_frame_equal(*(in_order(x, "token_id") for x in pair))
    for by, exclude in (
        *(("contract_address", ()), ("wallet_id", ())),
        *(("contract", (wallet_id(1), "w2")), ("edition_id", (wallet_id(1), "w2"))),
    ):
        known = frames.concentration(rows, by, exclude=exclude)
        assert_frame_equal(lake.concentration(made, by, exclude), known)
    known = frames.concentration(rows, "name")
    shuffled = holdings.shuffle("blockchain_token_id")
    assert set(lake.concentration(shuffled, "name")["holders"]) == set(known["holders"])
    assert_frame_equal(lake.overlap(made), frames.overlap(rows))
    assert_frame_equal(lake.overlap(made, "W3"), frames.overlap(rows, exclude="W3"))
    some = holdings[holdings["amount"].map(lambda x: x == 7, meta=("amount", bool))]
    rows = in_order(some.compute(), "wallet_id", "token_id")
    known = frames.concentration(rows)
    assert str(known["amount"].dtype) == "Int64"  # small amounts are 64-bit integers again
    assert_frame_equal(lake.concentration(some), known)
    assert_frame_equal(lake.overlap(some), frames.overlap(rows))
    # A file has another order of tokens, so another spelling may be the first.
    pair = (lake.collections(made), frames.collections(file))
    assert_frame_equal(*(in_order(x, "contract").drop(columns="contract_address") for x in pair))
    pair = (lake.freshness(made), frames.freshness(file))
    assert_frame_equal(*(pd.DataFrame(x.drop(columns="age")) for x in pair))


def test_workers_in_another_folder_measure_the_same(made, cluster, monkeypatch):
    """They send each other rows in another way."""
    rows = in_order(lake.holdings(made).compute(), "wallet_id", "token_id")
    monkeypatch.chdir(Path(made).parent)
    here = Path(made).name
    with dask.config.set(scheduler=None), Client(cluster.address):
        assert_frame_equal(lake.concentration(here), frames.concentration(rows))
        assert_frame_equal(lake.overlap(lake.holdings(here)), frames.overlap(rows))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda made: lake.holdings(made, run=7), "no finished run 7"),
        (lambda made: lake.holdings(made, as_of="2999-01-01"), "is in the future"),
        (lambda made: lake.concentration(made, "nonsense"), "is named 'nonsense'"),
        (lambda made: lake.concentration(made, "holders"), "cannot group holdings by 'holders'"),
        (lambda made: lake.concentration(made, exclude="nobody"), "neither a wallet id"),
        (lambda made: lake.overlap(lake.holdings(made).compute()), "use a DataFrame"),
        (lambda made: lake.tokens(f"{made}-none"), "is not a lake"),
    ],
)
def test_frames_refuse_invalid_arguments(made, call, said):
    with pytest.raises(StoreError if said == "is not a lake" else InputError, match=said):
        call(made)


def test_an_empty_lake_has_empty_frames(tmp_path):
    """With all columns."""
    empty = Builder(tmp_path / "empty.db").close()
    url = lake_of(empty, tmp_path / "lake")
    assert_frame_equal(lake.concentration(url), frames.concentration(empty))
    assert_frame_equal(lake.overlap(url), frames.overlap(empty))
    pair = (x.collections(y, amounts="exact") for x, y in ((lake, url), (frames, empty)))
    assert_frame_equal(*pair)
    for found in (lake.holdings(url), lake.tokens(url, "2026-01-01"), lake.changes(url)):
        assert found.compute().empty


def test_the_python_code_of_the_page_runs(made, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lake").symlink_to(made)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "operate" / "scale-out.md").read_text(
        encoding="utf-8"
    )
    found = re.findall(r"(?<!-->\n)^```python\n(.*?)^```$", page, re.DOTALL | re.M)
    assert len(found) >= 4
    for block in found:
        exec(compile(block, "scale-out.md", "exec"), {})


def test_status_shows_the_size_and_the_freshness_of_a_lake(made, file):
    found = command("lake", "status", made)
    assert found.code == 0, found.said
    assert re.search(r"2 buckets, [0-9.]+ kB, run 2\n11 wallets, 48 balances", found.out)
    assert re.search(r"failed wallets +1 .*HTTP 500", found.out)
    status = command("lake", "status", made, "--json").json
    fresh = {row["what"]: row["count"] for row in status["freshness"]}
    assert (fresh["oldest wallet read"], fresh["wallets never read"]) == (9, 1)
    assert status["rows"]["balances"] == status["tables"]["balances"]["rows"]
    assert status["rows"]["balances"] == len(frames.holdings(file))
    assert status["rows"]["tokens"] == len(frames.tokens(file))
    refused(command("lake", "status", f"{made}-none"), 1, "is not a lake")


@pytest.fixture
def synced(sync, provider, shared) -> Path:
    """A lake whose buckets were published twice, except for one."""

    def make(folder: Path) -> None:
        show(provider, WALLETS, str(GREATEST), 2, metadata={"name": NASTY})
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
def test_other_readers_see_the_rows_of_all_buckets(synced, reader):
    versions = lake.versions(synced)
    for name in PUBLISHED:
        columns = [*TABLES[name].columns, "bucket"]
        expected = [tuple(row[x] for x in columns) for row in lakes.rows(synced, name)]
        found = reader(str(synced / name), versions[name], ", ".join(columns))
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert {row[-1] for row in found} == set(range(BUCKETS))


def test_a_fetched_bucket_is_a_database_for_every_program(synced):
    amounts: Amounts = {}
    for bucket in range(BUCKETS):
        file = f"bucket{bucket}.db"
        command("lake", "fetch", synced, bucket, file).says()
        command("verify", "--sample", 0, "-d", file).says()
        with closing(sqlite_utils.Database(file)) as database:
            runs = [*database.query("SELECT run_id, status FROM sync_runs")]
        assert [tuple(run.values()) for run in runs] == [(1, "ok"), (2, "ok")]
        amounts |= mirrored(Path(file))
    assert amounts == lakes.held(synced)
    path = "/bucket0/balances.json?_shape=array&_size=max"
    words = (sys.executable, "-m", "datasette", "-i", "bucket0.db", "--get", path)
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    amounts = {(row["wallet_id"], row["token_id"]): row["amount"] for row in json.loads(shown)}
    assert amounts == mirrored(Path("bucket0.db"))
    refused = command("lake", "fetch", synced, BUCKETS, "none.db")
    refused.says(f"has no bucket {BUCKETS}", code=2)
