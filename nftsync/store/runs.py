"""Runs (syncs and replays): plan, counts and status."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from nftsync.records import Applied, WalletRead
from nftsync.store.leases import end_all_leases
from nftsync.times import now

RunStatus: TypeAlias = Literal["running", "ok", "partial", "failed", "interrupted"]


class Counts(msgspec.Struct):
    """A run's counts, named like the columns of `sync_runs`."""

    wallets_ok: int = 0
    wallets_unchanged: int = 0
    wallets_failed: int = 0
    tokens_added: int = 0
    tokens_changed: int = 0
    balances_added: int = 0
    balances_changed: int = 0
    balances_removed: int = 0
    requests: int = 0
    retries: int = 0
    seconds: float = 0.0

    def with_applied(self, all_applied: Iterable[Applied]) -> Counts:
        """Return these counts plus applied reads; stale reads add only requests."""
        sums = msgspec.structs.replace(self)
        for applied in all_applied:
            sums.requests += applied.read.effort.requests
            sums.retries += applied.read.effort.retries
            sums.tokens_added += applied.tokens_added
            sums.tokens_changed += applied.tokens_changed
            sums.balances_added += applied.balances_added
            sums.balances_changed += applied.balances_changed
            sums.balances_removed += applied.balances_removed
            counted = applied.is_finished and applied.result != "left out"
            if not (counted and isinstance(applied.read, WalletRead)):
                continue
            if applied.result in {"failed", "incomplete", "held"}:
                sums.wallets_failed += 1
            else:
                sums.wallets_ok += 1
                sums.wallets_unchanged += applied.changed_nothing
        return sums

    def add_unchanged(self, wallets: int) -> None:
        """Count wallets that need no read; a negative number takes some back."""
        self.wallets_ok += wallets
        self.wallets_unchanged = max(0, self.wallets_unchanged + wallets)


class Run(msgspec.Struct):
    """A run in progress: the numbers of its wallets, and the first sequence number of its reads.

    `with_tokens` also reads each held token by its id.
    """

    run_id: int
    plan: array[int]
    first_sequence: int
    with_tokens: bool
    counts: Counts


_COLUMNS = Counts.__struct_fields__


def start_run(
    connection: sqlite3.Connection,
    kind: Literal["sync", "replay"],
    first_sequence: int,
    started_at: str,
    *,
    plan: array[int] | None = None,
    with_tokens: bool = False,
    reads_all: bool = False,
) -> Run:
    """Insert a new run; a replay has no plan.

    `started_at` is before the plan was made.
    """
    stored = None if plan is None else plan.tobytes()
    run_id = connection.execute(
        "INSERT INTO sync_runs"
        " (kind, status, started_at, first_sequence, with_tokens, reads_all, plan)"
        " VALUES (?, 'running', ?, ?, ?, ?, ?)",
        (kind, started_at, first_sequence, with_tokens, reads_all, stored),
    ).lastrowid
    return Run(run_id or 0, plan or array("q"), first_sequence, with_tokens, Counts())


def reopen(connection: sqlite3.Connection, run: Run) -> None:
    connection.execute(
        "UPDATE sync_runs SET status = 'running', finished_at = NULL, error = NULL"
        " WHERE run_id = ?",
        (run.run_id,),
    )
    save_counts(connection, run.run_id, run.counts)


def last_full_sync_began(connection: sqlite3.Connection, since: str) -> str | None:
    """Return the start of the last full sync after `since` that ended `ok` or `partial`."""
    row = connection.execute(
        "SELECT started_at FROM sync_runs WHERE reads_all AND started_at > ?"
        " AND status IN ('ok', 'partial') ORDER BY started_at DESC LIMIT 1",
        (since,),
    ).fetchone()
    return None if row is None else str(row[0])


def all_read_since_webhook(connection: sqlite3.Connection, webhook_id: str) -> bool:
    """Return whether a full sync has ended that began after the webhook arrived."""
    (received_at,) = connection.execute(
        "SELECT received_at FROM webhooks WHERE webhook_id = ?", (webhook_id,)
    ).fetchone()
    return last_full_sync_began(connection, received_at) is not None


def find_cut_off_run(connection: sqlite3.Connection) -> tuple[Run, bool] | None:
    """Return the newest resumable sync, and whether a later sync exists.

    The caller holds the sync lock, so a `running` run was killed.
    """
    connection.execute(
        "UPDATE sync_runs SET status = 'interrupted' WHERE kind = 'sync' AND status = 'running'"
    )
    row = connection.execute(
        "SELECT run_id, plan, first_sequence, with_tokens,"
        " (SELECT max(run_id) FROM sync_runs WHERE kind = 'sync') > run_id,"
        f" {', '.join(_COLUMNS)} FROM sync_runs"
        " WHERE kind = 'sync' AND status IN ('interrupted', 'failed') AND plan IS NOT NULL"
        " ORDER BY run_id DESC LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    run_id, plan, first_sequence, with_tokens, followed, *counts = row
    numbers = array("q", plan)
    sums = Counts(*counts)
    sums.wallets_failed = 0  # the resumed run reads failed wallets again
    return Run(run_id, numbers, first_sequence, bool(with_tokens), sums), bool(followed)


def save_counts(connection: sqlite3.Connection, run_id: int, counts: Counts) -> None:
    """Write a run's counts, in the transaction of the counted changes."""
    assignments = ", ".join(f"{column} = ?" for column in _COLUMNS)
    connection.execute(
        f"UPDATE sync_runs SET {assignments}, wallets_total = ? WHERE run_id = ?",
        (*msgspec.structs.astuple(counts), counts.wallets_ok + counts.wallets_failed, run_id),
    )


def finish_run(
    connection: sqlite3.Connection,
    run: Run,
    status: RunStatus,
    error: str | None,
    *,
    resumable: bool = False,
    at: str | None = None,
) -> None:
    """End a run; `resumable` keeps its plan."""
    save_counts(connection, run.run_id, run.counts)
    connection.execute(
        "UPDATE sync_runs SET status = ?1, finished_at = ?2, error = ?3,"
        " plan = iif(?5, plan, NULL) WHERE run_id = ?4",
        (status, at or now(), error, run.run_id, resumable),
    )


def end_all_work(connection: sqlite3.Connection, at: str) -> None:
    """End all runs and leases in a copy, possibly of an earlier version."""
    connection.execute(
        "UPDATE sync_runs SET status = 'interrupted', finished_at = ? WHERE status = 'running'",
        (at,),
    )
    end_all_leases(connection)
