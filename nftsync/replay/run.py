"""A replay under way: threads read, this thread claims, applies and settles.

An unreachable or refusing provider pauses it: what is not being read waits again, and after a while
one object is tried. What fails on its own while others are answered is put off alone.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nftsync.errors import SettingsError, StoreError
from nftsync.provider.client import Access, ClientConfig
from nftsync.provider.routes import Routes
from nftsync.pull.pool import Pool
from nftsync.pull.reads import AnyRead, AnyTask
from nftsync.records import WalletRead
from nftsync.replay.lease import Lease
from nftsync.replay.result import ReplayResult
from nftsync.replay.triggered_sync import AskedSync, RunSync
from nftsync.replay.worker import Worker
from nftsync.store.database import explained
from nftsync.store.mirror import BatchSize, Mirror
from nftsync.store.queue import count_due
from nftsync.store.runs import RunStatus
from nftsync.terminal import progress_bar
from nftsync.times import now

__all__ = ["Observer", "ReplayConfig", "follow", "replay_once"]

_log = logging.getLogger("nftsync.replay")

#: Objects in hand at most, and how many must fit before more are claimed.
_MOST_OBJECTS = 512
_WORTH_A_CLAIM = 64
#: Seconds: how often the inbox is looked at when nobody says that something came, how long to wait
#: for a read, how often the lease is renewed, and after how much quiet a run is over.
_POLL = 0.5
_PATIENCE = 0.02
_RENEW_EVERY = 5.0
_QUIET = 5.0
#: Objects in a row that the provider refuses before it counts as down; one may be refused alone.
_REFUSALS = 3
#: How long the provider is left alone at first, and at most, in seconds.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
#: How long after trouble with the database to begin again, in seconds.
_BEGIN_AGAIN = 3.0
#: Seconds after which an object that had not changed is looked at once more: what answered may
#: have been behind what announced the change.
_LOOK_AGAIN_AFTER = 5.0


class Observer(Protocol):
    """Is told what a replay comes to, for metrics."""

    def settled(self, counts: ReplayResult) -> None:
        """Some webhooks were settled, after some reads: what was added since the last call."""


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """What a replay works with.

    Attributes:
        client: how to read the provider.
        access: rate limiter and credentials, shared with the process's syncs.
        routes: how types are followed.
        run_sync: makes a sync of all tracked wallets.
        organization_id: webhooks of others are quarantined.
        concurrency: reads at once.
    """

    client: ClientConfig
    access: Access
    routes: Routes
    run_sync: RunSync
    organization_id: str | None = None
    concurrency: int = 16


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
        StoreError: the database cannot be written; what was not settled waits again.
        SettingsError: the provider cannot be read with these settings.
    """
    began = time.monotonic()
    with explained(database), closing(Mirror(database)) as mirror:
        session = _Session(mirror, config, look_again_after=None)
        due = now()
        total = count_due(mirror.connection, due)
        with progress_bar("webhooks", total, unit="webhooks", done=0, shown=progress) as bar:
            try:
                while not stopped.is_set() and session.verdict is None:
                    before = session.worker.result.settled
                    idle = not session.step(due)
                    bar.update(session.worker.result.settled - before)
                    if idle and not session.busy:
                        break
                    if idle and not session.awaits_reads:
                        stopped.wait(_PATIENCE)  # for a sync
            except BaseException:
                session.abandon()
                raise
            session.close(interrupted=stopped.is_set())
        result = session.worker.result
        result.error = session.trouble
        result.seconds = round(time.monotonic() - began, 3)
        return result


def follow(
    database: Path,
    config: ReplayConfig,
    stopped: threading.Event,
    wake: threading.Event,
    observer: Observer,
) -> None:
    """Work off webhooks as they come, until stopped.

    Args:
        database: created or migrated where needed.
        config: what to work with.
        stopped: set it (and `wake`), and this ends; what is not worked off waits again.
        wake: is set when webhooks have come; those that other processes store are found too.
        observer: is told what it comes to.
    """
    while not stopped.is_set():
        try:
            with explained(database), closing(Mirror(database)) as mirror:
                _follow(_Session(mirror, config, _LOOK_AGAIN_AFTER), stopped, wake, observer)
        except StoreError as error:
            # What was in hand waits again when the lease runs out.
            _log.error("database trouble: %s", error)
            stopped.wait(_BEGIN_AGAIN)


def _follow(
    session: _Session, stopped: threading.Event, wake: threading.Event, observer: Observer
) -> None:
    quiet_since = time.monotonic()
    try:
        while not stopped.is_set():
            if wake.is_set():
                wake.clear()
                session.look_now()
            if session.step(None) or session.busy:
                quiet_since = time.monotonic()
                observer.settled(session.news())
            elif time.monotonic() - quiet_since > _QUIET:
                session.end_run()
            if not session.awaits_reads:
                wake.wait(_PATIENCE if session.busy else _POLL)
        session.close(interrupted=False)
    except BaseException:
        session.abandon()
        raise
    finally:
        observer.settled(session.news())


class _Session:
    """A worker with its reader, for as long as the database gives no trouble."""

    def __init__(
        self, mirror: Mirror, config: ReplayConfig, look_again_after: float | None
    ) -> None:
        self._mirror = mirror
        self._config = config
        self._lease = Lease(mirror)
        self.worker = Worker(
            mirror,
            self._lease,
            config.routes,
            organization_id=config.organization_id,
            look_again_after=look_again_after,
        )
        self._reader = self._new_reader()
        self._sync = AskedSync(config.run_sync)
        self._batch = BatchSize()
        self._look_at = 0.0
        self._renew_at = 0.0
        self._answered = 0
        self._refusals: list[int] = []
        self._pauses = 0
        self._paused_until = 0.0
        self._told = ReplayResult()
        self._before_run = ReplayResult()
        self.verdict: str | None = None

    def _new_reader(self) -> Pool[AnyTask, AnyRead]:
        config = self._config
        return Pool(
            config.client, self._mirror.tickets, config.concurrency, config.access, urgent=True
        )

    @property
    def awaits_reads(self) -> bool:
        """Reads are under way."""
        return not self._reader.idle

    @property
    def busy(self) -> bool:
        """Something is in hand."""
        return self.worker.busy or self._sync.is_running or self.awaits_reads

    def look_now(self) -> None:
        """Look into the inbox with the next step."""
        self._look_at = 0.0

    def news(self) -> ReplayResult:
        """What was added to the result since the last call."""
        added, self._told = self.worker.result.since(self._told)
        return added

    def step(self, due: str | None) -> bool:
        """Claim what there is room for, apply what has been read; False when nothing was done."""
        self._renew()
        found = self._claim(due)
        self._tend_sync()
        self.worker.settle()
        self._reader.submit(self.worker.work.submit())
        reads = self._take()
        if reads:
            refused = self.worker.apply(reads)
            entries = sum(len(x.entries) if isinstance(x, WalletRead) else 1 for x in reads)
            self._batch.learn(entries, self._mirror.held_seconds)
            self._heed(reads, refused)
        return found or bool(reads)

    def _renew(self) -> None:
        if time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + _RENEW_EVERY
        self._lease.take_back_expired()
        if self._lease.is_held:
            self.worker.renew()

    def _claim(self, due: str | None) -> bool:
        at = time.monotonic()
        if at < self._look_at or at < self._paused_until:
            return False
        in_hand = len(self.worker.work)
        # While it is down, one object tells whether the provider answers again.
        room = (1 if self._pauses else _MOST_OBJECTS) - in_hand
        if room < (_WORTH_A_CLAIM if in_hand else 1):
            return False
        found = self.worker.claim(room, due=due)
        self._look_at = 0.0 if found else at + _POLL
        return found

    def _take(self) -> Sequence[AnyRead]:
        if self._reader.idle:
            return []
        try:
            reads = self._reader.take(1, timeout=_PATIENCE)
            if reads:
                reads += self._reader.take(self._batch.entries, timeout=0.0)
        except SettingsError as error:  # no token is to be had: the provider lets nobody in
            self._reader.close()
            self._reader = self._new_reader()
            self.worker.give_back(everything=True)
            self._pause(str(error))
            return []
        return reads

    def _heed(self, reads: Sequence[AnyRead], refused: Sequence[AnyRead]) -> None:
        """Pause when the provider is down, and go on when it answers again.

        Args:
            reads: all that have come.
            refused: those of them that say something new of the provider.
        """
        answered = [read.ticket for read in reads if not read.provider_down]
        self._answered = max([self._answered, *answered])
        # A read that failed, while one that began later was answered, failed alone.
        down = [read for read in refused if read.ticket > self._answered]
        self._refusals += [read.ticket for read in down]
        self._refusals = [ticket for ticket in self._refusals if ticket > self._answered]
        alone = len(self._refusals) < _REFUSALS and len(self.worker.work) and not self._pauses
        if down and not alone:
            if time.monotonic() >= self._paused_until:
                self.worker.work.withdrawn(self._reader.withdraw())
                self.worker.give_back()
                self._pause(down[0].error or "no answer")
        elif answered and self._pauses:
            self._pauses, self._paused_until, self.verdict = 0, 0.0, None
            self.worker.hasten()
            _log.info("the provider answers again; replay goes on")

    def _pause(self, why: str) -> None:
        self._pauses += 1
        self._refusals.clear()
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self._pauses - 1))
        pause *= random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        self._paused_until = time.monotonic() + pause
        self.verdict = f"the provider is down or refuses: {why}"
        _log.warning(
            "replay paused: %s", why, extra={"pause_s": round(pause, 1), "pauses": self._pauses}
        )

    def _tend_sync(self) -> None:
        """Begin a sync that webhooks ask for, and settle them when it is over."""
        if not self._sync.is_running and self.worker.wants_sync:
            self._sync.begin(self.worker.take_jobs_for_sync())
        outcome = self._sync.outcome()
        if outcome is not None:
            self.worker.settle_syncs(outcome.jobs, outcome.error, outcome.wait)

    def end_run(self, *, interrupted: bool = False) -> None:
        """Close the run in the ledger, and make new tokens searchable."""
        if not self._lease.is_held:
            return
        self._mirror.index_tokens()
        result, self._before_run = self.worker.result.since(self._before_run)
        self._lease.end("interrupted" if interrupted else self._status(result), self.trouble)
        _log.info("replayed", extra=result.as_counts())

    @property
    def trouble(self) -> str | None:
        """Why webhooks wait that were due, or None."""
        return self.verdict or self.worker.outcomes.refused

    def _status(self, result: ReplayResult) -> RunStatus:
        if not (self.trouble or result.failed or result.dead):
            return "ok"
        return "partial" if result.done else "failed"

    def close(self, *, interrupted: bool) -> None:
        """Apply what has been read, let the rest wait again, and end."""
        try:
            self._sync.stop()
            self._reader.stop()
            with suppress(SettingsError):  # no token is to be had
                while reads := self._reader.take(self._batch.entries, timeout=0.0):
                    self.worker.apply(reads)
            self.worker.give_back(everything=True)
            self.worker.drop_all()
            self.end_run(interrupted=interrupted)
        finally:
            self._reader.close()

    def abandon(self) -> None:
        """End without the database, after trouble: what is in hand may not be stored as it seems.

        It waits again when the lease has run out.
        """
        self._reader.close()
        self._sync.stop()
