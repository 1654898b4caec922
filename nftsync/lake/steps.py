"""Steps of a run on a bucket, as tasks for workers.

A step stores its results under new names, so it can be repeated, and a late worker changes nothing.
Reads with removals wait in the stored file for the driver's decision.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from nftsync.errors import StoreError
from nftsync.lake.bucket import (
    LakeState,
    facts_of,
    forget_runs,
    open_bucket,
    settle,
    store_database,
    temporary_path,
)
from nftsync.lake.manifest import BucketEntry, digests_of
from nftsync.lake.names import Samples, samples_of
from nftsync.lake.storage import Lake, StoredFile
from nftsync.lake.tables import DataFile, write_files
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule
from nftsync.pull.guard import Decision, RemovalLimits
from nftsync.pull.plan import SyncRequest, begin
from nftsync.pull.reads import Pool
from nftsync.pull.result import Failure
from nftsync.pull.run import Sync
from nftsync.pull.waiting_reads import WaitingReads
from nftsync.records import Applied, Read, Removals
from nftsync.store.day_report import DayReport, day_changes, day_counts, day_holdings, day_metadata
from nftsync.store.freshness import wallet_groups
from nftsync.store.mirror import Mirror, Transaction
from nftsync.store.removals import HELD_BACK, numbers_held
from nftsync.store.runs import Counts
from nftsync.store.wallets import WalletLine, has_all_tracked, tracked_numbers
from nftsync.times import MOMENT, now, shifted

if TYPE_CHECKING:
    from nftsync.provider.client import Access

#: The folder of the reports of unfinished runs.
STEPS = "steps"
#: Reads in memory, and list entries of reads.
_READS_AT_ONCE = 100
_ENTRIES_AT_ONCE = 50_000
_pack = msgspec.msgpack.encode
_unpack_read: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)
_unpack_removals = msgspec.msgpack.Decoder(Removals)


@lru_cache(maxsize=4)
def _lake_of(url: str, driver: str) -> Lake:
    del driver  # another driver may have created the lake again at this address
    return Lake(url)


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps of a run need to know, without secrets.

    `change`, `state`, `token_change` and `changed_at` are the lake's greatest before the run.
    Without `limits`, all removals are approved.
    """

    url: str
    driver: str
    run_id: int
    folder: str
    buckets: int
    lake_state: LakeState = LakeState()
    change: int = 0
    state: int = 0
    token_change: int = 0
    changed_at: str = ""
    config: ClientConfig | None = None
    concurrency: int = 16
    limits: RemovalLimits | None = RemovalLimits()
    publishes: bool = True

    @property
    def lake(self) -> Lake:
        """The lake, with the connections that this worker opened for this driver."""
        return _lake_of(self.url, self.driver)


class BucketReport(msgspec.Struct, kw_only=True):
    """Result of a step.

    Attributes:
        before: the bucket before the run.
        entry: the bucket for the manifest; None: `waiting` has reads that wait for a decision.
        reason: why the run must stop, or None.
        day: the removals that wait.
        new_tokens, changed_tokens: see `digests_of`.
        files: data files for the published tables; None: not written.
    """

    bucket: int
    before: BucketEntry
    entry: BucketEntry | None = None
    waiting: BucketEntry | None = None
    wallets: int = 0
    counts: Counts = msgspec.field(default_factory=Counts)
    failures: list[Failure] = msgspec.field(default_factory=list)
    reason: str | None = None
    sequence: int = 0
    changed_from: str = ""
    changed_until: str = ""
    day: DayReport = msgspec.field(default_factory=DayReport)
    samples: Samples = {}
    new_tokens: bytes = b""
    changed_tokens: bytes = b""
    files: list[DataFile] | None = None
    driver: str = ""
    read_at: str = ""


_unpack_report = msgspec.msgpack.Decoder(BucketReport)


class BucketSync(Sync):
    """Sync of a bucket, whose reads with removals wait for the driver."""

    is_unchanged = True

    def _release(self) -> bool:
        return False

    def after_commit(self, applied: Sequence[Applied]) -> None:
        """Note failures, and whether the bucket's file needs to be stored."""
        super().after_commit(applied)
        if any(one.result not in {"unchanged", "stale"} for one in applied):
            self.is_unchanged = False


class SyncTask(msgspec.Struct):
    """A bucket to sync: its entry, and the wallets to read (None: all tracked wallets)."""

    entry: BucketEntry
    plan: list[WalletLine] | None


def sync_bucket(
    spec: RunSpec,
    bucket: int,
    task: SyncTask,
    access: Access | None,
    stopped: threading.Event,
    rule: GiveUpRule,
) -> BucketReport:
    """Read a bucket's wallets, apply the reads, and store the bucket's file."""
    report = BucketReport(bucket=bucket, before=task.entry, driver=spec.driver, read_at=now())
    if spec.config is None:
        raise TypeError("a run spec for reads needs a config")
    with _opened(spec, task.entry) as path:
        with _mirror(spec, path) as mirror:
            if task.plan is None and not tracked_numbers(mirror.connection):
                report.entry = task.entry
                return report
            before = _registered(mirror.connection)
            run = begin(mirror, SyncRequest(wallets=task.plan))
            mirror.connection.execute(
                "UPDATE sync_runs SET run_id = ? WHERE run_id = ?", (spec.run_id, run.run_id)
            )
            run.run_id = spec.run_id
            waiting = WaitingReads(spec.limits)
            pool = Pool(spec.config, mirror.numbers, spec.concurrency, access, rule=rule)
            with closing(pool), closing(waiting):
                sync = BucketSync(mirror, pool, run, waiting, [stopped], False)
                result = sync.run()
                report.wallets, report.failures = len(run.plan), result.failures
                report.counts, report.reason = run.counts, result.error
                if report.reason is not None or result.status == "interrupted":
                    return report
                report.sequence = mirror.numbers.take()
                if waiting:
                    _keep_waiting(spec, mirror, waiting, report)
            is_unchanged = (
                sync.is_unchanged
                and has_all_tracked(mirror.connection, run.plan)
                and _registered(mirror.connection) == before
            )
            if is_unchanged and task.entry.file is not None:
                report.entry = _confirmed(mirror, task.entry, report.read_at, run.first_sequence)
            elif report.waiting is None:
                _finish(spec, mirror, report)
        return _stored(spec, path, report)


def apply_waiting(
    spec: RunSpec, bucket: int, argument: tuple[BucketReport, Decision]
) -> BucketReport:
    """Apply or hold the removals that wait in a stored file, and store the bucket's file."""
    del bucket  # the report names it
    report, decision = argument
    waiting = report.waiting or BucketEntry()
    report.waiting = None
    with _opened(spec, waiting) as path:
        with _mirror(spec, path) as mirror:
            failures = {failure.wallet_id: failure for failure in report.failures}
            with mirror.transaction() as transaction:
                for reads in _waiting_reads(transaction.connection):
                    for how, some in decision.by_effect(reads).items():
                        applied = transaction.apply(some, run_id=spec.run_id, removals=how)
                        report.counts = report.counts.with_applied(applied)
                        held = [
                            x.removals.wallet_id
                            for x in applied
                            if x.result == "held" and x.removals
                        ]
                        failures |= {x: Failure(x, HELD_BACK, status="incomplete") for x in held}
                transaction.connection.execute("DROP TABLE waiting_reads")
            report.failures = list(failures.values())
            _finish(spec, mirror, report)
        return _stored(spec, path, report)


def apply_held(
    spec: RunSpec, bucket: int, argument: tuple[BucketEntry, list[str] | None]
) -> BucketReport:
    """Apply removals held for review, of some wallets or of all (None), and store the file."""
    entry, wallets = argument
    report = BucketReport(bucket=bucket, before=entry, driver=spec.driver, read_at=now())
    with _opened(spec, entry) as path:
        with _mirror(spec, path) as mirror:
            applied = mirror.accept_held(numbers_held(mirror.connection, wallets))
            report.counts, report.wallets = Counts().with_applied(applied), len(applied)
            report.sequence = mirror.numbers.take()
            _finish(spec, mirror, report)
        return _stored(spec, path, report)


# What the driver asks -----------------------------------------------------------------------------


class Question(msgspec.Struct):
    """What the removal guard needs of a bucket: its day, or the changes of some lost tokens."""

    entry: BucketEntry
    waiting: list[Removals]
    at: str
    lost: set[str] | None


def answer(spec: RunSpec, bucket: int, question: Question) -> list[DayReport]:
    """Report a bucket's last 24 hours, before the reads that wait; the reports add up."""
    with _opened(spec, question.entry) as path, _mirror(spec, path) as mirror:
        connection, at = mirror.connection, question.at
        if question.lost is None:
            return [day_counts(connection, at, [])]
        return [
            day_changes(connection, at, question.waiting, question.lost),
            day_holdings(connection, at),
            _in_bucket(bucket, day_metadata(connection, at)),
        ]


def publish_bucket(spec: RunSpec, bucket: int, entry: BucketEntry) -> list[DataFile]:
    """Write what the published tables lack of a bucket."""
    with _opened(spec, entry) as path, closing(sqlite3.connect(path)) as connection:
        return write_files(spec.lake, connection, bucket, entry)


def _in_bucket(bucket: int, report: DayReport) -> DayReport:
    """Return a report whose tokens with lost metadata count once per bucket."""

    def own(tokens: Iterable[str]) -> Iterator[str]:
        return (f"{bucket} {token}" for token in tokens)

    waiting = [
        read._replace(
            emptied=[*own(read.emptied)],
            renamed=dict(zip(own(read.renamed), read.renamed.values(), strict=True)),
        )
        for read in report.waiting
    ]
    return msgspec.structs.replace(
        report,
        waiting=waiting,
        emptied={*own(report.emptied)},
        renamed=dict(zip(own(report.renamed), report.renamed.values(), strict=True)),
    )


# Parts of steps -----------------------------------------------------------------------------------


@contextmanager
def _opened(spec: RunSpec, entry: BucketEntry) -> Iterator[Path]:
    with temporary_path() as path:
        open_bucket(spec.lake, entry, spec.lake_state, path)
        yield path


@contextmanager
def _mirror(spec: RunSpec, path: Path) -> Iterator[Mirror]:
    # On a machine whose clock is behind, all changes get the next possible time.
    later = shifted(spec.changed_at, MOMENT) if spec.changed_at > now() else None
    with Mirror(path, write_gap=0.0, searchable=False, at=later) as mirror:
        # A copy; and the numbering of a million new rows would need hundreds of megabytes.
        mirror.connection.executescript("PRAGMA synchronous = OFF; PRAGMA temp_store = FILE")
        yield mirror


def _registered(connection: sqlite3.Connection) -> bytes:
    """Return a digest of the columns of wallets that a run may change without a changed read."""
    digest = hashlib.sha256()
    columns = "wallet_id, label, wallet_group, tracked, status, error"
    for row in connection.execute(f"SELECT {columns} FROM wallets ORDER BY wallet_no"):
        digest.update(repr(tuple(row)).encode())
    return digest.digest()


def _confirmed(mirror: Mirror, entry: BucketEntry, at: str, sequence: int) -> BucketEntry:
    """Return the entry of a bucket whose wallets were all read and unchanged."""
    with mirror.transaction() as transaction:
        # As the entry will say: the start of the reads, for all wallets.
        transaction.connection.execute("UPDATE wallets SET synced_at = ? WHERE tracked", (at,))
        freshness = wallet_groups(transaction.connection)
    return msgspec.structs.replace(
        entry,
        confirmed_at=at,
        confirmed_sequence=sequence,
        confirmations=entry.confirmations + 1,
        freshness=freshness,
    )


def _keep_waiting(
    spec: RunSpec, mirror: Mirror, waiting: WaitingReads, report: BucketReport
) -> None:
    """Move the waiting reads into the bucket's database, and report their removals."""
    all_removals = []
    with mirror.transaction() as transaction:
        connection = transaction.connection
        connection.execute("CREATE TABLE waiting_reads (read BLOB, removals BLOB)")
        while some := waiting.take(_ENTRIES_AT_ONCE):
            rows = ((_pack(read), _pack(removals)) for read, removals in some)
            connection.executemany("INSERT INTO waiting_reads VALUES (?, ?)", rows)
            all_removals += [removals for _, removals in some]
        forget_runs(connection, spec.lake_state.runs, spec.run_id)
        report.day = _in_bucket(report.bucket, day_counts(connection, now(), all_removals))
    report.waiting = BucketEntry()


def _waiting_reads(connection: sqlite3.Connection) -> Iterator[list[tuple[Read, Removals]]]:
    rows = connection.execute("SELECT read, removals FROM waiting_reads")
    while some := rows.fetchmany(_READS_AT_ONCE):
        yield [(_unpack_read.decode(x), _unpack_removals.decode(y)) for x, y in some]


def _finish(spec: RunSpec, mirror: Mirror, report: BucketReport) -> None:
    """Complete a bucket's database, and note what the manifest and the driver need."""
    before = report.before
    with mirror.transaction() as transaction:
        connection = transaction.connection
        first = [x + report.bucket + 1 for x in (spec.change, spec.state, spec.token_change)]
        settle(connection, before, first, spec.buckets)
        forget_runs(connection, spec.lake_state.runs, spec.run_id)
        _note_changes(transaction, report, spec.buckets)
        entry = report.entry = facts_of(connection)
        entry.published = before.published
        if spec.publishes:
            report.files = write_files(spec.lake, connection, report.bucket, entry)


_CHANGED = """
    SELECT min(observed_at), max(observed_at) FROM (
        SELECT observed_at FROM balance_change_rows WHERE change_id > ?
        UNION ALL SELECT observed_at FROM wallet_state_rows WHERE state_id > ?
        UNION ALL SELECT observed_at FROM token_change_rows WHERE change_id > ?)
"""


def _note_changes(transaction: Transaction, report: BucketReport, buckets: int) -> None:
    connection, before = transaction.connection, report.before
    greatest = before.change, before.state, before.token_change
    since, until = connection.execute(_CHANGED, greatest).fetchone()
    report.changed_from, report.changed_until = since or "", until or ""
    at = transaction.observed_at
    new = connection.execute("SELECT token_id FROM tokens WHERE first_seen_at >= ?", (since or at,))
    report.new_tokens = digests_of(row[0] for row in new)
    changed = connection.execute(
        "SELECT token_id FROM tokens WHERE token_no IN"
        " (SELECT token_no FROM token_change_rows WHERE change_id > ?)",
        (before.token_change,),
    )
    report.changed_tokens = digests_of(row[0] for row in changed)
    report.samples = samples_of(connection, since or at, before.token_change, buckets)


def _stored(spec: RunSpec, path: Path, report: BucketReport) -> BucketReport:
    for entry in (report.entry, report.waiting):
        if entry is not None and entry.file is None:
            entry.file = store_database(spec.lake, report.bucket, path)
    packed = _pack(report)
    digest = hashlib.sha256(packed).hexdigest()
    name = f"{STEPS}/{spec.folder}/{report.bucket}-{uuid4().hex}-{digest}"
    spec.lake.write(name, packed)
    return report


def stored_reports(lake: Lake, folder: str, run_id: int) -> dict[int, BucketReport]:
    """Return an interrupted run's reports by bucket; removals wait for another decision."""
    reports: dict[int, BucketReport] = {}
    try:
        for name in sorted(lake.names(f"{STEPS}/{folder}")):
            file = StoredFile(name, -1, name.rpartition("-")[2], -1)
            report = _unpack_report.decode(lake.read(file))
            entry = report.entry or report.waiting
            if entry is not None and entry.file is not None and entry.file != report.before.file:
                lake.read(entry.file)  # the run's own files are pinned only if they are intact
            if report.bucket not in reports or report.waiting is not None:
                reports[report.bucket] = report
    except (StoreError, msgspec.DecodeError):
        raise StoreError(
            f"{lake.url}: stored reads of run {run_id} are damaged or missing. Start a new run:"
            " `nftsync lake sync` without --resume"
        ) from None
    return reports
