"""A lake that is compacted has the same rows in fewer files, wherever the process was killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dask
import pyarrow as pa
import pytest

from nftsync import lake as lakes
from nftsync.errors import InputError, StoreError, SyncRunning
from nftsync.lake.compacting import compact_lake
from nftsync.lake.frames import pinned
from nftsync.lake.ledger import Ledger
from nftsync.lake.rows import schema_of
from nftsync.lake.run import runs_of
from nftsync.lake.setup import create_tables
from nftsync.lake.staged import StagedFiles
from nftsync.lake.storage import Lake
from nftsync.times import now
from tests.kit.database import Builder, at, wallet_id
from tests.kit.lake_cluster import Cluster
from tests.kit.provider import Provider, entry, token
from tests.lake.conftest import refused
from tests.lake.lakes import lake_of, stopped, write

RUNS, BUCKETS = 4, 2
MONTH, NONE = timedelta(days=30), timedelta(0)
COMPACT = """
from datetime import timedelta
from nftsync.lake.compacting import compact_lake
compact_lake(url, timedelta(0), takeover_after=0.2)
"""


@pytest.fixture(autouse=True)
def _in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def add_run(lake: Lake, number: int, ended: str) -> None:
    """A run that loses some balances, and tells of it in many small files."""
    ledger = Ledger(lake)
    run = ledger.begin("", None, 0.0)
    run.versions = dict(run.start)
    for bucket in range(BUCKETS):
        held = pa.Table.from_batches(lake.stored("balances", run.start, buckets=[bucket]))
        run.versions["balances"] = write(lake, "balances", held.slice(1), bucket)
        gone = held.slice(0, 1).to_pylist()[0]
        schema = schema_of("balance_changes")
        change = {name: gone.get(name) for name in schema.names}
        change |= {"change_id": 10 * number + bucket, "old_amount": gone["amount"], "baseline": 0}
        change |= {"new_amount": None, "observed_at": ended, "run_id": number}
        rows = pa.Table.from_pylist([change], schema)
        run.versions["balance_changes"] = write(lake, "balance_changes", rows, bucket)
    run.status, run.started_at, run.finished_at = "ok", ended, ended
    run.greatest_change = 10 * number + BUCKETS
    ledger.save(run)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of several runs, the first of them long ago."""
    folder = tmp_path_factory.mktemp("compact")
    made = Builder(folder / "small.db")
    for number in range(1, 9):
        made.wallet(number, label=f"W{number}", synced_at=at(20), status="ok")
        made.token(number, name=f"N{number}")
    for number in range(1, 9):
        for other in range(1, 9):
            made.balance(number, other, str(2**255 + other))
    made.insert("sync_runs", kind="sync", status="ok", started_at=at(50), finished_at=at(60))
    url = lake_of(made.close(), folder / "lake", BUCKETS)
    for number in range(2, RUNS + 1):
        add_run(Lake(url), number, at(60 + number) if number < RUNS - 1 else now())
    return Path(url)


@pytest.fixture
def url(template: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(template, tmp_path / "lake"))


def rows(url: str, run: int | None = None) -> str:
    """All that a run pinned, to the character."""
    what = pinned(url, run)
    found = {}
    for name in sorted(what.versions):
        batches = what.lake.stored(name, what.versions)
        found[name] = sorted(repr(row) for each in batches for row in each.to_pylist())
    return json.dumps(found)


def stored(url: str) -> set[Path]:
    """The files of rows; of the ledger's, those of the last hour stay."""
    return set(Path(url).glob("*/*=*/**/*.parquet"))


def test_kept_runs_are_as_before_and_others_say_so(url: str, command: Callable[..., Any]) -> None:
    kept = [RUNS - 1, RUNS]
    before = {run: rows(url, run) for run in kept}
    assert len(set(before.values())) == len(kept)
    size = len(stored(url))
    said = command("lake", "compact", url)
    assert said.code == 0, said.said
    assert said.out.startswith("Compacted ")
    assert "freed; 2 runs kept (`nftsync lake runs`)" in said.out
    assert {run: rows(url, run) for run in kept} == before
    assert rows(url) == before[RUNS]
    assert len(stored(url)) < size
    for run in range(1, RUNS - 1):
        with pytest.raises(InputError, match=f"compact` has expired run {run} of .* 3, 4"):
            lakes.holdings(url, run=run)
    listed = json.loads(command("lake", "runs", url, "--json").out)
    assert [row["versions"] is not None for row in listed] == [False] * 2 + [True] * 2
    assert [row["kind"] for row in listed] == ["sync"] * RUNS
    assert command("lake", "runs", url).out.count("ok, expired") == 2


def test_each_bucket_is_one_file_and_nothing_else_is_left(
    url: str, command: Callable[..., Any]
) -> None:
    """What died runs wrote goes at once, and what was never part of a table after a day."""
    lake = Lake(url)
    write(lake, "past_states", schema_of("past_states").empty_table(), 0)
    write(lake, "balances", next_rows(lake), 0)
    earlier = Path(url, "staged", "run_id=1")
    earlier.mkdir(parents=True)
    (earlier / "reads.parquet").write_text("of a release that staged rows in a table")
    young, old = (Path(url, "balances", "bucket=0", f"{name}.parquet") for name in "ab")
    for path in (young, old):
        path.write_text("of a writer that has not ended")
    os.utime(old, (time.time() - 90_000,) * 2)
    before = rows(url)
    said = command("lake", "compact", url, *("--keep", "0s", "--takeover-after", "1s", "--json"))
    done = json.loads(said.out)
    assert (done["runs_kept"], done["runs_let_go"]) == ([RUNS], [*range(1, RUNS)])
    assert rows(url) == before
    assert (young.exists(), old.exists()) == (True, False)
    assert not earlier.parent.exists()
    files = [path for path in stored(url) if path != young]
    known = (Lake(url).data_files(name, at) for name, at in pinned(url).versions.items())
    assert {str(path) for path in files} == {f"{url}/{path}" for each in known for path in each}
    assert len({path.parent for path in files}) == len(files) == done["files_after"]
    assert done["files_before"] > done["files_after"]
    assert done["bytes_freed"] > 0


def next_rows(lake: Lake) -> pa.Table:
    return pa.Table.from_batches(
        lake.stored("balances", pinned(lake.url).versions, buckets=[0])
    ).slice(2)


def test_a_reader_that_opened_what_is_let_go_is_told_in_one_line(url: str) -> None:
    newest, oldest = lakes.changes(url), lakes.changes(url, run=2)
    compact_lake(url, NONE, takeover_after=0.2)
    for frame in (newest, oldest):
        with pytest.raises(StoreError, match="compact` may have expired it. Open the lake"):
            frame.compute()
    assert len(lakes.changes(url).compute())


def test_an_interrupted_run_can_be_resumed_afterwards(url: str) -> None:
    """A run that had read keeps its reads, and begins where the rows are now."""
    lake, ledger = Lake(url), Ledger(Lake(url))
    run = ledger.begin("", None, 0.0)
    staged = StagedFiles(lake.files, run.folder)
    staged.write("mirror-0-x", b"answers")
    write(lake, "balances", next_rows(lake), 0)  # half of what it writes
    before = rows(url)
    compact_lake(url, NONE, takeover_after=0.0)
    again = Ledger(lake).begin("", None, 0.0, resume=True)
    assert (again.run_id, again.attempt) == (run.run_id, run.attempt + 1)
    assert again.start == pinned(url).versions
    assert (staged.names(), staged.read("mirror-0-x")) == (["mirror-0-x"], b"answers")
    assert {name: lake.restore(name, at) for name, at in again.start.items()}
    assert rows(url) == before


def test_of_a_run_and_compacting_one_waits(url: str, command: Callable[..., Any]) -> None:
    ledger = Ledger(Lake(url))
    run = ledger.begin_compacting(0.0)
    with ledger.heartbeat(run, 0.2), pytest.raises(SyncRunning):
        Ledger(Lake(url)).begin("", None, 1.0)
    ledger.end_compacting(run)
    run = ledger.begin("", None, 0.0)
    with ledger.heartbeat(run, 0.2):
        said = command("lake", "compact", url, "--takeover-after", "1s")
    refused(said, 75)
    assert [each.kind for each in runs_of(url)] == ["sync"] * (RUNS + 1)


def test_what_cannot_be_compacted_or_reviewed_says_so_in_one_line(
    tmp_path: Path, command: Callable[..., Any], url: str
) -> None:
    create_tables(Lake(str(tmp_path / "new")))
    Ledger(Lake(str(tmp_path / "new"))).begin("", 1, 0.0)
    for arguments, code in (
        (("compact", tmp_path / "none"), 1),
        (("removals", tmp_path / "none"), 1),
        (("removals", "accept", tmp_path / "none"), 1),
        (("compact", tmp_path / "new"), 2),
        (("compact", url, "--keep", "soon"), 2),
    ):
        refused(command("lake", *arguments), code)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("seed", range(2))
def test_wherever_it_is_killed_the_last_run_is_whole_and_the_next_one_ends(
    url: str, seed: int
) -> None:
    before, size = rows(url), len(stored(url))
    changes = random.Random(seed).choice(range(1 + 60 * seed, 61 + 60 * seed))
    assert stopped(COMPACT, url, signal.SIGKILL, changes) in {0, -signal.SIGKILL}
    assert rows(url) == before
    for run in runs_of(url):
        assert run.versions is None or rows(url, run.run_id)
    compact_lake(url, NONE, takeover_after=0.3)
    assert rows(url) == before
    assert len(stored(url)) < size
    assert [(run.kind, run.versions is None) for run in runs_of(url)] == [
        *[("sync", True)] * (RUNS - 1),
        ("sync", False),
    ]


def test_what_was_compacted_is_synced_as_any(
    url: str, command: Callable[..., Any], cluster: Cluster
) -> None:
    compact_lake(url, MONTH, takeover_after=0.2)
    before = lakes.changes(url).compute()
    known = len(lakes.holdings(url))
    with Provider() as provider:
        for number in range(1, 9):
            provider.holds(wallet_id(number), entry(token(number), "7"))
        done = command(
            *("lake", "sync", url, "--base-url", provider.url, "--allow-removals", "--json"),
            *("--scheduler", cluster.address),
        )
    assert done.code == 0, done.said
    held = lakes.holdings(url).compute()
    assert set(held["wallet_id"][held["amount"] == 7]) == {wallet_id(n) for n in range(1, 9)}
    assert len(held) == known + 8
    after = lakes.changes(url).compute()
    assert len(after) > len(before)
    assert set(before["change_id"]) < set(after["change_id"])
