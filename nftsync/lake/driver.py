"""The driver of a lake's run: the order of its steps, and the versions it pins at the end.

What a step writes counts for nothing until the run is pinned; so a run may end anywhere, and
another driver goes on where it was, or begins anew from what the run before has pinned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import msgspec
from distributed import Client

from nftsync.errors import InputError, RunInterrupted, SyncRunning
from nftsync.lake.applying import ApplyReport, apply_bucket
from nftsync.lake.cluster import each_bucket, pace_of_worker, paced, shared_part
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.merging import NAMES, MergeReport, merge_tokens, name_contracts, spread_tokens
from nftsync.lake.order import EVERYBODY, Order, Report, whole_or_refused
from nftsync.lake.past import PastOfLake
from nftsync.lake.reading import ReadReport, read_bucket, read_held
from nftsync.lake.reasons import explained
from nftsync.lake.rows import TABLES, bucket_of
from nftsync.lake.storage import Lake, Overtaken, Versions
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
#: How often a run begins its writing anew where another's worker wrote meanwhile.
_MOST_ATTEMPTS = 5
_LINES_AT_ONCE = 500


def _handed_to(reports: Iterable[Report]) -> set[int]:
    return {bucket for report in reports for bucket in report.handed_to}


def _pace_of(run: LakeRun) -> str:
    return f"nftsync-{run.driver}"


class _Interrupted(Exception):
    """Ctrl-C."""


# What workers do ----------------------------------------------------------------------------------


def _told(function: Callable[[Order, int], _T], order: Order, bucket: int) -> _T:
    """Do a task; a worker logs what it fails with."""
    with explained(order.url):
        return function(order, bucket)


def _read(driver: str, order: Order, bucket: int) -> ReadReport:
    pace = pace_of_worker(driver)
    with pace.naming_the_worker():
        return read_bucket(order, bucket, pace.access(), pace.stopped, pace.rule)


@dataclass
class Driver:
    """Drives one run."""

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
    _base: Versions = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._resumed = self._run.attempt > 0

    def paced(self, config: ClientConfig) -> AbstractContextManager[None]:
        """Let the workers read together as fast as one machine would, for a block."""
        return paced(
            self._client,
            _pace_of(self._run),
            self._lake.root,
            config,
            self._interrupted,
            on_failure=self._failures.of("the shared rate limit"),
        )

    def run(self, config: ClientConfig, concurrency: int) -> SyncResult:
        """Read the wallets, and apply what was read."""
        request = self._request
        order = msgspec.structs.replace(
            self._order(),
            planned=request.wallets is not None,
            config=shared_part(config),
            concurrency=concurrency,
            limits=None if request.allow_removals else request.limits,
        )
        return self._ended(partial(self._read_and_write, order))

    def _read_and_write(self, order: Order) -> SyncResult:
        self._hand_out_plan(order)
        reports = self._read_all(order)
        reasons = [each.reason for each in reports if each.reason is not None]
        if reasons:
            return self._end(reports, error=reasons[0])
        if not sum(each.wallets for each in reports):
            self._end(reports, error="there was nothing to read")
            raise InputError("no wallets to read: give --wallets-file")
        return self._write_all(order, reports)

    def approve(self, wallets: list[str] | None) -> SyncResult:
        """Apply the removals held for review of some wallets, or of all."""
        order = msgspec.structs.replace(self._order(), approval=True, limits=None)
        return self._ended(partial(self._apply_held, order, wallets))

    def _apply_held(self, order: Order, wallets: list[str] | None) -> SyncResult:
        function = partial(read_held, wallets)
        reports = self._each(function, order, range(order.buckets), "removals")
        return self._write_all(order, reports)

    def _order(self) -> Order:
        run = self._run
        return Order(
            url=self._lake.root,  # workers may be in another folder
            driver=run.driver or "",
            run_id=run.run_id,
            buckets=run.buckets,
            planned=False,
            start=run.start or dict.fromkeys(TABLES, 0),
            greatest_sequence=run.greatest_sequence,
            approved_at=run.approved_at,
        )

    def _ended(self, work: Callable[[], SyncResult]) -> SyncResult:
        try:
            return work()
        except _Interrupted:
            return self._end([], interrupted=True)
        except CancelledError as error:
            what = "resume the run: `nftsync lake sync --resume`"
            if self._run.kind != "sync":
                what = "run the command again"
            raise RunInterrupted(f"the Dask scheduler has gone; {what}") from error

    def _hand_out_plan(self, order: Order) -> None:
        if self._request.wallets is None:
            return
        by_bucket: dict[int, list[WalletLine]] = {}
        for line in self._request.wallets:
            by_bucket.setdefault(bucket_of(line.wallet_id, order.buckets), []).append(line)
        lines_of_buckets = (
            (bucket, 0, msgspec.msgpack.encode(lines[start : start + _LINES_AT_ONCE]))
            for bucket, lines in by_bucket.items()
            for start in range(0, len(lines), _LINES_AT_ONCE)
        )
        # Each driver hands it out anew: what the last one did may be there in part.
        commit = order.commit("plan", 0)._replace(attempt=self._run.attempt)
        with whole_or_refused(self._lake, order.run_id) if self._resumed else nullcontext():
            self._lake.stage(lines_of_buckets, commit)

    def _read_all(self, order: Order) -> list[ReadReport]:
        planned = len(self._request.wallets or ()) or self._lake.count("wallets", order.start)
        with progress_bar("wallets", planned, unit="wallets", shown=self._progress) as bar:
            return self._each(
                partial(_read, _pace_of(self._run)),
                order,
                range(order.buckets),
                tell=lambda report: bar.update(report.wallets),
            )

    def _write_all(self, order: Order, reports: list[ReadReport]) -> SyncResult:
        run, attempts = self._run, 0
        order = msgspec.structs.replace(order, config=None, decision=self._decide(order, reports))
        while True:
            order = self._numbered(order, reports)
            try:
                read = [bucket for bucket, report in enumerate(reports) if report.wallets]
                applied = self._each(apply_bucket, order, read, "balances")
                merged = self._each(merge_tokens, order, _handed_to(applied), "tokens")
                told = _handed_to(merged)
                every = range(order.buckets)
                spread = msgspec.structs.replace(order, base=self._lake.versions())
                self._each(spread_tokens, spread, every if EVERYBODY in told else told - {NAMES})
                if NAMES in told or self._request.collections is not None:
                    name_contracts(order, self._request.collections)
                run.versions = self._written()
            except Overtaken:
                if (attempts := attempts + 1) == _MOST_ATTEMPTS:
                    raise
                run.attempt += 1
                continue
            return self._pin(reports, applied, merged)

    def _decide(self, order: Order, reports: list[ReadReport]) -> Decision:
        if order.limits is None:
            return Decision()
        past = PastOfLake(
            self._lake,
            order.start,
            [report.known for report in reports],
            approved_at=self._run.approved_at,
            runs={run.run_id: run.started_at for run in self._ledger.runs()},
            started_at=self._run.started_at,
        )
        return decide(order.limits, past, past.waiting)

    def _numbered(self, order: Order, reports: list[ReadReport]) -> Order:
        """The order to write, from what is pinned and with which numbers."""
        run = self._run
        if run.applied_at is None:
            run.applied_at = max(now(), run.not_before)
        self._ledger.save(run)  # or this run is no longer ours
        self._base = {name: self._lake.go_back(name, run.start.get(name, 0)) for name in TABLES}
        self._base["staged"] = self._lake.versions()["staged"]
        changes, states = run.greatest_change + 1, run.greatest_state + 1
        first_change, first_state = [], []
        for report in reports:
            first_change.append(changes)
            first_state.append(states)
            changes += report.changes
            states += report.states
        tokens = sum(report.changes for report in reports)
        first = run.greatest_token_change + 1
        self._greatest = changes, states, first + tokens * order.buckets
        return msgspec.structs.replace(
            order,
            attempt=run.attempt,
            base=self._base,
            applied_at=run.applied_at,
            first_change=first_change,
            first_state=first_state,
            first_token_change=[first + tokens * k for k in range(order.buckets)],
        )

    def _written(self) -> Versions:
        """The versions of what was written.

        Raises:
            Overtaken: a worker of another attempt has written there as well.
        """
        run, found = self._run, self._lake.versions()
        for name in TABLES:
            by = run.run_id, run.attempt
            if not self._lake.only_by(*by, name, self._base[name], found[name]):
                raise Overtaken(f"{name}: written by a worker of another run or attempt")
        return {name: found[name] for name in TABLES}

    def _each(
        self,
        function: Callable[[Order, int], _T],
        order: Order,
        buckets: Iterable[int],
        what: str | None = None,
        tell: Callable[[_T], object] | None = None,
    ) -> list[_T]:
        """What a step comes to in some buckets, in their order, with a bar if it has a name."""
        places = sorted(buckets)
        with progress_bar(
            what or "", len(places), unit="buckets", shown=self._progress if what else False
        ) as bar:
            found = {}
            for bucket, result in each_bucket(
                self._client, partial(_told, function, order), places, self._check
            ):
                found[bucket] = result
                bar.update(1)
                if tell is not None:
                    tell(result)
        return [found[bucket] for bucket in places]

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
        run.greatest_sequence = max(each.greatest_sequence for each in reports)
        run.greatest_change, run.greatest_state, run.greatest_token_change = self._greatest
        if self._request.allow_removals:
            run.approved_at = run.applied_at or ""
        counts = run.counts
        counts.tokens_added = sum(each.added for each in merged)
        counts.tokens_changed = sum(each.changed for each in merged)
        for each in applied:
            counts.balances_added += each.counts.balances_added
            counts.balances_changed += each.counts.balances_changed
            counts.balances_removed += each.counts.balances_removed
        held = [Failure(wallet, HELD_BACK) for each in applied for wallet in each.held]
        first = set().union(*(each.shown_by for each in merged))
        changed = sum(each.changed + len(first.intersection(each.showed)) for each in applied)
        return self._end(reports, held=held, changed=changed)

    def _end(
        self,
        reports: list[ReadReport],
        *,
        error: str | None = None,
        interrupted: bool = False,
        held: Sequence[Failure] = (),
        changed: int | None = None,
    ) -> SyncResult:
        run, counts = self._run, self._run.counts
        failures = {each.wallet_id: each for report in reports for each in report.failures}
        failures |= {each.wallet_id: each for each in held}
        total = sum(each.wallets for each in reports)
        counts.requests = sum(each.requests for each in reports)
        counts.retries = sum(each.retries for each in reports)
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
        """What an earlier driver of this run had read."""
        before = [each for each in reports if each.wallets and each.driver != self._run.driver]
        wallets = sum(each.wallets - len(each.failures) for each in before)
        if not before:
            return Resumed(0, None, None)
        oldest = min(each.read_at for each in before)
        age = (datetime.now(UTC) - datetime.fromisoformat(oldest)).total_seconds()
        return Resumed(wallets, oldest, max(0.0, round(age, 3)))
