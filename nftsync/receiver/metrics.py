"""What the receiver and the replay beside it count, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server

from nftsync.errors import InputError
from nftsync.receiver.backlog import Backlog
from nftsync.receiver.committer import Outcome

__all__ = ["Metrics", "serve_metrics"]

_REASONS = ("missing", "malformed", "wrong", "too large")
_SECRETS = ("current", "previous")
_REPLAY_STATES = ("done", "failed", "dead", "unrouted", "quarantined")
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class Metrics:
    """Counters in a registry of their own, so that several apps in a process do not mix.

    Attributes:
        registry: what Prometheus reads.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._received = self._counter("webhooks_received", "Requests to the webhooks' path.")
        self._outcomes: dict[Outcome, Counter] = {
            "stored": self._counter("webhooks_stored", "New webhooks stored."),
            "duplicate": self._counter("webhooks_duplicate", "Webhooks that came again."),
            "quarantined": self._counter("webhooks_quarantined", "Webhooks put in quarantine."),
            "not stored": self._counter(
                "webhooks_not_stored", "Webhooks answered 503, as they could not be stored in time."
            ),
        }
        refused = self._counter("webhooks_refused", "Webhooks refused, by reason.", "reason")
        self._refused = {reason: refused.labels(reason) for reason in _REASONS}
        matched = self._counter(
            "webhooks_accepted", "Webhooks with a right signature, by secret.", "secret"
        )
        self._accepted = [matched.labels(name) for name in _SECRETS]
        self._commits = Histogram(
            "nftsync_commit_seconds",
            "Time of each commit to the inbox.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        results = self._counter("replay_webhooks", "Webhooks replayed, by end state.", "state")
        self._replayed = {state: results.labels(state) for state in _REPLAY_STATES}
        self._reads = self._counter("replay_reads", "Reads of the provider made by replay.")

    def _counter(self, name: str, text: str, label: str | None = None) -> Counter:
        labels = () if label is None else (label,)
        return Counter(f"nftsync_{name}", text, labels, registry=self.registry)

    def watch_backlog(self, database: Path) -> None:
        """Show what waits in a database, too; read whenever Prometheus asks."""
        self.registry.register(Backlog(database))

    def received(self) -> None:
        """A request came to the webhooks' path."""
        self._received.inc()

    def refused(self, reason: str) -> None:
        """A webhook was refused."""
        self._refused[reason].inc()

    def accepted(self, which: int) -> None:
        """A signature was right; `which` secret made it."""
        self._accepted[min(which, 1)].inc()

    def outcome(self, outcome: Outcome) -> None:
        """A webhook was stored, or not."""
        self._outcomes[outcome].inc()

    def commit(self, seconds: float) -> None:
        """A commit took so long."""
        self._commits.observe(seconds)

    def replayed(self, state: str, count: int = 1) -> None:
        """Replay brought so many webhooks to this state."""
        self._replayed[state].inc(count)

    def replay_reads(self, count: int = 1) -> None:
        """Replay made so many reads of the provider."""
        self._reads.inc(count)


def serve_metrics(metrics: Metrics, port: int) -> Callable[[], None]:
    """Serve the figures on a port of 127.0.0.1.

    Returns:
        What ends it.

    Raises:
        InputError: the port is taken or may not be used.
    """
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=metrics.registry)
    except (OSError, OverflowError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(
            f"cannot serve metrics on port {port} of 127.0.0.1: {reason}; "
            "choose another with --metrics-port"
        ) from error

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
