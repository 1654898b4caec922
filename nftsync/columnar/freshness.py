"""Freshness of a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import INTEGER, TEXT, Readable, ages, integers, moments, text, times
from nftsync.columnar.source import Source
from nftsync.store.freshness import NAMED, WalletGroup, newest_run, short_line
from nftsync.store.queues import INBOX, count_by_state
from nftsync.times import now

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
        parts = (f"run {run['run_id']}: {run['status']}", failures, short_line(run["error"]))
        ended_at = run["finished_at"] or run["started_at"]
        yield name, run["wallets_ok"], ended_at, ", ".join(filter(None, parts))


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
        (state, NAMED),
    )
    return "; ".join(f"{count:,} × {short_line(value)}" for value, count in rows)
