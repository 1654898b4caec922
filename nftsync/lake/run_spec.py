"""Messages between driver and workers: a run's instructions, and each step's report and rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Literal, TypeAlias, TypeVar

import msgspec

from nftsync.errors import StoreError
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.lake.storage import Commit, Lake, Versions
from nftsync.provider.config import ClientConfig
from nftsync.pull.removal_guard import Decision, RemovalLimits

#: Steps in order. "spread" propagates tokens; the name is stored in lakes.
Step: TypeAlias = Literal["plan", "read", "apply", "merge", "spread", "name"]
#: Target of rows for all buckets.
ALL_BUCKETS = -1
#: Number of a staged report.
REPORT = -1


class StepReport(msgspec.Struct, kw_only=True):
    """Result of a step in a bucket.

    Attributes:
        handed_to: the buckets that the step handed rows to.
    """

    handed_to: set[int] = set()


_T = TypeVar("_T")
_R = TypeVar("_R", bound=StepReport)


@contextmanager
def damage_explained(lake: Lake, run_id: int) -> Iterator[None]:
    """Explain damaged or missing staged rows in one line.

    The block raises `EOFError` for missing rows.
    """
    try:
        yield
    except (EOFError, msgspec.DecodeError, *STORE_ERRORS) as error:
        if "://" in lake.root and isinstance(error, STORE_ERRORS):
            raise  # an object store keeps its files, but may not answer
        raise StoreError(
            f"{lake.url}: stored reads of run {run_id} are damaged or missing. Start a new run:"
            " `nftsync lake sync` without --resume"
        ) from None


def report_of(lake: Lake, commit: Commit, kind: type[_T]) -> _T | None:
    """Return a bucket's staged report of a step; None if the step is not done."""
    if not lake.has_staged(commit):
        return None
    own = {"source": commit.bucket, "number": REPORT}
    with damage_explained(lake, commit.run_id):
        for _, _, packed in lake.staged(commit.run_id, commit.step, **own):
            return msgspec.msgpack.decode(packed, type=kind)
        raise EOFError


def hand_over(lake: Lake, commit: Commit, rows: Iterable[tuple[int, int, bytes]], report: _R) -> _R:
    """Stage a step's rows (target bucket, number, data) and its report.

    Returns the stored report: another worker's, if that one finished the same task first.
    """

    def all_rows() -> Iterator[tuple[int, int, bytes]]:
        for row in rows:
            report.handed_to.add(row[0])
            yield row
        yield commit.bucket, REPORT, msgspec.msgpack.encode(report)

    if lake.stage(all_rows(), commit):
        return report
    return report_of(lake, commit, type(report)) or report


@lru_cache(maxsize=4)
def _lake_of(url: str, driver: str) -> Lake:
    del driver  # another driver may have created the lake again at this address
    return Lake(url)


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions of a run for its workers.

    Attributes:
        url: the lake.
        driver: the driver's unique name.
        attempt: incremented when writing restarts.
        planned: read only the named wallets.
        start: the version of each table that the run starts from.
        base: the version of each table that a step's writes start from.
        greatest_sequence: the greatest sequence number applied before.
        config: how to read the provider, without secrets.
        concurrency: simultaneous requests per task.
        approval: the reads are approved removals.
        limits: removal limits; None: all removals are approved.
        decision: the removals to hold for review.
        approved_at: when earlier removals were approved; empty: never.
        applied_at: the time of all changes.
        first_change, first_state: each bucket's first change and state number.
        first_token_change: the first token change number of each bucket of tokens.
    """

    url: str
    driver: str = ""
    run_id: int
    attempt: int = 0
    buckets: int
    planned: bool = False
    start: Versions
    base: Versions = {}
    greatest_sequence: int
    config: ClientConfig | None = None
    concurrency: int = 16
    approval: bool = False
    limits: RemovalLimits | None = RemovalLimits()
    decision: Decision = Decision()
    approved_at: str = ""
    applied_at: str = ""
    first_change: list[int] = []
    first_state: list[int] = []
    first_token_change: list[int] = []

    @property
    def lake(self) -> Lake:
        """The lake, with tables that this worker opened for this driver."""
        return _lake_of(self.url, self.driver)

    def commit(self, step: Step, bucket: int) -> Commit:
        """Return the commit of a step in a bucket."""
        return Commit(self.run_id, step, bucket, self.attempt, self.base)
