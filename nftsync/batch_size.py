"""How much goes into one write transaction, learnt from how long the last ones took."""

from __future__ import annotations

__all__ = ["BatchSize"]

#: A write transaction of about this length leaves room for the webhooks' inbox beside it; some last
#: twice as long.
_TARGET_SECONDS = 0.08
_FEWEST_ENTRIES = 200
_MOST_ENTRIES = 8_000


class BatchSize:
    """Sizes the next write transaction so that it lasts about as long as it should.

    Attributes:
        entries: list entries to write together next.
    """

    def __init__(self) -> None:
        self.entries = 1_000

    def learn(self, entries_written: int, seconds: float) -> None:
        """Adjust to a transaction; one of much less than the asked size says nothing.

        Args:
            entries_written: list entries it wrote; a token or object counts as one.
            seconds: how long it kept others from writing; waits for them say nothing about it.
        """
        if entries_written > self.entries // 2:
            factor = min(2.0, max(0.5, _TARGET_SECONDS / max(seconds, 0.001)))
            self.entries = int(min(_MOST_ENTRIES, max(_FEWEST_ENTRIES, self.entries * factor)))
