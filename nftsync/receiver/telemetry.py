"""What the receiver and the replay beside it count, and what waits, for Prometheus."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nftsync.errors import NftsyncError
from nftsync.receiver.committer import Outcome
from nftsync.store import STATES
from nftsync.store.database import connect_reader
from nftsync.store.freshness import UNFINISHED_STATES, age_seconds, webhooks_by_state
from nftsync.times import now
from nftsync.wsgi import HttpServer, Listener


class Backlog(Collector):
    """Reads the inbox whenever the figures are asked for.

    Args:
        database: the database.
    """

    def __init__(self, database: Path) -> None:
        self._database = database

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the figures; none while the database cannot be read."""
        waiting = GaugeMetricFamily(
            "nftsync_inbox_webhooks", "Webhooks that are not done, by state.", labels=["state"]
        )
        oldest = GaugeMetricFamily(
            "nftsync_inbox_oldest_seconds",
            "Time since the oldest webhook of each state was received; 0 when there is none.",
            labels=["state"],
        )
        age = GaugeMetricFamily(
            "nftsync_inbox_oldest_pending_seconds",
            "The same of the pending ones.",
        )
        with suppress(NftsyncError, sqlite3.Error):
            with closing(connect_reader(self._database)) as connection:
                connection.execute("PRAGMA busy_timeout = 1000")
                webhooks = webhooks_by_state(connection, UNFINISHED_STATES)
            at = now()
            for state in UNFINISHED_STATES:
                count, since = webhooks.get(state, (0, at))
                waiting.add_metric([state], count)
                oldest.add_metric([state], age_seconds(since, at))
                if state == "pending":
                    age.add_metric([], age_seconds(since, at))
        yield from (waiting, oldest, age)


_OUTCOMES: dict[Outcome, str] = {
    "stored": "New webhooks stored.",
    "duplicate": "Webhooks that came again.",
    "quarantined": "Webhooks put in quarantine.",
    "not stored": "Webhooks answered 503, as they could not be stored in time.",
}
_REASONS = ("missing", "malformed", "wrong", "too large")
_SECRETS = ("current", "previous")
_REPLAY_STATES = tuple(state for state in STATES if state not in {"pending", "running"})
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class Metrics:
    """Counters in a registry of their own, so that several apps in a process do not mix.

    Attributes:
        registry: what Prometheus reads.
        received: requests to the webhooks' path.
        outcomes: what became of the webhooks whose signature was right.
        refused: the others, by reason.
        accepted: right signatures, by secret: `current` or `previous`.
        commits: the seconds that each commit took.
        replayed: webhooks by the state that replay brought them to.
        replay_reads: reads of the provider made by replay.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.received = self._counter("webhooks_received", "Requests to the webhooks' path.")
        self.outcomes = {
            outcome: self._counter(f"webhooks_{outcome.replace(' ', '_')}", text)
            for outcome, text in _OUTCOMES.items()
        }
        self.refused = self._counter(
            "webhooks_refused", "Webhooks refused, by reason.", reason=_REASONS
        )
        self.accepted = self._counter(
            "webhooks_accepted", "Webhooks with a right signature, by secret.", secret=_SECRETS
        )
        self.commits = Histogram(
            "nftsync_commit_seconds",
            "Time of each commit to the inbox.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.replayed = self._counter(
            "replay_webhooks", "Webhooks replayed, by end state.", state=_REPLAY_STATES
        )
        self.replay_reads = self._counter("replay_reads", "Reads of the provider made by replay.")

    def _counter(self, name: str, text: str, **label: tuple[str, ...]) -> Counter:
        counter = Counter(f"nftsync_{name}", text, list(label), registry=self.registry)
        for values in label.values():
            for value in values:
                counter.labels(value)  # shown as 0 from the start
        return counter

    def count_replayed(self, counts: Mapping[str, int]) -> None:
        """Count what a replay came to: webhooks by state, and reads as `fetches`."""
        for name, count in counts.items():
            if name == "fetches":
                self.replay_reads.inc(count)
            else:
                self.replayed.labels(name).inc(count)


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
