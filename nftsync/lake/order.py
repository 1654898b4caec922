"""`Order` and `Report`: what the driver sends to every worker, and what a bucket reports back."""

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

#: The steps of a run, in their order: the wallets that it reads; what the provider answered; what
#: tokens it showed; how tokens differ from what a bucket knows; how their names count.
Step: TypeAlias = Literal["plan", "read", "apply", "merge", "spread", "name"]
#: The target of what is handed to every bucket.
EVERYBODY = -1
#: The number of a report among what is handed over.
REPORT = -1


class Report(msgspec.Struct, kw_only=True):
    """What a step came to in a bucket.

    Attributes:
        handed_to: the buckets that have something to do because of it.
    """

    handed_to: set[int] = set()


_T = TypeVar("_T")
_R = TypeVar("_R", bound=Report)


@contextmanager
def whole_or_refused(lake: Lake, run_id: int) -> Iterator[None]:
    """Read what a run handed over; a part that is damaged or missing ends the run in one line.

    Raises:
        StoreError: a part is damaged or missing; in the block, `EOFError` says so.
    """
    try:
        yield
    except (EOFError, msgspec.DecodeError, *STORE_ERRORS) as error:
        if "://" in lake.root and isinstance(error, STORE_ERRORS):
            raise  # a store loses nothing, but may not answer
        raise StoreError(
            f"{lake.url}: what run {run_id} had read is damaged or gone; start a new run:"
            " `nftsync lake sync` without --resume"
        ) from None


def report_of(lake: Lake, commit: Commit, kind: type[_T]) -> _T | None:
    """Return the report that a bucket handed over in a step, or None: the step is to be done.

    Raises:
        StoreError: it is damaged or gone.
    """
    if not lake.has_staged(commit):
        return None
    own = {"source": commit.bucket, "number": REPORT}
    with whole_or_refused(lake, commit.run_id):
        for _, _, packed in lake.staged(commit.run_id, commit.step, **own):
            return msgspec.msgpack.decode(packed, type=kind)
        raise EOFError


def hand_over(lake: Lake, commit: Commit, rows: Iterable[tuple[int, int, bytes]], report: _R) -> _R:
    """Hand over what a step found for other buckets, and its report, which says to whom.

    Returns the report that counts, which is another worker's if that was given the same task.
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
    del driver  # another one may find another lake at that address
    return Lake(url)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as its workers need to know it.

    Attributes:
        url: the lake.
        driver: whose order it is, by a name that no other driver has.
        run_id: the run.
        attempt: how often its writing was begun anew.
        buckets: into how many the lake is divided.
        planned: whether the wallets to read were named; else all tracked ones are.
        start: the version of each table that it begins from.
        base: the versions that a step's writes begin at.
        greatest_sequence: the greatest sequence number that was applied before.
        config: how to read the provider, without the secrets, which each worker has itself.
        concurrency: requests at once, of each task.
        approval: its reads are held removals that were approved.
        limits: how much may be removed; None: all removals are approved.
        decision: whose removals are held for review.
        approved_at: when the removals so far were approved; blank: never.
        applied_at: the time of everything that the run changes.
        first_change: by bucket, the number that its first change gets.
        first_state: by bucket, the number that its first state gets.
        first_token_change: by bucket of tokens, the number that the first change there gets.
    """

    url: str
    driver: str = ""
    run_id: int
    attempt: int = 0
    buckets: int
    planned: bool
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
        """The lake, with what this worker has opened of it for this driver."""
        return _lake_of(self.url, self.driver)

    def commit(self, step: Step, bucket: int) -> Commit:
        """A write of a step, for a bucket."""
        return Commit(self.run_id, step, bucket, self.attempt, self.base)
