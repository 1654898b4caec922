"""Step 1 of a run: a worker reads a bucket's wallets and returns the reads.

The bucket is made a mirror, and synced as any mirror is; only that what comes of it is not kept.
What is kept are the reads, in one commit: from them the next steps work out the same rows, however
often they are made. So the provider is asked once, whatever dies afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from itertools import groupby
from operator import itemgetter
from tempfile import TemporaryFile
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from nftsync.lake.order import REPORT, Order, Report, hand_over, report_of, whole_or_refused
from nftsync.lake.past import Known, last_numbers, report_known
from nftsync.lake.rows import BALANCES, BUCKET, STORED_NAMES, bucket_of, mirror_of
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule
from nftsync.pull.reads import Pool, Read, Task, weight
from nftsync.pull.removal_guard import RemovalGuard
from nftsync.pull.result import Failure
from nftsync.pull.run import SyncRequest, SyncRun, begin
from nftsync.records import Applied, Removals, SequenceNumbers
from nftsync.store.history import DAY
from nftsync.store.mirror import Mirror, Transaction
from nftsync.store.removals import numbers_held, reads_of_held
from nftsync.store.wallets import WalletLine, tracked_numbers
from nftsync.times import now, shifted

if TYPE_CHECKING:
    from nftsync.provider.access import Access

_pack = msgspec.msgpack.encode
_unpack_read: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)
_unpack_lines = msgspec.msgpack.Decoder(list[tuple[str, str | None, str | None]])


class ReadReport(Report, kw_only=True):
    """What reading a bucket came to.

    Attributes:
        wallets: how many it was to read.
        failures: which of them were not read, or not wholly.
        requests: HTTP requests.
        retries: how many of them were repeats.
        reason: why going on has no point, or None.
        interrupted: it was stopped.
        changes: more changes than this the reads cannot make.
        states: nor more states.
        greatest_sequence: the greatest sequence number.
        known: what the removal guard needs.
        driver: whose worker read it.
        read_at: when reading it began.
        checksum: the sum of the CRC-32 of the reads that were handed over.
    """

    wallets: int = 0
    failures: list[Failure] = msgspec.field(default_factory=list)
    requests: int = 0
    retries: int = 0
    reason: str | None = None
    interrupted: bool = False
    changes: int = 0
    states: int = 0
    greatest_sequence: int = msgspec.field(name=STORED_NAMES["greatest_sequence"], default=0)
    known: Known = msgspec.field(default_factory=Known)
    driver: str = ""
    read_at: str = ""
    checksum: int = 0


def plan_of(order: Order, bucket: int) -> list[WalletLine] | None:
    """The wallets that a bucket is to read; None: all that it tracks."""
    if not order.planned:
        return None
    staged = order.lake.staged(order.run_id, "plan", target=bucket)
    return [WalletLine(*line) for _, _, packed in staged for line in _unpack_lines.decode(packed)]


def reads_of(order: Order, bucket: int) -> Iterator[list[Read]]:
    """Yield the reads of a bucket, in the batches in which they came.

    Raises:
        StoreError: they are not what was handed over.
    """
    with TemporaryFile() as file:
        places, checksum, expected = [], 0, None  # Delta keeps no order
        with whole_or_refused(order.lake, order.run_id):
            for _, number, packed in order.lake.staged(order.run_id, "read", source=bucket):
                if number == REPORT:
                    expected = msgspec.msgpack.decode(packed, type=ReadReport).checksum
                else:
                    places.append((number, file.tell(), len(packed)))
                    checksum += crc32(packed)
                    file.write(packed)
            if checksum != expected:
                raise EOFError
        for _, batch in groupby(sorted(places), itemgetter(0)):
            reads = []
            for _, start, length in batch:
                file.seek(start)
                reads.append(_unpack_read.decode(file.read(length)))
            yield reads


def mirror_to_read(order: Order, bucket: int, at: str) -> AbstractContextManager[Mirror]:
    """Make a bucket a mirror that takes in reads at a time, and knows the changes of the day."""
    since = max(shifted(at, -DAY), order.approved_at)
    return mirror_of(
        order.lake,
        order.start,
        bucket,
        [*BALANCES, "balance_changes"],
        only={"balance_changes": f"observed_at > '{since}'"},
        greatest_sequence=order.greatest_sequence,
    )


def read_bucket(
    order: Order, bucket: int, access: Access | None, stopped: threading.Event, rule: GiveUpRule
) -> ReadReport:
    """Read a bucket's wallets, unless that has been done, and hand over what was answered.

    Args:
        order: the run.
        bucket: which.
        access: rate limit and credentials that the tasks of this worker share.
        stopped: set it, and what was read is dropped.
        rule: when to read no more, for all buckets that this worker reads.

    Raises:
        SettingsError: the provider cannot be read with these settings.
        StoreError: the lake cannot be read or written.
    """
    lake, commit = order.lake, order.commit("read", bucket)
    if (done := report_of(lake, commit, ReadReport)) is not None:
        return done
    with mirror_to_read(order, bucket, now()) as mirror, closing(Recorder()) as recorder:
        pool_of = partial(Pool[Task, Read], access=access, rule=rule)
        report = _read(order, plan_of(order, bucket), mirror, recorder, pool_of, stopped)
        if report.reason is None and not report.interrupted:
            return hand_over(lake, commit, recorder.packed(bucket), report)
        return report


def _read(
    order: Order,
    plan: list[WalletLine] | None,
    mirror: Mirror,
    recorder: Recorder,
    pool_of: Callable[[ClientConfig, SequenceNumbers, int], Pool[Task, Read]],
    stopped: threading.Event,
) -> ReadReport:
    last = last_numbers(mirror.connection)
    read_at = now()
    if plan == [] or (plan is None and not tracked_numbers(mirror.connection)):
        return ReadReport(known=report_known(mirror.connection, last, []), driver=order.driver)
    if order.config is None:
        raise TypeError("a run that reads is told how")
    run = begin(mirror, SyncRequest(wallets=plan))
    with closing(pool_of(order.config, mirror.numbers, order.concurrency)) as pool:
        result = SyncRun(mirror, pool, run, recorder, [stopped], False).run()
    (balances,) = mirror.connection.execute("SELECT count(*) FROM balance_rows").fetchone()
    known = report_known(mirror.connection, last, recorder.removals)
    if not any(order.start.values()):
        known.changes = known.first_reads = []  # the first run finds all wallets at the same time
    return ReadReport(
        wallets=len(run.plan),
        failures=result.failures,
        requests=result.requests,
        retries=result.retries,
        reason=result.error,
        interrupted=result.status == "interrupted",
        changes=balances + 2 * recorder.entries,  # each may come and go
        states=recorder.reads,
        greatest_sequence=mirror.numbers.take(),
        known=known,
        driver=order.driver,
        read_at=read_at,
        checksum=recorder.checksum,
    )


class Recorder(RemovalGuard):
    """Keeps each read of a bucket and its removals, on which the driver decides; none waits."""

    def __init__(self) -> None:
        super().__init__(None)
        self._kept = TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._batches = 0
        self._lengths: list[tuple[int, int]] = []
        self.removals: list[Removals] = []
        self.entries = 0
        self.reads = 0
        self.checksum = 0

    def apply(self, transaction: Transaction, run_id: int, reads: Sequence[Read]) -> list[Applied]:
        """Apply reads to what the next ones are compared with, and keep them."""
        all_applied = transaction.apply(reads, run_id=run_id, removals="stage")
        for read in reads:
            packed = _pack(read)
            self._kept.write(packed)
            self._lengths.append((self._batches, len(packed)))
            self.checksum += crc32(packed)
            self.entries += weight(read)
        self._batches += 1
        self.reads += len(reads)
        self.removals += [each.removals for each in all_applied if each.removals is not None]
        # To the sync it is done with, as the provider need not be asked again.
        return [x._replace(result="ok") if x.result == "staged" else x for x in all_applied]

    def packed(self, bucket: int) -> Iterator[tuple[int, int, bytes]]:
        """Each read of a bucket with the number of its batch."""
        self._kept.seek(0)
        for number, length in self._lengths:
            yield bucket, number, self._kept.read(length)

    def close(self) -> None:
        """Drop what was kept."""
        super().close()
        self._kept.close()


#: Reads that are applied in one transaction.
_AT_ONCE = 100


def read_held(wallets: list[str] | None, order: Order, bucket: int) -> ReadReport:
    """Hand over the held removals of a bucket as the reads that show them, unless that is done.

    Args:
        wallets: of these wallets; None: of all.
        order: the run.
        bucket: which.

    Raises:
        StoreError: the lake cannot be read or written.
    """
    lake, commit = order.lake, order.commit("read", bucket)
    if (done := report_of(lake, commit, ReadReport)) is not None:
        return done
    own = None
    if wallets is not None:
        own = [wallet for wallet in wallets if bucket_of(wallet, order.buckets) == bucket]
    where = f"{BUCKET} = {bucket} AND held <> 0"
    any_held = any(
        batch.num_rows
        for batch in lake.batches("removals", order.start["removals"], where, ("wallet_id",))
    )
    if own == [] or not any_held:
        return ReadReport(greatest_sequence=order.greatest_sequence)
    with mirror_of(
        lake, order.start, bucket, BALANCES, greatest_sequence=order.greatest_sequence
    ) as mirror:
        connection = mirror.connection
        reads = [
            read
            for number in numbers_held(connection, own)
            for _, read in reads_of_held(connection, mirror.numbers, number)
        ]
        (balances,) = connection.execute("SELECT count(*) FROM balance_rows").fetchone()
        packed = [_pack(read) for read in reads]
        report = ReadReport(
            wallets=len(reads),
            changes=balances + 2 * sum(map(weight, reads)),  # each may come and go
            states=len(reads),
            greatest_sequence=mirror.numbers.take(),
            checksum=sum(map(crc32, packed)),
        )
    if not reads:
        return report
    rows = [(bucket, number // _AT_ONCE, read) for number, read in enumerate(packed)]
    return hand_over(lake, commit, rows, report)
