"""A compacted lake has the same rows in fewer files, wherever the process was killed."""

import os
import shutil
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nftsync.lake.compacting import compact_lake
from nftsync.lake.ledger import Ledger
from nftsync.lake.setup import create_lake
from nftsync.lake.storage import Lake
from nftsync.lake.tables import PUBLISHED
from tests.kit import lakes
from tests.kit.lake_cluster import BUCKETS, refused, stopped
from tests.kit.provider import entry, token, wallet
from tests.kit.worlds import made_once
from tests.kit.worlds import run_command as command

RUNS = 4
WALLETS = [wallet(number) for number in range(8)]
COMPACT = ("--keep", "0s", "--takeover-after", "1s")


@pytest.fixture
def url(lake, sync, provider, shared) -> str:
    """A lake of several runs whose files have many unused bytes."""

    def make(folder: Path) -> None:
        for run in range(RUNS):
            for number, each in enumerate(WALLETS):
                own = map(token, range(number, number + 40 * (RUNS - run)))
                more = {"metadata": {"name": "x", "description": "y" * 500}}
                provider.holds(each, *(entry(one, str(2**255 + run), **more) for one in own))
            # The reads wait for a decision in the files, and leave unused bytes.
            with pytest.MonkeyPatch.context() as variables:
                variables.setenv("NFTSYNC_REMOVAL_ROWS", "100000")
                sync(WALLETS, to=folder / "lake").says()

    return str(shutil.copytree(made_once(shared, "compact", make) / "lake", lake))


def rows(url: str, run: int = RUNS) -> list[str]:
    """Return all that a run pinned, to the character."""
    found = [
        line
        for _, connection in lakes.databases(url, run)
        for line in connection.iterdump()
        if "mirror_state" not in line and "sync_runs" not in line
    ]
    for name, table in lakes.manifest_of(url, run).tables.items():
        found += sorted(map(repr, lakes.published_rows(url, name, table.version)))
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


def test_kept_runs_are_as_before_and_others_expire(url):
    kept = [RUNS - 1, RUNS]
    before = {run: rows(url, run) for run in kept}
    expired = {str(file) for run in range(1, RUNS - 1) for file in lakes.files(url, run)}
    assert min(entry.free for entry in lakes.manifest_of(url).buckets) > 0
    third = datetime.fromisoformat(lakes.runs_of(url)[RUNS - 2].started_at)
    done = compact_lake(url, datetime.now(UTC) - third)
    assert (done.runs_kept, done.runs_let_go) == (kept, [*range(1, RUNS - 1)])
    assert {run: rows(url, run) for run in kept} == before
    assert [entry.free for entry in lakes.manifest_of(url).buckets] == [0] * BUCKETS
    assert [entry.published.file for entry in lakes.manifest_of(url).buckets] == lakes.files(url)
    assert [run.expired for run in lakes.runs_of(url)] == [True] * 2 + [False] * 2
    left = data_files(url)  # and those in which reads waited, for a day
    assert {file for run in kept for file in lakes.files(url, run)} <= left
    assert not left & expired
    assert len([*Path(url, "manifests").iterdir()]) == 3  # and the tokens
    tables = lakes.manifest_of(url).tables
    assert {name: table.files for name, table in tables.items()} == dict.fromkeys(PUBLISHED, 2)


def test_files_that_no_run_uses_go_after_a_day(url):
    folders = "balances/bucket=0", "buckets", "manifests", "steps/run-x"
    young = [aged(url, f"{folder}/young.parquet", 23) for folder in folders]
    old = [aged(url, f"{folder}/old.parquet", 25) for folder in folders]
    old.append(aged(url, f"steps/{lakes.runs_of(url)[-1].folder}/0-report", 0))  # of an ended run
    before, count = rows(url), len(data_files(url))
    outcome = command("lake", "compact", url, *COMPACT)
    outcome.says(f"Compacted {BUCKETS} buckets and 3 tables: ", " freed; 1 run kept")
    assert rows(url) == before
    assert [path.exists() for path in (*young, *old)] == [True] * 4 + [False] * 5
    waited = RUNS - 1  # runs with reads that waited; also two young files
    assert len(data_files(url)) == BUCKETS * (3 + waited) + 2 < count - 10


def test_an_interrupted_run_can_be_resumed_afterwards(url):
    ledger = Ledger(Lake(url))
    run = ledger.begin("", None, 0.0)
    names = (f"steps/{run.folder}/0-x", "buckets/0-y.db.zst", "balances/bucket=0/z.parquet")
    paths = [aged(url, name, 25) for name in names]
    before = rows(url), lakes.files(url)
    command("lake", "compact", url, *COMPACT).says()
    again = ledger.begin("", None, 0.0, resume=True)
    assert (again.run_id, again.attempt) == (run.run_id, run.attempt + 1)
    assert [path.exists() for path in paths] == [True] * 3
    assert (rows(url), lakes.files(url)) == before


def test_a_damaged_table_is_left_to_the_next_run(url, caplog):
    shutil.rmtree(Path(url, "tokens"))
    (first,) = Path(url, "manifests").glob("1-*")
    first.unlink()
    command("lake", "compact", url, *COMPACT).says()
    assert "the published table tokens was damaged or missing" in caplog.text
    assert lakes.manifest_of(url).tables == {}


def test_a_compaction_that_is_not_possible_ends_with_one_line(url, sync, tmp_path):
    ledger = Ledger(Lake(url))
    run, timeout = ledger.begin_compacting(0.0), ("--takeover-after", "1s")
    with ledger.heartbeat(run, 0.2):
        refused(sync(None, *timeout), 75)
    ledger.end_compacting(run)
    with ledger.heartbeat(ledger.begin("", None, 0.0), 0.2):
        refused(command("lake", "compact", url, *timeout), 75)
    assert [each.kind for each in lakes.runs_of(url)[1:]] == ["sync"] * RUNS
    refused(command("lake", "compact", url, "--keep", "soon"), 2)
    refused(command("lake", "compact", "none"), 1)
    assert not Path("none").exists()
    create_lake(new := Lake(str(tmp_path / "new")))
    Ledger(new).begin("", 1, 0.0)
    refused(command("lake", "compact", new.url), 2)


@pytest.mark.parametrize("changes", [10, 45])
def test_wherever_it_is_killed_the_last_run_is_whole_and_the_next_one_ends(url, changes):
    before, size, words = rows(url), len(data_files(url)), ("lake", "compact", url, *COMPACT)
    assert stopped(Path(url), signal.SIGKILL, changes, "", *words) in {0, -signal.SIGKILL}
    assert rows(url) == before
    for run in lakes.runs_of(url):
        assert run.manifest is None or rows(url, run.run_id)
    command(*words).says()
    assert rows(url) == before
    assert len(data_files(url)) < size
    assert [run.expired for run in lakes.runs_of(url)] == [True] * (RUNS - 1) + [False]
