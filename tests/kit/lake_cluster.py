"""A cluster of processes, and what a lake says, at the versions that its last run pinned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nftsync.lake.ledger import Ledger
from nftsync.lake.rows import TABLES
from nftsync.lake.storage import Lake
from tests.kit.processes import start_process
from tests.kit.waiting import wait_until

_DASK = [sys.executable, "-m", "dask"]
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


def dask(
    *words: str, folder: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A `dask` command as a process of its own, which logs into `dask.log`."""
    with Path(folder, "dask.log").open("ab") as log:
        return subprocess.Popen(
            [*_DASK, *words],
            cwd=folder,
            env={**environment(), **_QUIET, **(variables or {})},
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C is not for them
        )


class Cluster:
    """A `dask scheduler` and workers, as processes that are started by command.

    Attributes:
        variables: what workers have in their environment beside what all processes have.
    """

    def __init__(
        self, folder: Path, workers: int, variables: Mapping[str, str] | None = None
    ) -> None:
        self._folder, self._file = folder, folder / "scheduler.json"
        self.variables = variables or {}
        self.scheduler = self._start(
            *("scheduler", "--port", "0", "--host", "127.0.0.1", "--no-dashboard"),
            *("--scheduler-file", str(self._file)),
        )
        wait_until(lambda: self._file.exists() and self._file.read_text().endswith("}"))
        self.address: str = json.loads(self._file.read_text())["address"]
        self.workers = [self.start_worker() for _ in range(workers)]

    def start_worker(self, *options: str, scheduler: str | None = None) -> subprocess.Popen[bytes]:
        where = ("--scheduler-file", str(self._file)) if scheduler is None else (scheduler,)
        return self._start(
            *("worker", *where, "--nthreads", "1", "--no-nanny"),
            *("--no-dashboard", "--local-directory", str(self._folder)),
            *options,
            variables=self.variables,
        )

    def _start(
        self, *words: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        return dask(*words, folder=self._folder, variables=variables)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@contextmanager
def cluster_of(
    folder: Path, workers: int, variables: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A cluster for a block."""
    cluster = Cluster(folder, workers, variables)
    try:
        yield cluster
    finally:
        cluster.close()


def driver(
    *arguments: object,
    folder: Path,
    variables: Mapping[str, str] | None = None,
    command: Sequence[str] = ("lake", "sync"),
) -> subprocess.Popen[str]:
    """`nftsync lake sync`, or another command, as a process of its own."""
    return start_process(
        [sys.executable, "-m", "nftsync", *command, *map(str, arguments), "--json"],
        cwd=folder,
        env={**environment(), **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


# What a lake says ---------------------------------------------------------------------------------


def versions(lake: Path | str) -> dict[str, int]:
    """What its last finished run pinned."""
    return Ledger(Lake(str(lake))).finished().versions or {}


def staged(lake: Path, run_id: int = 1) -> int:
    """How many buckets have handed over what they read."""
    folders = [run.folder for run in Ledger(Lake(str(lake))).runs() if run.run_id == run_id]
    files = [file for folder in folders for file in (lake / "steps" / folder).glob("report-*")]
    return len({file.name.split("-")[1] for file in files if "#" not in file.name})


def rows(lake: Path | str, name: str, pinned: Mapping[str, int] | None = None) -> Rows:
    """The rows of a table, as the last finished run pinned it."""
    batches = Lake(str(lake)).stored(name, pinned or versions(lake))
    return [row for batch in batches for row in batch.to_pylist()]


def held(lake: Path | str, pinned: Mapping[str, int] | None = None) -> dict[tuple[str, str], str]:
    """What it lists."""
    found = rows(lake, "balances", pinned)
    amounts = {(row["wallet_id"], row["token_id"]): row["amount"] for row in found}
    assert len(amounts) == len(found), "a balance is there twice"
    return amounts


def played(lake: Path | str, pinned: Mapping[str, int] | None = None) -> dict[tuple[str, str], str]:
    """Its change log, played from the start."""
    found: dict[tuple[str, str], str] = {}
    changes = sorted(rows(lake, "balance_changes", pinned), key=lambda row: row["change_id"])
    assert len({row["change_id"] for row in changes}) == len(changes), "a number is there twice"
    for row in changes:
        key = row["wallet_id"], row["token_id"]
        assert found.pop(key, None) == row["old_amount"], (key, row)
        if row["new_amount"] is not None:
            found[key] = row["new_amount"]
    return found


_KEYS = {
    "wallets": ("wallet_id",),
    "known_tokens": ("bucket", "token_id"),
    "balances": ("wallet_id", "token_id"),
    "removals": ("wallet_id", "token_id"),
    "balance_changes": ("change_id",),
    "present_states": ("wallet_id",),
    "past_states": ("state_id",),
    "tokens": ("token_id",),
    "token_changes": ("change_id",),
    "contracts": ("contract",),
}
_BUCKETS_OWN = {"bucket", "ticket", "changed_ticket"}


def check_lake(lake: Path | str) -> None:
    """What holds of each pinned state: each row once, and what hangs together does."""
    pinned = versions(lake)
    found = {name: rows(lake, name, pinned) for name in TABLES}
    for name, key in _KEYS.items():
        keys = [tuple(row[column] for column in key) for row in found[name]]
        assert len(set(keys)) == len(keys), name
    assert played(lake, pinned) == held(lake, pinned)
    tokens = {row["token_id"]: content_of(row) for row in found["tokens"]}
    for row in found["known_tokens"]:
        assert content_of(row) == tokens[row["token_id"]]
    known = {(row["bucket"], row["token_id"]) for row in found["known_tokens"]}
    assert known >= {(row["bucket"], row["token_id"]) for row in found["balances"]}
    states = {row["wallet_id"]: row["state_id"] for row in found["present_states"]}
    assert states == {
        row["wallet_id"]: row["state_id"] for row in found["wallets"] if row["state_id"]
    }


def content_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of a token says, but for what is a bucket's own matter."""
    return {name: value for name, value in row.items() if name not in _BUCKETS_OWN}
