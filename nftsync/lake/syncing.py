"""First step of a run: sync a bucket's mirror, and stage its file.

The removal guard defers its decision, as it decides on all buckets together. So reads with removals
wait in the staged file until the next step. The provider is asked once per run: a driver that takes
over uses the staged files.
"""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4
from zlib import crc32

import msgspec
import pyarrow as pa

from nftsync.errors import StoreError
from nftsync.lake.bucket import Bucket, LoadingReader
from nftsync.lake.past import GuardInput, guard_input
from nftsync.lake.rows import bucket_of, filled, opened, temporary_mirror, temporary_path
from nftsync.lake.staged import StagedPart
from nftsync.lake.tally import Tally, TallyingGuard
from nftsync.provider.rate_limit import GiveUpRule
from nftsync.pull.reads import Pool, Read, Task, weight
from nftsync.pull.result import Failure
from nftsync.pull.run import SyncRequest, SyncRun, begin
from nftsync.records import Removals, WalletRead
from nftsync.store.database import over_keys
from nftsync.store.mirror import Mirror
from nftsync.store.removals import numbers_held, reads_of_held
from nftsync.store.wallets import WalletLine, forget_answers, tracked_numbers
from nftsync.times import now, shifted

if TYPE_CHECKING:
    from nftsync.lake.run_spec import RunSpec
    from nftsync.lake.staged import StagedFiles
    from nftsync.lake.storage import Lake
    from nftsync.provider.client import Access

#: Start of the names of staged mirrors.
_MIRROR = "mirror-"
#: A staged mirror starts with the length and the CRC-32 of its head.
_START = ">II"
_SIZE = struct.calcsize(_START)
_IDS = "SELECT wallet_id FROM json_each(?) JOIN wallets ON wallet_no = value"
_COUNTS = (
    "SELECT (SELECT max(change_id) FROM balance_change_rows),"
    " (SELECT max(state_id) FROM wallet_state_rows), (SELECT count(*) FROM balance_rows)"
)
_INSTANT = timedelta(microseconds=1)
_pack = msgspec.msgpack.encode
_unpack_lines = msgspec.msgpack.Decoder(list[tuple[str, str | None, str | None]])
_unpack_read: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)
_unpack_removals = msgspec.msgpack.Decoder(Removals)


class SyncReport(msgspec.Struct, kw_only=True):
    """Result of syncing a bucket.

    Attributes:
        file: the staged mirror; empty: nothing to publish.
        wallets: the number of wallets to read.
        failures: wallets with failed or incomplete reads.
        requests: HTTP requests.
        retries: repeated requests.
        reason: why the run must stop, or None.
        interrupted: the reads were stopped.
        changes, states: upper bounds on the number of changes and new states.
        entries: an upper bound on the number of tokens to merge.
        greatest_sequence: the greatest sequence number.
        guard_input: the report to the removal guard.
        driver: the driver whose worker read the bucket.
        read_at: when the reads started.
    """

    file: str = ""
    wallets: int = 0
    failures: list[Failure] = msgspec.field(default_factory=list)
    requests: int = 0
    retries: int = 0
    reason: str | None = None
    interrupted: bool = False
    changes: int = 0
    states: int = 0
    entries: int = 0
    greatest_sequence: int = 0
    guard_input: GuardInput = msgspec.field(default_factory=GuardInput)
    driver: str = ""
    read_at: str = ""


class _Head(msgspec.Struct):
    """Start of a staged mirror.

    Attributes:
        owners: the wallets whose balances it has.
        at: the time of its changes.
        checksum: the CRC-32 of the compressed database that follows.
    """

    report: SyncReport
    tally: Tally
    owners: set[str]
    at: str
    checksum: int


class StagedMirror(NamedTuple):
    """A staged mirror, open for the next step.

    Attributes:
        at: the time of its changes.
    """

    mirror: Mirror
    rows: Bucket
    tally: Tally
    at: str

    def waiting(self) -> Iterator[tuple[Read, Removals]]:
        """Yield the reads that wait for a decision on their removals."""
        for read, removals in self.mirror.connection.execute("SELECT * FROM waiting_reads"):
            yield _unpack_read.decode(read), _unpack_removals.decode(removals)


def plan_name(bucket: int) -> str:
    """Return the name of the staged file of a bucket's wallets to read."""
    return f"plan-{bucket}"


def _plan_of(spec: RunSpec, bucket: int) -> list[WalletLine] | None:
    """Return the wallets to read in a bucket; None: all tracked wallets."""
    if not spec.planned:
        return None
    try:
        packed = spec.staged.read(plan_name(bucket))
    except FileNotFoundError:
        return []
    return [WalletLine(*line) for line in _unpack_lines.decode(packed)]


def sync_bucket(
    spec: RunSpec, bucket: int, access: Access | None, stopped: threading.Event, rule: GiveUpRule
) -> SyncReport:
    """Read a bucket's wallets, apply the reads to its mirror, and stage it.

    `access` and `rule` are this worker's. If `stopped` is set, the reads are discarded.
    """
    report = SyncReport(driver=spec.driver, read_at=now())
    plan = _plan_of(spec, bucket)
    if plan == []:
        return report
    with temporary_path() as path, closing(_Step(spec, bucket, path)) as step:
        with opened(path, step.at) as mirror:
            if plan is None and not tracked_numbers(mirror.connection):
                return report
            if spec.config is None:
                raise TypeError("a run spec for reads needs a config")
            run = begin(mirror, SyncRequest(wallets=plan))
            run.run_id = spec.run_id
            pool = Pool[Task, Read](
                spec.config, mirror.numbers, spec.concurrency, access, rule=rule
            )
            with closing(LoadingReader(pool, step.rows, mirror)) as reader:
                result = SyncRun(mirror, reader, run, step.guard, [stopped], False).run()
            report.wallets, report.failures = len(run.plan), result.failures
            report.requests, report.retries = result.requests, result.retries
            report.reason = result.error
            report.interrupted = result.status == "interrupted"
            if report.reason is not None or report.interrupted:
                return report
            step.finish(mirror, report)
        return step.stage(report)


def stage_held(spec: RunSpec, bucket: int, wallets: list[str] | None) -> SyncReport:
    """Apply removals held for review to a bucket's mirror, and stage it. `wallets` None: all."""
    report = SyncReport(driver=spec.driver, read_at=now())
    own = None
    if wallets is not None:
        own = [wallet for wallet in wallets if bucket_of(wallet, spec.buckets) == bucket]
    if own == []:
        return report
    with temporary_path() as path, closing(_Step(spec, bucket, path)) as step:
        with opened(path, step.at) as mirror:
            if not (numbers := numbers_held(mirror.connection, own)):
                return report
            report.wallets = _apply_held(spec, step, mirror, numbers)
            step.finish(mirror, report)
        return step.stage(report)


def _apply_held(spec: RunSpec, step: _Step, mirror: Mirror, numbers: list[int]) -> int:
    """Apply held removals of wallets; return the number of reads that this took."""
    connection = mirror.connection
    ids = {row[0] for row in over_keys(connection, _IDS, numbers)}
    step.rows.load(mirror, ids, set())
    reads = [
        read for number in numbers for _, read in reads_of_held(connection, mirror.numbers, number)
    ]
    lists = [read.entries for read in reads if isinstance(read, WalletRead)]
    step.rows.load(mirror, set(), {entry[0] for entries in lists for entry in entries})
    with mirror.transaction() as transaction:
        step.tally.add(transaction.apply(reads, run_id=spec.run_id), approval=True)
        # Stored digests belong to the rows before the approval.
        forget_answers(connection, [*ids])
    return len(reads)


# Staged mirrors -----------------------------------------------------------------------------------


class _Step:
    """A bucket's mirror in this step.

    Attributes:
        at: the time of its changes, which no other row has.
    """

    def __init__(self, spec: RunSpec, bucket: int, path: Path) -> None:
        self._spec, self._number, self._path = spec, bucket, path
        self.at = now()
        if spec.not_before:
            self.at = max(self.at, shifted(spec.not_before, _INSTANT))
        self.rows, self.tally = Bucket(spec, bucket), Tally()
        self.guard = TallyingGuard(spec.limits, self.tally, deferred=True)
        filled(self.rows.fill, path)

    def finish(self, mirror: Mirror, report: SyncReport) -> None:
        """Keep the waiting reads in the mirror, and complete the report."""
        spec, connection = self._spec, mirror.connection
        last = spec.greatest_change + 1, spec.greatest_state + 1
        connection.execute("CREATE TABLE waiting_reads (read BLOB, removals BLOB)")
        waiting = []
        for read, removals in self.guard.waiting():
            connection.execute(
                "INSERT INTO waiting_reads VALUES (?, ?)", (_pack(read), _pack(removals))
            )
            waiting.append(removals)
            report.states += 1
            report.changes += weight(read) + len(removals.balances)
        changes, states, balances = connection.execute(_COUNTS).fetchone()
        report.changes += changes - last[0]
        report.states += states - last[1]
        report.entries = balances + report.changes
        report.greatest_sequence = mirror.numbers.take()
        report.guard_input = guard_input(connection, last, waiting, first_run=self.rows.is_new)

    def stage(self, report: SyncReport) -> SyncReport:
        """Stage the closed mirror; return the report with the file's name."""
        report.file = f"{_MIRROR}{self._number}-{uuid4().hex}"
        sink = pa.BufferOutputStream()
        with self._path.open("rb") as file, pa.CompressedOutputStream(sink, "zstd") as target:
            shutil.copyfileobj(file, target)
        body = sink.getvalue()
        head = _pack(_Head(report, self.tally, self.rows.owners, self.at, crc32(body)))
        start = struct.pack(_START, len(head), crc32(head))
        self._spec.staged.write(report.file, (start, head, body))
        return report

    def close(self) -> None:
        """Drop waiting reads."""
        self.guard.close()


@contextmanager
def staged_mirror(spec: RunSpec, bucket: int, name: str) -> Iterator[StagedMirror]:
    """Open a staged mirror for a block.

    Raises:
        StoreError: the file is damaged or missing.
    """
    with _damage_explained(spec.lake, spec.run_id):
        content = memoryview(spec.staged.read(name))
        head, start = _head_of(content)
        body = content[start:]
        if crc32(body) != head.checksum:
            raise EOFError

    def write(path: Path) -> None:
        with (
            pa.CompressedInputStream(pa.BufferReader(body), "zstd") as source,
            path.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)

    with temporary_mirror(write, head.at) as mirror:
        yield StagedMirror(mirror, Bucket(spec, bucket, head.owners), head.tally, head.at)


def staged_reports(lake: Lake, staged: StagedFiles, run_id: int) -> dict[int, SyncReport]:
    """Return the reports of a run's staged mirrors, by bucket.

    Raises:
        StoreError: a file is damaged.
    """
    reports = {}
    with _damage_explained(lake, run_id):
        for name in staged.names():
            if name.startswith(_MIRROR):
                length, _ = struct.unpack(_START, staged.read_part(StagedPart(name, 0, _SIZE)))
                head, _ = _head_of(
                    memoryview(staged.read_part(StagedPart(name, 0, _SIZE + length)))
                )
                reports[int(name.split("-")[1])] = head.report
    return reports


def _head_of(content: memoryview) -> tuple[_Head, int]:
    """Return the head of a staged mirror, and the place of the body."""
    length, checksum = struct.unpack(_START, content[:_SIZE])
    packed = content[_SIZE : _SIZE + length]
    if crc32(packed) != checksum:
        raise EOFError
    return msgspec.msgpack.decode(packed, type=_Head), _SIZE + length


@contextmanager
def _damage_explained(lake: Lake, run_id: int) -> Iterator[None]:
    """Explain a damaged or missing file in one line; the block raises `EOFError` for damage."""
    try:
        yield
    except (EOFError, struct.error, msgspec.DecodeError, FileNotFoundError):
        raise StoreError(
            f"{lake.url}: stored reads of run {run_id} are damaged or missing. Start a new run:"
            " `nftsync lake sync` without --resume"
        ) from None
