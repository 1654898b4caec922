"""Clusters of processes for lakes, what wallets hold there, and a lake beside a database."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from nftsync.lake.bucket import bucket_of
from nftsync.records import CONTENT_COLUMNS
from nftsync.store.rules import check_rules
from nftsync.times import now
from tests.kit import lakes
from tests.kit.lakes import Amounts, Rows
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.serve_process import environment
from tests.kit.waiting import wait_until
from tests.kit.worlds import Outcome
from tests.kit.worlds import run_command as command

#: The number of buckets of a lake.
BUCKETS = 2
#: Waiting processes need little processor time.
_QUIET = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
}


class Cluster:
    """A `dask scheduler`, whose address it is as text, and workers with some variables."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder, self.variables, file = folder, variables, folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        own = ("--port", "0", "--host", "127.0.0.1", "--no-dashboard")
        self.scheduler = self._start({}, "scheduler", *own, "--scheduler-file", str(file))
        wait_until(lambda: file.exists() and file.read_text().endswith("}"))
        self.address: str = json.loads(file.read_text())["address"]

    def __str__(self) -> str:
        return self.address

    def start_worker(self, *options: str, scheduler: str | None = None) -> None:
        """Start a worker of one thread; `options` replace its own."""
        own = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        words = (scheduler or self.address, *own, "--local-directory", str(self._folder))
        self.workers.append(self._start(self.variables, "worker", *words, *options))

    def kill(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """Kill a process of the cluster, by default the oldest worker."""
        process = process or self.workers[0]
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        self.workers = [worker for worker in self.workers if worker is not process]

    def _start(self, variables: Mapping[str, str], *words: str) -> subprocess.Popen[bytes]:
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
    folder.mkdir(exist_ok=True)
    cluster = Cluster(folder, variables)
    try:
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        for process in (*cluster.workers, cluster.scheduler):
            cluster.kill(process)


def sync_words(
    lake: Path | str,
    wallets: Iterable[str] | None,
    url: str,
    scheduler: object = None,
    buckets: int = BUCKETS,
) -> list[object]:
    """Return the words of a sync into a lake; write a file of the wallets, if any, beside it."""
    words = ["lake", "sync", lake, "--base-url", url, "--buckets", buckets]
    if wallets is not None:
        file = (lake.parent if isinstance(lake, Path) else Path.cwd()) / "wallets.txt"
        file.write_text("\n".join(wallets))
        words += ["--wallets-file", file]
    return words if scheduler is None else [*words, "--scheduler", scheduler]


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


#: Runs a command, and ends it by a signal after some changes of files below a folder.
_STOPPED = """
import os, sys, threading, time
lake, number, least, below, *words = sys.argv[1:]
def listed():
    return {(folder, name) for folder, _, names in os.walk(lake) for name in names
            if below in folder}
def watch():
    known, seen = listed(), 0
    while seen < int(least):
        found = listed()
        seen += len(found ^ known)
        known = found
        time.sleep(0.001)
    os.kill(os.getpid(), int(number))
threading.Thread(target=watch, daemon=True).start()
from nftsync.cli import main
main(words)
"""


def stopped(lake: Path, number: int, changes: int, below: str, *words: object) -> int:
    """Run a command until some files below a folder of a lake have changed; return its code."""
    call = [sys.executable, "-c", _STOPPED, lake, int(number), changes, below, *words]
    done = subprocess.run(
        [*map(str, call)], env=environment(), check=False, stderr=subprocess.DEVNULL
    )
    return done.returncode


def show(
    provider: Provider,
    wallets: Sequence[str],
    amount: str = "1",
    count: int = 1,
    empty: int = 0,
    **fields: Any,
) -> Amounts:
    """Let each wallet hold some tokens of its own, but the first ones none; return the amounts."""
    amounts = {}
    for number, each in enumerate(wallets):
        own = [token(count * number + place) for place in range(count if number >= empty else 0)]
        provider.holds(each, *(entry(one, amount, **fields) for one in own))
        amounts |= {(each, one): amount for one in own}
    return amounts


def path_of(wallet_id: str) -> str:
    return f"/v1/wallets/{wallet_id}/nft-balances"


def wallets_of(bucket: int, count: int) -> list[str]:
    every = [each for each in map(wallet, range(200)) if bucket_of(each, BUCKETS) == bucket]
    return every[:count]


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """Check that a command ended with one line, which has some words."""
    assert (outcome.code, outcome.err.count("\n")) == (code, 1), outcome.said
    assert [word for word in words if word not in outcome.err] == [], outcome.err
    assert len(outcome.err) < 700


def lake_of(database: Path, lake: Path, buckets: int = BUCKETS) -> str:
    command("lake", "import", database, lake, "--buckets", buckets).says()
    return str(lake)


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
_IDS = (("balance_changes", "change_id"), ("wallet_states", "state_id"))
#: What the results of a lake and a database do not have in common.
_OWN = {"seconds", "run_id", "retries"}


class Pair:
    """A lake and a database, which the same commands change from the same provider.

    Attributes:
        began: the times at which the commands began; they divide time into rounds.
    """

    def __init__(self, folder: Path, url: str, scheduler: object, lake: str | None = None) -> None:
        self.lake, self._lines = lake or str(folder / "lake"), folder / "wallets.csv"
        self.database, self.copy = folder / "same.db", folder / "copy.db"
        self.began: list[str] = []
        self._kept: set[str] = set()
        self._ids: dict[tuple[str, int], str] = {}
        self._scheduler, self._url = ("--scheduler", scheduler), ("--base-url", url)

    def sync(
        self, lines: Sequence[str], *more: object, buckets: int = 2, edited: int | None = None
    ) -> Any:
        """Sync both from lines `wallet_id,label,group`; compare and return the result.

        With a number of `edited` tokens, the counts of unchanged wallets and changed tokens may
        differ.
        """
        self._lines.write_text("\n".join(["wallet_id,label,group", *lines]))
        words = ("lake", "sync", self.lake, "--buckets", buckets, *self._scheduler)
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
        return command("lake", "sync", self.lake, *self._scheduler, *self._url, *more)

    def accept(self, *words: object) -> tuple[Any, Any]:
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
        found = lakes.check_lake(self.lake)
        ids = {(x, row[x]): row["observed_at"] for name, x in _IDS for row in found[name]}
        assert ids.items() >= self._ids.items()  # no id changes
        self._ids = ids

    def _leave_out_kept_names(self, lake: Counter[Any], database: Counter[Any]) -> set[str]:
        """Leave out tokens that lost their name while they moved; return their contracts.

        A row without metadata never replaces one of another bucket, so the lake keeps the name.
        """
        nameless = {
            row["token_id"] for row in lakes.rows(self.lake, "tokens") if row["name"] is None
        }
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
