"""The receiver as a WSGI app.

Source: provider's document, sections Webhook delivery, Authentication and Events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.wsgi import get_input_stream

from nftsync.errors import InputError, SettingsError
from nftsync.provider import webhooks
from nftsync.provider.webhooks import Unusable, Webhook, read_webhook
from nftsync.receiver.committer import Committer, Outcome
from nftsync.receiver.telemetry import Metrics, ReceiverLog
from nftsync.store.inbox import Delivery
from nftsync.wsgi import RECEIVED_AT, Later, QuickPath, QuickRequest, Reply

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["LARGEST_BODY", "close_app", "create_app", "quick_path"]

#: Bytes; a webhook is a few hundred.
LARGEST_BODY = 256 * 1024

_HEADER_KEY = webhooks.HEADER.upper().replace("-", "_")
_HEALTH, _READY = "/healthz", "/readyz"
# No slash at its end: Flask would redirect what comes without it. None twice at its beginning:
# waitress makes one of them.
_PATH = re.compile(r"/|/(?!/)[A-Za-z0-9._~/-]*(?<!/)")
_EXTENSION = "nftsync"
_JSON = (("Content-Type", "application/json"),)

_STORED = Reply("200 OK", _JSON, b'{"status":"stored"}\n')
_UNAUTHORIZED = Reply("401 Unauthorized", _JSON, b'{"error":"signature refused"}\n')
_TOO_LARGE = Reply("413 Request Entity Too Large", _JSON, b'{"error":"body over 256 KiB"}\n')
_UNAVAILABLE = Reply("503 Service Unavailable", _JSON, b'{"error":"cannot store now"}\n')
_OK = Reply("200 OK", _JSON, b'{"status":"ok"}\n')
_FAILING = Reply("503 Service Unavailable", _JSON, b'{"status":"failing"}\n')


class _Extension(NamedTuple):
    """What belongs to an app."""

    committer: Committer
    quick_path: QuickPath


def create_app(
    *,
    database: Path,
    secrets: Sequence[str],
    organization_id: str | None = None,
    path: str = "/webhooks",
    on_stored: Callable[[], None] | None = None,
    metrics: Metrics | None = None,
    on_broken: Callable[[Exception], None] | None = None,
) -> Flask:
    """Make the receiver; its writer starts with it, in the process that is to serve.

    Args:
        database: where webhooks are kept; created and migrated where that is due.
        secrets: the shared secret, then the previous one while it is being rotated.
        organization_id: the only organization whose webhooks are wanted, or None for any.
        path: where webhooks are received.
        on_stored: called when there is something new for replay; must be quick and not fail.
        metrics: what counts; made anew if None.
        on_broken: called once, from another thread, with what ended the writer though nobody had
            foreseen it: from then on every webhook is answered 503.

    Raises:
        SettingsError: there is no secret, or a blank one.
        InputError: the path cannot be served.
        StoreError: the database cannot be opened, or is not nftsync's.
    """
    checked_secrets = _checked_secrets(secrets)
    if _PATH.fullmatch(path) is None or path in (_HEALTH, _READY):
        raise InputError(
            f"webhooks cannot be received at {path!r}; choose a path such as /webhooks, "
            "with no slash at its end, with --path"
        )
    counts = metrics or Metrics()
    committer = Committer(
        Path(database), on_stored=on_stored, observe_commit=counts.commit, on_broken=on_broken
    )
    counts.watch_backlog(Path(database))
    receiver = _Receiver(checked_secrets, organization_id, committer, counts)
    app = Flask("nftsync.receiver", static_folder=None)
    app.url_map.merge_slashes = False
    for rule, method, view in (
        (path, "POST", lambda: _response(receiver.receive(request.environ))),
        (_HEALTH, "GET", lambda: _state(committer.alive)),
        (_READY, "GET", lambda: _state(committer.probe(request.environ.get(RECEIVED_AT)))),
    ):
        app.add_url_rule(rule, rule, view, methods=[method], provide_automatic_options=False)
    app.register_error_handler(HTTPException, _refusal)
    app.extensions[_EXTENSION] = _Extension(
        committer, QuickPath("POST", path, receiver.receive_quick, committer.hand_over)
    )
    flask_app = app.wsgi_app

    def short_cut(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve webhooks without what Flask does around a view, which costs as much as a commit."""
        if environ["PATH_INFO"] != path or environ["REQUEST_METHOD"] != "POST":
            return flask_app(environ, start_response)
        reply = receiver.receive(environ)
        length = ("Content-Length", str(len(reply.body)))
        start_response(reply.status, [*reply.headers, length])
        return [reply.body]

    app.wsgi_app = short_cut  # type: ignore[method-assign]
    return app


def close_app(app: Flask) -> None:
    """Store what waits and end the threads of an app that `create_app` made."""
    extension: _Extension = app.extensions[_EXTENSION]
    extension.committer.close()


def quick_path(app: Flask) -> QuickPath:
    """What `HttpServer` takes to serve the webhooks of an app of `create_app` without threads."""
    extension: _Extension = app.extensions[_EXTENSION]
    return extension.quick_path


class _Receiver:
    """What is done with each webhook: read, verified, stored, in this order."""

    def __init__(
        self,
        secrets: tuple[str, ...],
        organization_id: str | None,
        committer: Committer,
        metrics: Metrics,
    ) -> None:
        self._secrets = secrets
        self._organization_id = organization_id
        self._committer = committer
        self._metrics = metrics
        self._log = ReceiverLog()

    def receive(self, environ: WSGIEnvironment) -> Reply:
        """Answer one request; nothing is stored unless its signature is right."""
        # A stream that ends by itself is what waitress gives; others need the Content-Length.
        ends = environ.get("wsgi.input_terminated", False)
        stream = environ["wsgi.input"] if ends else get_input_stream(environ)
        body = stream.read(LARGEST_BODY + 1)
        checked = self._checked(
            body, environ.get(f"HTTP_{_HEADER_KEY}"), environ.get("REMOTE_ADDR")
        )
        if isinstance(checked, Reply):
            return checked
        outcome = self._committer.submit(checked, environ.get(RECEIVED_AT))
        return self._reply(outcome, checked.content)

    def receive_quick(self, request: QuickRequest, later: Later) -> Reply | None:
        """As `receive`, without waiting; None where the reply comes later."""
        checked = self._checked(request.body, request.headers.get(_HEADER_KEY), request.remote)
        if isinstance(checked, Reply):
            return checked
        return self._committer.submit_later(
            checked, request.received_at, later, lambda x: self._reply(x, checked.content)
        )

    def _checked(self, body: bytes, header: str | None, remote: str | None) -> Delivery | Reply:
        """What is to be stored, or how the request is refused."""
        self._metrics.received()
        if len(body) > LARGEST_BODY:
            return self._refused("too large", remote, body, _TOO_LARGE)
        verdict = webhooks.verify(body, header, self._secrets)
        if isinstance(verdict, webhooks.Refused):
            return self._refused(verdict.reason, remote, body, _UNAUTHORIZED)
        self._metrics.accepted(verdict.which)
        return Delivery(body, read_webhook(body, self._organization_id))

    def _reply(self, outcome: Outcome, content: Webhook | Unusable) -> Reply:
        self._metrics.outcome(outcome)
        self._log.outcome(outcome, content)
        return _UNAVAILABLE if outcome == "not stored" else _STORED

    def _refused(self, reason: str, remote: str | None, body: bytes, reply: Reply) -> Reply:
        self._metrics.refused(reason)
        self._log.refused(reason, remote, len(body))
        return reply


def _checked_secrets(secrets: Sequence[str]) -> tuple[str, ...]:
    checked = tuple(secrets)
    if not checked or not all(secret.strip() for secret in checked):
        raise SettingsError(
            "webhook_secret is missing or blank; set it with NFTSYNC_WEBHOOK_SECRET, "
            "NFTSYNC_WEBHOOK_SECRET_FILE or webhook_secret in nftsync.toml"
        )
    for secret in checked:
        try:
            secret.encode()
        except UnicodeEncodeError:
            # Not chained: the error's text shows a part of the secret.
            raise SettingsError(
                "webhook_secret (NFTSYNC_WEBHOOK_SECRET) is no UTF-8 text"
            ) from None
    return checked


def _state(good: bool) -> Response:
    return _response(_OK if good else _FAILING)


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers)


def _refusal(error: HTTPException) -> Response:
    """Answer what no view answered, in the same form as all else."""
    status = f"{error.code or 500} {error.name}"
    reply = _response(Reply(status, _JSON, f'{{"error":"{error.name.lower()}"}}\n'.encode()))
    allowed = dict(error.get_headers()).get("Allow")
    if allowed is not None:
        reply.headers["Allow"] = allowed
    return reply
