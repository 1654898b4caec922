"""A cluster of processes, and what the bucket files say that a run of a lake pinned."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from nftsync.cli import main as run_command
from nftsync.lake.bucket import bucket_of, facts_of
from nftsync.lake.manifest import Manifest
from nftsync.lake.pinned import pinned
from nftsync.lake.storage import Lake
from nftsync.store.catalog import TABLES
from nftsync.store.database import named_rows
from tests.kit.processes import start_process
from tests.kit.waiting import wait_until
from tests.kit.worlds import Outcome

#: A process that waits looks at itself once a second, and not fifty times.
_QUIET = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
}
Rows = list[dict[str, Any]]


def environment() -> dict[str, str]:
    """No settings of this machine."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NFTSYNC_") and not name.lower().endswith("_proxy")
    }


class Cluster:
    """A `dask scheduler` and workers, as processes that are started by command.

    Attributes:
        variables: what workers have in their environment beside what all processes have.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder, self._file = folder, folder / "scheduler.json"
        self.variables = variables
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(
            *("scheduler", "--port", "0", "--host", "127.0.0.1", "--no-dashboard"),
            *("--scheduler-file", str(self._file)),
        )
        wait_until(lambda: self._file.exists() and self._file.read_text().endswith("}"))
        self.address: str = json.loads(self._file.read_text())["address"]

    def start_worker(self, *options: str, scheduler: str | None = None) -> subprocess.Popen[bytes]:
        where = ("--scheduler-file", str(self._file)) if scheduler is None else (scheduler,)
        return self._start(
            *("worker", *where, "--nthreads", "1", "--no-nanny"),
            *("--no-dashboard", "--local-directory", str(self._folder)),
            *options,
            variables=self.variables,
        )

    def _start(self, *words: str, variables: Mapping[str, str] = {}) -> subprocess.Popen[bytes]:
        with Path(self._folder, "dask.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *words],
                cwd=self._folder,
                env={**environment(), **_QUIET, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is not for them
            )


@contextmanager
def cluster_of(folder: Path, workers: int, variables: Mapping[str, str] = {}) -> Iterator[Cluster]:
    """A cluster for a block."""
    cluster = Cluster(folder, variables)
    try:
        cluster.workers += [cluster.start_worker() for _ in range(workers)]
        yield cluster
    finally:
        for process in (*cluster.workers, cluster.scheduler):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


def driver(
    *arguments: object,
    folder: Path,
    variables: Mapping[str, str] = {},
    command: Sequence[str] = ("lake", "sync"),
) -> subprocess.Popen[str]:
    """`nftsync lake sync`, or another command, as a process of its own."""
    return start_process(
        [sys.executable, "-m", "nftsync", *command, *map(str, arguments), "--json"],
        cwd=folder,
        env=environment() | dict(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def told(*words: object) -> Outcome:
    """A command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run_command([*map(str, words)])
        except SystemExit as ended:
            texts = (stream.buffer.getvalue().decode() for stream in (out, err))
            return Outcome(int(ended.code or 0), *texts)
    raise AssertionError("a command ends with a code")


#: Python runs this file first: nftsync then sees another clock, and another uptime.
_SHIFTED = """
import datetime, time, nftsync.times
hours, days = {}, {}
time_ns, monotonic_ns = time.time_ns, time.monotonic_ns
class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(hours=hours)
nftsync.times.datetime = Shifted
time.time_ns = lambda: time_ns() + hours * 3_600 * 10**9
time.monotonic_ns = lambda: monotonic_ns() + days * 86_400 * 10**9
"""


def shifted_clock(folder: Path, hours: int, days: int = 0) -> dict[str, str]:
    """Variables of a process whose clock is ahead by hours, and whose uptime by days."""
    code = folder / f"ahead-{hours}-{days}" / "sitecustomize.py"
    code.parent.mkdir(exist_ok=True)
    code.write_text(_SHIFTED.format(hours, days))
    return {"PYTHONPATH": str(code.parent)}


# What a lake says ---------------------------------------------------------------------------------


def manifest_of(lake: Path | str, run: int | None = None) -> Manifest:
    """What a finished run pinned, by default the last."""
    return pinned(lake, run).manifest


def files(lake: Path | str, run: int | None = None) -> list[str | None]:
    """The files of all buckets."""
    return [entry.file.name if entry.file else None for entry in manifest_of(lake, run).buckets]


def staged(lake: Path) -> int:
    """How many buckets have stored what they read, in runs that have not ended."""
    return len({file.name.split("-")[0] for file in (lake / "steps").glob("*/*-*-*")})


@contextmanager
def opened(fetch: Callable[[Path], object]) -> Iterator[sqlite3.Connection]:
    """A database that is fetched for a block."""
    with TemporaryDirectory() as folder:
        fetch(Path(folder, "bucket.db"))
        with closing(sqlite3.connect(Path(folder, "bucket.db"))) as connection:
            yield connection


def databases(lake: Path | str, run: int | None = None) -> Iterator[tuple[int, sqlite3.Connection]]:
    """The databases of all buckets, complete with what the lake knows of them."""
    pin = pinned(lake, run)
    for bucket, entry in enumerate(pin.manifest.buckets):
        if entry.file is not None:
            with opened(partial(pin.open, bucket)) as connection:
                yield bucket, connection


_REMOVALS = (
    "(SELECT w.wallet_id, t.token_id, r.* FROM removal_rows r JOIN tokens t USING (token_no)"
    " LEFT JOIN wallets w USING (wallet_no) WHERE held)"
)


def _all_rows(connection: sqlite3.Connection, bucket: int, name: str) -> Rows:
    source = _REMOVALS if name == "removals" else name
    found = named_rows(connection.execute(f"SELECT * FROM {source}"))
    return [{**row, "bucket": bucket} for row in found]


def rows(lake: Path | str, name: str, run: int | None = None) -> Rows:
    """The rows of a table or view of all buckets."""
    found = databases(lake, run)
    return [row for bucket, own in found for row in _all_rows(own, bucket, name)]


def held(lake: Path | str, run: int | None = None) -> dict[tuple[str, str], str]:
    """What it lists."""
    return _held(rows(lake, "balances", run))


def published(lake: Path | str) -> dict[tuple[str, str], str]:
    """What its published table lists."""
    return _held(pa.table(DeltaTable(f"{lake}/balances").scan()).to_pylist())


def played(lake: Path | str, run: int | None = None) -> dict[tuple[str, str], str]:
    """Its change log, played from the start."""
    return _played(rows(lake, "balance_changes", run))


def _held(balances: Rows) -> dict[tuple[str, str], str]:
    amounts = {(row["wallet_id"], row["token_id"]): row["amount"] for row in balances}
    assert len(amounts) == len(balances), "a balance is there twice"
    return amounts


def _played(changes: Rows) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    assert len({row["change_id"] for row in changes}) == len(changes), "an id is there twice"
    for row in sorted(changes, key=lambda row: int(row["change_id"])):
        key = row["wallet_id"], row["token_id"]
        assert found.pop(key, None) == row["old_amount"], (key, row)
        if row["new_amount"] is not None:
            found[key] = row["new_amount"]
    return found


#: Tables, with the column whose values are there once in a lake.
_CHECKED = {"wallets": "wallet_id", "balance_changes": "change_id", "wallet_states": "state_id"}
_CHECKED |= {"token_changes": "change_id"}
#: What the manifest says of a database.
_FACTS = ("rows", "change", "state", "token_change", "changed_at", "holdings", "freshness")
#: What only the ledger knows, and what belongs to runs that have not ended.
_NOT_STORED = (
    *("sync_runs", "contracts", "leases", "partial_spans WHERE ended_at > '9999'"),
    "sqlite_schema WHERE name = 'waiting_reads'",
    "mirror_state WHERE sequence_offset <> 0",
)


def check_lake(lake: Path | str, run: int | None = None) -> None:
    """What holds of each pinned state: of each database, and over all buckets."""
    manifest = manifest_of(lake, run)
    found: dict[str, Rows] = {name: [] for name in (*_CHECKED, "balances")}
    for bucket, connection in databases(lake, run):
        entry = manifest.buckets[bucket]
        for check in ("integrity_check", "foreign_key_check"):
            assert connection.execute(f"PRAGMA {check}").fetchall() in ([("ok",)], []), bucket
        facts = facts_of(connection)
        for name in _FACTS:
            assert getattr(facts, name) == getattr(entry, name), (bucket, name)
        for here, there in zip(facts.removals, entry.removals, strict=True):
            names = {name: there[name] for name in ("collection", "nft")}  # the lake's come later
            assert here | names == there
        assert facts.losses <= entry.losses  # earlier losses may have been approved since
        for name, of_lake in found.items():
            of_lake += _all_rows(connection, bucket, name)
        assert entry.file is not None
        with opened(partial(Lake(str(lake)).fetch, entry.file)) as stored:
            for source in _NOT_STORED:
                assert stored.execute(f"SELECT count(*) FROM {source}").fetchone() == (0,), source
    for row in found["wallets"]:
        assert row["bucket"] == bucket_of(row["wallet_id"], len(manifest.buckets))
    for name, key in _CHECKED.items():
        assert len({row[key] for row in found[name]}) == len(found[name]), name
    assert _played(found["balance_changes"]) == _held(found["balances"])
    for name in ("change", "state", "token_change", "changed_at"):
        of_buckets = [getattr(entry, name) for entry in manifest.buckets]
        assert getattr(manifest, name) >= max(of_buckets), name
    assert manifest.sequence >= max((row["sequence"] for row in found["wallets"]), default=0)
    for name, table in manifest.tables.items():
        delta = pa.table(DeltaTable(f"{lake}/{name}", version=table.version).scan())
        columns = [*TABLES[name].columns, "bucket"]
        expected = [[row[column] for column in columns] for row in rows(lake, name, run)]
        shown = [[row[column] for column in columns] for row in delta.to_pylist()]
        assert sorted(shown, key=repr) == sorted(expected, key=repr), name
