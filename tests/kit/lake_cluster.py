"""Clusters of processes, commands, and the content of a lake, also beside a database's."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from bisect import bisect
from collections import Counter
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
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.manifest import Manifest
from nftsync.lake.pinned import pinned
from nftsync.lake.storage import Lake
from nftsync.records import CONTENT_COLUMNS
from nftsync.store.catalog import TABLES
from nftsync.store.database import named_rows
from nftsync.store.rules import check_rules
from nftsync.times import now
from tests.kit.processes import start_process
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome

#: Waiting processes need little processor time.
_QUIET = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
}
Rows = list[dict[str, Any]]
#: Amounts by wallet and token.
Amounts = dict[tuple[str, str], str]


def environment() -> dict[str, str]:
    """Return this machine's variables without settings of nftsync."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NFTSYNC_") and not name.lower().endswith("_proxy")
    }


class Cluster:
    """A `dask scheduler` and its workers; `variables` are in the environment of new workers."""

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


def start(*words: object, folder: Path, variables: Mapping[str, str] = {}) -> subprocess.Popen[str]:
    """Start a command of nftsync as a process, in a session of its own."""
    return start_process(
        [sys.executable, "-m", "nftsync", *map(str, words), "--json"],
        cwd=folder,
        env=environment() | dict(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> Outcome:
    """Wait for a process, and return its exit code and output."""
    out, err = process.communicate(timeout=PATIENCE)
    return Outcome(process.returncode, out, err)


def command(*words: object) -> Outcome:
    """Run a command of nftsync in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run_command([*map(str, words)])
        except SystemExit as exit_:
            texts = (stream.buffer.getvalue().decode() for stream in (out, err))
            return Outcome(int(exit_.code or 0), *texts)
    raise AssertionError("a command ends with a code")


#: Python runs this file first; it moves the clock and the uptime of nftsync.
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
    """Return variables that set a process's clock ahead by hours, and its uptime by days."""
    code = folder / f"ahead-{hours}-{days}" / "sitecustomize.py"
    code.parent.mkdir(exist_ok=True)
    code.write_text(_SHIFTED.format(hours, days))
    return {"PYTHONPATH": str(code.parent)}


# The content of a lake ----------------------------------------------------------------------------


def manifest_of(lake: Path | str, run: int | None = None) -> Manifest:
    """Return the manifest of a finished run, by default the last."""
    return pinned(lake, run).manifest


def files(lake: Path | str, run: int | None = None) -> list[str | None]:
    """Return the names of the files of all buckets."""
    return [entry.file.name if entry.file else None for entry in manifest_of(lake, run).buckets]


def runs_of(lake: Path | str) -> list[LakeRun]:
    """Return the runs in the ledger of a lake."""
    return Ledger(Lake(str(lake))).runs()


def staged(lake: Path) -> int:
    """Return the number of buckets whose reads are stored, in unfinished runs."""
    return len({file.name.split("-")[0] for file in (lake / "steps").glob("*/*-*-*")})


@contextmanager
def opened(fetch: Callable[[Path], object]) -> Iterator[sqlite3.Connection]:
    """Open a database that is fetched for a block."""
    with TemporaryDirectory() as folder:
        fetch(Path(folder, "bucket.db"))
        with closing(sqlite3.connect(Path(folder, "bucket.db"))) as connection:
            yield connection


def databases(lake: Path | str, run: int | None = None) -> Iterator[tuple[int, sqlite3.Connection]]:
    """Yield the databases of all buckets, completed with the lake's data."""
    pin = pinned(lake, run)
    for bucket, entry in enumerate(pin.manifest.buckets):
        if entry.file is not None:
            with opened(partial(pin.open, bucket)) as connection:
                yield bucket, connection


def _rows(connection: sqlite3.Connection, bucket: int, name: str) -> Rows:
    found = named_rows(connection.execute(f"SELECT * FROM {name}"))
    return [{**row, "bucket": bucket} for row in found]


def rows(lake: Path | str, name: str, run: int | None = None) -> Rows:
    """Return the rows of a table or view of all buckets."""
    return [row for bucket, own in databases(lake, run) for row in _rows(own, bucket, name)]


def held(lake: Path | str, run: int | None = None) -> Amounts:
    """Return the amounts in a lake by wallet and token."""
    return _held(rows(lake, "balances", run))


def published(lake: Path | str) -> Amounts:
    """Return the amounts in a lake's newest published table."""
    return _held(pa.table(DeltaTable(f"{lake}/balances").scan()).to_pylist())


def played(lake: Path | str, run: int | None = None) -> Amounts:
    """Return the amounts that all changes of a lake add up to."""
    return _played(rows(lake, "balance_changes", run))


def _held(balances: Rows) -> Amounts:
    amounts = {(row["wallet_id"], row["token_id"]): row["amount"] for row in balances}
    assert len(amounts) == len(balances), "a balance is there twice"
    return amounts


def _played(changes: Rows) -> Amounts:
    amounts: Amounts = {}
    for row in sorted(changes, key=lambda row: int(row["change_id"])):
        key = row["wallet_id"], row["token_id"]
        assert amounts.pop(key, None) == row["old_amount"], (key, row)
        if row["new_amount"] is not None:
            amounts[key] = row["new_amount"]
    return amounts


#: Tables, with the column that is unique in a lake.
_UNIQUE = {"wallets": "wallet_id", "balance_changes": "change_id", "wallet_states": "state_id"}
_UNIQUE |= {"token_changes": "change_id"}
#: Facts about a database in the manifest.
_FACTS = ("rows", "change", "state", "token_change", "changed_at", "holdings", "freshness")
#: Data of the ledger and of unfinished runs, which no bucket file has.
_NOT_STORED = (
    *("sync_runs", "contracts", "leases", "partial_spans WHERE ended_at > '9999'"),
    "sqlite_schema WHERE name = 'waiting_reads'",
    "mirror_state WHERE sequence_offset <> 0",
)


def check_lake(lake: Path | str, run: int | None = None) -> None:
    """Check the invariants of a pinned run: of each database, and over all buckets."""
    manifest = manifest_of(lake, run)
    found: dict[str, Rows] = {name: [] for name in (*_UNIQUE, "balances")}
    for bucket, connection in databases(lake, run):
        entry = manifest.buckets[bucket]
        for check in ("integrity_check", "foreign_key_check"):
            assert connection.execute(f"PRAGMA {check}").fetchall() in ([("ok",)], []), bucket
        facts = facts_of(connection)
        for name in _FACTS:
            assert getattr(facts, name) == getattr(entry, name), (bucket, name)
        for here, there in zip(facts.removals, entry.removals, strict=True):
            names = {name: there[name] for name in ("collection", "nft")}  # the lake adds names
            assert here | names == there
        assert facts.losses <= entry.losses  # earlier losses may have been approved since
        for name, of_lake in found.items():
            of_lake += _rows(connection, bucket, name)
        assert entry.file is not None
        with opened(partial(Lake(str(lake)).fetch, entry.file)) as stored:
            for source in _NOT_STORED:
                assert stored.execute(f"SELECT count(*) FROM {source}").fetchone() == (0,), source
    for row in found["wallets"]:
        assert row["bucket"] == bucket_of(row["wallet_id"], len(manifest.buckets))
    for name, key in _UNIQUE.items():
        assert len({row[key] for row in found[name]}) == len(found[name]), name
    assert _played(found["balance_changes"]) == _held(found["balances"])
    for name in ("change", "state", "token_change", "changed_at"):
        of_buckets = [getattr(entry, name) for entry in manifest.buckets]
        assert getattr(manifest, name) >= max(of_buckets), name
    assert manifest.sequence >= max((row["sequence"] for row in found["wallets"]), default=0)
    for name, table in manifest.tables.items():
        published = pa.table(DeltaTable(f"{lake}/{name}", version=table.version).scan())
        columns = [*TABLES[name].columns, "bucket"]
        expected = [[row[column] for column in columns] for row in rows(lake, name, run)]
        shown = [[row[column] for column in columns] for row in published.to_pylist()]
        assert sorted(shown, key=repr) == sorted(expected, key=repr), name


# A lake beside a database -------------------------------------------------------------------------

#: Queries with equal results in a lake's export and a database; `at` gives a time's round.
_TABLES = {
    "wallets": "SELECT wallet_id, label, wallet_group, tracked, status, error, at(first_seen_at)"
    " FROM wallets",
    "balances": "SELECT wallet_id, token_id, amount, at(held_since), at(b.first_seen_at),"
    " at(b.updated_at) FROM balance_rows b JOIN wallets USING (wallet_no)"
    " JOIN tokens USING (token_no)",
    "tokens": f"SELECT token_id, {', '.join(CONTENT_COLUMNS)}, at(first_seen_at) FROM tokens",
    "balance_changes": "SELECT wallet_id, token_id, old_amount, new_amount, baseline,"
    " at(observed_at) FROM balance_changes",
    "wallet_states": "SELECT wallet_id, reads, s.body_sha256, at(observed_at)"
    " FROM wallet_state_rows s JOIN wallets USING (wallet_no)",
    "contracts": "SELECT contract, guessed_name FROM contracts",
    "removals": "SELECT coalesce(wallet_id, ''), token_id, old_amount, new_amount, emptied, held,"
    " new_name, at(observed_at) FROM removal_rows LEFT JOIN wallets USING (wallet_no)"
    " JOIN tokens USING (token_no)",
}


#: What the results of a lake and a database do not have in common.
_OWN = {"seconds", "run_id", "retries"}


class Pair:
    """A lake and a database, which the same commands change from the same provider.

    Attributes:
        began: the times at which the commands began; they divide time into rounds.
    """

    def __init__(self, folder: Path, url: str, scheduler: str, lake: str | None = None) -> None:
        self.lake, self.database, self.copy = (
            lake or str(folder / "lake"),
            *(folder / name for name in ("same.db", "copy.db")),
        )
        self.began: list[str] = []
        self._kept: set[str] = set()
        self._lines = folder / "wallets.csv"
        self._scheduler, self._url = ("--scheduler", scheduler), ("--base-url", url)

    def sync(
        self, lines: Sequence[str], *more: object, buckets: int = 2, edited: int | None = None
    ) -> Any:
        """Sync both from lines `wallet_id,label,group`; compare and return the result.

        With a number of `edited` tokens, the counts of unchanged wallets and changed tokens may
        differ.
        """
        self._lines.write_text("\n".join(["wallet_id,label,group", *lines]))
        new = () if self.began else ("--buckets", buckets)
        words = ("lake", "sync", self.lake, *new, *self._scheduler)
        options = ("--wallets-file", self._lines, "--retries", 1, "--json", *more)
        results = self._run(words, ("sync",), *self._url, *options)
        lake, database = ({k: v for k, v in x.items() if k not in _OWN} for x in results)
        for result in (lake, database):
            result["failures"] = sorted(map(str, result["failures"]))
        if edited is not None:
            unchanged = [result["wallets"].pop("unchanged") for result in (lake, database)]
            assert abs(unchanged[0] - unchanged[1]) <= edited, unchanged
            del lake["tokens"]["changed"], database["tokens"]["changed"]
        assert lake == database, (lake, database)
        return results[0]

    def sync_lake(self, *more: object) -> Outcome:
        """Sync the lake alone."""
        return command("lake", "sync", self.lake, *self._scheduler, *self._url, *more)

    def accept(self, *words: object) -> tuple[Any, Any]:
        """Approve removals in both."""
        lake = ("lake", "removals", "accept", self.lake, *self._scheduler)
        return self._run(lake, ("removals", "accept"), "--yes", "--json", *words)

    def _run(
        self, lake: tuple[object, ...], database: tuple[object, ...], *more: object
    ) -> tuple[Any, Any]:
        self.began.append(now())
        outcomes = command(*lake, *more), command(*database, "-d", self.database, *more)
        assert outcomes[0].code == outcomes[1].code <= 1, outcomes
        return outcomes[0].json, outcomes[1].json

    def removals(self) -> Rows:
        """Return the held removals, which are the same in both but for names of wallets."""
        own, found = {"observed_at", "run_id", "webhook_id", "wallet"}, []
        names = {"name", "collection", "nft"}
        for words in (("lake", "removals", self.lake), ("removals", "-d", self.database)):
            plain: Rows = []
            for row in command(*words, "--json").json:
                differ = own | (names if row["contract_address"] in self._kept else set())
                plain.append({k: v for k, v in row.items() if k not in differ})
            found.append(sorted(plain, key=repr))
        assert found[0] == found[1]
        return found[0]

    def compare(self) -> None:
        """Compare all tables, and check the invariants of the lake."""
        self.copy.unlink(missing_ok=True)
        command("lake", "export", self.lake, self.copy).says()
        for name, query in _TABLES.items():
            lake, database = (Counter(self.query(x, query)) for x in (self.copy, self.database))
            if name == "tokens":
                self._kept = self._leave_out_kept_names(lake, database)
            if name == "contracts":  # their names are guessed from names of tokens
                for found in (lake, database):
                    for row in [row for row in found if row[0] in self._kept]:
                        del found[row]
            assert lake == database, (name, lake - database, database - lake)
        broken = [rule for rule in check_rules(self.copy, now()) if rule.broken]
        assert not broken, broken
        check_lake(self.lake)

    def _leave_out_kept_names(self, lake: Counter[Any], database: Counter[Any]) -> set[str]:
        """Leave out tokens that lost their name while they moved; return their contracts.

        A row without metadata never replaces one of another bucket, so the lake keeps the name.
        """
        nameless = {row["token_id"] for row in rows(self.lake, "tokens") if row["name"] is None}
        name, contract = (1 + CONTENT_COLUMNS.index(x) for x in ("name", "contract_address"))
        contracts = set()
        for row in database - lake:
            kept = [other for other in lake - database if other[0] == row[0]]
            if row[0] in nameless and row[name] is None and kept:
                before = f"SELECT before ->> 'name' FROM token_changes WHERE token_id = '{row[0]}'"
                assert (kept[0][name],) in self.query(self.database, before), kept
                del database[row], lake[kept[0]]
                contracts.add(str(row[contract]))
        return contracts

    def query(self, path: Path, query: str) -> list[tuple[Any, ...]]:
        """Query a database; `at` gives the round of a time."""

        def at(time: str | None) -> int | None:
            return None if time is None else bisect(self.began, time)

        with closing(sqlite3.connect(path)) as connection:
            connection.create_function("at", 1, at)
            return connection.execute(query).fetchall()
