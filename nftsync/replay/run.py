"""Replays: of the webhooks that are due, or of all as they come."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from nftsync.errors import DamagedDatabase, StoreError
from nftsync.replay.config import ReplayConfig, ReplayResult
from nftsync.replay.worker import Worker
from nftsync.store.database import explained
from nftsync.store.in_use import FilesInUse
from nftsync.store.mirror import Mirror
from nftsync.store.queue import count_due
from nftsync.terminal import progress_bar
from nftsync.times import now

_log = logging.getLogger("nftsync.replay")


def replay_once(
    database: Path,
    config: ReplayConfig,
    stopped: threading.Event,
    *,
    progress: bool | None = None,
) -> ReplayResult:
    """Work off the webhooks that are due now.

    Args:
        database: created or migrated where needed.
        config: what to work with.
        stopped: set it, and what has been read is applied and the rest waits again.
        progress: show a bar; None shows it on a terminal and in a notebook.

    Raises:
        StoreError: the database cannot be written; what was not acknowledged waits again.
        SettingsError: the provider cannot be read with these settings.
    """
    began = time.monotonic()
    with explained(database), Mirror(database, busy_seconds=config.timing.busy) as mirror:
        due = now()
        total = count_due(mirror.connection, due)
        with (
            progress_bar("webhooks", total, unit="webhooks", done=0, shown=progress) as bar,
            Worker(mirror, config) as worker,
        ):
            while not (stopped.is_set() or worker.breaker.is_open):
                idle = not worker.step(due)
                news = worker.news()
                bar.update(news.total() - news["fetches"])
                if idle and not worker.busy:
                    break
                if idle and not worker.awaits_reads:
                    stopped.wait(config.timing.read_timeout)  # for a sync
            worker.interrupted = stopped.is_set()
    told = {
        "seconds": round(time.monotonic() - began, 3),
        "held": worker.held,
        "error": worker.breaker.reason,
    }
    return msgspec.convert({**worker.counts, **told}, ReplayResult)


def follow(
    database: Path,
    config: ReplayConfig,
    stopped: threading.Event,
    wake: threading.Event,
    tell: Callable[[Counter[str]], None],
    on_damaged: Callable[[str], None] = lambda _: None,
) -> None:
    """Work off webhooks as they come, until stopped.

    Args:
        database: created or migrated where needed.
        config: what to work with.
        stopped: set it (and `wake`), and this ends; what is not worked off waits again.
        wake: is set when webhooks have come; those that other processes store are found too.
        tell: is called with how many webhooks have come to which state, and how many reads were
            made, since the last call.
        on_damaged: is called, perhaps more than once, with what SQLite finds wrong with the
            database.
    """
    timing = config.timing
    files = FilesInUse(database)
    while not stopped.is_set():
        try:
            files.check()  # no other file is opened in its place
            with (
                explained(database),
                Mirror(database, busy_seconds=timing.busy) as mirror,
                ExitStack() as stack,
            ):
                worker = Worker(mirror, config, rechecks=True)
                stack.callback(lambda each: tell(each.news()), worker)
                stack.enter_context(worker)
                quiet_since = time.monotonic()
                while not stopped.is_set():
                    if wake.is_set():
                        wake.clear()
                        worker.look_now()
                    if worker.step() or worker.busy:
                        quiet_since = time.monotonic()
                        tell(worker.news())
                    elif time.monotonic() - quiet_since > timing.quiet:
                        worker.end_run()
                    if not worker.awaits_reads:
                        wake.wait(timing.read_timeout if worker.busy else timing.poll)
        except StoreError as error:
            # What was in hand waits again when the lease runs out.
            _log.error("database trouble: %s", error)
            if isinstance(error, DamagedDatabase):
                on_damaged(str(error))
            stopped.wait(timing.restart)
