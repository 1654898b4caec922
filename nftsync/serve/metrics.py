"""Prometheus metrics of the mirror's freshness."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path

from prometheus_client import make_wsgi_app
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.registry import Collector

from nftsync.alerts import Forward, WatchRule
from nftsync.errors import NftsyncError
from nftsync.receiver.app import Metrics, gauges
from nftsync.store import WALLET_STATUSES
from nftsync.store.checkpoints import log_bytes
from nftsync.store.cursors import paused_rules, waits
from nftsync.store.database import connect_reader
from nftsync.store.freshness import FULL_SYNC, OLDEST_READ, newest_run
from nftsync.store.outbox import stopped_destinations
from nftsync.store.removals import held
from nftsync.store.schema import made_at
from nftsync.times import age_seconds, now, shifted
from nftsync.wsgi import HttpServer, Listener

_END_STATUSES = ("ok", "partial", "failed", "interrupted")

_WALLETS = "SELECT status, count(*) FROM wallets WHERE tracked GROUP BY status"
_WEBHOOK = "SELECT received_at FROM webhooks ORDER BY webhook_no {} LIMIT 1"
_CHANGES = """
    SELECT coalesce(max(change_id), ?1),
        count(*) FILTER (WHERE baseline),
        count(*) FILTER (WHERE NOT baseline AND webhook_id IS NULL),
        count(*) FILTER (WHERE NOT baseline AND webhook_id IS NOT NULL),
        count(*) FILTER (WHERE NOT baseline AND webhook_id IS NULL AND observed_at > ?2)
    FROM balance_change_rows WHERE change_id > ?1
"""
#: Metrics without labels.
_HELP = {
    "log_bytes": "Size of the write-ahead log.",
    "new_fields": "Fields that the provider's document lacks, or has with another type.",
    "removals_held": "Removals held for review, because they exceed the limit for 24 hours.",
    "last_webhook_age_seconds": "Age of the last new webhook.",
    "stalest_wallet_age_seconds": "Longest time since a tracked wallet was read.",
    "last_sync_seconds": "Duration of the last full sync.",
    "last_sync_timestamp_seconds": "End of the last full sync.",
    "last_good_sync_timestamp_seconds": "End of the last full sync without failed wallets.",
    "sync_overdue_seconds": "How long a full sync has been overdue; 0 if none is.",
}


def _gauge(name: str, value: float | None) -> Gauge:
    return Gauge(f"nftsync_{name}", _HELP[name], value)


class Freshness(Collector):
    """Metrics of the mirror; if it is unreadable, only its log's size.

    `every` is the time between the starts of full syncs, if any.
    """

    def __init__(
        self, database: Path, every: timedelta | None, rules: Sequence[WatchRule | Forward] = ()
    ) -> None:
        self._database = database
        self._every = every
        self._rules = rules
        # The change feed only grows, so each collection counts only new changes.
        self._counting = threading.Lock()
        self._counted_to = 0
        self._changes = [0, 0, 0, 0]

    def collect(self) -> Iterator[Metric]:
        metrics: list[Metric] = [_gauge("log_bytes", log_bytes(self._database))]
        with suppress(NftsyncError, sqlite3.Error), closing(connect_reader(self._database)) as db:
            db.execute("PRAGMA busy_timeout = 1000")
            db.execute("BEGIN DEFERRED")
            moment = now()
            metrics += [*_wallets(db, moment), *_syncs(db), *self._count_changes(db)]
            removals = held(db)
            (new_fields,) = db.execute("SELECT count(*) FROM new_fields").fetchone()
            last_webhook = _age(db, _WEBHOOK.format("DESC"), moment)
            metrics += [
                _gauge("removals_held", removals.balances + removals.emptied),
                _gauge("new_fields", new_fields),
                _gauge("last_webhook_age_seconds", last_webhook),
            ]
            metrics += [*_outbox(db, moment), *_of_rules(db, moment, self._rules)]
            if self._every is not None:
                metrics.append(_overdue(db, moment, self._every))
        yield from metrics

    def _count_changes(self, connection: sqlite3.Connection) -> Iterator[Metric]:
        with self._counting:
            first = _time(connection, _WEBHOOK.format("ASC")) or "9999"
            self._counted_to, *more = connection.execute(
                _CHANGES, (self._counted_to, first)
            ).fetchone()
            self._changes = [sum(pair) for pair in zip(self._changes, more, strict=True)]
            *by_source, unannounced = self._changes
        changes = CounterMetricFamily(
            "nftsync_changes", "Balance changes in the change feed, by source.", labels=["source"]
        )
        for source, count in zip(("first read", "sync", "webhook"), by_source, strict=True):
            changes.add_metric([source], count)
        yield changes
        yield CounterMetricFamily(
            "nftsync_changes_untold",
            "Changes found by a sync, without a webhook, since the first webhook.",
            value=unannounced,
        )


def serve_metrics(
    metrics: Metrics, port: int, on_broken: Callable[[Exception], None]
) -> Callable[[], None]:
    """Serve the metrics on 127.0.0.1; return a function that stops it."""
    listener = Listener(port=port, advice="choose another with --metrics-port")
    app = make_wsgi_app(metrics.registry)
    return HttpServer(app, listener, threads=2, connections=20, on_broken=on_broken).close


def _wallets(connection: sqlite3.Connection, moment: str) -> Iterator[Metric]:
    counts = dict.fromkeys(WALLET_STATUSES, 0.0) | dict(connection.execute(_WALLETS).fetchall())
    yield gauges("status", "nftsync_wallets", "Tracked wallets, by status.", counts)
    yield _gauge("stalest_wallet_age_seconds", _age(connection, OLDEST_READ, moment))


def _syncs(connection: sqlite3.Connection) -> Iterator[Metric]:
    last = newest_run(connection, FULL_SYNC) or {}
    good = newest_run(connection, f"{FULL_SYNC} AND status = 'ok'") or {}
    statuses = {name: float(name == last.get("status")) for name in _END_STATUSES}
    text = "1 for the status of the last full sync."
    yield gauges("status", "nftsync_last_sync_status", text, statuses)
    yield _gauge("last_sync_seconds", last.get("seconds"))
    yield _gauge("last_sync_timestamp_seconds", _unix(last.get("finished_at")))
    yield _gauge("last_good_sync_timestamp_seconds", _unix(good.get("finished_at")))


_UNSENT = """
    SELECT destination, state, count(*), min(created_at) FROM messages
    WHERE state IN ('pending', 'failed', 'running', 'dead') GROUP BY 1, 2
"""
#: Done messages are many, and are never deleted: this reads one per destination.
_DONE = "FROM messages INDEXED BY sent_messages WHERE state = 'done' AND destination"
_SENT = f"""
    WITH RECURSIVE names (name) AS (
        SELECT min(destination) {_DONE} > ''
        UNION ALL
        SELECT (SELECT min(destination) {_DONE} > name) FROM names WHERE name IS NOT NULL
    )
    SELECT name, (SELECT max(finished_at) {_DONE} = name) FROM names WHERE name IS NOT NULL
"""  # noqa: S608 - of constants


def _outbox(connection: sqlite3.Connection, moment: str) -> Iterator[Metric]:
    label = "destination"
    unsent = Gauge(
        "nftsync_outbox_messages", "Messages that are not done, by state.", labels=[label, "state"]
    )
    ages: dict[str, float] = {}
    for name, state, count, created_at in connection.execute(_UNSENT):
        unsent.add_metric([name, state], count)
        if state != "dead":
            ages[name] = max(ages.get(name, 0.0), age_seconds(created_at, moment))
    yield unsent
    sent = {name: _unix(at) or 0.0 for name, at in connection.execute(_SENT).fetchall()}
    stopped = dict.fromkeys(stopped_destinations(connection), 1.0)
    yield gauges(label, "nftsync_outbox_oldest_seconds", "Age of the oldest unsent message.", ages)
    yield gauges(
        label, "nftsync_outbox_last_sent_timestamp_seconds", "Time of the last delivery.", sent
    )
    yield gauges(
        label, "nftsync_destination_stopped", "1 for destinations that answered 410.", stopped
    )


def _of_rules(
    connection: sqlite3.Connection, moment: str, rules: Sequence[WatchRule | Forward]
) -> Iterator[Metric]:
    text = "How long changes have waited for a rule, without its own digest and quiet hours."
    yield gauges("rule", "nftsync_rule_late_seconds", text, waits(connection, rules, moment))
    paused = dict.fromkeys(paused_rules(connection, rules), 1.0)
    yield gauges("rule", "nftsync_rule_paused", "1 for rules with an unknown name.", paused)


def _overdue(connection: sqlite3.Connection, moment: str, every: timedelta) -> Metric:
    # Like the schedule, this counts a sync in which some wallets failed.
    run = newest_run(connection, f"{FULL_SYNC} AND status IN ('ok', 'partial')")
    if run is None:
        due = made_at(connection) or moment
    else:  # or at the end of a sync that took longer
        due = max(shifted(run["started_at"], every), run["finished_at"])
    return _gauge("sync_overdue_seconds", age_seconds(due, moment))


def _time(connection: sqlite3.Connection, query: str) -> str | None:
    row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def _unix(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()


def _age(connection: sqlite3.Connection, query: str, moment: str) -> float | None:
    at = _time(connection, query)
    return None if at is None else age_seconds(at, moment)
