"""Freshness of a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import INTEGER, TEXT, Readable, ages, integers, moments, text, times
from nftsync.columnar.source import Source
from nftsync.store.filters import Filters
from nftsync.store.freshness import newest_run
from nftsync.store.queues import INBOX, count_by_state
from nftsync.text import visible
from nftsync.times import now

#: Limits: wallets named per row, and characters shown of a text from outside.
_MAX_NAMES = 3
_MAX_TEXT = 120
_OLDEST = "oldest wallet read"
_FIRST = f"wallet_no LIMIT {_MAX_NAMES}"
#: Groups of tracked wallets: name, condition, column of the time, and order of the named wallets.
_GROUPS = (
    (_OLDEST, "synced_at IS NOT NULL", "synced_at", "synced_at, wallet_no LIMIT 1"),
    ("wallets never read", "synced_at IS NULL", "first_seen_at", _FIRST),
    ("failed wallets", "status = 'failed'", "synced_at", _FIRST),
    ("incomplete wallets", "status = 'incomplete'", "synced_at", _FIRST),
)
#: States of webhooks other than done, and the column that details each.
_DETAIL_COLUMNS = {
    "pending": None,
    "running": None,
    "failed": "last_error",
    "dead": "last_error",
    "unrouted": "resource_type",
    "quarantined": "last_error",
}


#: A row: name, count, time, detail.
_Line: TypeAlias = tuple[str, int | None, str | None, str]


def freshness_frame(source: Source, wallets: Iterable[WalletGroup]) -> pd.DataFrame:
    """Return the frame of `freshness`."""
    lines = (*_runs(source), *(group.line() for group in wallets), *_webhooks(source))
    names, count, since, detail = zip(*lines, strict=True)
    at = moments(pa.array(since, TEXT))
    return Readable(
        {
            "what": text(pa.array(names, TEXT)),
            "count": integers(pa.array(count, INTEGER)),
            "at": times(at),
            "age": ages(at, now()).floor("s"),
            "detail": text(pa.array(detail, TEXT)),
        },
        copy=False,
    )


def _runs(source: Source) -> Iterator[_Line]:
    run = newest_run(source.cursor, "kind = 'sync'")
    if run is not None and run["status"] == "running":
        # A killed process leaves such a row, too, until the next sync corrects it.
        read, total = run["wallets_ok"] + run["wallets_failed"], run["wallets_total"]
        detail = f"run {run['run_id']}: {read:,} of {total:,} wallets, unless it was killed"
        yield "running sync", read, run["started_at"], detail
    for name, condition in (
        ("last sync", "kind = 'sync' AND status != 'running'"),
        ("last successful sync", "kind = 'sync' AND status = 'ok'"),
        ("last replay", "kind = 'replay' AND status != 'running'"),
    ):
        run = newest_run(source.cursor, condition)
        if run is None:
            yield name, None, None, "none yet"
            continue
        failures = f"{run['wallets_failed']:,} wallets failed" if run["wallets_failed"] else ""
        parts = (f"run {run['run_id']}: {run['status']}", failures, _short(run["error"]))
        ended_at = run["finished_at"] or run["started_at"]
        yield name, run["wallets_ok"], ended_at, ", ".join(filter(None, parts))


@dataclass(frozen=True)
class WalletGroup:
    """Group of tracked wallets: its name, size, earliest time, and first few wallets.

    The group `oldest wallet read` names only the wallet of that time.
    """

    name: str
    count: int
    at: str | None
    wallets: list[str]

    def line(self) -> _Line:
        """Return the group's row."""
        detail = "; ".join(self.wallets)
        if self.name != _OLDEST and self.count > _MAX_NAMES:
            detail += f"; {self.count - _MAX_NAMES:,} more"
        return self.name, self.count, self.at, detail


def wallet_groups(
    source: Source,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
) -> list[WalletGroup]:
    """Return the groups of tracked wallets, always in the same order."""
    which, values = filters.where()
    groups = []
    for name, condition, since, first in _GROUPS:
        where = f"FROM wallets WHERE tracked AND {condition} AND {which}"
        ((count, at),) = list(source.rows(f"SELECT count(*), min({since}) {where}", values))
        rows = source.rows(f"SELECT label, wallet_id, error {where} ORDER BY {first}", values)
        names = [
            (_short(label) if label else wallet) + (f": {_short(error)}" if error else "")
            for label, wallet, error in rows
        ]
        groups.append(WalletGroup(name, count, at, names))
    return groups


def merge_groups(parts: Iterable[list[WalletGroup]]) -> list[WalletGroup]:
    """Merge the groups of several databases with distinct wallets."""
    merged = []
    for same in zip(*parts, strict=True):
        at = min((part.at for part in same if part.at is not None), default=None)
        oldest = same[0].name == _OLDEST
        chosen = [part for part in same if part.at == at] if oldest else same
        names = [name for part in chosen for name in part.wallets][: 1 if oldest else _MAX_NAMES]
        merged.append(WalletGroup(same[0].name, sum(part.count for part in same), at, names))
    return merged


def _webhooks(source: Source) -> Iterator[_Line]:
    counted = count_by_state(source.cursor, INBOX, tuple(_DETAIL_COLUMNS))
    for state, column in _DETAIL_COLUMNS.items():
        count, at = counted.get(state, (0, None))
        detail = _common_values(source, state, column) if count and column else ""
        yield f"webhooks {state}", count, at, detail


def _common_values(source: Source, state: str, column: str) -> str:
    rows = source.rows(
        f"SELECT {column}, count(*) FROM webhooks WHERE state = ? AND {column} IS NOT NULL"
        " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?",
        (state, _MAX_NAMES),
    )
    return "; ".join(f"{count:,} × {_short(value)}" for value, count in rows)


def _short(value: str | None) -> str:
    """Return outside text on one line, cut, without characters that act on a terminal."""
    line = " ".join((value or "").split())
    line = line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"
    return visible(line)
