"""A lake as Dask DataFrames, and what is measured of them, equal a database's frames."""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import dask
import duckdb
import pandas as pd
import polars as pl
import pytest
from deltalake import DeltaTable
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from nftsync import frames, lake
from nftsync.errors import InputError, NftsyncWarning, StoreError
from nftsync.lake.bucket import put_runs
from nftsync.lake.frames import bucket_database
from nftsync.lake.ledger import Ledger
from nftsync.lake.manifest import write_manifest
from nftsync.lake.pinned import pinned
from nftsync.lake.storage import Lake
from nftsync.records import WalletRead
from nftsync.store.freshness import wallet_groups
from nftsync.store.mirror import Mirror
from nftsync.times import now
from tests.kit.database import Builder, at, token_id, wallet_id
from tests.kit.held_frames import CONTRACTS
from tests.kit.histories import READS, Histories, Read, moment
from tests.kit.lake_cluster import Cluster
from tests.kit.worlds import Outcome
from tests.lake.conftest import refused
from tests.lake.lakes import lake_of, one_file

GREATEST = 2**256 - 1
_MANY = settings(max_examples=4)


@pytest.fixture(autouse=True)
def _in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def in_order(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    return frame.sort_values(list(names), ignore_index=True)


def build(path: Path) -> Path:
    """Wallets of several buckets that share tokens, and all that is unusual about them."""
    made = Builder(path)
    for number in range(1, 9):
        made.wallet(number, seen=number, label=f"W{number}", synced_at=at(20 + number), status="ok")
    made.wallet(9, status="failed", error="HTTP 500", synced_at=at(3))
    made.wallet(10, seen=4)
    made.wallet(11, tracked=0, synced_at=at(0), status="ok")
    made.token(0, contract_address=None)
    for number, contract in enumerate(CONTRACTS, start=1):
        made.token(number, seen=number % 3, contract_address=contract, name=f"N{number}")
    for number in range(1, 9):
        for token in range(number, number + 6):
            amount = str(GREATEST) if token == 3 else ["1", "0", "1.5", "", "7"][token % 5]
            made.balance(number, token % (len(CONTRACTS) + 1), amount)
    made.insert(
        "contracts",
        contract="0x" + "cd" * 20,
        contract_address="0x" + "cd" * 20,
        given_name="The <b>Named</b>",
    )
    made.insert(
        "sync_runs", kind="sync", status="ok", started_at=at(50), finished_at=at(60), wallets_ok=0
    )
    return made.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("lakes")
    return lake_of(build(folder / "small.db"), folder / "lake")


@pytest.fixture(scope="module")
def file(made: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_file(made, tmp_path_factory.mktemp("one") / "one.db")


def test_holdings_are_those_of_a_database(made: str, file: Path) -> None:
    """Row for row and kind for kind, whatever part a row is in; few columns are as whole."""
    found = lake.holdings(made)
    known = frames.holdings(file, amounts="exact")
    assert found.npartitions == 2
    assert_frame_equal(found._meta, known.iloc[:0])
    rows = found.compute()
    assert_frame_equal(
        in_order(rows, "wallet_id", "token_id"), in_order(known, "wallet_id", "token_id")
    )
    assert set(rows["amount"].dropna()) == {0, 1, 7, GREATEST}
    few = found[["amount", "wallet_id"]].compute()
    assert_frame_equal(few, rows[["amount", "wallet_id"]])
    kinds = {str(each.dtypes.to_dict()) for each in dask.compute(*found.to_delayed())}
    assert kinds == {str(known.dtypes.to_dict())}


def test_tokens_are_those_of_a_database(made: str, file: Path) -> None:
    """Each token once."""
    found, known = lake.tokens(made), frames.tokens(file)
    assert_frame_equal(found._meta, known.iloc[:0])
    assert_frame_equal(*(in_order(x, "token_id") for x in (found.compute(), known)))


@_MANY
@given(
    reads=READS,
    past=st.integers(-1, 12),
    buckets=st.integers(1, 2),
)
def test_the_past_is_that_of_a_database(
    tmp_path_factory: pytest.TempPathFactory, reads: list[Read], past: int, buckets: int
) -> None:
    """Holdings, tokens and changes as of any time, of any history.

    Names of wallets are distinct in a bucket, and these ids look alike.
    """
    folder = tmp_path_factory.mktemp("past")
    histories = Histories(folder)
    histories.play(reads)
    url = lake_of(histories.path, folder / "lake", buckets)
    as_of, path = moment(past), histories.path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NftsyncWarning)  # of a time before the first read
        known = frames.holdings(path, as_of=as_of, amounts="exact")
        changes = frames.changes(path, as_of, amounts="exact")
    found = lake.holdings(url, as_of=as_of)
    assert_frame_equal(found._meta, known.iloc[:0])
    for part, whole, *keys in (
        (found, known, "wallet_id", "token_id"),
        (lake.tokens(url, as_of), frames.tokens(path, as_of), "token_id"),
        (lake.changes(url, since=as_of), changes, "change_id"),
        (lake.changes(url), frames.changes(path, amounts="exact"), "change_id"),
    ):
        pair = [in_order(one, *keys) for one in (part.compute(), whole)]
        if buckets > 1:
            pair = [one.drop(columns="wallet", errors="ignore") for one in pair]
        assert_frame_equal(*pair)


@_MANY
@given(reads=READS, past=st.integers(-1, 12))
def test_what_nftsync_computes_is_that_of_a_database(
    tmp_path_factory: pytest.TempPathFactory, reads: list[Read], past: int
) -> None:
    """Transfers, over all buckets; ages, states and broken metadata, bucket by bucket."""
    folder = tmp_path_factory.mktemp("computed")
    histories = Histories(folder)
    histories.play(reads)
    url, path = lake_of(histories.path, folder / "lake"), histories.path
    start = moment(past)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NftsyncWarning)
        pairs = (
            (lake.transfers(url), frames.transfers(path, amounts="exact")),
            (lake.transfers(url, start), frames.transfers(path, start, amounts="exact")),
            (lake.holding_ages(url, start), frames.holding_ages(path, at=start, amounts="exact")),
            (lake.wallet_states(url), frames.wallet_states(path)),
            (lake.wallet_states(url, until=start), frames.wallet_states(path, until=start)),
            (lake.quality(url, required="name"), frames.quality(path, required="name")),
        )
        computed = [(found.compute(), known) for found, known in pairs]
    keys = ("observed_at", "wallet_id", "token_id", "from_wallet_id", "to_wallet_id", "field")
    for two in computed:
        own = [name for name in (*keys, "body_sha256") if name in two[1]]
        # Names are distinct in a bucket, and any bad amount is an example.
        left_out = ["wallet", *(["value"] if "field" in own else [])]
        ordered = (in_order(x, *own).drop(columns=left_out, errors="ignore") for x in two)
        assert_frame_equal(*ordered)


def read_all(mirror: Mirror, at: str) -> int:
    """Reads some wallets as before, at one time; a sequence number from before the reads."""
    before = mirror.numbers.take()
    with mirror.transaction() as transaction:
        for number in (1, 2, 3, 4, 5):
            entries = [(token_id(n), "2", None) for n in (number, number + 1)]
            read = WalletRead(
                wallet_id=wallet_id(number),
                sequence=mirror.numbers.take(),
                started_at=at,
                outcome="ok",
                entries=entries,
                digest=str(entries),
            )
            transaction.apply([read])
    return before


def test_reads_without_changes_count_as_in_a_database(tmp_path: Path) -> None:
    """A bucket keeps its file; states, freshness and certainty are as if it were read again."""
    times = [at(60 * minute) for minute in range(4)]
    with Mirror(tmp_path / "read.db") as mirror:
        read_all(mirror, times[0])
        url = lake_of(mirror.path, tmp_path / "lake")
        before = [read_all(mirror, time) for time in times[1:]]
    ledger, pin = Ledger(Lake(url)), pinned(url)
    manifest = pin.manifest
    for entry in manifest.buckets:
        entry.confirmed_at, entry.confirmed_sequence = times[-1], before[-1]
        entry.confirmations = len(before)
    run = ledger.begin("", None, 0.0)
    run.manifest = write_manifest(Lake(url), manifest, run.run_id)
    run.status, run.finished_at = "ok", now()
    ledger.save(run)
    back = one_file(url, tmp_path / "back.db")
    with closing(sqlite3.connect(mirror.path)) as connection, connection:
        put_runs(connection, ledger.runs())
    of_lake = in_order(lake.wallet_states(url).compute(), "wallet_id")
    assert_frame_equal(of_lake, in_order(frames.wallet_states(mirror.path), "wallet_id"))
    assert list(of_lake["reads"]) == [4] * 5
    for find, keys in (
        (frames.wallet_states, ["wallet_id"]),
        (frames.wallets, ["wallet_id"]),
        (partial(frames.holdings, as_of=now()), ["wallet_id", "token_id"]),
    ):
        two = [in_order(find(path), *keys) for path in (back, mirror.path)]
        assert_frame_equal(*two)
    with bucket_database(pinned(url), 0) as connection:
        groups = wallet_groups(connection)
    assert {group.at for group in groups if group.count} == {times[-1]}


def test_concentration_and_overlap_are_those_of_the_rows(made: str) -> None:
    """By any column, with contracts in any spelling and amounts past 64 bits.

    Rows of a wallet are counted together, whatever part a user has put them in.
    """
    rows = in_order(lake.holdings(made).compute(), "wallet_id", "token_id")
    for by, exclude in (
        *(("contract_address", ()), ("wallet_id", ())),
        *(("contract", (wallet_id(1), "w2")), ("edition_id", (wallet_id(1), "w2"))),
    ):
        known = frames.concentration(rows, by, exclude=exclude)
        assert_frame_equal(lake.concentration(made, by, exclude), known)
    other = lake.holdings(made).shuffle("blockchain_token_id")
    known = frames.concentration(rows, "name")
    assert set(lake.concentration(other, "name")["holders"]) == set(known["holders"])
    assert_frame_equal(lake.overlap(made), frames.overlap(rows))
    assert_frame_equal(lake.overlap(made, "W3"), frames.overlap(rows, exclude="W3"))


def test_a_frame_that_is_cut_down_is_measured_as_it_is(made: str) -> None:
    """What users leave out does not count, and small amounts are 64-bit integers again."""
    held = lake.holdings(made)
    some = held[held["amount"].map(lambda x: x == 7, meta=("amount", bool))]
    rows = in_order(some.compute(), "wallet_id", "token_id")
    known = frames.concentration(rows)
    assert str(known["amount"].dtype) == "Int64"
    assert_frame_equal(lake.concentration(some), known)
    assert_frame_equal(lake.overlap(some), frames.overlap(rows))


def test_workers_in_another_folder_measure_the_same(
    made: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They send each other rows in another way."""
    rows = in_order(lake.holdings(made).compute(), "wallet_id", "token_id")
    monkeypatch.chdir(Path(made).parent)
    here = Path(made).name
    with dask.config.set(scheduler=None), Client(cluster.address):
        assert_frame_equal(lake.concentration(here), frames.concentration(rows))
        assert_frame_equal(lake.overlap(lake.holdings(here)), frames.overlap(rows))


def test_what_is_measured_is_that_of_a_database(made: str, file: Path) -> None:
    """Collections, held or not, with names and where they are from; wallets of all buckets."""
    known = frames.concentration(file, "contract")
    assert_frame_equal(lake.concentration(made, "contract"), known)
    pair = (lake.collections(made), frames.collections(file))
    # A file has another order of tokens, so another spelling may be the first.
    spelled = [in_order(x, "contract").drop(columns="contract_address") for x in pair]
    assert_frame_equal(*spelled)
    fresh = (
        pd.DataFrame(each.drop(columns="age"))
        for each in (lake.freshness(made), frames.freshness(file))
    )
    assert_frame_equal(*fresh)


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
def test_frames_refuse_what_the_others_refuse(
    made: str, call: Callable[[str], object], said: str
) -> None:
    with pytest.raises(StoreError if said == "is not a lake" else InputError, match=said):
        call(made)


def test_an_empty_lake_has_empty_frames(tmp_path: Path) -> None:
    """With all columns."""
    Builder(tmp_path / "empty.db").close()
    url = lake_of(tmp_path / "empty.db", tmp_path / "lake", 2)
    empty = one_file(url, tmp_path / "one.db")
    assert_frame_equal(lake.concentration(url), frames.concentration(empty))
    assert_frame_equal(lake.overlap(url), frames.overlap(empty))
    assert_frame_equal(
        lake.collections(url, amounts="exact"), frames.collections(empty, amounts="exact")
    )
    assert lake.holdings(url).compute().empty
    assert lake.tokens(url, "2026-01-01").compute().empty
    assert lake.changes(url, since="2026-01-01").compute().empty


def test_great_amounts_are_exact_however_they_are_read(made: str, file: Path) -> None:
    """By Dask, DuckDB and Polars."""
    known = sorted(frames.holdings(file, amounts="exact")["amount"].dropna())
    assert GREATEST in known
    assert sorted(lake.holdings(made)["amount"].compute().dropna()) == known
    version = lake.versions(made)["balances"]
    files = DeltaTable(f"{made}/balances", version=version).file_uris()
    rows = duckdb.sql("SELECT amount FROM read_parquet($files)", params={"files": files}).fetchall()
    assert sorted(int(amount) for (amount,) in rows if amount.isdigit()) == known
    column = pl.read_delta(f"{made}/balances", version=version)["amount"]
    assert sorted(int(amount) for amount in column if amount.isdigit()) == known


def test_what_the_page_says_in_python_is_so(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of it runs, beside a lake."""
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


def test_status_tells_what_a_lake_has(
    made: str, file: Path, command: Callable[..., Outcome]
) -> None:
    """As a table and as JSON; of no lake that there is none."""
    found = command("lake", "status", made)
    assert found.code == 0, found.said
    assert re.search(r"2 buckets, [0-9.]+ kB, run 2\n11 wallets, 48 balances", found.out)
    assert re.search(r"failed wallets +1 .*HTTP 500", found.out)
    told = command("lake", "status", made, "--json").json
    fresh = {row["what"]: row["count"] for row in told["freshness"]}
    assert (fresh["oldest wallet read"], fresh["wallets never read"]) == (9, 1)
    assert told["rows"]["balances"] == told["tables"]["balances"]["rows"]
    assert told["rows"]["balances"] == len(frames.holdings(file))
    assert told["rows"]["tokens"] == len(frames.tokens(file))
    refused(command("lake", "status", f"{made}-none"), 1, "is not a lake")
