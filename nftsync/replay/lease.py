"""A worker's lease on webhooks, and the run in the ledger that it works under."""

from __future__ import annotations

import sqlite3

from nftsync.store import leases, runs
from nftsync.store.mirror import Mirror
from nftsync.times import now

__all__ = ["Lease"]


class Lease:
    """Taken with the first work, renewed with every step, ended when there is none left.

    Attributes:
        run: the run under way; only while the lease is held.
    """

    def __init__(self, mirror: Mirror) -> None:
        """Hold nothing yet."""
        self._mirror = mirror
        self._lease_no: int | None = None
        self._run: runs.Run | None = None

    @property
    def is_held(self) -> bool:
        """There is a lease, as far as this worker knows."""
        return self._lease_no is not None

    @property
    def run(self) -> runs.Run:
        """The run under way."""
        if self._run is None:
            raise AssertionError("there is a run only under a lease")
        return self._run

    def hold(self, connection: sqlite3.Connection) -> tuple[bool, int]:
        """Take the lease or renew it, and open a run where there is none.

        Args:
            connection: in a write transaction.

        Returns:
            False where the lease was taken away since, and a new one stands for it; and its
            number, the fencing token.
        """
        at = now()
        if self._run is None:
            self._run = runs.start_replay(connection, self._mirror.tickets.take())
        run_id = self._run.run_id
        if self._lease_no is not None:
            if leases.renew_lease(connection, self._lease_no, at, run_id=run_id):
                return True, self._lease_no
            runs.reopen(connection, run_id)  # whoever took the lease has closed it
        kept = self._lease_no is None
        self._lease_no = leases.take_lease(connection, at)
        leases.renew_lease(connection, self._lease_no, at, run_id=run_id)
        return kept, self._lease_no

    def take_back_expired(self) -> None:
        """Let the webhooks of vanished workers wait again."""
        while leases.has_expired(self._mirror.connection, now()):
            with self._mirror.transaction() as transaction:
                leases.take_back_expired(transaction.connection, now())

    def end(self, status: runs.RunStatus, error: str | None = None) -> None:
        """Give the lease up, with all that is running under it, and close the run."""
        if self._lease_no is None:
            return
        more = True
        while more:
            with self._mirror.transaction() as transaction:
                more = leases.end_lease(transaction.connection, self._lease_no)
                if self._run is not None:
                    runs.finish_run(transaction.connection, self._run, status, error)
            self._run = None
        self._lease_no = None
