"""First step of a run: sync a bucket's mirror, and stage its file.

Reads with removals wait in the staged file, as the removal guard decides on all buckets together.
A driver that takes over uses the staged files.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4
from zlib import crc32

import msgspec
import pyarrow as pa

from nftsync.errors import StoreError
from nftsync.lake.bucket import Bucket, BucketSync
from nftsync.lake.past import bucket_report
from nftsync.lake.rows import bucket_of, filled, opened, temporary_mirror, temporary_path
from nftsync.lake.tally import Tally
from nftsync.provider.rate_limit import GiveUpRule
from nftsync.pull.plan import SyncRequest, begin
from nftsync.pull.reads import Pool, weight
from nftsync.pull.result import Failure
from nftsync.records import Read, Removals, WalletRead
from nftsync.store.database import over_keys
from nftsync.store.day_report import DayReport
from nftsync.store.mirror import Mirror
from nftsync.store.removals import numbers_held, reads_of_held
from nftsync.store.wallets import WalletLine, forget_answers, tracked_numbers
from nftsync.times import now

if TYPE_CHECKING:
    from nftsync.lake.run_spec import RunSpec
    from nftsync.lake.staged import StagedFiles
    from nftsync.lake.storage import Lake
    from nftsync.provider.client import Access

#: Start of the names of staged mirrors and of their reports, which both end with their CRC-32.
_MIRROR, _REPORT = "mirror-", "report-"
_IDS = "SELECT wallet_id FROM json_each(?) JOIN wallets ON wallet_no = value"
_COUNTS = (
    "SELECT (SELECT max(change_id) FROM balance_change_rows),"
    " (SELECT max(state_id) FROM wallet_state_rows), (SELECT count(*) FROM balance_rows)"
)
#: Reads of wallets in memory.
_READS_AT_ONCE = 100
_pack = msgspec.msgpack.encode
_unpack_lines = msgspec.msgpack.Decoder(list[tuple[str, str | None, str | None]])
_unpack_read: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)
_unpack_removals = msgspec.msgpack.Decoder(Removals)
_unpack_tally = msgspec.msgpack.Decoder(Tally)
_unpack_owners = msgspec.msgpack.Decoder(set[str])


class SyncReport(msgspec.Struct, kw_only=True):
    """Result of syncing a bucket.

    Attributes:
        file: the staged mirror; empty: nothing to publish.
        reason: why the run must stop, or None.
        changes, states, entries: upper bounds of new changes, new states and tokens to merge.
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
    day: DayReport = msgspec.field(default_factory=DayReport)
    driver: str = ""
    read_at: str = ""


_unpack_report = msgspec.msgpack.Decoder(SyncReport)


class StagedMirror(NamedTuple):
    """A staged mirror, open for the next step."""

    mirror: Mirror
    rows: Bucket
    tally: Tally

    def waiting(self) -> Iterator[list[tuple[Read, Removals]]]:
        """Yield the reads that wait for a decision on their removals, some at a time."""
        rows = self.mirror.connection.execute("SELECT * FROM waiting_reads")
        while some := rows.fetchmany(_READS_AT_ONCE):
            yield [(_unpack_read.decode(x), _unpack_removals.decode(y)) for x, y in some]


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
    """Read a bucket's wallets, apply the reads to its mirror, and stage it."""
    report = SyncReport(driver=spec.driver, read_at=now())
    plan = _plan_of(spec, bucket)
    if plan == []:
        return report
    if spec.config is None:
        raise TypeError("a run spec for reads needs a config")
    with _bucket_file(spec, bucket) as (path, rows):
        with ExitStack() as stack:
            mirror = stack.enter_context(opened(path, spec.provisional_at))
            if plan is None and not tracked_numbers(mirror.connection):
                return report
            run = begin(mirror, SyncRequest(wallets=plan))
            run.run_id = spec.run_id
            pool = Pool(spec.config, mirror.numbers, spec.concurrency, access, rule=rule)
            stack.enter_context(closing(pool))
            sync = stack.enter_context(closing(BucketSync(rows, mirror, pool, run, stopped)))
            result = sync.run()
            report.wallets, report.failures = len(run.plan), result.failures
            report.requests, report.retries = result.requests, result.retries
            report.reason = result.error
            report.interrupted = result.status == "interrupted"
            if report.reason is not None or report.interrupted:
                return report
            _finish(rows, mirror, sync.tally, sync.removing.take(sys.maxsize), report)
        return _stage(rows, path, report)


def stage_held(spec: RunSpec, bucket: int, wallets: list[str] | None) -> SyncReport:
    """Apply removals held for review to a bucket's mirror, and stage it. `wallets` None: all."""
    report = SyncReport(driver=spec.driver, read_at=now())
    own = None
    if wallets is not None:
        own = [wallet for wallet in wallets if bucket_of(wallet, spec.buckets) == bucket]
    if own == []:
        return report
    with _bucket_file(spec, bucket) as (path, rows):
        with opened(path, spec.provisional_at) as mirror:
            if not (numbers := numbers_held(mirror.connection, own)):
                return report
            tally = Tally()
            report.wallets = _apply_held(rows, mirror, numbers, tally)
            _finish(rows, mirror, tally, (), report)
        return _stage(rows, path, report)


def _apply_held(rows: Bucket, mirror: Mirror, numbers: list[int], tally: Tally) -> int:
    """Apply held removals of wallets; return the number of reads that this took."""
    connection = mirror.connection
    ids = {row[0] for row in over_keys(connection, _IDS, numbers)}
    rows.load(mirror, ids, set())
    reads = [
        read for number in numbers for _, read in reads_of_held(connection, mirror.numbers, number)
    ]
    lists = [read.entries for read in reads if isinstance(read, WalletRead)]
    rows.load(mirror, set(), {entry[0] for entries in lists for entry in entries})
    with mirror.transaction() as transaction:
        tally.add(transaction.apply(reads, run_id=rows.spec.run_id), approval=True)
        # Stored digests belong to the rows before the approval.
        forget_answers(connection, [*ids])
    return len(reads)


# Staged mirrors -----------------------------------------------------------------------------------


@contextmanager
def _bucket_file(spec: RunSpec, bucket: int) -> Iterator[tuple[Path, Bucket]]:
    rows = Bucket(spec, bucket)
    with temporary_path() as path:
        filled(rows.fill, path)
        yield path, rows


def _finish(
    rows: Bucket,
    mirror: Mirror,
    tally: Tally,
    waiting: Iterable[tuple[Read, Removals]],
    report: SyncReport,
) -> None:
    spec, connection = rows.spec, mirror.connection
    last = spec.greatest_change + 1, spec.greatest_state + 1
    connection.execute("CREATE TABLE waiting_reads (read BLOB, removals BLOB)")
    all_removals = []
    for read, removals in waiting:
        values = _pack(read), _pack(removals)
        connection.execute("INSERT INTO waiting_reads VALUES (?, ?)", values)
        all_removals.append(removals)
        report.states += 1
        report.changes += weight(read) + len(removals.lost)
    connection.execute(
        "CREATE TABLE applied_reads AS SELECT ? AS tally, ? AS owners",
        (_pack(tally), _pack(rows.owners)),
    )
    changes, states, balances = connection.execute(_COUNTS).fetchone()
    report.changes += changes - last[0]
    report.states += states - last[1]
    report.entries = balances + report.changes
    report.greatest_sequence = mirror.numbers.take()
    report.day = bucket_report(connection, last, all_removals, first_run=rows.is_new)


def _stage(rows: Bucket, path: Path, report: SyncReport) -> SyncReport:
    sink = pa.BufferOutputStream()
    with path.open("rb") as file, pa.CompressedOutputStream(sink, "zstd") as target:
        shutil.copyfileobj(file, target)
    body, name = sink.getvalue(), uuid4().hex
    report.file = f"{_MIRROR}{rows.number}-{name}-{crc32(body)}"
    rows.spec.staged.write(report.file, body)
    packed = _pack(report)
    rows.spec.staged.write(f"{_REPORT}{rows.number}-{name}-{crc32(packed)}", packed)
    return report


@contextmanager
def staged_mirror(spec: RunSpec, bucket: int, name: str) -> Iterator[StagedMirror]:
    """Open a staged mirror for a block."""
    with _damage_explained(spec.lake, spec.run_id):
        body = spec.staged.read(name)

    def write(path: Path) -> None:
        source = pa.CompressedInputStream(pa.BufferReader(body), "zstd")
        with source, path.open("wb") as file:
            shutil.copyfileobj(source, file)

    with temporary_mirror(write, spec.provisional_at) as mirror:
        tally, owners = mirror.connection.execute("SELECT * FROM applied_reads").fetchone()
        rows = Bucket(spec, bucket, _unpack_owners.decode(owners))
        yield StagedMirror(mirror, rows, _unpack_tally.decode(tally))


def staged_reports(lake: Lake, staged: StagedFiles, run_id: int) -> dict[int, SyncReport]:
    """Return the reports of a run's staged mirrors, by bucket."""
    names = [name for name in staged.names() if name.startswith(_REPORT)]
    with _damage_explained(lake, run_id):
        return {int(name.split("-")[1]): _unpack_report.decode(staged.read(name)) for name in names}


@contextmanager
def _damage_explained(lake: Lake, run_id: int) -> Iterator[None]:
    """Explain a damaged or missing file in one line; the block raises `EOFError` for damage."""
    try:
        yield
    except (EOFError, msgspec.DecodeError, FileNotFoundError):
        raise StoreError(
            f"{lake.url}: stored reads of run {run_id} are damaged or missing. Start a new run:"
            " `nftsync lake sync` without --resume"
        ) from None
