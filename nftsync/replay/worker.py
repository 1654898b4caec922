"""A worker's dealings with the database: it claims webhooks, applies reads, and settles."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Sequence

from nftsync.provider.routes import Route, Routes, path_for
from nftsync.pull.reads import AnyRead, AnyTask, ObjectTask, TokenTask, WalletTask
from nftsync.records import Applied, ObjectRead, TokenRead, WalletRead
from nftsync.replay.lease import Lease
from nftsync.replay.outcomes import PUT_OFF, Applying, Outcomes, after, given_back
from nftsync.replay.result import ReplayResult
from nftsync.replay.work import Follow, Job, Work, follow_object, plan_reads, subject_of
from nftsync.store import queue, runs
from nftsync.store.mirror import Mirror, Transaction, store_object
from nftsync.store.queue import Claim, ObjectKey, Settlement
from nftsync.times import now, shifted

__all__ = ["Worker"]

_log = logging.getLogger("nftsync.replay")

#: Objects whose webhooks wait for a sync in memory; a sync may take an hour.
_MOST_WAITING_FOR_SYNC = 10_000
#: How often it is looked for webhooks that a wrong clock has put off, in seconds.
_LOOK_FOR_LATE_EVERY = 30.0
#: Seconds after which a webhook that the next sync is too early for is looked at again at the
#: latest; a clock that was wrong may have said when it is due.
_LONGEST_WAIT_FOR_SYNC = 3_600.0


class Worker:
    """Works on webhooks under one lease; used by one thread.

    Attributes:
        work: what it has in hand.
        result: what it came to.
        wants_sync: jobs that ask for a sync of all wallets.
        outcomes: decides what becomes of webhooks, and knows which objects were put off.
    """

    def __init__(
        self,
        mirror: Mirror,
        lease: Lease,
        routes: Routes,
        *,
        organization_id: str | None = None,
        look_again_after: float | None = None,
    ) -> None:
        """Begin with nothing in hand.

        Args:
            mirror: where reads are applied.
            lease: its own.
            routes: how types are followed.
            organization_id: webhooks of others are quarantined; None: there is no such check.
            look_again_after: seconds after which an object is read once more that had not
                changed; None: it is not.
        """
        self.work = Work()
        self.result = ReplayResult()
        self.wants_sync: list[Job] = []
        self.outcomes = Outcomes(look_again_after)
        self._applying = Applying(lease, self.work)
        self._look_for_late_at = 0.0
        self._mirror = mirror
        self._routes = routes
        self._organization_id = organization_id
        self._look_again_after = look_again_after
        self._lease = lease
        self._unsettled: list[Settlement] = []
        self._in_sync: set[Job] = set()

    @property
    def busy(self) -> bool:
        """Something is in hand that is not settled."""
        return bool(len(self.work) or self.wants_sync or self._unsettled)

    # Claiming --------------------------------------------------------------------------------

    def claim(self, room: int, *, due: str | None = None) -> bool:
        """Take on objects, and plan their reads.

        Args:
            room: how many at most.
            due: only webhooks due by this time; None: by now.

        Returns:
            Whether there were any; another worker may have been quicker.
        """
        at = now()
        connection = self._mirror.connection
        late = time.monotonic() >= self._look_for_late_at
        if late:
            self._look_for_late_at = time.monotonic() + _LOOK_FOR_LATE_EVERY
        keys = queue.due_objects(connection, due or at, at, room, late=late)
        claims = self._claim_all(keys, due or at, at) if keys else {}
        # After the claim: what starts from here on knows what those webhooks announced.
        since = self._mirror.tickets.take()
        follows = plan_reads(connection, self._routes, list(claims))
        for claim in claims.values():
            self._begin(claim, follows[claim.key], since)
        looks = self._looks(room - len(claims)) if self._look_again_after is not None else []
        follows = plan_reads(connection, self._routes, [look.key for look in looks])
        for look in looks:
            job = Job(look.key, look.webhook_id, since, look=True)
            if follows[look.key].tasks:
                self.work.add(job, follows[look.key].tasks)
            else:
                self._unsettled.append(self.outcomes.of(job))
        return bool(keys or looks)

    def _claim_all(self, keys: Sequence[ObjectKey], due: str, at: str) -> dict[ObjectKey, Claim]:
        claims: dict[ObjectKey, Claim] = {}
        more, under = True, None
        while more:
            with self._mirror.transaction() as transaction:
                lease_no = self._hold(transaction.connection)
                if under not in {None, lease_no}:
                    return {}  # what was claimed under the lease that is gone waits again
                claimed = queue.claim(
                    transaction.connection,
                    *(lease_no, keys, due, at),
                    organization_id=self._organization_id,
                    going_on=under is not None,
                )
            self.result.count({"quarantined": claimed.quarantined})
            for claim in claimed.claims:
                before = claims.get(claim.key)
                count = claim.webhooks + (before.webhooks if before else 0)
                claims[claim.key] = claim._replace(webhooks=count)
            # Only what this claim has begun: another worker's may be running by now.
            keys = [key for key in keys if key in claims]
            more, under = claimed.more and bool(keys), lease_no
        return claims

    def _begin(self, claim: Claim, follow: Follow, since: int) -> None:
        job = Job(claim.key, claim.webhook_id, since)
        if follow.route is None:
            error = f"no route for the type {claim.key.resource_type[:80]!r}"
            self._unsettled.append(Settlement(claim.key, "unrouted", error))
        elif follow.route.kind == "sync":
            self._ask_for_sync(job, follow.route)
        elif follow.tasks:
            self.work.add(job, follow.tasks)
        else:  # a wallet that the operator has untracked
            self._unsettled.append(Settlement(claim.key, "done"))

    def _ask_for_sync(self, job: Job, route: Route) -> None:
        connection = self._mirror.connection
        if runs.all_read_since_webhook(connection, job.webhook_id):
            self._unsettled.append(Settlement(job.key, "done"))
            return
        if route.at_most_every is not None:
            at = now()
            last = runs.last_full_sync_began(connection, shifted(at, -route.at_most_every))
            if last is not None and last <= at:
                due_at = shifted(last, route.at_most_every)
                due_at = min(due_at, after(_LONGEST_WAIT_FOR_SYNC))
                self._unsettled.append(Settlement(job.key, "pending", due_at=due_at))
                return
        if len(self.wants_sync) >= _MOST_WAITING_FOR_SYNC:
            self._unsettled.append(given_back(job, None, PUT_OFF))
            return
        self.wants_sync.append(job)

    def _looks(self, room: int) -> list[queue.Recheck]:
        at = now()
        (due,) = self._mirror.connection.execute(
            "SELECT EXISTS (SELECT 1 FROM webhooks"
            " WHERE look_again_at IS NOT NULL AND look_again_at <= ?)",
            (at,),
        ).fetchone()
        if not due or room <= 0:
            return []
        with self._mirror.transaction() as transaction:
            self._hold(transaction.connection)
            return queue.due_rechecks(transaction.connection, at, room)

    # Applying --------------------------------------------------------------------------------

    def apply(self, reads: Sequence[AnyRead]) -> list[AnyRead]:
        """Apply reads, and settle the webhooks that have all theirs.

        Returns:
            The reads that say that the provider is down or refuses, less those of objects that it
            has refused before, and those of what may be none of ours.
        """
        refused: list[AnyRead] = []
        with self._mirror.transaction() as transaction:
            lease_no = self._hold(transaction.connection)
            for read, applied in self._applying.apply(transaction, reads):
                if self._serve(transaction.connection, read, applied):
                    refused.append(read)
            if self._applying.doubts:
                self._ask_another(transaction)
            self._settle(transaction.connection, lease_no)
        self.result.fetches += len(reads)
        return refused

    def _ask_another(self, transaction: Transaction) -> None:
        """Ask for a wallet that should not be empty; where there is none, believe what was read."""
        control = self._applying.control(transaction.connection)
        if control is not None:
            self.work.want(control)
            return
        for read, applied in self._applying.apply(transaction, [], believe=True):
            self._serve(transaction.connection, read, applied)

    def settle(self) -> None:
        """Settle what is ready without a read."""
        while self._unsettled:
            with self._mirror.transaction() as transaction:
                lease_no = self._hold(transaction.connection)
                self._settle(transaction.connection, lease_no)

    def _serve(
        self, connection: sqlite3.Connection, read: AnyRead, applied: Applied | None
    ) -> bool:
        """Let jobs have a read they wait for; whether it is news that the provider refuses."""
        overtaken = applied is not None and applied.result == "stale"
        jobs = self.work.served(read, self._again(read), overtaken=overtaken)
        changed = applied is not None and not applied.changed_nothing
        if isinstance(read, ObjectRead) and read.outcome == "ok":
            changed = store_object(connection, read)
        refused = read.provider_down and not jobs
        for job in jobs:
            if read.outcome in {"failed", "incomplete"}:
                # What an object names may be someone else's: the provider denies it, or us.
                if subject_of(read) not in job.named or (read.provider_down and read.status != 403):
                    job.error = read.error
                    job.down |= read.provider_down
                    refused |= read.provider_down and not self.outcomes.has_put_off(job.key)
            elif overtaken:
                job.error = "other reads of it kept overtaking this one"
            else:
                job.changed |= changed
            if isinstance(read, ObjectRead) and read.body is not None:
                self._follow(connection, job, read.body)
            if job.down or not job.waits_for:
                self._finish(job)
        return refused

    def _follow(self, connection: sqlite3.Connection, job: Job, body: str) -> None:
        """Read the wallets and tokens that an object names."""
        route = self._routes.find(job.key.resource_type)
        if route is None:
            return
        ours, others = follow_object(connection, route, body)
        job.named.update(subject_of(task) for task in others)
        self.work.add(job, [*ours, *others])

    def _again(self, read: AnyRead) -> AnyTask:
        """The task that asks the same, without conditions."""
        if isinstance(read, WalletRead):
            return WalletTask(read.wallet_id)
        if isinstance(read, TokenRead):
            return TokenTask(read.token_id)
        route = self._routes.find(read.resource_type) or Route(path="/{resourceId}")
        path = path_for(route, read.resource_id)
        return ObjectTask(read.resource_type, read.resource_id, path)

    # Settling --------------------------------------------------------------------------------

    def _finish(self, job: Job) -> None:
        self.work.drop(job)
        self._unsettled.append(self.outcomes.of(job))

    def _settle(self, connection: sqlite3.Connection, lease_no: int) -> None:
        """Settle as many rows as fit in a transaction."""
        counts, self._unsettled = queue.acknowledge(
            connection, lease_no, self._unsettled, now(), self._lease.run.run_id
        )
        self.result.count(counts)

    def _hold(self, connection: sqlite3.Connection) -> int:
        """Renew the lease; where it has been taken away, forget what was done under it."""
        kept, lease_no = self._lease.hold(connection)
        if not kept:
            _log.warning("lease lost; its webhooks wait again")
            self.drop_all()
        return lease_no

    def take_jobs_for_sync(self) -> Sequence[Job]:
        """The jobs that a sync is made for now; `settle_syncs` ends them."""
        jobs, self.wants_sync = self.wants_sync, []
        self._in_sync.update(jobs)
        return jobs

    def settle_syncs(self, jobs: Sequence[Job], error: str | None, wait: float | None) -> None:
        """Settle webhooks that asked for a sync.

        Args:
            jobs: theirs; those that were dropped since are others' by now.
            error: why it was not made, or None.
            wait: seconds until it is tried again; None: it was made.
        """
        self.outcomes.sync_was_not_made(error)
        for job in self._in_sync.intersection(jobs):
            self._in_sync.discard(job)
            if wait is None:
                self._unsettled.append(Settlement(job.key, "done"))
            else:
                self._unsettled.append(given_back(job, error, wait))

    def give_back(self, *, everything: bool = False) -> None:
        """Let webhooks wait again: all, or those whose object is not being read."""
        if everything:
            self.work.forget_reads()
        for job in self.work.not_begun():
            self.work.drop(job)
            self._unsettled.append(given_back(job, None, None))
        self.settle()

    def hasten(self) -> None:
        """The provider answers again: what was put off is due at once."""
        keys = self.outcomes.put_off()
        if keys:
            with self._mirror.transaction() as transaction:
                queue.make_due(transaction.connection, keys, now())

    def renew(self) -> None:
        """Renew the lease."""
        with self._mirror.transaction() as transaction:
            self._hold(transaction.connection)

    def drop_all(self) -> None:
        """Forget what is in hand; it waits again, or others work on it."""
        self.work.clear()
        self.wants_sync.clear()
        self._in_sync.clear()
        self._unsettled.clear()
        self._applying.forget()
