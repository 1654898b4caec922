"""Driver of a run.

Nothing that a step writes is visible before the run is pinned, so a run can stop at any point.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from distributed import Client

from nftsync.errors import InputError, RunInterrupted, SyncRunning
from nftsync.lake.cluster import each_bucket, rate_limit_of_worker, shared_part, shared_rate_limit
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.merging import (
    ALL_BUCKETS,
    Corrections,
    MergeReport,
    Shown,
    correct_bucket,
    merge_tokens,
    name_contracts,
)
from nftsync.lake.past import LakeDay
from nftsync.lake.publishing import PublishReport, publish_bucket
from nftsync.lake.reasons import explained
from nftsync.lake.rows import BUCKET, TABLES, bucket_of
from nftsync.lake.run_spec import RunSpec
from nftsync.lake.staged import STEPS
from nftsync.lake.storage import DataFile, Lake, Versions
from nftsync.lake.syncing import SyncReport, plan_name, stage_held, staged_reports, sync_bucket
from nftsync.provider.config import ClientConfig
from nftsync.pull.guard import Decision, decide
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import Failure, Resumed, SyncResult
from nftsync.store.removals import HELD_BACK
from nftsync.store.wallets import WalletLine
from nftsync.terminal import progress_bar
from nftsync.threads import Failures
from nftsync.times import now

_T = TypeVar("_T")
_A = TypeVar("_A")
#: Tokens that one task merges, if there are enough buckets.
_TOKENS_PER_TASK = 25_000
_FEWEST_PARTS = 4


class _Interrupted(Exception):
    """Interrupt by a signal."""


# What workers do ----------------------------------------------------------------------------------


def _run_task(
    function: Callable[[RunSpec, int, _A], _T], spec: RunSpec, bucket: int, argument: _A
) -> _T:
    with explained(spec.url):
        return function(spec, bucket, argument)


def _sync(spec: RunSpec, bucket: int, _: None) -> SyncReport:
    limit = rate_limit_of_worker(spec.driver)
    with limit.worker_named():
        return sync_bucket(spec, bucket, limit.access(), limit.stopped, limit.rule)


@dataclass
class Driver:
    """Driver of one run."""

    _lake: Lake
    _ledger: Ledger
    _run: LakeRun
    _client: Client
    _request: SyncRequest
    _lost: threading.Event
    _failures: Failures
    _interrupted: threading.Event
    _progress: bool | None
    _began: float = field(default_factory=time.monotonic)
    _greatest: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._resumed = self._run.attempt > 0

    def run(self, config: ClientConfig, concurrency: int) -> SyncResult:
        """Read the wallets and apply the reads."""
        request = self._request
        spec = self._run_spec(
            planned=request.wallets is not None,
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
        self._stage_plan(spec)
        reports = self._sync_all(spec)
        reasons = [report.reason for report in reports.values() if report.reason is not None]
        if reasons:
            return self._end(reports.values(), error=reasons[0])
        if not sum(report.wallets for report in reports.values()):
            self._end(reports.values(), error="no wallets to read")
            raise InputError("no wallets to read: set --wallets-file")
        return self._publish(spec, reports)

    def approve(self, wallets: list[str] | None) -> SyncResult:
        """Apply some wallets' removals held for review; None: all."""

        def apply_held(spec: RunSpec) -> SyncResult:
            buckets = dict.fromkeys(self._buckets_held(), wallets)
            return self._publish(spec, self._each(stage_held, spec, buckets, "removals"))

        return self._end_after(apply_held, self._run_spec(limits=None))

    def _buckets_held(self) -> set[int]:
        rows = self._lake.rows("removals", self._run.start, "held <> 0", (BUCKET,))
        return {bucket for (bucket,) in rows}

    def _run_spec(self, **own: Any) -> RunSpec:
        run = self._run
        return RunSpec(
            url=self._lake.root,  # workers may be in another folder
            driver=run.driver or "",
            run_id=run.run_id,
            folder=run.folder,
            buckets=run.buckets,
            start=run.start or dict.fromkeys(TABLES, 0),
            greatest_sequence=run.greatest_sequence,
            greatest_change=run.greatest_change,
            greatest_state=run.greatest_state,
            started_at=run.started_at,
            not_before=run.not_before,
            approved_at=run.approved_at,
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

    def _stage_plan(self, spec: RunSpec) -> None:
        """Stage the wallets to read; a driver before may have been cut off while it did so."""
        by_bucket: dict[int, list[WalletLine]] = {}
        for line in self._request.wallets or ():
            by_bucket.setdefault(bucket_of(line.wallet_id, spec.buckets), []).append(line)
        for bucket, lines in by_bucket.items():
            spec.staged.write(plan_name(bucket), msgspec.msgpack.encode(lines))

    def _sync_all(self, spec: RunSpec) -> dict[int, SyncReport]:
        planned = len(self._request.wallets or ()) or self._lake.count("wallets", spec.start)
        reports = {}
        if self._resumed:
            reports = staged_reports(self._lake, spec.staged, spec.run_id)
        with progress_bar("wallets", planned, unit="wallets", shown=self._progress) as bar:
            bar.update(sum(report.wallets for report in reports.values()))
            left = dict.fromkeys(x for x in range(spec.buckets) if x not in reports)
            return reports | self._each(
                _sync, spec, left, on_result=lambda report: bar.update(report.wallets)
            )

    def _publish(self, spec: RunSpec, reports: dict[int, SyncReport]) -> SyncResult:
        spec = self._settled(spec, reports)
        mirrors = {bucket: report.file for bucket, report in reports.items() if report.file}
        published = self._each(publish_bucket, spec, mirrors, "balances")
        merged = self._each(merge_tokens, spec, self._shown(published), "tokens")
        files = [file for report in published.values() for file in report.files]
        files += [file for report in merged.values() for file in report.files]
        targets = {target for report in merged.values() for target in report.targets}
        if ALL_BUCKETS in targets:
            targets = set(range(spec.buckets))
        staged = [report.corrections for report in merged.values() if report.corrections]
        corrections = {bucket: Corrections(staged) for bucket in targets}
        for file in files:
            if file.bucket in corrections and file.table in {"wallets", "known_tokens", "balances"}:
                corrections[file.bucket].written[file.table] = file
        for corrected in self._each(correct_bucket, spec, corrections).values():
            files += corrected
        contracts = {address for report in merged.values() for address in report.contracts}
        versions = self._commit_all(spec, files, contracts)
        return self._pin(versions, reports, published.values(), merged.values())

    def _settled(self, spec: RunSpec, reports: dict[int, SyncReport]) -> RunSpec:
        run = self._run
        decision = self._decide(spec, reports)
        run.applied_at = max(now(), run.not_before)
        self._ledger.save(run)  # raises if another driver has taken over
        changes = {bucket: report.changes for bucket, report in reports.items()}
        first_change, self._greatest["greatest_change"] = _numbered(run.greatest_change, changes)
        states = {bucket: report.states for bucket, report in reports.items()}
        first_state, self._greatest["greatest_state"] = _numbered(run.greatest_state, states)
        entries = sum(report.entries for report in reports.values())
        return msgspec.structs.replace(
            spec,
            config=None,
            decision=decision,
            applied_at=run.applied_at,
            first_change=first_change,
            first_state=first_state,
            parts=min(spec.buckets, max(_FEWEST_PARTS, entries // _TOKENS_PER_TASK)),
        )

    def _decide(self, spec: RunSpec, reports: dict[int, SyncReport]) -> Decision:
        if spec.limits is None:
            return Decision()
        buckets = [report.day for report in reports.values()]
        if not any(bucket.waiting for bucket in buckets):
            return Decision()
        runs = {run.run_id: run.started_at for run in self._ledger.runs()}
        groups = {x.wallet_id: x.group for x in self._request.wallets or () if x.group}
        day = LakeDay(self._lake, self._run, buckets, runs, groups)
        return decide(spec.limits, day.reports(spec.limits))

    def _shown(self, published: dict[int, PublishReport]) -> dict[int, Shown]:
        rows: dict[int, int] = {}
        shown: dict[int, Shown] = {}
        for bucket, report in published.items():
            for part, place in report.shown.items():
                shown.setdefault(part, Shown(0, {})).parts[bucket] = place
                # A row may change a token twice.
                rows[part] = rows.get(part, 0) + 2 * report.rows[part]
        first, greatest = _numbered(self._run.greatest_token_change, rows)
        self._greatest["greatest_token_change"] = greatest
        for part, number in first.items():
            shown[part].first_change = number
        return shown

    def _commit_all(
        self, spec: RunSpec, files: Iterable[DataFile], contracts: set[str]
    ) -> Versions:
        by_table: dict[str, dict[tuple[int, str], DataFile]] = {}
        for file in files:
            # A later file of a bucket replaces an earlier one, except in a log.
            key = file.bucket, file.path if TABLES[file.table].log else ""
            if file.path or not TABLES[file.table].log:
                by_table.setdefault(file.table, {})[key] = file
        versions = {name: spec.start.get(name, 0) for name in TABLES}

        def commit(name: str) -> None:
            some = list(by_table[name].values())
            versions[name] = self._committed(name, versions[name], some)

        with ThreadPoolExecutor(len(TABLES)) as threads:
            list(threads.map(commit, by_table))
        names = self._request.collections
        if contracts or names is not None:
            named = name_contracts(self._lake, versions, contracts, names)
            if named is not None:
                versions["contracts"] = self._committed("contracts", versions["contracts"], [named])
        return versions

    def _committed(self, name: str, start: int, files: list[DataFile]) -> int:
        self._check()
        replace = not TABLES[name].log
        commit = partial(self._lake.commit, name, start, files, replace=replace)
        return self._ledger.committed(self._run, name, commit)

    def _each(
        self,
        function: Callable[[RunSpec, int, _A], _T],
        spec: RunSpec,
        arguments: Mapping[int, _A],
        label: str | None = None,
        on_result: Callable[[_T], object] | None = None,
    ) -> dict[int, _T]:
        with progress_bar(
            label or "", len(arguments), unit="tasks", shown=self._progress if label else False
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
            raise SyncRunning(f"another driver has taken over run {self._run.run_id}")
        if self._interrupted.is_set():
            raise _Interrupted

    # The end -------------------------------------------------------------------------------------

    def _pin(
        self,
        versions: Versions,
        reports: dict[int, SyncReport],
        published: Collection[PublishReport],
        merged: Collection[MergeReport],
    ) -> SyncResult:
        run = self._run
        self._lake.sync_to_disk(run.start, versions)
        # From here on, the ledger's row is a finished run.
        run.versions = versions
        sequences = (report.greatest_sequence for report in reports.values())
        self._greatest["greatest_sequence"] = max(run.greatest_sequence, *sequences, 0)
        for name, number in self._greatest.items():
            setattr(run, name, number)
        if self._request.allow_removals:
            run.approved_at = run.applied_at or ""
        counts = run.counts
        counts.tokens_added = sum(report.added for report in merged)
        counts.tokens_changed = sum(report.changed for report in merged)
        for report in published:
            counts.balances_added += report.counts.balances_added
            counts.balances_changed += report.counts.balances_changed
            counts.balances_removed += report.counts.balances_removed
        held_wallets = (wallet for report in published for wallet in report.held_wallets)
        failures = [Failure(wallet, HELD_BACK, status="incomplete") for wallet in held_wallets]
        first = set().union(*(report.shown_by for report in merged))
        changed = sum(x.changed + len(first.intersection(x.showed)) for x in published)
        return self._end(reports.values(), held_failures=failures, changed=changed)

    def _end(
        self,
        reports: Collection[SyncReport],
        *,
        error: str | None = None,
        interrupted: bool = False,
        held_failures: Sequence[Failure] = (),
        changed: int | None = None,
    ) -> SyncResult:
        run, counts = self._run, self._run.counts
        failures = {x.wallet_id: x for report in reports for x in report.failures}
        failures |= {failure.wallet_id: failure for failure in held_failures}
        total = sum(report.wallets for report in reports)
        counts.requests = sum(report.requests for report in reports)
        counts.retries = sum(report.retries for report in reports)
        counts.wallets_failed = len(failures)
        counts.wallets_ok = total - len(failures)
        counts.wallets_unchanged = 0 if changed is None else max(0, counts.wallets_ok - changed)
        counts.seconds = round(time.monotonic() - self._began, 3)
        resumed = self._taken_over(reports) if self._resumed and reports else None
        result = SyncResult.of(
            run.run_id,
            counts,
            list(failures.values()),
            error,
            interrupted=interrupted,
            resumed=resumed,
        )
        run.status, run.error, run.finished_at = result.status, error, now()
        run.wallets_total = total
        self._ledger.save(run)
        if not interrupted:
            self._lake.drop(STEPS)
        return result

    def _taken_over(self, reports: Collection[SyncReport]) -> Resumed:
        before = [x for x in reports if x.wallets and x.driver != self._run.driver]
        wallets = sum(report.wallets - len(report.failures) for report in before)
        if not before:
            return Resumed(0, None, None)
        oldest = min(report.read_at for report in before)
        age = (datetime.now(UTC) - datetime.fromisoformat(oldest)).total_seconds()
        return Resumed(wallets, oldest, max(0.0, round(age, 3)))


def _numbered(greatest: int, counts: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """Return the first number of each key, and the greatest of all, for upper bounds by key."""
    *first, after = accumulate(counts.values(), initial=greatest + 1)
    return dict(zip(counts, first, strict=True)), after - 1
