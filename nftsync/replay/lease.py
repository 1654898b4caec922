"""The lease of a replay worker: no two workers process the same webhooks.

Each transaction renews the lease. What was done under a lease that has been taken away is
forgotten, as others do it again.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from nftsync.pull.reads import AnyRead, Read
from nftsync.pull.removal_guard import RemovalGuard
from nftsync.records import Applied, ObjectRead, WalletRead
from nftsync.replay.config import ReplayConfig
from nftsync.replay.work import Job
from nftsync.store import inbox, runs
from nftsync.store.inbox import Settlement
from nftsync.store.mirror import Mirror, Transaction
from nftsync.store.wallets import wallets_by_id
from nftsync.times import now

_log = logging.getLogger("nftsync.replay")


class LeasedRun:
    """Taken with the first work, renewed with every step, ended when there is none left.

    Attributes:
        counts: webhooks by the state that they came to, and reads, of all runs.
        guard: keeps reads that have removals, until they are decided on together.
        settlements: what became of claimed webhooks, and is yet to be acknowledged.
    """

    def __init__(self, mirror: Mirror, config: ReplayConfig, on_lost: Callable[[], None]) -> None:
        """Hold nothing yet.

        Args:
            mirror: where reads are applied.
            config: whose webhooks are worked on, and its timing.
            on_lost: is called when the lease has been taken away.
        """
        self.counts: Counter[str] = Counter()
        self.guard = RemovalGuard(config.limits)
        self.settlements: list[Settlement] = []
        self._mirror = mirror
        self._config = config
        self._on_lost = on_lost
        self._number: int | None = None  # the fencing token
        self._run: runs.Run | None = None
        self._look_for_late_at = 0.0

    # The lease -------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction that takes the lease or renews it."""
        with self._mirror.transaction() as transaction:
            connection, at = transaction.connection, now()
            if self._run is None:
                self._run = runs.start_run(connection, "replay", self._mirror.numbers.take(), at)
            run_id = self._run.run_id
            lost = self._number is not None and not runs.renew_lease(
                connection, self._number, at, run_id=run_id
            )
            if lost:
                _log.warning("lease lost; its webhooks wait again")
                runs.reopen(connection, self._run)  # whoever took the lease has closed it
                self._on_lost()
                self.forget()
            if lost or self._number is None:
                self._number = runs.take_lease(connection, at)
                runs.renew_lease(connection, self._number, at, run_id=run_id)
            yield transaction

    @property
    def _under_way(self) -> tuple[int, runs.Run]:
        if self._number is None or self._run is None:
            raise AssertionError("there is a run only under a lease")
        return self._number, self._run

    @property
    def is_held(self) -> bool:
        """There is a lease, as far as this worker knows."""
        return self._number is not None

    def renew(self) -> None:
        """Renew the lease, and let the webhooks of vanished workers wait again."""
        while runs.has_expired(self._mirror.connection, now()):
            with self._mirror.transaction() as transaction:
                runs.take_back_expired(transaction.connection, now())
        if self.is_held:
            with self.transaction():
                pass

    def forget(self) -> None:
        """Drop what is not in the database yet."""
        self.settlements = []
        self.guard.forget()

    def end(self, status: runs.RunStatus, error: str | None = None) -> None:
        """Give the lease up, with all that is running under it, and close the run."""
        more = self._number is not None
        while more:
            with self._mirror.transaction() as transaction:
                more = runs.end_lease(transaction.connection, self._number or 0)
                if self._run is not None:
                    runs.finish_run(transaction.connection, self._run, status, error)
            self._run = None
        self._number = None

    # Claiming --------------------------------------------------------------------------------

    def claim(self, room: int, due: str | None) -> tuple[bool, list[Job]]:
        """Take on the due webhooks of so many objects at most.

        Args:
            room: how many.
            due: only webhooks due by this time; None: by now.

        Returns:
            Whether there were any, as another worker may have been quicker; and a job for each.
        """
        at = now()
        late = time.monotonic() >= self._look_for_late_at
        if late:
            self._look_for_late_at = time.monotonic() + self._config.timing.late_check
        keys = inbox.due_objects(self._mirror.connection, due or at, at, room, late=late)
        found = more = bool(keys)
        claims: dict[inbox.ObjectKey, str] = {}
        under = None
        while more:
            with self.transaction() as transaction:
                number, _ = self._under_way
                if under not in {None, number}:
                    return True, []  # what was claimed under the lease that is gone waits again
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
            # Only what this claim has begun: another worker's may be running by now.
            keys = [key for key in keys if key in claims]
            more, under = claimed.more and bool(keys), number
        # After the claim: what starts from here on knows what those webhooks announced.
        since = self._mirror.numbers.take() if claims else 0
        return found, [Job(key, webhook_id, since) for key, webhook_id in claims.items()]

    def claim_rechecks(self, room: int) -> list[Job]:
        """Take on objects that are to be read once more, so many at most."""
        at = now()
        (due,) = self._mirror.connection.execute(
            "SELECT EXISTS (SELECT 1 FROM webhooks"
            " WHERE look_again_at IS NOT NULL AND look_again_at <= ?)",
            (at,),
        ).fetchone()
        if not due or room <= 0:
            return []
        with self.transaction() as transaction:
            found = inbox.due_rechecks(transaction.connection, at, room)
        since = self._mirror.numbers.take()
        return [Job(key, webhook_id, since, recheck=True) for key, webhook_id in found]

    # Applying and acknowledging --------------------------------------------------------------

    def apply(
        self,
        transaction: Transaction,
        reads: Sequence[AnyRead],
        webhook_behind: Callable[[AnyRead], str | None],
    ) -> list[tuple[AnyRead, Applied | None]]:
        """Apply what says something of a wallet or token, and count it in the run.

        Args:
            transaction: the lease's.
            reads: any reads.
            webhook_behind: one of the webhooks that caused a read.

        Returns:
            Each read that does not wait for a decision, and what became of it in the mirror; None
            for one that is not of it.
        """
        _, run = self._under_way
        aside = [x for x in reads if isinstance(x, ObjectRead) or x.provider_down]
        known = [x for x in reads if not (isinstance(x, ObjectRead) or x.provider_down)]
        strangers = _strangers(transaction.connection, known)
        aside += [read for read in known if read in strangers]
        caused = [
            msgspec.structs.replace(read, webhook_id=webhook_behind(read))
            for read in known
            if read not in strangers
        ]
        for read in aside:
            run.counts.requests += read.effort.requests
            run.counts.retries += read.effort.retries
        applied = self._counted(transaction, self.guard.apply(transaction, run.run_id, caused))
        over = [(each.read, each) for each in applied if each.result != "staged"]
        return [*((read, None) for read in aside), *over]

    def release(self, transaction: Transaction, entries: int) -> list[tuple[AnyRead, Applied]]:
        """Apply reads that were decided on.

        Args:
            transaction: the lease's.
            entries: about how many list entries at most.

        Returns:
            Each read, and what became of it.
        """
        _, run = self._under_way
        released = self.guard.release(transaction, run.run_id, entries)
        applied = self._counted(transaction, released)
        if number := sum(each.result == "held" for each in applied):
            _log.warning("removals held for review", extra={"reads": number})
        return [(each.read, each) for each in applied]

    def _counted(self, transaction: Transaction, applied: list[Applied]) -> list[Applied]:
        """Count in the run what was applied."""
        _, run = self._under_way
        run.counts = run.counts.with_applied(applied)
        runs.save_counts(transaction.connection, run.run_id, run.counts)
        return applied

    def acknowledge(self, connection: sqlite3.Connection) -> None:
        """Acknowledge as many webhooks as fit in a transaction."""
        number, run = self._under_way
        counts, self.settlements = inbox.acknowledge(
            connection, number, self.settlements, now(), run.run_id
        )
        self.counts.update({state: n for state, n in counts.items() if state != "pending"})

    def acknowledge_all(self) -> None:
        """Acknowledge all that is settled."""
        while self.settlements:
            with self.transaction() as transaction:
                self.acknowledge(transaction.connection)


def _strangers(connection: sqlite3.Connection, reads: Sequence[Read]) -> list[WalletRead]:
    """Reads of wallets that nobody knows, and that the provider does not know either."""
    failed = [x for x in reads if isinstance(x, WalletRead) and x.outcome == "failed"]
    if not failed:
        return []
    known = wallets_by_id(connection, [read.wallet_id for read in failed])
    return [read for read in failed if read.wallet_id not in known]
