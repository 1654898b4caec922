"""Driver of a run: bucket by bucket on workers, then one decision, one manifest, one pin.

Nothing that a step stores is visible before the run is pinned, so a run can stop at any point.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
from distributed import Client

from nftsync.errors import InputError, RunInterrupted, SyncRunning
from nftsync.lake.bucket import LakeState, bucket_of
from nftsync.lake.cluster import each_bucket, rate_limit_of_worker, shared_part, shared_rate_limit
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.manifest import Manifest, Published, add_tokens, distinct, write_manifest
from nftsync.lake.names import name_contracts
from nftsync.lake.reasons import explained
from nftsync.lake.steps import (
    STEPS,
    BucketReport,
    Question,
    RunSpec,
    SyncTask,
    answer,
    apply_held,
    apply_waiting,
    publish_bucket,
    stored_reports,
    sync_bucket,
)
from nftsync.lake.storage import Lake
from nftsync.lake.tables import check_tables, commit_files
from nftsync.provider.config import ClientConfig
from nftsync.pull.guard import Decision, RemovalLimits, decide, lost_tokens, needs_metadata
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import Resumed, SyncResult
from nftsync.store.day_report import DAY, DayReport
from nftsync.store.runs import Counts
from nftsync.store.wallets import WalletLine
from nftsync.terminal import progress_bar
from nftsync.threads import Failures
from nftsync.times import now, shifted

_T = TypeVar("_T")
_A = TypeVar("_A")


class _Interrupted(Exception):
    """Interrupt by a signal."""


# What workers do ----------------------------------------------------------------------------------


def _run_task(
    function: Callable[[RunSpec, int, _A], _T], spec: RunSpec, bucket: int, argument: _A
) -> _T:
    with explained(spec.url):
        return function(spec, bucket, argument)


def _sync(spec: RunSpec, bucket: int, task: SyncTask) -> BucketReport:
    limit = rate_limit_of_worker(spec.driver)
    with limit.worker_named():
        return sync_bucket(spec, bucket, task, limit.access(), limit.stopped, limit.rule)


@dataclass
class Driver:
    """Driver of one run, after `_earlier` runs, which starts from the manifest `_base`."""

    _lake: Lake
    _ledger: Ledger
    _run: LakeRun
    _earlier: list[LakeRun]
    _base: Manifest
    _client: Client
    _request: SyncRequest
    _publishes: bool
    _lost: threading.Event
    _failures: Failures
    _interrupted: threading.Event
    _progress: bool | None
    _began: float = field(default_factory=time.monotonic)

    @property
    def _resumed(self) -> bool:
        return self._run.attempt > 0

    def run(self, config: ClientConfig, concurrency: int) -> SyncResult:
        request = self._request
        spec = self._run_spec(
            config=shared_part(config),
            concurrency=concurrency,
            limits=None if request.allow_removals else request.limits,
        )
        on_failure = self._failures.of("the shared rate limit")
        with shared_rate_limit(
            self._client, spec.driver, spec.url, config, self._interrupted, on_failure
        ):
            return self._end_after(self._sync, spec)

    def _sync(self, spec: RunSpec) -> SyncResult:
        reports = self._sync_all(spec)
        reasons = [report.reason for report in reports.values() if report.reason is not None]
        if reasons:
            return self._end(reports.values(), error=reasons[0])
        if not sum(report.wallets for report in reports.values()):
            self._end(reports.values(), error="no wallets to read")
            raise InputError("no wallets to read; name them with --wallets-file")
        spec = msgspec.structs.replace(spec, config=None)
        if waiting := {x: report for x, report in reports.items() if report.waiting is not None}:
            decision = self._decide(spec, reports) if spec.limits else Decision()
            arguments = {bucket: (report, decision) for bucket, report in waiting.items()}
            reports |= self._each(apply_waiting, spec, arguments, "removals")
        return self._pin(spec, reports)

    def approve(self, wallets: list[str] | None) -> SyncResult:
        """Apply some wallets' removals held for review; None: all."""
        entries = {
            bucket: (entry, wallets)
            for bucket, entry in enumerate(self._base.buckets)
            if any(wallets is None or row["wallet_id"] in wallets for row in entry.removals)
        }

        def apply_all(spec: RunSpec) -> SyncResult:
            return self._pin(spec, self._each(apply_held, spec, entries, "removals"))

        return self._end_after(apply_all, self._run_spec(limits=None))

    def _run_spec(self, **own: Any) -> RunSpec:
        run, base = self._run, self._base
        return RunSpec(
            url=self._lake.root,  # workers may be in another folder
            driver=run.driver or "",
            run_id=run.run_id,
            folder=run.folder,
            buckets=run.buckets,
            lake_state=LakeState(
                runs=self._earlier, sequence=base.sequence, approved_at=base.approved_at
            ),
            change=base.change,
            state=base.state,
            token_change=base.token_change,
            changed_at=base.changed_at,
            publishes=self._publishes,
            **own,
        )

    def _end_after(self, work: Callable[[RunSpec], SyncResult], spec: RunSpec) -> SyncResult:
        try:
            return work(spec)
        except _Interrupted:
            return self._end([], interrupted=True)
        except CancelledError as error:
            resume = "Resume the run: `nftsync lake sync --resume`"
            remedy = resume if self._run.kind == "sync" else "Run the command again"
            raise RunInterrupted(f"lost the connection to the Dask scheduler. {remedy}") from error

    # Reads ---------------------------------------------------------------------------------------

    def _tasks(self) -> dict[int, SyncTask]:
        wallets, entries = self._request.wallets, self._base.buckets
        if wallets is None:
            tracked = {x: entry for x, entry in enumerate(entries) if entry.rows.tracked}
            return {bucket: SyncTask(entry, None) for bucket, entry in tracked.items()}
        plans: dict[int, list[WalletLine]] = {}
        for line in wallets:
            plans.setdefault(bucket_of(line.wallet_id, len(entries)), []).append(line)
        return {bucket: SyncTask(entries[bucket], plan) for bucket, plan in sorted(plans.items())}

    def _sync_all(self, spec: RunSpec) -> dict[int, BucketReport]:
        tasks, reports = self._tasks(), {}
        planned = sum(len(x.plan or ()) or x.entry.rows.tracked for x in tasks.values())
        if self._resumed:
            reports = stored_reports(self._lake, spec.folder, spec.run_id)
        with progress_bar("wallets", planned, unit="wallets", shown=self._progress) as bar:
            bar.update(sum(report.wallets for report in reports.values()))
            left = {bucket: task for bucket, task in tasks.items() if bucket not in reports}
            reports |= self._each(
                _sync, spec, left, on_result=lambda report: bar.update(report.wallets)
            )
        return reports

    # The removal guard ---------------------------------------------------------------------------

    def _decide(self, spec: RunSpec, reports: Mapping[int, BucketReport]) -> Decision:
        """Decide on the removals that wait, over all buckets, also unread ones."""
        limits, at = spec.limits or RemovalLimits(), now()
        since = max(shifted(at, -DAY), self._base.approved_at)
        waiting = {x: report.day for x, report in reports.items() if report.waiting is not None}
        entries = dict(enumerate(self._base.buckets))
        entries |= {
            bucket: report.waiting or report.entry or entries[bucket]
            for bucket, report in reports.items()
        }
        recent = {x for x, entry in entries.items() if x in waiting or entry.changed_at > since}

        def ask(buckets: Collection[int], lost: set[str] | None) -> list[DayReport]:
            questions = {
                x: Question(entries[x], waiting[x].waiting if x in waiting else [], at, lost)
                for x in buckets
            }
            answers = self._each(answer, spec, questions).values()
            return [report for reports_of_bucket in answers for report in reports_of_bucket]

        counts = [msgspec.structs.replace(day, at=at) for day in waiting.values()]
        losing = {x for x in recent - waiting.keys() if entries[x].losses}
        guesses = [
            DayReport(at=at, rows=entries[x].losses, wallets=entries[x].losing) for x in losing
        ]
        if losing and lost_tokens(limits, [*counts, *guesses]):
            counts += ask(losing, None)
        lost = lost_tokens(limits, counts)
        if lost or needs_metadata(counts):
            counts += ask(recent, lost)
            for bucket in entries.keys() - recent:
                entry = entries[bucket]
                holdings = {(group, False): number for group, number in entry.holdings}
                counts.append(DayReport(holdings=holdings, tokens=entry.rows.tokens))
        return decide(limits, counts)

    # The end -------------------------------------------------------------------------------------

    def _pin(self, spec: RunSpec, reports: dict[int, BucketReport]) -> SyncResult:
        run, base = self._run, self._base
        manifest = msgspec.structs.replace(base, buckets=list(base.buckets))
        for bucket, report in reports.items():
            if report.entry is not None:
                manifest.buckets[bucket] = report.entry
        counts = run.counts
        counts.tokens_changed = len(distinct(x.changed_tokens for x in reports.values()))
        new = [report.new_tokens for report in reports.values()]
        counts.tokens_added = add_tokens(self._lake, manifest, new)
        name_contracts(
            self._lake,
            manifest,
            [report.samples for report in reports.values()],
            self._request.collections,
        )
        for name in ("change", "state", "token_change", "changed_at"):
            of_buckets = (getattr(entry, name) for entry in manifest.buckets)
            setattr(manifest, name, max(getattr(base, name), *of_buckets))
        manifest.sequence = max([base.sequence, *(report.sequence for report in reports.values())])
        if self._request.allow_removals:
            manifest.approved_at = manifest.changed_at
        if self._publishes:
            self._publish(spec, reports.values(), manifest)
        self._check()
        # From here on, the ledger's row is a finished run.
        run.manifest = write_manifest(self._lake, manifest, run.run_id)
        run.changed_from = min(
            (x.changed_from for x in reports.values() if x.changed_from), default=""
        )
        run.changed_until = max((x.changed_until for x in reports.values()), default="")
        return self._end(reports.values())

    def _publish(
        self, spec: RunSpec, reports: Collection[BucketReport], manifest: Manifest
    ) -> None:
        entries, known = dict(enumerate(manifest.buckets)), self._base.tables
        stale = {bucket for bucket, entry in entries.items() if not entry.is_published}
        if self._lake.folder is None and known and not stale:
            return  # a check would need dozens of requests
        if not check_tables(self._lake, known):  # the tables are new
            known, stale = {}, {bucket for bucket, entry in entries.items() if entry.file}
        # A bucket's files are complete if it was never published before.
        files = {
            x.bucket: x.files
            for x in reports
            if x.files is not None and (known or x.before.published == Published())
        }
        behind = {bucket: entries[bucket] for bucket in stale - files.keys()}
        for entry in () if known else behind.values():
            entry.published = Published()
        files |= self._each(publish_bucket, spec, behind)
        for bucket in files:
            entries[bucket].publish()
        all_files = [file for some in files.values() for file in some]
        manifest.tables = commit_files(self._lake, known, all_files, self._check)

    def _end(
        self,
        reports: Collection[BucketReport],
        *,
        error: str | None = None,
        interrupted: bool = False,
    ) -> SyncResult:
        run, tokens = self._run, self._run.counts
        failures = {x.wallet_id: x for report in reports for x in report.failures}
        counts = run.counts = _summed(report.counts for report in reports)
        counts.tokens_added, counts.tokens_changed = tokens.tokens_added, tokens.tokens_changed
        counts.seconds = round(time.monotonic() - self._began, 3)
        result = SyncResult.of(
            run.run_id,
            counts,
            list(failures.values()),
            error,
            interrupted=interrupted,
            resumed=self._taken_over(reports) if self._resumed and reports else None,
        )
        run.status, run.error, run.finished_at = result.status, error, now()
        run.wallets_total = sum(report.wallets for report in reports)
        self._ledger.save(run)
        if not interrupted:
            self._lake.drop(STEPS)
        return result

    def _taken_over(self, reports: Collection[BucketReport]) -> Resumed:
        before = [x for x in reports if x.wallets and x.driver != self._run.driver]
        wallets = sum(report.wallets - len(report.failures) for report in before)
        if not before:
            return Resumed(0, None, None)
        oldest = min(report.read_at for report in before)
        age = (datetime.now(UTC) - datetime.fromisoformat(oldest)).total_seconds()
        return Resumed(wallets, oldest, max(0.0, round(age, 3)))

    # Tasks ---------------------------------------------------------------------------------------

    def _each(
        self,
        function: Callable[[RunSpec, int, _A], _T],
        spec: RunSpec,
        arguments: Mapping[int, _A],
        label: str | None = None,
        on_result: Callable[[_T], object] | None = None,
    ) -> dict[int, _T]:
        with progress_bar(
            label or "", len(arguments), unit="buckets", shown=self._progress if label else False
        ) as bar:
            results = {}
            for bucket, result in each_bucket(
                self._client, partial(_run_task, function, spec), arguments, self._check
            ):
                results[bucket] = result
                bar.update(1)
                if on_result is not None:
                    on_result(result)
        return {bucket: results[bucket] for bucket in sorted(results)}

    def _check(self) -> None:
        self._failures.raise_first()
        if self._lost.is_set():
            raise SyncRunning(
                f"another driver has taken over run {self._run.run_id}; wait for it to end"
            )
        if self._interrupted.is_set():
            raise _Interrupted


def _summed(counts: Iterable[Counts]) -> Counts:
    sums = Counts()
    for some in counts:
        for name in Counts.__struct_fields__:
            setattr(sums, name, getattr(sums, name) + getattr(some, name))
    return sums
