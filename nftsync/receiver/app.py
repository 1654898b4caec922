"""Receiver as a Flask app, and its Prometheus metrics.

Source: provider's document, sections Webhook delivery, Authentication and Events.
"""

from __future__ import annotations

import itertools
import logging
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from flask import Flask, Response, request
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from werkzeug.exceptions import BadRequest, HTTPException

from nftsync.errors import InputError, NftsyncError, SettingsError
from nftsync.provider.webhooks import HEADER, Unusable, delivery_headers, read_webhook, verify
from nftsync.receiver.committer import Committer, Receipt
from nftsync.store import STATES
from nftsync.store.database import connect_reader
from nftsync.store.inbox import Delivery
from nftsync.store.queues import INBOX, count_by_state
from nftsync.times import age_seconds, now

_log = logging.getLogger("nftsync.receiver")

#: In bytes; a webhook has a few hundred.
_LARGEST_BODY = 256 * 1024

_HEALTH, _READY = "/healthz", "/readyz"
# No trailing slash: Flask would redirect requests without it. No double slash at the start:
# waitress would merge it.
_PATH = re.compile(r"/|/(?!/)[A-Za-z0-9._~/-]*(?<!/)")
_EXTENSION = "nftsync"

_ADVICE = (
    "that the provider has your webhook_secret"
    f" (nftsync webhook-config --send-secret), and that no proxy changes the body or {HEADER}"
)

_OUTCOMES: dict[Receipt, str] = {
    "stored": "New webhooks stored.",
    "duplicate": "Repeated deliveries of stored webhooks.",
    "quarantined": "Webhooks quarantined.",
    "not stored": "Webhooks answered 503 because they could not be stored in time.",
}
_REASONS = ("missing", "malformed", "wrong", "too large")
_SECRETS = ("current", "previous")
_REPLAY_STATES = tuple(state for state in STATES if state not in {"pending", "running"})
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class Metrics:
    """Counters in a separate registry, so that several apps in a process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.received = self._counter("webhooks_received", "Requests to the webhook path.")
        self.outcomes = {
            outcome: self._counter(f"webhooks_{outcome.replace(' ', '_')}", text)
            for outcome, text in _OUTCOMES.items()
        }
        self.refused = self._counter(
            "webhooks_refused", "Webhooks refused, by reason.", reason=_REASONS
        )
        self.accepted = self._counter(
            "webhooks_accepted", "Webhooks with a valid signature, by secret.", secret=_SECRETS
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
                counter.labels(value)  # starts at 0
        return counter

    def count_replayed(self, counts: Mapping[str, int]) -> None:
        """Add a replay's counts: webhooks by end state, and reads as `fetches`."""
        for name, count in counts.items():
            if name == "fetches":
                self.replay_reads.inc(count)
            else:
                self.replayed.labels(name).inc(count)


class Backlog(Collector):
    """Gauges of the inbox, read from the database at each collection."""

    def __init__(self, database: Path) -> None:
        self._database = database

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges, without values while the database is unreadable."""
        counts, ages = {}, {}
        with suppress(NftsyncError, sqlite3.Error):
            with closing(connect_reader(self._database)) as connection:
                connection.execute("PRAGMA busy_timeout = 1000")
                webhooks = count_by_state(connection, INBOX, INBOX.unfinished)
            at = now()
            for state in INBOX.unfinished:
                counts[state], since = webhooks.get(state, (0, at))
                ages[state] = age_seconds(since, at)
        text = "Age of the oldest webhook in each state; 0 without one."
        yield gauges("state", "nftsync_inbox_webhooks", "Unfinished webhooks, by state.", counts)
        yield gauges("state", "nftsync_inbox_oldest_seconds", text, ages)
        text = "Age of the oldest pending webhook; 0 without one."
        name = "nftsync_inbox_oldest_pending_seconds"
        yield GaugeMetricFamily(name, text, ages.get("pending"))


def gauges(label: str, name: str, text: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def create_app(
    *,
    database: Path,
    secrets: Sequence[str],
    organization_id: str | None = None,
    path: str = "/webhooks",
    on_stored: Callable[[], None] = lambda: None,
    metrics: Metrics | None = None,
    on_broken: Callable[[Exception], None] | None = None,
    healthy: Callable[[], bool] = lambda: True,
) -> Flask:
    """Return the receiver; its writer starts at once, so call this in the serving process.

    `secrets` are the webhook secret and, during a rotation, the previous one. `on_stored` is called
    after webhooks for replay were stored; it must be quick and not fail. `on_broken` is called once
    if the writer ends unexpectedly; webhooks are then answered 503. `healthy` returns whether the
    rest of the process works.
    """
    _check_secrets(secrets)
    if _PATH.fullmatch(path) is None or path in (_HEALTH, _READY):
        raise InputError(
            f"cannot receive webhooks at {path!r}; set --path to a path such as /webhooks, "
            "without a trailing slash"
        )
    counts = metrics or Metrics()
    committer = Committer(
        Path(database),
        on_stored=on_stored,
        observe_commit=counts.commits.observe,
        on_broken=on_broken,
    )
    counts.registry.register(Backlog(Path(database)))
    app = Flask("nftsync.receiver", static_folder=None)
    app.url_map.merge_slashes = False
    app.extensions[_EXTENSION] = committer
    app.before_request(_refuse_ambiguous_request)
    app.register_error_handler(HTTPException, _refusal)

    for rule, method, view in (
        (path, "POST", _receiving(secrets, organization_id, counts, committer)),
        (_HEALTH, "GET", lambda: _state(committer.alive and healthy())),
        (_READY, "GET", lambda: _state(committer.is_writable())),
    ):
        app.add_url_rule(rule, rule, view, methods=[method], provide_automatic_options=False)
    return app


def close_app(app: Flask) -> None:
    """Store the waiting webhooks and end the app's thread."""
    app.extensions[_EXTENSION].close()


def refuse_webhooks(app: Flask, reason: str) -> None:
    """Answer 503 to each webhook from now on; `reason` names the database's damage."""
    app.extensions[_EXTENSION].refuse_all(reason)


def _receiving(
    secrets: Sequence[str], organization_id: str | None, counts: Metrics, committer: Committer
) -> Callable[[], Response]:

    unsigned = itertools.count(1)  # since the last valid signature

    def receive() -> Response:
        """Read and verify a webhook, and store it if its signature is valid."""
        nonlocal unsigned
        counts.received.inc()
        body = request.stream.read(_LARGEST_BODY + 1)
        if len(body) > _LARGEST_BODY:
            return refused("too large", body, 413, "body over 256 KiB")
        secret = verify(body, request.headers.get(HEADER), secrets)
        if isinstance(secret, str):
            return refused(secret, body, 401, "signature refused")
        unsigned = itertools.count(1)
        counts.accepted.labels("previous" if secret else "current").inc()
        content = read_webhook(body, organization_id)
        headers = delivery_headers(request.headers.get)
        outcome = committer.submit(Delivery(body, content, headers))
        counts.outcomes[outcome].inc()
        if outcome == "quarantined":
            reason = content.reason if isinstance(content, Unusable) else "its id was used before"
            _log.warning("a webhook was quarantined", extra={"reason": reason} | headers.given())
        if outcome == "not stored":
            return _reply(503, b'{"error":"cannot store now"}\n')
        return _reply(200, b'{"status":"stored"}\n')

    def refused(reason: str, body: bytes, status: int, error: str) -> Response:
        counts.refused.labels(reason).inc()
        fields = {"reason": reason, "remote": request.remote_addr, "bytes": len(body)}
        if "Content-Encoding" in request.headers:
            fields["content_encoding"] = request.headers["Content-Encoding"][:40]
        fields |= delivery_headers(request.headers.get).given()
        _log.warning("refused a webhook", extra=fields)
        if status == 401 and next(unsigned) % 1_000 == 10:
            _log.warning("10 requests in a row had no valid signature", extra={"check": _ADVICE})
        return _reply(status, f'{{"error":"{error}"}}\n'.encode())

    return receive


def _check_secrets(secrets: Sequence[str]) -> None:
    try:
        good = bool(secrets) and all(secret.strip() and secret.encode() for secret in secrets)
    except UnicodeEncodeError:  # not chained: the error's text shows a part of the secret
        raise SettingsError("webhook_secret (NFTSYNC_WEBHOOK_SECRET) must be UTF-8 text") from None
    if not good:
        raise SettingsError(
            "webhook_secret is missing or blank; set it with NFTSYNC_WEBHOOK_SECRET, "
            "NFTSYNC_WEBHOOK_SECRET_FILE or webhook_secret in nftsync.toml"
        )


def _refuse_ambiguous_request() -> None:
    """Refuse a request that a proxy may parse differently from waitress (RFC 9112)."""
    host = request.environ.get("HTTP_HOST")
    if host is None and request.environ["SERVER_PROTOCOL"] == "HTTP/1.1":
        raise BadRequest
    # waitress joins repeated headers, and removes the Transfer-Encoding that it decoded.
    if "," in (host or "") or "HTTP_TRANSFER_ENCODING" in request.environ:
        raise BadRequest


def _state(good: bool) -> Response:
    return _reply(200, b'{"status":"ok"}\n') if good else _reply(503, b'{"status":"failing"}\n')


def _reply(status: int, body: bytes) -> Response:
    return Response(body, status, content_type="application/json")


def _refusal(error: HTTPException) -> Response:
    """Answer an error outside the views, and close the connection."""
    body = f'{{"error":"{error.name.lower()}"}}\n'.encode()
    headers = {name: value for name, value in error.get_headers() if name == "Allow"}
    # waitress closes the connection after a body of unknown length. So each request of a flood
    # costs its sender a connection, and data after an ambiguous request is discarded.
    return Response(iter([body]), error.code, headers, content_type="application/json")
