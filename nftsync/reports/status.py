"""Status of a database, and checks of everything that nftsync depends on."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from nftsync.alerts import Forward, WatchRule
from nftsync.errors import NftsyncError, NoConnection, ProxyFailed, ReadError
from nftsync.exact_sum import NOT_EXACT
from nftsync.provider.addresses import is_loopback
from nftsync.provider.client import Client, finish
from nftsync.provider.webhooks import secret_problem
from nftsync.records import CONTENT_COLUMNS, Effort
from nftsync.store.catalog import TABLES
from nftsync.store.cursors import rule_problems
from nftsync.store.database import (
    BUSY_SECONDS,
    connect_existing,
    connect_reader,
    damage,
    explained,
    is_syncing,
    named_rows,
    refuse_non_file,
)
from nftsync.store.faults import Unreadable, unreadable_parts
from nftsync.store.history import ahead_of
from nftsync.store.outbox import stopped_destinations
from nftsync.store.queues import INBOX, OUTBOX, count_by_state
from nftsync.store.removals import Held, held
from nftsync.store.schema import check_schema, is_earlier, reading
from nftsync.store.tokens import fields_of, path_of
from nftsync.times import age_seconds, now
from nftsync.version import __version__


class Status(msgspec.Struct, kw_only=True):
    """Status of a database, as `nftsync status --json` prints it.

    Attributes:
        wallets: number of wallets by status, including untracked ones.
        outbox: number of messages by state; empty without any.
        stopped_destinations: destinations that answered 410, each with the answer.
        rule_problems: rules that are paused or late, each with the reason.
        unusable_amounts: number of balances with an amount that is not 1 to 100 digits.
        oldest_wallet_age_s: seconds since the stalest tracked wallet was read; None: never, or none
            is tracked.
        warning: a problem with a clock.
        unreadable: unreadable parts of tokens, whose known values stay.
        always_changing: the field behind most changes, if nearly all tokens changed in each of the
            last three syncs.
    """

    version: str
    database: str
    wallets: dict[str, int]
    tokens: int
    balances: int
    unusable_amounts: int
    changes: int
    last_sync: dict[str, Any] | None
    last_replay: dict[str, Any] | None
    oldest_wallet_age_s: float | None
    inbox: dict[str, int]
    oldest_pending_age_s: float | None
    removals_held: Held
    outbox: dict[str, int]
    oldest_message_age_s: float | None
    stopped_destinations: dict[str, str]
    rule_problems: dict[str, str] = {}
    warning: str | None = None
    unreadable: list[Unreadable]
    always_changing: str | None


class StalestWallet(NamedTuple):
    """Tracked wallet with the oldest complete read; `age_s` None means never read."""

    wallet_id: str
    label: str | None
    age_s: float | None


def read_status(
    path: Path, at: str, rules: Sequence[WatchRule | Forward] = ()
) -> tuple[Status, StalestWallet | None]:
    """Return the status of a database and its stalest tracked wallet, with ages at `at`."""
    with reading(path) as connection:
        stalest = _stalest(connection, at)
        inbox = count_by_state(connection, INBOX)
        pending = inbox.get("pending")
        outbox = count_by_state(connection, OUTBOX)
        unsent = [oldest for state, (_, oldest) in outbox.items() if state in {"pending", "failed"}]
        status = Status(
            version=__version__,
            database=str(path),
            wallets=dict(
                connection.execute("SELECT status, count(*) FROM wallets GROUP BY status")
            ),
            tokens=_number(connection, "SELECT count(*) FROM tokens"),
            balances=_number(connection, "SELECT count(*) FROM balance_rows"),
            unusable_amounts=_number(connection, _UNUSABLE),
            changes=_number(connection, "SELECT count(*) FROM balance_change_rows"),
            last_sync=_last_run(connection, "sync"),
            last_replay=_last_run(connection, "replay"),
            oldest_wallet_age_s=None if stalest is None else stalest.age_s,
            inbox={state: count for state, (count, _) in inbox.items()},
            oldest_pending_age_s=pending and age_seconds(pending[1], at),
            removals_held=held(connection),
            outbox={state: count for state, (count, _) in outbox.items()},
            oldest_message_age_s=age_seconds(min(unsent), at) if unsent else None,
            stopped_destinations=stopped_destinations(connection),
            rule_problems=rule_problems(connection, rules, at),
            warning=ahead_of(connection, at),
            unreadable=unreadable_parts(connection),
            always_changing=_always_changing(connection),
        )
    return status, stalest


def _stalest(connection: sqlite3.Connection, at: str) -> StalestWallet | None:
    row = connection.execute(
        "SELECT wallet_id, label, synced_at FROM wallets WHERE tracked"
        " ORDER BY synced_at NULLS FIRST, wallet_no LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    wallet_id, label, synced_at = row
    return StalestWallet(wallet_id, label, synced_at and age_seconds(synced_at, at))


def _always_changing(connection: sqlite3.Connection) -> str | None:
    runs, newest, least, tokens = connection.execute(
        "SELECT count(*), max(run_id), min(tokens_changed), (SELECT count(*) FROM tokens) FROM ("
        "SELECT run_id, tokens_changed FROM sync_runs WHERE kind = 'sync'"
        " AND finished_at IS NOT NULL ORDER BY run_id DESC LIMIT 3)"
    ).fetchone()
    if runs < 3 or not tokens or least < _NEARLY_ALL * tokens:
        return None
    fields = Counter[str]()
    for texts in connection.execute(
        "SELECT before, after FROM token_change_rows WHERE run_id = ? LIMIT 100", (newest,)
    ):
        one, other = (
            fields_of(tuple(msgspec.json.decode(text).get(name) for name in CONTENT_COLUMNS))
            for text in texts
        )
        fields.update(path_of(name) for name in one | other if one.get(name) != other.get(name))
    return max(fields, key=fields.__getitem__, default=None)


_NEARLY_ALL = 0.9
_UNUSABLE = f"SELECT count(*) FROM balance_rows WHERE {NOT_EXACT}"


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def _last_run(connection: sqlite3.Connection, kind: str) -> dict[str, Any] | None:
    columns = ", ".join(TABLES["sync_runs"].columns)
    query = f"SELECT {columns} FROM sync_runs WHERE kind = ? ORDER BY run_id DESC LIMIT 1"
    return next(iter(named_rows(connection.execute(query, (kind,)))), None)


#: `warning`: works, but should be fixed.
Verdict: TypeAlias = Literal["ok", "warning", "FAILED", "skipped"]

#: Size in bytes above which the check of indexes would take more than 10 s.
_LARGE = 1_000_000_000
#: Tolerated difference between this clock and the provider's, in seconds.
_CLOCKS_APART = 300


class Check(NamedTuple):
    """Result of one check; the message never contains a secret."""

    verdict: Verdict
    subject: str
    message: str


def check_database(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Check:
    """Check that the database exists, is intact and accepts writes, without changing it."""
    try:
        with explained(path):
            verdict, message = _inspect_database(path, busy_seconds)
    except NftsyncError as error:
        verdict, message = "FAILED", str(error)
    return Check(verdict, "database", message)


def _inspect_database(path: Path, busy_seconds: float) -> tuple[Verdict, str]:
    refuse_non_file(path)
    if not path.exists():
        nearest = next(folder for folder in path.absolute().parents if folder.exists())
        if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
            return "ok", f"there is none at {path} yet; a sync creates it"
        return "FAILED", (
            f"there is none at {path}, and {nearest} is not writable; change its permissions, "
            "or name another --database"
        )
    with closing(connect_reader(path)) as connection:
        if check_schema(connection, path) == 0:
            return "ok", f"{path} is empty; a sync creates its tables"
        earlier = is_earlier(connection, path)
    large = path.stat().st_size >= _LARGE
    kind: Literal["integrity_check", "quick_check"] = "quick_check" if large else "integrity_check"
    report = damage(path, kind, busy_seconds=busy_seconds)
    if report is not None:
        problem = f"{path} is damaged ({report}); restore a backup, or name another --database"
        return "FAILED", problem
    with closing(connect_existing(path, "rw", busy_seconds)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    running = "; a sync is running, so another cannot start (exit code 75)"
    beyond = ", because it has over 1 GB; `nftsync backup` also checks the indexes" * large
    message = f"{path} is intact ({kind}{beyond}) and writable{running * is_syncing(path)}"
    if earlier:
        return "warning", (
            f"{message}; it is from an earlier version of nftsync: `nftsync migrate` or a sync"
            " upgrades it"
        )
    return "ok", message


def check_removals(path: Path) -> Iterator[Check]:
    """Check for removals held for review."""
    with suppress(NftsyncError), reading(path) as connection:
        counts = held(connection)
        if counts.since is not None:
            yield Check(
                "warning", "removals", f"{counts} held for review. Review them: `nftsync removals`"
            )


def check_clock(path: Path, clock_ahead: float | None) -> Iterator[Check]:
    """Check this clock against the database and the provider; `clock_ahead` is in seconds."""
    with suppress(NftsyncError), reading(path) as connection:
        warning = ahead_of(connection, now())
        if warning is not None:
            yield Check("warning", "clock", warning)
    if clock_ahead is not None and abs(clock_ahead) > _CLOCKS_APART:
        way = "ahead of" if clock_ahead > 0 else "behind"
        apart = f"this clock is {abs(clock_ahead):,.0f} s {way} the provider's"
        yield Check(
            "warning", "clock", f"{apart}; set this clock, because the change feed uses its times"
        )


def first_tracked_wallet(path: Path) -> str | None:
    """Return the tracked wallet that was added first."""
    with reading(path) as connection:
        query = "SELECT wallet_id FROM wallets WHERE tracked ORDER BY wallet_no LIMIT 1"
        row = connection.execute(query).fetchone()
    return None if row is None else str(row[0])


def check_provider(client: Client, base_url: str, wallet_id: str | None) -> Iterator[Check]:
    """Check the connection to the provider by reading a wallet's balances, if there is one."""
    parts = urlsplit(base_url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        problem = "is plain http: anyone on the network can read the token and the data; use https"
        yield Check("warning", "base_url", f"{base_url} {problem}")
    if client.proxy is not None:
        yield Check("ok", "proxy", f"through {client.proxy}")
    if wallet_id is None:
        try:
            client.sign_in()
        except NftsyncError as error:
            yield Check("FAILED", "API", str(error))
            return
        yield Check("skipped", "API", "no wallet to read; name one: nftsync check WALLET")
        return
    try:
        answer = finish(client.balances(wallet_id, Effort()))
    except NftsyncError as error:
        yield Check("FAILED", "API", f"wallet {wallet_id}: {error}{_advice(error)}")
        return
    count = len(answer.entries)
    yield Check("ok", "API", f"wallet {wallet_id} was read: {count:,} balances")
    if answer.doubt is not None:
        problem = (
            f"the response has {answer.doubt}, so reads are incomplete; if it is about pages, set"
            " [paging]; if not, list it in ignore_fields"
        )
        yield Check("warning", "API", problem)


def _advice(error: NftsyncError) -> str:
    is_proxy = isinstance(error, ProxyFailed)  # the message has advice
    if isinstance(error, NoConnection) and error.passing and not is_proxy:
        return "; check base_url, and that this machine can reach it"
    if isinstance(error, ReadError) and error.status == 404:
        return "; check the wallet's id, and base_url"
    return ""


def check_secret(secret: str | None) -> Check:
    """Check that a webhook secret is usable, without showing it."""
    subject = "webhook secret"
    if secret is None:
        todo = "not set; `serve` needs NFTSYNC_WEBHOOK_SECRET or NFTSYNC_WEBHOOK_SECRET_FILE"
        return Check("skipped", subject, todo)
    if not secret.strip():
        return Check("FAILED", subject, "blank, so anyone can sign webhooks; set a long random one")
    if problem := secret_problem(secret):
        return Check("warning", subject, problem)
    return Check("ok", subject, "set")
