"""Checks of everything that nftsync depends on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from nftsync.errors import NftsyncError, NoConnection, ProxyFailed, ReadError
from nftsync.provider.addresses import is_loopback
from nftsync.provider.client import Client, finish
from nftsync.provider.webhooks import secret_problem
from nftsync.records import Effort
from nftsync.store.database import (
    BUSY_SECONDS,
    connect_existing,
    connect_reader,
    damage,
    explained,
    is_syncing,
    refuse_non_file,
)
from nftsync.store.history import ahead_of
from nftsync.store.removals import held
from nftsync.store.schema import check_schema, is_earlier, reading
from nftsync.times import now

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


def checked(subject: str, describe: Callable[..., str], *parameters: Any) -> Check:
    try:
        return Check("ok", subject, describe(*parameters))
    except NftsyncError as error:
        return Check("FAILED", subject, str(error))


def check_database(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Check:
    """Check that the database is intact and accepts writes, without changing it."""
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
    with suppress(NftsyncError), reading(path) as connection:
        counts = held(connection)
        if counts.since is not None:
            yield Check(
                "warning", "removals", f"{counts} held for review. Review them: `nftsync removals`"
            )


def check_clock(path: Path, clock_ahead: float | None) -> Iterator[Check]:
    """Check this clock; `clock_ahead` of the provider's is in seconds."""
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
    with reading(path) as connection:
        query = "SELECT wallet_id FROM wallets WHERE tracked ORDER BY wallet_no LIMIT 1"
        row = connection.execute(query).fetchone()
    return None if row is None else str(row[0])


def check_provider(client: Client, base_url: str, wallet_id: str | None) -> Iterator[Check]:
    """Check the provider by reading a wallet's balances, if there is one."""
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
