"""What a sync reads: the wallets it was asked for, or what is left of a run that was cut off."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from nftsync.errors import InputError
from nftsync.reads import TokenTask, WalletTask
from nftsync.store import runs
from nftsync.store.mirror import Mirror
from nftsync.store.registry import (
    WalletLine,
    numbers_of,
    register,
    tracked_numbers,
    wallets_to_read,
)
from nftsync.times import format_time, now

__all__ = ["Request", "begin", "never_read", "unread_tokens", "unread_wallets"]

_STEP = 2_000
#: Wallets registered in one transaction; about 30 ms.
_REGISTERED_AT_ONCE = 5_000


class Request(NamedTuple):
    """What a sync is asked to do.

    Attributes:
        wallets: the wallets to read; None for all tracked ones.
        tokens: also read each token they hold by its id.
        older_than: skip wallets read since.
        resume: go on with the newest interrupted run, where there is one.
        accept_empty: believe a provider that answers with empty lists only.
    """

    wallets: Sequence[WalletLine] | None = None
    tokens: bool = False
    older_than: timedelta | None = None
    resume: bool = False
    accept_empty: bool = False


def begin(mirror: Mirror, request: Request) -> runs.Run:
    """Enter a run into the ledger, or go on with one that was cut off.

    The caller holds the sync lock.

    Raises:
        InputError: there is nothing to read.
    """
    with mirror.transaction() as transaction:
        connection = transaction.connection
        cut_off = runs.find_cut_off_run(connection)
        if request.resume and cut_off is not None:
            run, followed = cut_off
            unread = sum(1 for _ in unread_wallets(connection, run))
            # A run whose objects a later one has read is over, whatever its row says.
            if not followed or unread or (run.with_tokens and unread_tokens(connection, run)[0]):
                run.counts.wallets_ok = len(run.plan) - unread
                run.counts.wallets_unchanged = min(
                    run.counts.wallets_unchanged, run.counts.wallets_ok
                )
                runs.resume_run(connection, run)
                return run
    plan = _plan(mirror, request)
    with mirror.transaction() as transaction:
        return runs.start_run(
            transaction.connection, plan, mirror.tickets.take(), with_tokens=request.tokens
        )


def _plan(mirror: Mirror, request: Request) -> array[int]:
    read_before = None
    if request.older_than is not None:
        read_before = format_time(datetime.now(UTC) - request.older_than)
    if request.wallets is not None:
        for start in range(0, len(request.wallets), _REGISTERED_AT_ONCE):
            step = request.wallets[start : start + _REGISTERED_AT_ONCE]
            with mirror.transaction() as transaction:
                register(transaction.connection, step, now())
        ids = (line.wallet_id for line in request.wallets)
        return numbers_of(mirror.connection, ids, read_before=read_before)
    plan = tracked_numbers(mirror.connection, read_before=read_before)
    if not plan and (read_before is None or not tracked_numbers(mirror.connection)):
        raise InputError(
            "no wallets to read: name some, give --wallets-file, or add them with "
            "`nftsync wallets add`"
        )
    return plan


def unread_wallets(connection: sqlite3.Connection, run: runs.Run) -> Iterator[WalletTask]:
    """The wallets of a run that have not been read well since it began."""
    for wallet in wallets_to_read(connection, run.plan):
        if wallet.ticket < run.first_ticket or wallet.status != "ok":
            yield WalletTask(wallet.wallet_id, wallet.etag, wallet.digest)


def never_read(connection: sqlite3.Connection, run: runs.Run) -> Iterator[str]:
    """The wallets of a run of which nobody has stored a read since it began, good or not."""
    for start in range(0, len(run.plan), _STEP):
        step = msgspec.json.encode(list(run.plan[start : start + _STEP])).decode()
        rows = connection.execute(
            "SELECT w.wallet_id FROM json_each(?) k JOIN wallets w ON w.wallet_no = k.value"
            " WHERE w.ticket < ?",
            (step, run.first_ticket),
        )
        yield from (row[0] for row in rows)


def unread_tokens(connection: sqlite3.Connection, run: runs.Run) -> tuple[int, Iterator[TokenTask]]:
    """The tokens that a run's wallets hold and that have not been read by id since it began.

    Returns:
        How many, and each as a task.
    """
    execute = connection.execute
    execute("CREATE TEMP TABLE IF NOT EXISTS run_wallets (wallet_no INTEGER PRIMARY KEY)")
    execute("DELETE FROM run_wallets")
    connection.executemany("INSERT INTO run_wallets VALUES (?)", ((no,) for no in run.plan))
    rows = execute(
        "SELECT DISTINCT b.token_no FROM run_wallets JOIN balance_rows b USING (wallet_no)"
        " LEFT JOIN token_sources s USING (token_no)"
        " WHERE coalesce(s.detail_ticket, 0) < ? ORDER BY b.token_no",
        (run.first_ticket,),
    )
    numbers = array("q", (row[0] for row in rows))
    return len(numbers), _token_tasks(connection, numbers)


def _token_tasks(connection: sqlite3.Connection, numbers: array[int]) -> Iterator[TokenTask]:
    for start in range(0, len(numbers), _STEP):
        step = msgspec.json.encode(list(numbers[start : start + _STEP])).decode()
        rows = connection.execute(
            "SELECT t.token_id FROM json_each(?) k JOIN tokens t ON t.token_no = k.value", (step,)
        ).fetchall()
        yield from (TokenTask(row[0]) for row in rows)
