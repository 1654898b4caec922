"""What a sync reads: the wallets it was asked for, or what is left of a run that was cut off."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from nftsync.errors import InputError
from nftsync.pull.reads import TokenTask, WalletTask
from nftsync.pull.removal_guard import RemovalLimits
from nftsync.store import runs
from nftsync.store.contracts import names_that_differ, store_file_names
from nftsync.store.database import over_keys
from nftsync.store.mirror import Mirror
from nftsync.store.wallets import (
    WalletLine,
    has_all_tracked,
    numbers_of,
    register,
    tracked_numbers,
    wallets_to_read,
)
from nftsync.times import format_time, now

#: Tokens that are looked up at once.
_STEP = 2_000
#: Wallets or names that one transaction registers; about 15 ms. More would keep the inbox waiting.
_REGISTERED_AT_ONCE = 2_000


class SyncRequest(NamedTuple):
    """What a sync is asked to do.

    Attributes:
        wallets: the wallets to read; None for all tracked ones.
        tokens: also read each token they hold by its id.
        older_than: skip wallets read since.
        resume: go on with the newest interrupted run, where there is one.
        allow_removals: take the provider's word, however much vanishes at once.
        limits: how much may vanish otherwise.
        collections: what contracts are called, by address; None leaves them as they are.
    """

    wallets: Sequence[WalletLine] | None = None
    tokens: bool = False
    older_than: timedelta | None = None
    resume: bool = False
    allow_removals: bool = False
    limits: RemovalLimits = RemovalLimits()
    collections: Mapping[str, str] | None = None


def begin(mirror: Mirror, request: SyncRequest) -> runs.Run:
    """Enter a run into the ledger, or go on with one that was cut off.

    The caller holds the sync lock.

    Raises:
        InputError: there is nothing to read.
    """
    if request.collections is not None:
        name_collections(mirror, request.collections)
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
                runs.reopen(connection, run)
                return run
    started_at = now()
    plan = _plan(mirror, request)
    reads_all = has_all_tracked(mirror.connection, plan)
    with mirror.transaction() as transaction:
        return runs.start_run(
            transaction.connection,
            "sync",
            mirror.numbers.take(),
            started_at,
            plan=plan,
            with_tokens=request.tokens,
            reads_all=reads_all,
        )


def _plan(mirror: Mirror, request: SyncRequest) -> array[int]:
    read_before = None
    if request.older_than is not None:
        read_before = format_time(datetime.now(UTC) - request.older_than)
    if request.wallets is not None:
        register_all(mirror, request.wallets)
        ids = (line.wallet_id for line in request.wallets)
        return numbers_of(mirror.connection, ids, read_before=read_before)
    plan = tracked_numbers(mirror.connection, read_before=read_before)
    if not plan and (read_before is None or not tracked_numbers(mirror.connection)):
        raise InputError(
            "no wallets to read: name some, give --wallets-file, or add them with "
            "`nftsync wallets add`"
        )
    return plan


def register_all(mirror: Mirror, wallets: Sequence[WalletLine]) -> None:
    """Make any number of wallets known and tracked, in short transactions."""
    for start in range(0, len(wallets), _REGISTERED_AT_ONCE):
        with mirror.transaction() as transaction:
            step = wallets[start : start + _REGISTERED_AT_ONCE]
            register(transaction.connection, step, now())


def name_collections(mirror: Mirror, names: Mapping[str, str]) -> None:
    """Call contracts what the file calls them, in short transactions; the others lose its names."""
    changes = names_that_differ(mirror.connection, names)
    for start in range(0, len(changes), _REGISTERED_AT_ONCE):
        with mirror.transaction() as transaction:
            store_file_names(transaction.connection, changes[start : start + _REGISTERED_AT_ONCE])


def unread_wallets(connection: sqlite3.Connection, run: runs.Run) -> Iterator[WalletTask]:
    """The wallets of a run that have not been read well since it began."""
    for wallet in wallets_to_read(connection, run.plan):
        if wallet.sequence < run.first_sequence or wallet.status != "ok":
            yield WalletTask(wallet.wallet_id, wallet.etag, wallet.digest)


def unread_tokens(connection: sqlite3.Connection, run: runs.Run) -> tuple[int, Iterator[TokenTask]]:
    """The tokens that a run's wallets hold and that have not been read by id since it began.

    Returns:
        How many, and each as a task.
    """
    rows = over_keys(
        connection,
        "SELECT DISTINCT b.token_no FROM json_each(?1) k"
        " JOIN balance_rows b ON b.wallet_no = k.value LEFT JOIN token_sources s USING (token_no)"
        " WHERE coalesce(s.detail_ticket, 0) < ?2 ORDER BY b.token_no",
        run.plan,
        run.first_sequence,
    )
    numbers = array("q", (row[0] for row in rows))
    query = "SELECT t.token_id FROM json_each(?) k JOIN tokens t ON t.token_no = k.value"
    steps = (numbers[start : start + _STEP] for start in range(0, len(numbers), _STEP))
    found = (over_keys(connection, query, step).fetchall() for step in steps)
    return len(numbers), (TokenTask(row[0]) for rows in found for row in rows)
