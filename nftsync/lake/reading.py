"""First step of a run: read a bucket's wallets, and stage the reads.

A worker syncs a temporary mirror of the bucket, and stages only the reads, in one commit. Later
steps compute the same rows from them on every attempt. So the provider is asked once per run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from itertools import groupby
from operator import itemgetter
from tempfile import TemporaryFile
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from msgspec.structs import replace

from nftsync.lake.past import GuardInput, guard_input, last_numbers
from nftsync.lake.rows import BALANCES, BUCKET, STORED_NAMES, bucket_of, mirror_of
from nftsync.lake.run_spec import (
    REPORT,
    RunSpec,
    StepReport,
    damage_explained,
    hand_over,
    report_of,
)
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule
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
    from nftsync.provider.client import Access

_pack = msgspec.msgpack.encode
_unpack_read: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)
_unpack_lines = msgspec.msgpack.Decoder(list[tuple[str, str | None, str | None]])


class ReadReport(StepReport, kw_only=True):
    """Result of reading a bucket.

    Attributes:
        wallets: the number of wallets to read.
        failures: wallets with failed or incomplete reads.
        requests: HTTP requests.
        retries: repeated requests.
        reason: why the run must stop, or None.
        interrupted: the reads were stopped.
        changes, states: upper bounds on the number of changes and new states.
        greatest_sequence: the greatest sequence number.
        guard_input: the report to the removal guard.
        driver: the driver whose worker read the bucket.
        read_at: when the reads started.
        checksum: the sum of the CRC-32 of the staged reads.
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
    guard_input: GuardInput = msgspec.field(default_factory=GuardInput, name="known")
    driver: str = ""
    read_at: str = ""
    checksum: int = 0


def plan_of(spec: RunSpec, bucket: int) -> list[WalletLine] | None:
    """Return the wallets to read in a bucket; None: all tracked wallets."""
    if not spec.planned:
        return None
    staged = spec.lake.staged(spec.run_id, "plan", target=bucket)
    return [WalletLine(*line) for _, _, packed in staged for line in _unpack_lines.decode(packed)]


def reads_of(spec: RunSpec, bucket: int) -> Iterator[list[Read]]:
    """Yield a bucket's staged reads in their original batches; raise an error if any is damaged."""
    with TemporaryFile() as file:
        places, checksum, expected = [], 0, None  # Delta does not preserve order
        with damage_explained(spec.lake, spec.run_id):
            for _, number, packed in spec.lake.staged(spec.run_id, "read", source=bucket):
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


def mirror_to_read(spec: RunSpec, bucket: int, at: str) -> AbstractContextManager[Mirror]:
    """Copy a bucket into a mirror for reads, with the changes of the last 24 hours."""
    since = max(shifted(at, -DAY), spec.approved_at)
    return mirror_of(
        spec.lake,
        spec.start,
        bucket,
        [*BALANCES, "balance_changes"],
        only={"balance_changes": f"observed_at > '{since}'"},
        greatest_sequence=spec.greatest_sequence,
    )


def read_bucket(
    spec: RunSpec, bucket: int, access: Access | None, stopped: threading.Event, rule: GiveUpRule
) -> ReadReport:
    """Read a bucket's wallets and stage the reads, unless that is done.

    `access` and `rule` are this worker's. If `stopped` is set, the reads are discarded.
    """
    lake, commit = spec.lake, spec.commit("read", bucket)
    if (done := report_of(lake, commit, ReadReport)) is not None:
        return done
    with mirror_to_read(spec, bucket, now()) as mirror, closing(Recorder()) as recorder:
        pool_of = partial(Pool[Task, Read], access=access, rule=rule)
        report = _read(spec, plan_of(spec, bucket), mirror, recorder, pool_of, stopped)
        if report.reason is None and not report.interrupted:
            return hand_over(lake, commit, recorder.packed(bucket), report)
        return report


def _read(
    spec: RunSpec,
    plan: list[WalletLine] | None,
    mirror: Mirror,
    recorder: Recorder,
    pool_of: Callable[[ClientConfig, SequenceNumbers, int], Pool[Task, Read]],
    stopped: threading.Event,
) -> ReadReport:
    last = last_numbers(mirror.connection)
    read_at = now()
    if plan == [] or (plan is None and not tracked_numbers(mirror.connection)):
        return ReadReport(guard_input=guard_input(mirror.connection, last, []), driver=spec.driver)
    if spec.config is None:
        raise TypeError("a run spec for reads needs a config")
    run = begin(mirror, SyncRequest(wallets=plan))
    with closing(pool_of(spec.config, mirror.numbers, spec.concurrency)) as pool:
        result = SyncRun(mirror, pool, run, recorder, [stopped], False).run()
    changes = guard_input(mirror.connection, last, recorder.removals)
    if not any(spec.start.values()):
        changes.changes = changes.first_reads = []  # a first run has nothing to compare with
    return replace(
        recorder.report(mirror),
        wallets=len(run.plan),
        failures=result.failures,
        requests=result.requests,
        retries=result.retries,
        reason=result.error,
        interrupted=result.status == "interrupted",
        guard_input=changes,
        driver=spec.driver,
        read_at=read_at,
    )


class Recorder(RemovalGuard):
    """Removal guard that records a bucket's reads and removals for the driver's decision."""

    def __init__(self) -> None:
        super().__init__(None)
        self._reads_file = TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._batches = 0
        self._lengths: list[tuple[int, int]] = []
        self.removals: list[Removals] = []
        self.entries = 0
        self.checksum = 0

    def apply(self, transaction: Transaction, run_id: int, reads: Sequence[Read]) -> list[Applied]:
        """Apply and record reads."""
        all_applied = transaction.apply(reads, run_id=run_id, removals="stage")
        self.record(reads)
        self.removals += [x.removals for x in all_applied if x.removals is not None]
        # For this sync, staged reads are complete.
        return [x._replace(result="ok") if x.result == "staged" else x for x in all_applied]

    def record(self, reads: Iterable[Read]) -> None:
        """Record a batch of reads."""
        for read in reads:
            packed = _pack(read)
            self._reads_file.write(packed)
            self._lengths.append((self._batches, len(packed)))
            self.checksum += crc32(packed)
            self.entries += weight(read)
        self._batches += 1

    def report(self, mirror: Mirror) -> ReadReport:
        """Return a report with bounds and checksum of the recorded reads."""
        (balances,) = mirror.connection.execute("SELECT count(*) FROM balance_rows").fetchone()
        return ReadReport(
            changes=balances + 2 * self.entries,  # an entry may be added and removed again
            states=len(self._lengths),
            greatest_sequence=mirror.numbers.take(),
            checksum=self.checksum,
        )

    def packed(self, bucket: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield each read with its bucket and batch number."""
        self._reads_file.seek(0)
        for number, length in self._lengths:
            yield bucket, number, self._reads_file.read(length)

    def close(self) -> None:
        """Delete the recorded reads."""
        super().close()
        self._reads_file.close()


#: Reads per batch.
_AT_ONCE = 100


def read_held(wallets: list[str] | None, spec: RunSpec, bucket: int) -> ReadReport:
    """Stage removals held for review as reads, unless that is done. `wallets` None: all."""
    lake, commit = spec.lake, spec.commit("read", bucket)
    if (done := report_of(lake, commit, ReadReport)) is not None:
        return done
    own = None
    if wallets is not None:
        own = [wallet for wallet in wallets if bucket_of(wallet, spec.buckets) == bucket]
    where = f"{BUCKET} = {bucket} AND held <> 0"
    any_held = any(lake.rows("removals", spec.start["removals"], where, ("wallet_id",)))
    if own == [] or not any_held:
        return ReadReport(greatest_sequence=spec.greatest_sequence)
    sequence = spec.greatest_sequence
    with (
        mirror_of(lake, spec.start, bucket, BALANCES, greatest_sequence=sequence) as mirror,
        closing(Recorder()) as recorder,
    ):
        connection = mirror.connection
        reads = [
            read
            for number in numbers_held(connection, own)
            for _, read in reads_of_held(connection, mirror.numbers, number)
        ]
        for start in range(0, len(reads), _AT_ONCE):
            recorder.record(reads[start : start + _AT_ONCE])
        report = replace(recorder.report(mirror), wallets=len(reads))
        return hand_over(lake, commit, recorder.packed(bucket), report) if reads else report
