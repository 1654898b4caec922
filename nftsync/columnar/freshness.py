"""Freshness of a database: its last runs, the reads of its wallets, its pending webhooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import INTEGER, TEXT, Readable, ages, integers, moments, text, times
from nftsync.columnar.source import Source
from nftsync.store.filters import Filters
from nftsync.store.inbox import webhooks_by_state
from nftsync.text import visible
from nftsync.times import now

#: How many wallets are named, and how much of a text from outside is shown.
_MAX_NAMES = 3
_MAX_TEXT = 120
_ENDED_RUN = """
    SELECT wallets_ok, coalesce(finished_at, started_at), run_id, status, wallets_failed, error
    FROM sync_runs WHERE kind = ? AND {which} ORDER BY run_id DESC LIMIT 1
"""
_ENDED, _OK = "status != 'running'", "status = 'ok'"
_NEWEST_SYNC = """
    SELECT wallets_ok + wallets_failed, started_at, run_id, wallets_total, status
    FROM sync_runs WHERE kind = 'sync' ORDER BY run_id DESC LIMIT 1
"""
_OLDEST = "oldest wallet read"
_FIRST = f"wallet_no LIMIT {_MAX_NAMES}"
#: Groups of tracked wallets: what they are called, which they are, what tells since when, and how
#: many of them are named, in which order.
_GROUPS = (
    (_OLDEST, "synced_at IS NOT NULL", "synced_at", "synced_at, wallet_no LIMIT 1"),
    ("wallets never read", "synced_at IS NULL", "first_seen_at", _FIRST),
    ("failed wallets", "status = 'failed'", "synced_at", _FIRST),
    ("incomplete wallets", "status = 'incomplete'", "synced_at", _FIRST),
)
#: Webhooks that are not done, and the column that tells most of those in each state.
_DETAIL_COLUMNS = {
    "pending": None,
    "running": None,
    "failed": "last_error",
    "dead": "last_error",
    "unrouted": "resource_type",
    "quarantined": "last_error",
}


#: What a line is about, how many, since when, and what else there is to say.
_Line: TypeAlias = tuple[str, int | None, str | None, str]


def freshness_frame(source: Source, wallets: Iterable[WalletGroup]) -> pd.DataFrame:
    """What `freshness` returns, of runs and webhooks that are read and of wallets that were.

    Args:
        source: where to read runs and webhooks.
        wallets: as `wallet_groups` returns them.
    """
    lines = (*_runs(source), *(group.line() for group in wallets), *_webhooks(source))
    what, count, since, detail = zip(*lines, strict=True)
    at = moments(pa.array(since, TEXT))
    return Readable.of(
        {
            "what": text(pa.array(what, TEXT)),
            "count": integers(pa.array(count, INTEGER)),
            "at": times(at),
            "age": ages(at, now()).floor("s"),
            "detail": text(pa.array(detail, TEXT)),
        }
    )


def _runs(source: Source) -> Iterator[_Line]:
    for read, at, run, total, status in list(source.rows(_NEWEST_SYNC)):
        if status == "running":
            # A killed process leaves such a row too; the next sync puts it right.
            detail = f"run {run}: {read:,} of {total:,} wallets, unless it was killed"
            yield "running sync", read, at, detail
    for what, kind, which in (
        ("last sync", "sync", _ENDED),
        ("last successful sync", "sync", _OK),
        ("last replay", "replay", _ENDED),
    ):
        line: _Line = (what, None, None, "none yet")
        rows = source.rows(_ENDED_RUN.format(which=which), (kind,))
        for count, at, run, status, failed, error in list(rows):
            many = f"{failed:,} wallets failed" if failed else ""
            parts = filter(None, (f"run {run}: {status}", many, _short(error)))
            line = (what, count, at, ", ".join(parts))
        yield line


@dataclass(frozen=True)
class WalletGroup:
    """Some of the tracked wallets.

    Attributes:
        what: which.
        count: how many.
        at: the first of their times.
        names: what the first few are called; of `oldest wallet read` the one of that time.
    """

    what: str
    count: int
    at: str | None
    names: list[str]

    def line(self) -> _Line:
        """The row that tells of them."""
        names = "; ".join(self.names)
        if self.what != _OLDEST and self.count > _MAX_NAMES:
            names += f"; {self.count - _MAX_NAMES:,} more"
        return self.what, self.count, self.at, names


def wallet_groups(
    source: Source,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
) -> list[WalletGroup]:
    """Return what `freshness` tells of wallets, always in this order."""
    which, values = filters.where()
    found = []
    for what, those, since, first in _GROUPS:
        where = f"FROM wallets WHERE tracked AND {those} AND {which}"
        ((count, at),) = list(source.rows(f"SELECT count(*), min({since}) {where}", values))
        rows = source.rows(f"SELECT label, wallet_id, error {where} ORDER BY {first}", values)
        names = [
            (_short(label) if label else wallet) + (f": {_short(error)}" if error else "")
            for label, wallet, error in rows
        ]
        found.append(WalletGroup(what, count, at, names))
    return found


def merge_groups(parts: Iterable[list[WalletGroup]]) -> list[WalletGroup]:
    """The groups of wallets that were read in parts, each wallet in one of them."""
    found = []
    for same in zip(*parts, strict=True):
        at = min((part.at for part in same if part.at is not None), default=None)
        oldest = same[0].what == _OLDEST
        telling = [part for part in same if part.at == at] if oldest else same
        names = [name for part in telling for name in part.names][: 1 if oldest else _MAX_NAMES]
        found.append(WalletGroup(same[0].what, sum(part.count for part in same), at, names))
    return found


def _webhooks(source: Source) -> Iterator[_Line]:
    counted = webhooks_by_state(source.cursor, tuple(_DETAIL_COLUMNS))
    for state, telling in _DETAIL_COLUMNS.items():
        count, at = counted.get(state, (0, None))
        detail = _common_values(source, state, telling) if count and telling else ""
        yield f"webhooks {state}", count, at, detail


def _common_values(source: Source, state: str, column: str) -> str:
    rows = source.rows(
        f"SELECT {column}, count(*) FROM webhooks WHERE state = ? AND {column} IS NOT NULL"
        " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?",
        (state, _MAX_NAMES),
    )
    return "; ".join(f"{count:,} × {_short(value)}" for value, count in rows)


def _short(value: str | None) -> str:
    """A text from outside in a line, in which no character acts on a terminal."""
    line = " ".join((value or "").split())
    line = line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"
    return visible(line)
