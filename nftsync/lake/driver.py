"""Driver of a run: distributes the steps to workers, and pins the written versions.

Nothing that a step writes is visible before the run is pinned. So a run can stop at any point;
another driver resumes it, or starts a new run from the last pinned versions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from distributed import Client

from nftsync.errors import InputError, RunInterrupted, SyncRunning
from nftsync.lake.applying import ApplyReport, apply_bucket
from nftsync.lake.cluster import each_bucket, rate_limit_of_worker, shared_part, shared_rate_limit
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.merging import NAMES, MergeReport, merge_tokens, name_contracts, propagate_tokens
from nftsync.lake.past import LakeHistory
from nftsync.lake.reading import ReadReport, read_bucket, read_held
from nftsync.lake.reasons import explained
from nftsync.lake.rows import TABLES, bucket_of
from nftsync.lake.run_spec import ALL_BUCKETS, RunSpec, StepReport, damage_explained
from nftsync.lake.storage import Lake, Versions, WriteConflict
from nftsync.provider.config import ClientConfig
from nftsync.pull.removal_guard import Decision, decide
from nftsync.pull.result import Failure, Resumed, SyncResult
from nftsync.pull.run import SyncRequest
from nftsync.store.removals import HELD_BACK
from nftsync.store.wallets import WalletLine
from nftsync.terminal import progress_bar
from nftsync.threads import Failures
from nftsync.times import now

_T = TypeVar("_T")
#: Attempts at writing in case of write conflicts.
_MOST_ATTEMPTS = 5
_LINES_AT_ONCE = 500


def _handed_to(reports: Iterable[StepReport]) -> set[int]:
    return {bucket for report in reports for bucket in report.handed_to}


class _Interrupted(Exception):
    """Interrupt by Ctrl-C or SIGTERM."""


# What workers do ----------------------------------------------------------------------------------


def _run_task(function: Callable[[RunSpec, int], _T], spec: RunSpec, bucket: int) -> _T:
    """Run a task on a worker, with store errors explained."""
    with explained(spec.url):
        return function(spec, bucket)


def _read(spec: RunSpec, bucket: int) -> ReadReport:
    limit = rate_limit_of_worker(spec.driver)
    with limit.worker_named():
        return read_bucket(spec, bucket, limit.access(), limit.stopped, limit.rule)


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
            return self._end_after(self._read_and_write, spec)

    def _read_and_write(self, spec: RunSpec) -> SyncResult:
        self._hand_out_plan(spec)
        reports = self._read_all(spec)
        reasons = [report.reason for report in reports if report.reason is not None]
        if reasons:
            return self._end(reports, error=reasons[0])
        if not sum(report.wallets for report in reports):
            self._end(reports, error="no wallets to read")
            raise InputError("no wallets to read: set --wallets-file")
        return self._write_all(spec, reports)

    def approve(self, wallets: list[str] | None) -> SyncResult:
        """Apply some wallets' removals held for review; None: all."""

        def apply_held(spec: RunSpec) -> SyncResult:
            function = partial(read_held, wallets)
            reports = self._each_bucket(function, spec, range(spec.buckets), "removals")
            return self._write_all(spec, reports)

        return self._end_after(apply_held, self._run_spec(approval=True, limits=None))

    def _run_spec(self, **own: Any) -> RunSpec:
        run = self._run
        return RunSpec(
            url=self._lake.root,  # workers may be in another folder
            driver=run.driver or "",
            run_id=run.run_id,
            buckets=run.buckets,
            start=run.start or dict.fromkeys(TABLES, 0),
            greatest_sequence=run.greatest_sequence,
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

    def _hand_out_plan(self, spec: RunSpec) -> None:
        if self._request.wallets is None:
            return
        by_bucket: dict[int, list[WalletLine]] = {}
        for line in self._request.wallets:
            by_bucket.setdefault(bucket_of(line.wallet_id, spec.buckets), []).append(line)
        lines_of_buckets = (
            (bucket, 0, msgspec.msgpack.encode(lines[start : start + _LINES_AT_ONCE]))
            for bucket, lines in by_bucket.items()
            for start in range(0, len(lines), _LINES_AT_ONCE)
        )
        # Each driver stages the plan again: the last driver's may be incomplete.
        commit = spec.commit("plan", 0)._replace(attempt=self._run.attempt)
        with damage_explained(self._lake, spec.run_id) if self._resumed else nullcontext():
            self._lake.stage(lines_of_buckets, commit)

    def _read_all(self, spec: RunSpec) -> list[ReadReport]:
        planned = len(self._request.wallets or ()) or self._lake.count("wallets", spec.start)
        with progress_bar("wallets", planned, unit="wallets", shown=self._progress) as bar:
            return self._each_bucket(
                _read,
                spec,
                range(spec.buckets),
                on_result=lambda report: bar.update(report.wallets),
            )

    def _write_all(self, spec: RunSpec, reports: list[ReadReport]) -> SyncResult:
        run, attempts = self._run, 0
        spec = msgspec.structs.replace(spec, config=None, decision=self._decide(spec, reports))
        while True:
            spec = self._with_numbers(spec, reports)
            try:
                read = [bucket for bucket, report in enumerate(reports) if report.wallets]
                applied = self._each_bucket(apply_bucket, spec, read, "balances")
                merged = self._each_bucket(merge_tokens, spec, _handed_to(applied), "tokens")
                targets = _handed_to(merged)
                if ALL_BUCKETS in targets:
                    targets |= set(range(spec.buckets))
                current = msgspec.structs.replace(spec, base=self._lake.versions())
                self._each_bucket(propagate_tokens, current, targets - {ALL_BUCKETS, NAMES})
                if NAMES in targets or self._request.collections is not None:
                    name_contracts(spec, self._request.collections)
                run.versions = self._written_versions(spec.base)
            except WriteConflict:
                if (attempts := attempts + 1) == _MOST_ATTEMPTS:
                    raise
                run.attempt += 1
                continue
            return self._pin(reports, applied, merged)

    def _decide(self, spec: RunSpec, reports: list[ReadReport]) -> Decision:
        if spec.limits is None:
            return Decision()
        inputs = [report.guard_input for report in reports]
        runs = {run.run_id: run.started_at for run in self._ledger.runs()}
        past = LakeHistory(self._lake, self._run, inputs, runs)
        return decide(spec.limits, past, past.waiting)

    def _with_numbers(self, spec: RunSpec, reports: list[ReadReport]) -> RunSpec:
        """Return the spec for writing: with base versions, and the first numbers of each bucket."""
        run = self._run
        if run.applied_at is None:
            run.applied_at = max(now(), run.not_before)
        self._ledger.save(run)  # raises if another driver has taken over
        base = {name: self._lake.restore(name, run.start.get(name, 0)) for name in TABLES}
        base["staged"] = self._lake.versions()["staged"]
        upper = (report.changes for report in reports)
        *first_change, changes = accumulate(upper, initial=run.greatest_change + 1)
        upper = (report.states for report in reports)
        *first_state, states = accumulate(upper, initial=run.greatest_state + 1)
        tokens = sum(report.changes for report in reports)
        first = run.greatest_token_change + 1
        self._greatest = changes, states, first + tokens * spec.buckets
        return msgspec.structs.replace(
            spec,
            attempt=run.attempt,
            base=base,
            applied_at=run.applied_at,
            first_change=first_change,
            first_state=first_state,
            first_token_change=[first + tokens * k for k in range(spec.buckets)],
        )

    def _written_versions(self, base: Versions) -> Versions:
        """Return the versions that this run wrote.

        Raises:
            WriteConflict: a worker of another run or attempt also wrote.
        """
        by, results = (self._run.run_id, self._run.attempt), self._lake.versions()
        for name in TABLES:
            if not self._lake.written_only_by(*by, name, base[name], results[name]):
                raise WriteConflict(f"{name}: written by a worker of another run or attempt")
        return {name: results[name] for name in TABLES}

    def _each_bucket(
        self,
        function: Callable[[RunSpec, int], _T],
        spec: RunSpec,
        buckets: Iterable[int],
        label: str | None = None,
        on_result: Callable[[_T], object] | None = None,
    ) -> list[_T]:
        """Run a step in buckets, with a bar if labeled; return the results in bucket order."""
        places = sorted(buckets)
        with progress_bar(
            label or "", len(places), unit="buckets", shown=self._progress if label else False
        ) as bar:
            results = {}
            for bucket, result in each_bucket(
                self._client, partial(_run_task, function, spec), places, self._check
            ):
                results[bucket] = result
                bar.update(1)
                if on_result is not None:
                    on_result(result)
        return [results[bucket] for bucket in places]

    def _check(self) -> None:
        self._failures.raise_first()
        if self._lost.is_set():
            raise SyncRunning(f"another driver has taken over run {self._run.run_id}")
        if self._interrupted.is_set():
            raise _Interrupted

    # The end -------------------------------------------------------------------------------------

    def _pin(
        self, reports: list[ReadReport], applied: list[ApplyReport], merged: list[MergeReport]
    ) -> SyncResult:
        run = self._run
        run.greatest_sequence = max(report.greatest_sequence for report in reports)
        run.greatest_change, run.greatest_state, run.greatest_token_change = self._greatest
        if self._request.allow_removals:
            run.approved_at = run.applied_at or ""
        counts = run.counts
        counts.tokens_added = sum(report.added for report in merged)
        counts.tokens_changed = sum(report.changed for report in merged)
        for report in applied:
            counts.balances_added += report.counts.balances_added
            counts.balances_changed += report.counts.balances_changed
            counts.balances_removed += report.counts.balances_removed
        held_wallets = (wallet for report in applied for wallet in report.held_wallets)
        failures = [Failure(wallet, HELD_BACK, status="incomplete") for wallet in held_wallets]
        first = set().union(*(report.shown_by for report in merged))
        changed = sum(x.changed + len(first.intersection(x.showed)) for x in applied)
        return self._end(reports, held_failures=failures, changed=changed)

    def _end(
        self,
        reports: list[ReadReport],
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
        if run.versions is not None:
            self._lake.sync_to_disk(run.start, run.versions)
        self._ledger.save(run)
        if not interrupted:
            self._lake.drop_staged(run.run_id)
        return result

    def _taken_over(self, reports: list[ReadReport]) -> Resumed:
        """Summarize the reads of earlier drivers of this run."""
        before = [x for x in reports if x.wallets and x.driver != self._run.driver]
        wallets = sum(report.wallets - len(report.failures) for report in before)
        if not before:
            return Resumed(0, None, None)
        oldest = min(report.read_at for report in before)
        age = (datetime.now(UTC) - datetime.fromisoformat(oldest)).total_seconds()
        return Resumed(wallets, oldest, max(0.0, round(age, 3)))
