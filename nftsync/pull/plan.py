"""Plan of a sync run: its wallets and tokens, and the run itself."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from nftsync.errors import InputError
from nftsync.pull.guard import RemovalLimits
from nftsync.pull.reads import TokenTask, WalletTask
from nftsync.store import runs
from nftsync.store.contracts import names_that_differ, store_file_names
from nftsync.store.database import over_keys
from nftsync.store.hidden import Reasons, store_hidden_file
from nftsync.store.mirror import Mirror, Transaction
from nftsync.store.wallets import (
    WalletLine,
    has_all_tracked,
    numbers_of,
    register,
    tracked_numbers,
    wallets_to_read,
)
from nftsync.times import format_time, now

_Row = TypeVar("_Row")


#: Tokens per query.
_BATCH = 2_000
#: Wallets or names per transaction, for about 15 ms; more would delay the inbox.
_REGISTERED_AT_ONCE = 2_000


class SyncRequest(NamedTuple):
    """Options of a sync; see `nftsync.sync`.

    `limits` apply unless removals are allowed. `collections` maps addresses to names, and `hidden`
    the entries of the hidden file to reasons; None: unchanged.
    """

    wallets: Sequence[WalletLine] | None = None
    tokens: bool = False
    older_than: timedelta | None = None
    resume: bool = False
    allow_removals: bool = False
    limits: RemovalLimits = RemovalLimits()
    collections: Mapping[str, str] | None = None
    hidden: Reasons | None = None


class NoWallets(InputError):
    """No wallets to read."""

    def __init__(self) -> None:
        super().__init__(
            "no wallets to read. Name wallets, use --wallets-file, or add wallets with "
            "`nftsync wallets add`"
        )


def begin(mirror: Mirror, request: SyncRequest) -> runs.Run:
    """Start or resume a run; the caller holds the sync lock."""
    if request.collections is not None:
        name_collections(mirror, request.collections)
    with mirror.transaction() as transaction:
        connection = transaction.connection
        if request.hidden is not None:
            store_hidden_file(connection, request.hidden, transaction.observed_at)
        cut_off = runs.find_cut_off_run(connection)
        if request.resume and cut_off is not None:
            run, followed = cut_off
            unread = sum(1 for _ in unread_wallets(connection, run))
            # If later runs have read everything, there is nothing to resume.
            if not followed or unread or (run.with_tokens and unread_tokens(connection, run)[0]):
                counts, read = run.counts, len(run.plan) - unread
                counts.wallets_ok = read
                counts.wallets_unchanged = min(counts.wallets_unchanged, read)
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
        raise NoWallets
    return plan


def register_all(mirror: Mirror, wallets: Sequence[WalletLine]) -> None:
    _in_batches(mirror, wallets, lambda t, some: register(t.connection, some, t.observed_at))


def name_collections(mirror: Mirror, names: Mapping[str, str]) -> None:
    differing = names_that_differ(mirror.connection, names)
    _in_batches(mirror, differing, lambda t, some: store_file_names(t.connection, some))


def _in_batches(
    mirror: Mirror, rows: Sequence[_Row], store: Callable[[Transaction, Sequence[_Row]], object]
) -> None:
    for start in range(0, len(rows), _REGISTERED_AT_ONCE):
        with mirror.transaction() as transaction:
            store(transaction, rows[start : start + _REGISTERED_AT_ONCE])


def unread_wallets(connection: sqlite3.Connection, run: runs.Run) -> Iterator[WalletTask]:
    """Yield a run's wallets without a successful read since it started."""
    for wallet in wallets_to_read(connection, run.plan):
        if wallet.sequence < run.first_sequence or wallet.status != "ok":
            yield WalletTask(wallet.wallet_id, wallet.etag, wallet.digest)


def unread_tokens(connection: sqlite3.Connection, run: runs.Run) -> tuple[int, Iterator[TokenTask]]:
    """Return the number and the tasks of tokens that a run has yet to read by id."""
    rows = over_keys(
        connection,
        "SELECT DISTINCT b.token_no FROM json_each(?1) k"
        " JOIN balance_rows b ON b.wallet_no = k.value LEFT JOIN token_sources s USING (token_no)"
        " WHERE coalesce(s.detail_sequence, 0) < ?2 ORDER BY b.token_no",
        run.plan,
        run.first_sequence,
    )
    numbers = array("q", (row[0] for row in rows))
    query = "SELECT t.token_id FROM json_each(?) k JOIN tokens t ON t.token_no = k.value"
    steps = (numbers[start : start + _BATCH] for start in range(0, len(numbers), _BATCH))
    pages = (over_keys(connection, query, step).fetchall() for step in steps)
    return len(numbers), (TokenTask(row[0]) for rows in pages for row in rows)
