"""Prometheus metrics of the mirror's freshness, read from the database."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path

from prometheus_client import make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nftsync.errors import NftsyncError
from nftsync.receiver.app import Metrics
from nftsync.store import WALLET_STATUSES
from nftsync.store.database import connect_reader, log_bytes
from nftsync.store.removals import held
from nftsync.store.schema import made_at
from nftsync.times import age_seconds, now, shifted
from nftsync.wsgi import HttpServer, Listener

_ENDED_AS = ("ok", "partial", "failed", "interrupted")

#: A wallet that was never read is as old as our knowledge of it.
_STALEST = "SELECT min(coalesce(synced_at, first_seen_at)) FROM wallets WHERE tracked"
_WALLETS = "SELECT status, count(*) FROM wallets WHERE tracked GROUP BY status"
_SYNC = """
    SELECT started_at, finished_at, status, seconds FROM sync_runs
    WHERE reads_all AND finished_at IS NOT NULL AND status IN ({}) ORDER BY started_at DESC LIMIT 1
"""
_LAST_SYNC = _SYNC.format(", ".join(f"'{status}'" for status in _ENDED_AS))
_GOOD_SYNC = _SYNC.format("'ok'")
#: As the schedule counts: one that left out wallets that fail was made, too.
_MADE_SYNC = _SYNC.format("'ok', 'partial'")
_WEBHOOK = "SELECT received_at FROM webhooks ORDER BY webhook_no {} LIMIT 1"
_CHANGES = """
    SELECT coalesce(max(change_id), ?1),
        count(*) FILTER (WHERE baseline),
        count(*) FILTER (WHERE NOT baseline AND webhook_id IS NULL),
        count(*) FILTER (WHERE NOT baseline AND webhook_id IS NOT NULL),
        count(*) FILTER (WHERE NOT baseline AND webhook_id IS NULL AND observed_at > ?2)
    FROM balance_change_rows WHERE change_id > ?1
"""


class Freshness(Collector):
    """Reads the database whenever the figures are asked for; none while it cannot be read.

    Args:
        database: the database.
        every: from the start of one full sync to the next; None: none are scheduled.
    """

    def __init__(self, database: Path, every: timedelta | None) -> None:
        self._database = database
        self._every = every
        # The log of changes only grows, so of millions each is counted once.
        self._counting = threading.Lock()
        self._counted_to = 0
        self._changes = [0, 0, 0, 0]

    def collect(self) -> Iterator[Metric]:
        """Give the figures, all of one moment."""
        found = [
            _gauge("nftsync_log_bytes", "Size of the write-ahead log.", log_bytes(self._database))
        ]
        with suppress(NftsyncError, sqlite3.Error), closing(connect_reader(self._database)) as db:
            db.execute("PRAGMA busy_timeout = 1000")
            db.execute("BEGIN DEFERRED")
            moment = now()
            found += [*_wallets(db, moment), *_syncs(db), *self._count_changes(db)]
            removals = held(db)
            found += [
                _gauge(
                    "nftsync_removals_held",
                    "Removals held for review, as too many came within 24 hours.",
                    removals.balances + removals.emptied,
                ),
                _gauge(
                    "nftsync_last_webhook_age_seconds",
                    "Time since the last new webhook was received.",
                    _age(db, _WEBHOOK.format("DESC"), moment),
                ),
            ]
            if self._every is not None:
                found.append(_overdue(db, moment, self._every))
        yield from found

    def _count_changes(self, connection: sqlite3.Connection) -> Iterator[Metric]:
        with self._counting:
            first = _time(connection, _WEBHOOK.format("ASC")) or "9999"
            self._counted_to, *more = connection.execute(
                _CHANGES, (self._counted_to, first)
            ).fetchone()
            self._changes = [sum(pair) for pair in zip(self._changes, more, strict=True)]
            *by_source, untold = self._changes
        changes = CounterMetricFamily(
            "nftsync_changes", "Changes of balances in the log, by source.", labels=["source"]
        )
        for source, count in zip(("first read", "sync", "webhook"), by_source, strict=True):
            changes.add_metric([source], count)
        yield changes
        yield CounterMetricFamily(
            "nftsync_changes_untold",
            "Changes that a sync found although webhooks came before.",
            value=untold,
        )


def serve_metrics(
    metrics: Metrics, port: int, on_broken: Callable[[Exception], None]
) -> Callable[[], None]:
    """Serve the figures on a port of 127.0.0.1.

    Args:
        metrics: what is served.
        port: where.
        on_broken: see `HttpServer`.

    Returns:
        What ends it.

    Raises:
        InputError: the port is taken or may not be used.
    """
    listener = Listener(port=port, flag="--metrics-port")
    app = make_wsgi_app(metrics.registry)
    return HttpServer(app, listener, threads=2, connections=20, on_broken=on_broken).close


def _wallets(connection: sqlite3.Connection, moment: str) -> Iterator[Metric]:
    wallets = GaugeMetricFamily("nftsync_wallets", "Tracked wallets, by status.", labels=["status"])
    counts = dict(connection.execute(_WALLETS).fetchall())
    for status in WALLET_STATUSES:
        wallets.add_metric([status], counts.get(status, 0))
    yield wallets
    yield _gauge(
        "nftsync_stalest_wallet_age_seconds",
        "Time since the least recently read tracked wallet was read.",
        _age(connection, _STALEST, moment),
    )


def _syncs(connection: sqlite3.Connection) -> Iterator[Metric]:
    status = GaugeMetricFamily(
        "nftsync_last_sync_status", "1 for how the last full sync ended.", labels=["status"]
    )
    row = connection.execute(_LAST_SYNC).fetchone()
    _, ended, last, seconds = row or (None, None, None, None)
    for each in _ENDED_AS:
        status.add_metric([each], each == last)
    yield status
    yield _gauge("nftsync_last_sync_seconds", "How long the last full sync took.", seconds)
    yield _gauge(
        "nftsync_last_sync_timestamp_seconds", "When the last full sync ended.", _unix(ended)
    )
    good = connection.execute(_GOOD_SYNC).fetchone()
    yield _gauge(
        "nftsync_last_good_sync_timestamp_seconds",
        "When the last full sync ended in which no wallet failed.",
        _unix(good and good[1]),
    )


def _overdue(connection: sqlite3.Connection, moment: str, every: timedelta) -> Metric:
    made = connection.execute(_MADE_SYNC).fetchone()
    if made is None:
        due = made_at(connection) or moment
    else:
        started, ended = made[:2]
        due = max(shifted(started, every), ended)  # also where one takes longer than that
    return _gauge(
        "nftsync_sync_overdue_seconds",
        "For how long a full sync has been due that none has come to an end since.",
        age_seconds(due, moment),
    )


def _gauge(name: str, text: str, value: float | None) -> Metric:
    """A figure, or none where it is not known."""
    family = GaugeMetricFamily(name, text)
    if value is not None:
        family.add_metric([], value)
    return family


def _time(connection: sqlite3.Connection, query: str) -> str | None:
    row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def _unix(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()


def _age(connection: sqlite3.Connection, query: str, moment: str) -> float | None:
    at = _time(connection, query)
    return None if at is None else age_seconds(at, moment)
