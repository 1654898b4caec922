"""Applying a replay's reads to the mirror, and not believing that everyone has sold everything.

An empty list of a wallet that held something is held back until another wallet's list is not empty,
as in a sync. Where no other is being read, one is read for that.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence

import msgspec

from nftsync.empty_answers import EmptyAnswers
from nftsync.models import Applied, ObjectRead, TokenRead, WalletRead
from nftsync.reads import AnyRead, WalletTask
from nftsync.replay.lease import Lease
from nftsync.replay.work import Work
from nftsync.store import runs
from nftsync.store.mirror import Transaction
from nftsync.store.registry import another_holder, wallets_by_id

__all__ = ["Applying"]


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
        self._empty = EmptyAnswers()

    @property
    def doubts(self) -> bool:
        """Empty lists are held back."""
        return bool(self._empty.doubted)

    def forget(self) -> None:
        """Drop what is held back."""
        self._empty = EmptyAnswers()

    def control(self, connection: sqlite3.Connection) -> WalletTask | None:
        """A wallet whose list tells whether empty ones may be believed; None: there is none."""
        near = random.getrandbits(40)
        wallet = another_holder(connection, self._empty.doubted, near)
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
        come = [*self._empty.sift(fit, transaction.connection)]
        if believe:
            come += self._empty.release()
        if self._empty.verdict is not None:  # they came out incomplete; the next are asked anew
            self._empty = EmptyAnswers()
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
