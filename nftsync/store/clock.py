"""Sequence numbers: the number each read takes before its request, so that the later read wins.

It follows the machine's monotonic clock, shifted by an offset that the database keeps. So the reads
of all processes on one machine are ordered as they started, whatever happens to the wall clock; and
as the offset is made anew whenever the clock would fall behind the greatest number in the database
(a restart, another machine), a clock can never freeze a wallet. Its columns are called `ticket`.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from typing import Self

__all__ = ["SequenceNumbers"]


class SequenceNumbers:
    """Hands out growing numbers; one per process and database.

    Attributes:
        offset: what another process needs to hand out sequence numbers of the same order.
    """

    def __init__(self, offset: int, last: int) -> None:
        """Begin where the database says.

        Args:
            offset: nanoseconds between the machine's monotonic clock and the sequence numbers.
            last: the greatest sequence number so far.
        """
        self.offset = offset
        self._last = last
        self._lock = threading.Lock()

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> Self:
        """Agree on the offset with the other processes that use this database."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            offset, greatest = connection.execute(
                "SELECT ticket_offset, greatest_ticket FROM mirror_state"
            ).fetchone()
            monotonic = time.monotonic_ns()
            if not offset or monotonic + offset <= greatest:
                offset = max(time.time_ns(), greatest + 1) - monotonic
                connection.execute("UPDATE mirror_state SET ticket_offset = ?", (offset,))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return cls(offset, greatest)

    def take(self) -> int:
        """The next sequence number, greater than each that was taken or applied before."""
        with self._lock:
            self._last = max(time.monotonic_ns() + self.offset, self._last + 1)
            return self._last
