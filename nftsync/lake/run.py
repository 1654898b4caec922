"""A run on a lake, as its driver sees it: the steps, in which order, and what is pinned at the end.

What a step writes counts for nothing until the run is pinned; so a run may end anywhere, and
another driver goes on where it was, or begins anew from what the run before has pinned.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
from distributed import Client

from nftsync.errors import CutOff, InputError, SyncRunning
from nftsync.lake.applying import ApplyReport, apply_bucket
from nftsync.lake.cluster import connected, pace_of_worker, paced
from nftsync.lake.creating import create_tables
from nftsync.lake.ledger import LakeRun, Ledger
from nftsync.lake.merging import (
    NAMES,
    MergeReport,
    merge_tokens,
    name_contracts,
    spread_tokens,
)
from nftsync.lake.order import EVERYBODY, Order, Report
from nftsync.lake.past import PastOfLake
from nftsync.lake.reading import ReadReport, read_bucket
from nftsync.lake.reasons import explained
from nftsync.lake.rows import TABLES, bucket_of
from nftsync.lake.storage import Lake, Overtaken, Versions
from nftsync.lake.tasks import each_bucket
from nftsync.provider.client import ClientConfig
from nftsync.pull.judgement import Verdict, judge
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import (
    BalanceCounts,
    Failure,
    SyncResult,
    TokenCounts,
    WalletCounts,
)
from nftsync.store.held_back import HELD_BACK
from nftsync.store.runs import Counts
from nftsync.store.wallets import WalletLine
from nftsync.text import interruptible, progress_bar
from nftsync.times import now

__all__ = ["Where", "sync_lake"]

_T = TypeVar("_T")
#: How often a run begins its writing anew where another's worker wrote meanwhile.
_MOST_ATTEMPTS = 5
_LINES_AT_ONCE = 500


@dataclass(frozen=True)
class Where:
    """Where a run's work is done.

    Attributes:
        scheduler: the address of a Dask scheduler; None: workers are started on this machine.
        workers: how many are started; None: one per processor.
        buckets: into how many a new lake is divided; None: 64.
        silence: a driver that shows no sign for so long, in seconds, is gone.
    """

    scheduler: str | None = None
    workers: int | None = None
    buckets: int | None = None
    silence: float = 60.0


def sync_lake(
    lake: str,
    config: ClientConfig,
    request: SyncRequest,
    where: Where,
    *,
    concurrency: int = 16,
    progress: bool | None = None,
) -> SyncResult:
    """Read wallets into a lake.

    Args:
        lake: its folder or address.
        config: how to read the provider.
        request: what to read; all of it but `tokens`, `older_than` and `resume` counts.
        where: where the work is done.
        concurrency: requests at once, of each worker.
        progress: show bars; None shows them on a terminal and in a notebook.

    Raises:
        InputError: there is nothing to read, or the lake is divided otherwise.
        SettingsError: the provider cannot be read with these settings.
        SyncRunning: another driver is at work, or has taken this run over.
        StoreError: the lake cannot be used, or the scheduler cannot be reached.
    """
    with explained(lake):
        tables = Lake(lake)
        create_tables(tables)
        ledger = Ledger(tables)
        run = ledger.begin(_digest(request), where.buckets, where.silence)
        with (
            ledger.renewing(run, where.silence) as lost,
            interruptible() as interrupted,
            connected(where.scheduler, where.workers) as client,
            paced(client, _pace_of(run), tables.root, config) as stop,
        ):
            driver = _Driver(tables, ledger, run, client, request, lost, interrupted, progress)
            try:
                return driver.run(config, concurrency)
            finally:
                stop()


def _digest(request: SyncRequest) -> str:
    """What tells a run that was asked for the same from others."""
    if request.wallets is None and not request.allow_removals:
        return ""
    wallets = sorted({line.wallet_id: line for line in request.wallets or ()}.values())
    asked = request.wallets is None, request.allow_removals, wallets
    return hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()


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
    return read_bucket(order, bucket, pace.access(), pace.stopped)


@dataclass
class _Driver:
    """Drives one run."""

    _lake: Lake
    _ledger: Ledger
    _run: LakeRun
    _client: Client
    _request: SyncRequest
    _lost: threading.Event
    _interrupted: threading.Event
    _progress: bool | None
    _began: float = field(default_factory=time.monotonic)
    _base: Versions = field(default_factory=dict)

    def run(self, config: ClientConfig, concurrency: int) -> SyncResult:
        run, request = self._run, self._request
        order = Order(
            url=self._lake.root,  # workers may be in another folder
            driver=run.driver or "",
            run_id=run.run_id,
            buckets=run.buckets,
            planned=request.wallets is not None,
            start=run.start or dict.fromkeys(TABLES, 0),
            greatest_ticket=run.greatest_ticket,
            config=config,
            concurrency=concurrency,
            limits=None if request.allow_removals else request.limits,
        )
        try:
            self._hand_out_plan(order)
            reports = self._read_all(order)
            reasons = [each.reason for each in reports if each.reason is not None]
            if reasons:
                return self._end("failed", reports, error=reasons[0])
            if not sum(each.wallets for each in reports):
                self._end("failed", reports, error="there was nothing to read")
                raise InputError("no wallets to read: give --wallets-file")
            return self._write_all(order, reports)
        except _Interrupted:
            return self._end("interrupted", [])
        except CancelledError as error:
            raise CutOff("the Dask scheduler has gone; run it again to go on") from error

    def _hand_out_plan(self, order: Order) -> None:
        if self._request.wallets is None:
            return
        by_bucket: dict[int, list[WalletLine]] = {}
        for line in self._request.wallets:
            by_bucket.setdefault(bucket_of(line.wallet_id, order.buckets), []).append(line)
        self._lake.stage(
            (
                (bucket, 0, msgspec.msgpack.encode(lines[start : start + _LINES_AT_ONCE]))
                for bucket, lines in by_bucket.items()
                for start in range(0, len(lines), _LINES_AT_ONCE)
            ),
            order.commit("plan", 0),
        )

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
        order = msgspec.structs.replace(order, config=None, verdict=self._judge(order, reports))
        while True:
            order = self._numbered(order, reports)
            try:
                # Without limits even those that were not read forget what was removed.
                read = [b for b, x in enumerate(reports) if x.wallets or order.limits is None]
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

    def _judge(self, order: Order, reports: list[ReadReport]) -> Verdict:
        if order.limits is None:
            return Verdict()
        known = self._lake.count("tokens", order.start)
        past = PastOfLake((each.known for each in reports), known)
        return judge(order.limits, past, past.waiting)

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
        if self._lost.is_set():
            raise SyncRunning(f"another driver has taken over run {self._run.run_id}")
        if self._interrupted.is_set():
            raise _Interrupted

    # The end -------------------------------------------------------------------------------------

    def _pin(
        self, reports: list[ReadReport], applied: list[ApplyReport], merged: list[MergeReport]
    ) -> SyncResult:
        run = self._run
        run.greatest_ticket = max(each.greatest_ticket for each in reports)
        run.greatest_change, run.greatest_state, run.greatest_token_change = self._greatest
        counts = run.counts
        counts.tokens_added = sum(each.added for each in merged)
        counts.tokens_changed = sum(each.changed for each in merged)
        for each in applied:
            counts.balances_added += each.counts.balances_added
            counts.balances_changed += each.counts.balances_changed
            counts.balances_removed += each.counts.balances_removed
        held = [Failure(wallet, HELD_BACK) for each in applied for wallet in each.held]
        changed = sum(each.changed for each in applied)
        return self._end(None, reports, held=held, changed=changed)

    def _end(
        self,
        status: Any,
        reports: list[ReadReport],
        *,
        error: str | None = None,
        held: Sequence[Failure] = (),
        changed: int = 0,
    ) -> SyncResult:
        run, counts = self._run, self._run.counts
        failures = {each.wallet_id: each for report in reports for each in report.failures}
        failures |= {each.wallet_id: each for each in held}
        total = sum(each.wallets for each in reports)
        counts.requests = sum(each.requests for each in reports)
        counts.retries = sum(each.retries for each in reports)
        counts.wallets_failed = len(failures)
        counts.wallets_ok = total - len(failures)
        counts.wallets_unchanged = max(0, counts.wallets_ok - changed) if status is None else 0
        counts.seconds = round(time.monotonic() - self._began, 3)
        if status is None:
            status = "ok"
            if failures:
                status = "partial" if counts.wallets_ok else "failed"
        run.status, run.error, run.finished_at, run.wallets_total = status, error, now(), total
        self._ledger.save(run)
        if status != "interrupted":
            self._lake.drop_staged(run.run_id)
        return _result_of(run, list(failures.values()))


def _result_of(run: LakeRun, failures: list[Failure]) -> SyncResult:
    c: Counts = run.counts
    return SyncResult(
        run.run_id,
        run.status,  # type: ignore[arg-type]
        WalletCounts(run.wallets_total, c.wallets_ok, c.wallets_unchanged, c.wallets_failed),
        TokenCounts(c.tokens_added, c.tokens_changed),
        BalanceCounts(c.balances_added, c.balances_changed, c.balances_removed),
        c.requests,
        c.retries,
        c.seconds,
        failures,
        run.error,
    )
