"""A compacted lake has the same rows in fewer files, wherever the process was killed."""

from __future__ import annotations

import os
import shutil
import signal
import time
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from nftsync.lake import compacting
from nftsync.lake.ledger import Ledger
from nftsync.lake.setup import create_lake
from nftsync.lake.storage import Lake
from nftsync.lake.tables import PUBLISHED
from tests.kit.database import at
from tests.kit.lake_cluster import Cluster, command, databases, files, manifest_of, runs_of
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import made_once
from tests.lake.conftest import BUCKETS, Sync
from tests.lake.lakes import refused, stopped

RUNS = 4
NONE = timedelta(0)
COMPACT = """
from datetime import timedelta
from nftsync.lake import compacting
compacting._UNUSED = 0.0
compacting.compact_lake(url, timedelta(0), takeover_after=0.2)
"""


@pytest.fixture(autouse=True)
def _any_unused_byte_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "_UNUSED", 0.0)


@pytest.fixture
def url(lake: Path, sync: Sync, provider: Provider, shared: Path) -> str:
    """A lake of several runs, the first of them long ago, whose files have unused bytes."""

    def make(folder: Path) -> None:
        wallets = [wallet(number) for number in range(8)]
        for run in range(RUNS):
            for number, each in enumerate(wallets):
                own = range(number, number + 100 * (RUNS - run))
                provider.holds(each, *(entry(token(n), str(2**255 + run)) for n in own))
            # The reads wait for a decision in the files, and leave unused bytes.
            with pytest.MonkeyPatch.context() as variables:
                variables.setenv("NFTSYNC_REMOVAL_ROWS", "100000")
                sync(wallets, to=folder / "lake").says()
        ledger = Ledger(Lake(str(folder / "lake")))
        runs = ledger.runs()
        for old in runs[:2]:
            old.finished_at = at(60)
        ledger._table.write(ledger._table.open()[0], runs)

    return str(shutil.copytree(made_once(shared, "compact", make) / "lake", lake))


def rows(url: str, run: int = RUNS) -> list[str]:
    """Return all that a run pinned, to the character."""
    found = [
        line
        for _, connection in databases(url, run)
        for line in connection.iterdump()
        if "mirror_state" not in line and "sync_runs" not in line
    ]
    for name, table in manifest_of(url, run).tables.items():
        frame = pl.read_delta(f"{url}/{name}", version=table.version)
        found += sorted(map(repr, frame.rows()))
    return found


def data_files(url: str) -> set[str]:
    paths = (x.relative_to(url) for x in Path(url).glob("b*/**/*.*") if x.is_file())
    return {str(path) for path in paths if "_delta_log" not in path.parts}


def aged(url: str, name: str, hours: int) -> Path:
    """Make a file of a writer that has not ended."""
    (path := Path(url, name)).parent.mkdir(parents=True, exist_ok=True)
    path.write_text("some")
    os.utime(path, (time.time() - 3_600 * hours,) * 2)
    return path


def test_kept_runs_are_as_before_and_others_expire(url: str) -> None:
    kept = [RUNS - 1, RUNS]
    before = {run: rows(url, run) for run in kept}
    expired = {str(file) for run in range(1, RUNS - 1) for file in files(url, run)}
    assert min(entry.free for entry in manifest_of(url).buckets) > 0
    outcome = command("lake", "compact", url).says("freed; 2 runs kept (`nftsync lake runs`)")
    assert outcome.out.startswith(f"Compacted {BUCKETS} buckets and 3 tables: ")
    assert {run: rows(url, run) for run in kept} == before
    assert [entry.free for entry in manifest_of(url).buckets] == [0] * BUCKETS
    assert [entry.published.file for entry in manifest_of(url).buckets] == files(url)
    assert [run.expired for run in runs_of(url)] == [True] * 2 + [False] * 2
    left = data_files(url)  # and those in which reads waited, for a day
    assert {file for run in kept for file in files(url, run)} <= left
    assert not left & expired
    assert len([*Path(url, "manifests").iterdir()]) == 3  # and the tokens
    tables = manifest_of(url).tables
    assert {name: table.files for name, table in tables.items()} == dict.fromkeys(PUBLISHED, 2)


def test_files_that_no_run_uses_go_after_a_day(url: str) -> None:
    folders = "balances/bucket=0", "buckets", "manifests", "steps/run-x"
    young = [aged(url, f"{folder}/young.parquet", 23) for folder in folders]
    old = [aged(url, f"{folder}/old.parquet", 25) for folder in folders]
    old.append(aged(url, f"steps/{runs_of(url)[-1].folder}/0-report", 0))  # of an ended run
    before = rows(url)
    done = compacting.compact_lake(url, NONE, takeover_after=0.2)
    assert (done.runs_kept, done.runs_let_go) == ([RUNS], [*range(1, RUNS)])
    assert rows(url) == before
    assert [path.exists() for path in (*young, *old)] == [True] * 4 + [False] * 5
    assert done.files_before - done.files_after >= 10
    assert done.bytes_freed > 0
    waited = RUNS - 1  # runs with reads that waited; also two young files
    assert len(data_files(url)) == BUCKETS * (3 + waited) + 2


def test_an_interrupted_run_can_be_resumed_afterwards(url: str) -> None:
    ledger = Ledger(Lake(url))
    run = ledger.begin("", None, 0.0)
    names = (f"steps/{run.folder}/0-x", "buckets/0-y.db.zst", "balances/bucket=0/z.parquet")
    paths = [aged(url, name, 25) for name in names]
    before = rows(url), files(url)
    compacting.compact_lake(url, NONE, takeover_after=0.0)
    again = ledger.begin("", None, 0.0, resume=True)
    assert (again.run_id, again.attempt) == (run.run_id, run.attempt + 1)
    assert [path.exists() for path in paths] == [True] * 3
    assert (rows(url), files(url)) == before


def test_a_damaged_table_is_left_to_the_next_run(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(Path(url, "tokens"))
    (first,) = Path(url, "manifests").glob("1-*")
    first.unlink()
    compacting.compact_lake(url, NONE, takeover_after=0.2)
    assert "the published table tokens was damaged or missing" in caplog.text
    assert manifest_of(url).tables == {}


def test_a_compaction_that_is_not_possible_ends_with_one_line(
    url: str, tmp_path: Path, cluster: Cluster
) -> None:
    ledger = Ledger(Lake(url))
    run, timeout = ledger.begin_compacting(0.0), ("--takeover-after", "1s")
    with ledger.heartbeat(run, 0.2):
        words = ("--base-url", "http://127.0.0.1:9", "--scheduler", cluster.address)
        refused(command("lake", "sync", url, *words, *timeout), 75)
    ledger.end_compacting(run)
    with ledger.heartbeat(ledger.begin("", None, 0.0), 0.2):
        refused(command("lake", "compact", url, *timeout), 75)
    assert [each.kind for each in runs_of(url)[1:]] == ["sync"] * RUNS
    refused(command("lake", "compact", url, "--keep", "soon"), 2)
    refused(command("lake", "compact", "none"), 1)
    assert not Path("none").exists()
    create_lake(new := Lake(str(tmp_path / "new")))
    Ledger(new).begin("", 1, 0.0)
    refused(command("lake", "compact", new.url), 2)


@pytest.mark.parametrize("changes", [10, 45])
def test_wherever_it_is_killed_the_last_run_is_whole_and_the_next_one_ends(
    url: str, changes: int
) -> None:
    before, size = rows(url), len(data_files(url))
    assert stopped(COMPACT, url, signal.SIGKILL, changes) in {0, -signal.SIGKILL}
    assert rows(url) == before
    for run in runs_of(url):
        assert run.manifest is None or rows(url, run.run_id)
    compacting.compact_lake(url, NONE, takeover_after=0.3)
    assert rows(url) == before
    assert len(data_files(url)) < size
    assert [run.expired for run in runs_of(url)] == [True] * (RUNS - 1) + [False]
