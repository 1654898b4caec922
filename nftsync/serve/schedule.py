"""Schedule of full syncs, which find changes that webhooks missed; configuration of replays."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec

from nftsync.errors import NftsyncError, StoreError, SyncRunning
from nftsync.provider.client import Access, access_to
from nftsync.provider.webhooks import merge_routes
from nftsync.pull.api import client_config, removal_limits, sync_with
from nftsync.pull.list_files import read_wallets_file
from nftsync.pull.plan import NoWallets, SyncRequest, register_all
from nftsync.pull.result import SyncResult
from nftsync.replay.config import ReplayConfig, RunSync
from nftsync.settings import Settings
from nftsync.store.database import connect_reader, explained
from nftsync.store.mirror import Mirror
from nftsync.store.runs import last_full_sync_began
from nftsync.store.writer import keep_running
from nftsync.times import format_time

_log = logging.getLogger("nftsync.sync")

#: Shortest wait between syncs. Each failure in a row doubles it, up to the interval.
_LEAST_WAIT = timedelta(seconds=30)


def replay_config(settings: Settings) -> ReplayConfig:
    """Return the configuration; SettingsError if it cannot be used."""
    client = client_config(settings)
    # Webhooks and syncs share one limit of concurrent requests.
    access = access_to(client, at_once=settings.concurrency)
    return ReplayConfig(
        client=client,
        access=access,
        routes=merge_routes(settings.routes),
        # Not resumed: an interrupted sync may have read wallets before the webhook arrived.
        run_sync=full_sync(settings, access, resume=False),
        organization_id=settings.organization_id,
        concurrency=settings.concurrency,
        limits=removal_limits(settings),
    )


def full_sync(settings: Settings, access: Access, *, resume: bool) -> RunSync:
    tracked = replace(settings, wallets_file=None)
    request = SyncRequest(resume=resume)

    def run(stopped: threading.Event) -> SyncResult:
        if settings.wallets_file is not None and settings.wallets_file != "-":
            lines = read_wallets_file(settings.wallets_file)
            with Mirror(settings.database) as mirror:
                register_all(mirror, lines)
        return sync_with(tracked, request, progress=False, access=access, stopped=stopped)

    return run


def sync_periodically(
    database: Path, every: timedelta, run_sync: RunSync, stopped: threading.Event
) -> None:
    """Sync whenever the last full sync, by any process, started `every` ago, until `stopped`.

    A sync does not count if it failed, was interrupted, or read only some tracked wallets.
    """
    logged: str | None = None

    def due(failures: int | None) -> float:
        least = timedelta(0)
        if failures is not None:
            least = min(every, _LEAST_WAIT * 2 ** min(failures, 20))
        return max(least, _until_due(database, every)).total_seconds()

    def sync() -> bool:
        nonlocal logged
        try:
            result = run_sync(stopped)
        except SyncRunning:
            logged = _warn_once("another process is syncing", logged)
            return True
        except NoWallets as error:
            logged = _warn_once(f"no sync: {error}", logged)
            return True
        logged = None
        _report(result)
        return result.status != "failed"

    on_error = partial(_log.error, "sync failed: %s")
    keep_running(database, stopped, sync, on_error, due=due, retried=NftsyncError)


def _warn_once(text: str, logged: str | None) -> str:
    if text != logged:
        _log.warning("%s", text)
    return text


def _until_due(database: Path, every: timedelta) -> timedelta:
    moment = datetime.now(UTC)
    try:
        with explained(database), closing(connect_reader(database)) as connection:
            started_at = last_full_sync_began(connection, format_time(moment - every))
    except StoreError as error:
        _log.error("sync postponed: %s", error)
        return _LEAST_WAIT
    if started_at is None:
        return timedelta(0)
    left = datetime.fromisoformat(started_at) + every - moment
    return min(every, max(timedelta(0), left))  # bounded in case the clock went back


def _report(result: SyncResult) -> None:
    level = logging.INFO if result.status in {"ok", "interrupted"} else logging.WARNING
    details = {name: getattr(result, name) for name in ("run_id", "status", "requests", "seconds")}
    details |= {f"wallets_{name}": getattr(result.wallets, name) for name in ("ok", "failed")}
    balances = msgspec.to_builtins(result.balances)
    details |= {f"balances_{name}": count for name, count in balances.items()}
    if result.error is not None:
        details["error"] = result.error
    elif result.failures:
        first = result.failures[0]
        details["first_failure"] = f"{first.wallet_id}: {first.error}"
    _log.log(level, "synced", extra=details)
