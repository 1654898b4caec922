"""What becomes of the webhooks of an object when its reads are over."""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from nftsync.pull.reads import AnyRead, WalletTask
from nftsync.pull.removals import RemovalGuard
from nftsync.records import Applied, ObjectRead, TokenRead, WalletRead
from nftsync.replay.lease import Lease
from nftsync.replay.work import Job, Work
from nftsync.store import runs
from nftsync.store.mirror import Transaction
from nftsync.store.queue import ObjectKey, Settlement
from nftsync.store.wallets import another_holder, wallets_by_id
from nftsync.times import format_time

__all__ = ["PUT_OFF", "Applying", "Outcomes", "after", "given_back"]


_log = logging.getLogger("nftsync.replay")

#: An object that the provider refuses to answer for is put off so long at first, in seconds, and
#: twice as long each time, up to the second figure.
PUT_OFF = 5.0
_LONGEST_PUT_OFF = 900.0


class Outcomes:
    """Decides, and remembers which objects were put off.

    Attributes:
        refused: why webhooks were put off that still wait, or None.
    """

    def __init__(self, look_again_after: float | None) -> None:
        """Begin with nothing put off.

        Args:
            look_again_after: seconds after which an object is read once more that had not
                changed; None: it is not.
        """
        self.refused: str | None = None
        self._look_again_after = look_again_after
        self._put_off: dict[ObjectKey, int] = {}

    def has_put_off(self, key: ObjectKey) -> bool:
        """Whether the provider has refused this object before, and not answered for it since."""
        return key in self._put_off

    def of(self, job: Job) -> Settlement:
        """Decide on a job whose reads are over, or one of whose reads the provider refused."""
        if job.down:
            times = self._put_off[job.key] = self._put_off.get(job.key, -1) + 1
            wait = min(_LONGEST_PUT_OFF, PUT_OFF * 2.0**times)
            self.refused = f"{job.key.resource_type} {job.key.resource_id}: {job.error}"
            return given_back(job, job.error, wait)
        if self._put_off.pop(job.key, None) is not None and not self._put_off:
            self.refused = None
        if job.error is not None:
            _log_failure(job)
            return Settlement(
                job.key, "failed", job.error, recheck=job.look, webhook_id=job.webhook_id
            )
        again = None if job.changed or job.look else self._look_again_after
        return Settlement(
            job.key,
            "done",
            recheck=job.look,
            look_again_at=None if again is None else after(again),
            webhook_id=job.webhook_id,
        )

    def sync_was_not_made(self, why: str | None) -> None:
        """Note why a sync that webhooks ask for was not made; None: it was."""
        self.refused = why or (self.refused if self._put_off else None)

    def put_off(self) -> list[ObjectKey]:
        """The objects that were put off, and not answered for since."""
        return list(self._put_off)


def given_back(job: Job, error: str | None, wait: float | None) -> Settlement:
    """The settlement of a job that is to be worked on again.

    Args:
        job: the job.
        error: why, or None to leave its webhooks the error that they had.
        wait: seconds until it is due; None: as it was.
    """
    return Settlement(
        job.key,
        "pending",
        error,
        due_at=None if wait is None else after(wait),
        recheck=job.look,
        look_again_at=after(wait or 0.0) if job.look else None,
        webhook_id=job.webhook_id,
    )


def after(seconds: float) -> str:
    """The time so many seconds from now, in the stored form."""
    return format_time(datetime.now(UTC) + timedelta(seconds=seconds))


def _log_failure(job: Job) -> None:
    _log.warning(
        "a webhook's read failed",
        extra={
            "resource_type": job.key.resource_type,
            "resource_id": job.key.resource_id,
            "webhook_id": job.webhook_id,
            "error": job.error,
        },
    )


class Applying:
    """Applies reads in the run under way, and counts them there."""

    def __init__(self, lease: Lease, work: Work) -> None:
        """Begin with nothing held back.

        Args:
            lease: whose run is under way.
            work: knows which webhook is behind a read.
        """
        self._lease = lease
        self._work = work
        self._empty = RemovalGuard()

    @property
    def doubts(self) -> bool:
        """Empty lists are held back."""
        return bool(self._empty.pending)

    def forget(self) -> None:
        """Drop what is held back."""
        self._empty = RemovalGuard()

    def control(self, connection: sqlite3.Connection) -> WalletTask | None:
        """A wallet whose list tells whether empty ones may be believed; None: there is none."""
        near = random.getrandbits(40)
        wallet = another_holder(connection, self._empty.pending, near)
        return None if wallet is None else WalletTask(wallet.wallet_id, wallet.etag, wallet.digest)

    def apply(
        self, transaction: Transaction, reads: Sequence[AnyRead], *, believe: bool = False
    ) -> list[tuple[AnyRead, Applied | None]]:
        """Apply what says something of a wallet or token.

        Args:
            transaction: the mirror's.
            reads: any reads.
            believe: empty lists that were held back are true.

        Returns:
            Each read that is not held back, those that no longer are among them, and what became
            of it in the mirror; None for one that is not of it.
        """
        aside = [x for x in reads if isinstance(x, ObjectRead) or x.provider_down]
        fit = [x for x in reads if not (isinstance(x, ObjectRead) or x.provider_down)]
        come = [*self._empty.filter(fit, transaction.connection)]
        if believe:
            come += self._empty.accept()
        if self._empty.reason is not None:  # they came out incomplete; the next are asked anew
            self._empty = RemovalGuard()
        unknown = _unknown_wallets(transaction.connection, come)
        # A wallet that nobody knows, and that the provider does not know either.
        aside += [x for x in come if x.outcome == "failed" and _id_of(x) in unknown]
        come = [x for x in come if not (x.outcome == "failed" and _id_of(x) in unknown)]
        return [*((read, None) for read in aside), *self._apply(transaction, come, aside)]

    def _apply(
        self,
        transaction: Transaction,
        come: Sequence[WalletRead | TokenRead],
        aside: Sequence[AnyRead],
    ) -> list[tuple[AnyRead, Applied | None]]:
        caused = [
            msgspec.structs.replace(read, webhook_id=self._work.webhook_behind(read))
            for read in come
        ]
        run = self._lease.run
        applied = transaction.apply(caused, run_id=run.run_id)
        run.counts = run.counts.with_applied(applied)
        for read in aside:
            run.counts.requests += read.effort.requests
            run.counts.retries += read.effort.retries
        runs.save_counts(transaction.connection, run.run_id, run.counts)
        by_read = {id(x.read): x for x in applied}
        return [(read, by_read[id(read)]) for read in caused]


def _id_of(read: WalletRead | TokenRead) -> str:
    return read.wallet_id if isinstance(read, WalletRead) else read.token_id


def _unknown_wallets(
    connection: sqlite3.Connection, reads: Sequence[WalletRead | TokenRead]
) -> set[str]:
    failed = {
        read.wallet_id
        for read in reads
        if isinstance(read, WalletRead) and read.outcome == "failed"
    }
    return failed - wallets_by_id(connection, failed).keys() if failed else failed
