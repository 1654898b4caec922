"""A lake's reports to the removal guard."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.storage import Lake
from nftsync.pull.guard import RemovalLimits, is_positive, lost_tokens, needs_metadata
from nftsync.records import CONTENT_COLUMNS, METADATA, Removals
from nftsync.store.database import over_keys
from nftsync.store.day_report import DAY, Change, DayReport, Part
from nftsync.times import now, shifted

_METADATA = set(CONTENT_COLUMNS[METADATA])
_LAST_READS = """
    SELECT wallet_id, max(last_read_at) FROM wallets JOIN wallet_state_rows s USING (wallet_no)
    WHERE s.state_id <= ?2 AND wallet_id IN (SELECT value FROM json_each(?1)) GROUP BY 1
"""


def bucket_report(
    connection: sqlite3.Connection,
    last: tuple[int, int],
    waiting: list[Removals],
    *,
    first_run: bool,
) -> DayReport:
    """Return a bucket's changes of this run.

    `last` has the last change number and state number before this run.
    """
    if first_run:
        return DayReport(waiting=waiting)
    rows = connection.execute(
        "SELECT wallet_id, wallet_group, token_id, old_amount, new_amount, NULL, '', baseline"
        " FROM balance_change_rows JOIN wallets USING (wallet_no) JOIN tokens USING (token_no)"
        " WHERE change_id > ? ORDER BY change_id",
        last[:1],
    )
    changes = [Change._make((*row[:-1], bool(row[-1]))) for row in rows]
    wallets = {change.wallet for change in changes}.union(read.wallet_id for read in waiting)
    last_reads = dict(over_keys(connection, _LAST_READS, wallets, last[1]))
    return DayReport(waiting=waiting, changes=changes, last_reads=last_reads)


def _counted(column: pa.Array) -> Iterator[tuple[str, int]]:
    counts = pc.value_counts(column)
    yield from zip(*(counts.field(x).to_pylist() for x in ("values", "counts")), strict=True)


class LakeDay:
    """A lake's last 24 hours: stored rows, and the buckets' reports on this run."""

    def __init__(
        self,
        lake: Lake,
        run: LakeRun,
        buckets: Collection[DayReport],
        runs: dict[int, str],
        groups: Mapping[str, str],
    ) -> None:
        """`runs` has the start time of each run, and `groups` the groups that this run sets."""
        self._lake = lake
        self._run = run
        self._runs = runs
        self._at = now()
        self._recent = f"observed_at > '{max(shifted(self._at, -DAY), run.approved_at)}'"
        self._waiting = [read for report in buckets for read in report.waiting]
        self._last_reads = {x: at for report in buckets for x, at in report.last_reads.items()}
        self._new = [
            change._replace(
                since=None if change.is_first_read else self._last_reads.get(change.wallet),
                at=run.started_at if change.is_first_read else self._at,
            )
            for report in buckets
            for change in report.changes
        ]
        self._groups: dict[str, str | None] = {
            wallet: groups.get(wallet, group)
            for wallet, group in self._rows("wallets", "true", "wallet_id", "wallet_group")
        }

    def _rows(self, name: str, where: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        return self._lake.rows(name, self._run.start, where, columns)

    def reports(self, limits: RemovalLimits) -> list[DayReport]:
        """Return what the removal guard needs for its decision."""
        changes = self._changes()
        losing = [read.lost for read in self._waiting if read.lost]
        counts = DayReport(
            at=self._at,
            waiting=self._waiting,
            rows=len(changes) + sum(map(len, losing)),
            wallets=len({change.wallet for change in changes}) + len(losing),
            lost={change.token for change in changes}.union(*losing),
            changes=changes,
            last_reads=self._last_reads,
        )
        reports = [counts]
        if lost := lost_tokens(limits, reports):
            new: dict[str, tuple[str | None, int]] = {}
            first_reads = []
            for change in self._first_reads():
                group, count = new.get(change.wallet, (change.group, 0))
                new[change.wallet] = group, count + is_positive(change.after)
                if change.at and change.token in lost:
                    first_reads.append(change)
            holdings = self._holdings(changes, new.values())
            reports.append(DayReport(changes=first_reads, new_wallets={*new}, holdings=holdings))
        if needs_metadata(reports):
            tokens = self._lake.count("tokens", self._run.start)
            reports.append(DayReport(emptied=self._emptied(), tokens=tokens))
        return reports

    def _changes(self) -> list[Change]:
        columns = "change_id", "wallet_id", "token_id", "old_amount", "new_amount", "observed_at"
        rows = self._rows("balance_changes", f"{self._recent} AND baseline = 0", *columns)
        changes = [
            Change(wallet, self._groups.get(wallet), token, before, after, None, at)
            for _, wallet, token, before, after, at in sorted(rows)
        ]
        return [*changes, *(change for change in self._new if not change.is_first_read)]

    def _first_reads(self) -> Iterator[Change]:
        """Yield holdings from first reads; those from the lake's first run have no time."""
        first = min(self._runs, default=0)
        rows = self._rows(
            "balance_changes",
            f"{self._recent} AND baseline = 1",
            *("wallet_id", "token_id", "new_amount", "run_id"),
        )
        for wallet, token, amount, run in rows:
            at = "" if run == first else self._runs.get(run, "")
            yield Change(wallet, self._groups.get(wallet), token, None, amount, None, at, True)
        yield from (change for change in self._new if change.is_first_read)

    def _holdings(
        self, changes: Iterable[Change], new: Iterable[tuple[str | None, int]]
    ) -> Counter[Part]:
        holdings: Counter[Part] = Counter()
        untracked = {row[0] for row in self._rows("wallets", "tracked = 0", "wallet_id")}
        listed = self._lake.stored(
            "balances", self._run.start, "held_since IS NOT NULL", ["wallet_id"]
        )
        for batch in listed:
            for wallet, count in _counted(batch.column("wallet_id")):
                if wallet not in untracked:
                    holdings[self._groups.get(wallet), False] += count
        for change in self._new:
            if change.wallet not in untracked:
                gain = is_positive(change.after) - is_positive(change.before)
                holdings[change.group, False] += gain
        for change in changes:
            loss = is_positive(change.before) - is_positive(change.after)
            holdings[change.group, False] += loss
        for group, count in new:
            holdings[group, False] -= count
            holdings[group, True] += count
        return holdings

    def _emptied(self) -> set[str]:
        before: dict[str, dict[str, Any]] = {}
        after: dict[str, dict[str, Any]] = {}
        rows = self._rows("token_changes", self._recent, "change_id", "token_id", "before", "after")
        for _, token, old, new in sorted(rows):
            old, new = msgspec.json.decode(old), msgspec.json.decode(new)
            before[token] = old | before.get(token, {})
            after[token] = after.get(token, {}) | new
        return {
            token
            for token, columns in before.items()
            if any(columns[name] is not None for name in _METADATA & columns.keys())
            and all(after[token][name] is None for name in _METADATA & columns.keys())
        }
