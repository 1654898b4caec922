"""The run of a replay under a lease, which keeps two workers from sharing webhooks."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from nftsync.replay.config import ReplayConfig
from nftsync.replay.jobs import Job
from nftsync.store import WebhookState, inbox, leases, runs
from nftsync.store.history import end_span
from nftsync.store.inbox import ObjectKey, Settlement
from nftsync.store.mirror import Mirror, Transaction
from nftsync.times import now, shifted

_log = logging.getLogger("nftsync.replay")


class LeasedRun:
    """Run under a lease: it starts with the first work, and ends when no work is left.

    Attributes:
        counts: webhooks by end state, and reads, in all runs.
        settlements: end states of claimed webhooks, to be acknowledged.
    """

    def __init__(self, mirror: Mirror, config: ReplayConfig, on_lost: Callable[[], None]) -> None:
        """Start without a lease; `on_lost` is called when a lease was lost."""
        self.counts: Counter[str] = Counter()
        self.settlements: list[Settlement] = []
        self._mirror = mirror
        self._config = config
        self._on_lost = on_lost
        self._number = 0  # the fencing token; 0: none
        self._run: runs.Run | None = None
        self._look_for_late_at = 0.0

    # The lease -------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction that takes or renews the lease."""
        with self._mirror.transaction() as transaction:
            connection, at = transaction.connection, now()
            if self._run is None:
                self._run = runs.start_run(connection, "replay", self._mirror.numbers.take(), at)
            run_id = self._run.run_id
            renewed = self.is_held and leases.renew_lease(
                connection, self._number, at, run_id=run_id
            )
            if self.is_held and not renewed:
                _log.warning("lease lost; its webhooks are pending again")
                runs.reopen(connection, self._run)  # the new owner has closed it
                self.settlements = []
                self._on_lost()
            if not renewed:
                self._number = leases.take_lease(connection, at)
                leases.renew_lease(connection, self._number, at, run_id=run_id)
            yield transaction

    @property
    def run(self) -> runs.Run:
        if self._run is None:
            raise AssertionError("a run requires a lease")
        return self._run

    @property
    def is_held(self) -> bool:
        return self._number > 0

    def renew(self) -> None:
        """Renew the lease, and release the webhooks of dead workers."""
        while leases.has_expired(self._mirror.connection, now()):
            with self._mirror.transaction() as transaction:
                leases.take_back_expired(transaction.connection, now())
        if self.is_held:
            with self.transaction():
                pass

    def end(self, status: runs.RunStatus, error: str | None = None) -> None:
        """End the lease and the run, and release its claimed webhooks."""
        more = self.is_held
        while more:
            with self._mirror.transaction() as transaction:
                more = leases.end_lease(transaction.connection, self._number)
                if self._run is not None:
                    runs.finish_run(transaction.connection, self._run, status, error)
                    end_span(transaction.connection, self._run.run_id)
            self._run = None
        self._number = 0

    # Claiming --------------------------------------------------------------------------------

    def claim(self, room: int, due: str | None) -> tuple[bool, list[Job]]:
        """Claim webhooks of at most `room` objects, due by `due` (default: now).

        Returns:
            Whether any webhook was due (another worker may have claimed it), and a job per object.
        """
        at = now()
        late = time.monotonic() >= self._look_for_late_at
        if late:
            self._look_for_late_at = time.monotonic() + self._config.timing.late_check
        keys = inbox.due_objects(self._mirror.connection, due or at, at, room, late=late)
        was_due = more = bool(keys)
        claims: dict[ObjectKey, str] = {}
        under = None
        while more:
            with self.transaction() as transaction:
                number = self._number
                if under not in {None, number}:
                    return True, []  # the webhooks of the lost lease are pending again
                claimed = inbox.claim(
                    transaction.connection,
                    number,
                    keys,
                    due or at,
                    at,
                    organization_id=self._config.organization_id,
                    going_on=under is not None,
                )
            self.counts["quarantined"] += claimed.quarantined
            claims |= claimed.claims
            # Continue only with this claim's objects: another worker may run the others by now.
            keys = [key for key in keys if key in claims]
            more, under = claimed.more and bool(keys), number
        # After the claim: later reads reflect the claimed webhooks.
        since = self._mirror.numbers.take() if claims else 0
        return was_due, [Job(key, webhook_id, since) for key, webhook_id in claims.items()]

    def claim_rechecks(self, room: int) -> list[Job]:
        at = now()
        (due,) = self._mirror.connection.execute(
            "SELECT EXISTS (SELECT 1 FROM webhooks"
            " WHERE look_again_at IS NOT NULL AND look_again_at <= ?)",
            (at,),
        ).fetchone()
        if not due or room <= 0:
            return []
        with self.transaction() as transaction:
            rechecks = inbox.due_rechecks(transaction.connection, at, room)
        since = self._mirror.numbers.take()
        return [Job(key, webhook_id, since, recheck=True) for key, webhook_id in rechecks]

    # Acknowledging ---------------------------------------------------------------------------

    def settle(
        self,
        job: Job,
        state: WebhookState,
        error: str | None = None,
        *,
        due_at: str | None = None,
        recheck_at: str | None = None,
    ) -> None:
        self.settlements.append(
            Settlement(job.key, state, error, due_at, job.recheck, job.webhook_id, recheck_at)
        )

    def release(self, job: Job, error: str | None = None, wait: float | None = None) -> None:
        """Return a job's webhooks to pending, due in `wait` seconds or as before."""
        due_at = None if wait is None else in_seconds(wait)
        recheck_at = in_seconds(wait or 0.0) if job.recheck else None
        self.settle(job, "pending", error, due_at=due_at, recheck_at=recheck_at)

    def acknowledge(self, connection: sqlite3.Connection) -> None:
        counts, self.settlements = inbox.acknowledge(
            connection, self._number, self.settlements, now(), self.run.run_id
        )
        self.counts.update({state: n for state, n in counts.items() if state != "pending"})

    def acknowledge_all(self) -> None:
        while self.settlements:
            with self.transaction() as transaction:
                self.acknowledge(transaction.connection)


def in_seconds(seconds: float) -> str:
    """Return the time after some seconds."""
    return shifted(now(), timedelta(seconds=seconds))
