"""Instructions of a run for its workers."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

import msgspec

from nftsync.lake.staged import StagedFiles
from nftsync.lake.storage import Lake, Versions
from nftsync.provider.config import ClientConfig
from nftsync.pull.guard import Decision, RemovalLimits
from nftsync.times import shifted

_INSTANT = timedelta(microseconds=1)


@lru_cache(maxsize=4)
def _lake_of(url: str, driver: str) -> Lake:
    del driver  # another driver may have created the lake again at this address
    return Lake(url)


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions of a run for its workers.

    Attributes:
        start: the version of each table that the run starts from.
        limits: removal limits; None: all removals are approved.
        approved_at: when earlier removals were approved; empty: never.
        parts: tasks that merge tokens.
    """

    url: str
    driver: str = ""
    run_id: int
    folder: str
    buckets: int
    planned: bool = False
    start: Versions
    greatest_sequence: int
    greatest_change: int = 0
    greatest_state: int = 0
    started_at: str
    not_before: str = ""
    config: ClientConfig | None = None
    concurrency: int = 16
    limits: RemovalLimits | None = RemovalLimits()
    decision: Decision = Decision()
    approved_at: str = ""
    applied_at: str = ""
    first_change: dict[int, int] = {}
    first_state: dict[int, int] = {}
    parts: int = 1

    @property
    def lake(self) -> Lake:
        """The lake, with tables that this worker opened for this driver."""
        return _lake_of(self.url, self.driver)

    @property
    def staged(self) -> StagedFiles:
        """The run's staged files."""
        return StagedFiles(self.lake.files, self.folder)

    @property
    def provisional_at(self) -> str:
        """The time of all changes until they get `applied_at`; no other row has it."""
        if not self.not_before:
            return self.started_at
        return max(self.started_at, shifted(self.not_before, _INSTANT))

    def part_of(self, bucket: int) -> int:
        """Return the task that merges a bucket's tokens."""
        return bucket % self.parts
