"""Replays and full syncs built from settings, and the schedule of full syncs.

Those make good what webhooks missed.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from nftsync.errors import InputError, NftsyncError, SettingsError, StoreError, SyncRunning
from nftsync.provider.access import Access, access_to
from nftsync.provider.webhooks import merge_routes
from nftsync.pull.api import client_config, removal_limits
from nftsync.pull.list_files import read_collections_file, read_wallets_file
from nftsync.pull.result import SyncResult
from nftsync.pull.run import SyncRequest, register_all, sync_wallets
from nftsync.replay.config import ReplayConfig, RunSync
from nftsync.settings import Settings
from nftsync.store.database import FilesInUse, connect_reader, explained
from nftsync.store.mirror import Mirror
from nftsync.store.runs import last_full_sync_began
from nftsync.times import format_time

_log = logging.getLogger("nftsync.sync")

#: How long to wait at least between two syncs, and before the first try after one that failed;
#: each further failure doubles it. The interval bounds it.
_LEAST_WAIT = timedelta(seconds=30)


def replay_config(settings: Settings) -> ReplayConfig:
    """All that a replay works with.

    Raises:
        SettingsError: no `base_url` is set, or a client cannot be made so.
    """
    client = client_config(settings)
    # One limit on requests at once for webhooks and syncs together.
    access = access_to(client, at_once=settings.concurrency)
    return ReplayConfig(
        client=client,
        access=access,
        routes=merge_routes(settings.routes),
        # From the start: what a cut-off sync has read, it may have read before the webhook came.
        run_sync=full_sync(settings, access, resume=False),
        organization_id=settings.organization_id,
        concurrency=settings.concurrency,
        limits=removal_limits(settings),
    )


def full_sync(settings: Settings, access: Access, *, resume: bool) -> RunSync:
    """A sync of all tracked wallets, those of the wallets file among them.

    Args:
        settings: the settings.
        access: rate limiter and credentials, shared with the replay.
        resume: go on with one that was cut off, where there is one.
    """
    client = client_config(settings)

    def run(stopped: threading.Event) -> SyncResult:
        lines, collections = None, None
        try:
            if settings.wallets_file is not None and settings.wallets_file != "-":
                lines = read_wallets_file(settings.wallets_file)
            if settings.collections_file is not None:
                collections = read_collections_file(settings.collections_file)
        except InputError as error:  # which by itself says that there is no wallet to read
            raise SettingsError(str(error)) from error
        if lines is not None:
            with Mirror(settings.database) as mirror:
                register_all(mirror, lines)
        return sync_wallets(
            settings.database,
            client,
            SyncRequest(resume=resume, collections=collections, limits=removal_limits(settings)),
            concurrency=settings.concurrency,
            progress=False,
            access=access,
            stopped=stopped,
        )

    return run


def keep_syncing(
    database: Path, every: timedelta, run_sync: RunSync, stopped: threading.Event
) -> None:
    """Sync when the last full sync of this database, whoever made it, began so long ago.

    One that failed, was cut off, or read only some of the tracked wallets does not count.

    Args:
        database: the database.
        every: from the start of one to the start of the next.
        run_sync: makes one, or goes on with one that was cut off.
        stopped: set it, and this ends; a sync under way is interrupted and goes on the next time.
    """
    files = FilesInUse(database)
    failures = 0  # in a row
    told: str | None = None
    least = timedelta(0)
    while not stopped.wait(max(least, _until_due(database, every)).total_seconds()):
        failed = False
        try:
            files.check()  # no other file is opened in its place
            result = run_sync(stopped)
        except SyncRunning:
            told = _tell("another process is syncing", told)
        except InputError as error:  # no wallet is tracked yet, or the wallets file is unusable
            told = _tell(f"no sync: {error}", told)
        except NftsyncError as error:
            failed = True
            _log.error("sync failed: %s", error)
        else:
            failed = result.status == "failed"
            told = None
            _report(result)
        failures = min(failures + 1, 20) if failed else 0
        least = min(every, _LEAST_WAIT * 2**failures)


def _tell(text: str, told: str | None) -> str:
    """Say it once, not every half minute."""
    if text != told:
        _log.warning("%s", text)
    return text


def _until_due(database: Path, every: timedelta) -> timedelta:
    moment = datetime.now(UTC)
    try:
        with explained(database), closing(connect_reader(database)) as connection:
            started_at = last_full_sync_began(connection, format_time(moment - every))
    except StoreError as error:
        _log.error("sync put off: %s", error)
        return _LEAST_WAIT
    if started_at is None:
        return timedelta(0)
    left = datetime.fromisoformat(started_at) + every - moment
    return min(every, max(timedelta(0), left))  # not longer, though the clock went back


def _report(result: SyncResult) -> None:
    level = logging.INFO if result.status in {"ok", "interrupted"} else logging.WARNING
    told = {name: getattr(result, name) for name in ("run_id", "status", "requests", "seconds")}
    told |= {f"wallets_{name}": getattr(result.wallets, name) for name in ("ok", "failed")}
    balances = msgspec.to_builtins(result.balances)
    told |= {f"balances_{name}": count for name, count in balances.items()}
    if result.error is not None:
        told["error"] = result.error
    elif result.failures:
        first = result.failures[0]
        told["first_failure"] = f"{first.wallet_id}: {first.error}"
    _log.log(level, "synced", extra=told)
