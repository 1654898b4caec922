"""The sandbox as a local server: the provider's calls, faults on purpose, and `/sandbox/`."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from functools import partial
from os import PathLike
from random import Random
from typing import Any, Self, TypeAlias, TypeVar

import msgspec
from flask import Flask, Response, current_app, request
from werkzeug.exceptions import (
    BadRequest,
    HTTPException,
    InternalServerError,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)

from nftsync.errors import InputError, StoreError
from nftsync.records import normalize_uuid
from nftsync.sandbox import GREATEST_TIME_SCALE
from nftsync.sandbox.generator import draw
from nftsync.sandbox.sender import Sender
from nftsync.sandbox.state import State
from nftsync.sandbox.webhooks import FAULTS_TEXT, Changes, Sandbox, WebhookType
from nftsync.sandbox.world import World, decode
from nftsync.wsgi import HttpServer, Listener, stop_signals

__all__ = ["EXTENSION", "Faults", "Sandbox", "SandboxServer", "create_app", "serve_forever"]

#: Where an app keeps its `Sandbox`: `app.extensions[EXTENSION]`.
EXTENSION = "nftsync_sandbox"

#: The greatest body of a request, in bytes.
_MOST_BYTES = 4 * 1024 * 1024

_View = TypeVar("_View", bound=Callable[..., Response])


class Faults:
    """How the provider refuses requests on purpose: failures, a rate limit.

    Args:
        fail_rate: the share of requests that end in a 500 or 503, from 0 to 1.
        rate_limit: requests per second; what comes faster, past a second's worth saved up, is
            refused with 429. None is no limit.
        seed: which requests fail is drawn from it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        fail_rate: float = 0.0,
        rate_limit: float | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fail_rate = fail_rate
        self._rate_limit = rate_limit
        self._saved = self._most = max(1.0, rate_limit or 0.0)
        self._clock = clock
        self._counted_at = clock()
        self._random = Random(f"faults {seed}")  # noqa: S311 - a simulation, to be repeatable
        self._lock = threading.Lock()

    def draw(self) -> HTTPException | None:
        """Let one request through, or tell how it is refused."""
        with self._lock:
            if self._rate_limit is not None:
                at = self._clock()
                earned = (at - self._counted_at) * self._rate_limit
                self._saved = min(self._most, self._saved + earned)
                self._counted_at = at
                if self._saved < 1:
                    text = f"more than {self._rate_limit:g} requests per second"
                    return TooManyRequests(text, retry_after=1)
                self._saved -= 1
            if self._random.random() < self._fail_rate:
                down = ServiceUnavailable("the sandbox is unavailable")
                return self._random.choice((down, InternalServerError("the sandbox failed")))
        return None


def create_app(
    world: World | Callable[[], World],
    *,
    latency: float = 0.0,
    fail_rate: float = 0.0,
    rate_limit: float | None = None,
    seed: int = 0,
    time_scale: float = 1.0,
    state: str | PathLike[str] | None = None,
) -> Flask:
    """Make the app that plays the provider.

    Its `Sandbox` is at `app.extensions[EXTENSION]`: whoever makes the app lets a `Sender` send its
    webhooks, and closes the state.

    Args:
        world: what it answers from, or what makes it; neither counts where the state has a world.
        latency: seconds before each answer to the provider's calls.
        fail_rate: see `Faults`; of the provider's calls.
        rate_limit: see `Faults`; of the provider's calls.
        seed: which requests fail, and how retries spread, is drawn from it.
        time_scale: what the waits between a webhook's attempts are multiplied by.
        state: a file that keeps the world, the webhook configuration and the undelivered webhooks
            over restarts; None keeps nothing.

    Raises:
        InputError: a figure is out of its range, the world cannot be made, or the state file cannot
            be used.
        StoreError: the state file cannot be written.
    """
    for name, figure, fits in (
        ("latency", latency, 0 <= latency < float("inf")),
        ("fail rate", fail_rate, 0 <= fail_rate <= 1),
        ("rate limit", rate_limit, rate_limit is None or 0 < rate_limit < float("inf")),
        ("time scale", time_scale, 0 < time_scale <= GREATEST_TIME_SCALE),
    ):
        if not fits:
            raise InputError(f"the {name} is {figure}, which is out of its range")
    faults = Faults(fail_rate=fail_rate, rate_limit=rate_limit, seed=seed)
    kept = State(state)
    restored = bool(kept.facts)
    try:
        if restored:
            world = World(kept=kept)
        elif not isinstance(world, World):
            world = world()
        if state is not None and not restored:
            world.keep_in(kept)
    except BaseException:
        kept.close()
        raise
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    app.extensions[EXTENSION] = Sandbox(world, time_scale=time_scale, seed=seed, restored=restored)
    app.register_error_handler(HTTPException, _refused)
    app.register_error_handler(InputError, lambda error: _refused(BadRequest(str(error))))
    app.register_error_handler(StoreError, lambda error: _refused(InternalServerError(str(error))))
    app.before_request(partial(_meet_faults, faults, latency))
    for call, (view, _) in _CALLS.items():
        method, path = call.split()
        rule = re.sub(r"\{\w+\}", "<key>", path)
        app.add_url_rule(rule, view.__name__, view, methods=[method])
    return app


def _sandbox() -> Sandbox:
    sandbox: Sandbox = current_app.extensions[EXTENSION]
    return sandbox


def _meet_faults(faults: Faults, latency: float) -> None:
    if request.path.startswith(("/v1/", "/api/")):
        _sandbox().count(request.endpoint or "other")
        refusal = faults.draw()
        time.sleep(latency)
        if refusal is not None:
            raise refusal


def _refused(error: HTTPException) -> Response:
    response = _json({"error": error.description})
    response.status_code = error.code or 500
    for name, value in error.get_headers():
        if name in {"Allow", "Retry-After"}:
            response.headers[name] = value
    return response


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", mimetype="application/json")


def _read(body: bytes | None, missing: str) -> Response:
    """Answer a read; 304 where the client has that very answer."""
    if body is None:
        raise NotFound(missing)
    response = Response(body, mimetype="application/json")
    response.add_etag()
    response.make_conditional(request)
    return response


#: What answers each call, and what it is for, as the front page tells it; the provider's calls as
#: in its document, section Endpoints.
_CALLS: dict[str, tuple[Callable[..., Response], str]] = {}


def _answers(call: str, about: str) -> Callable[[_View], _View]:
    def note(view: _View) -> _View:
        _CALLS[call] = view, about
        return view

    return note


@_answers("GET /v1/wallets/{walletId}/nft-balances", "what a wallet holds")
def balances(key: str) -> Response:
    """Answer what a wallet holds."""
    wallet = normalize_uuid(key, "wallet id")
    return _read(_sandbox().world.balances_body(wallet), f"there is no wallet {wallet}")


@_answers("GET /v1/tokens/{tokenId}", "one token with its metadata")
def token(key: str) -> Response:
    """Answer one token's record."""
    token_id = normalize_uuid(key, "token id")
    return _read(_sandbox().world.token_body(token_id), f"there is no token {token_id}")


@_answers("GET /sandbox/wallets", "the ids of all wallets")
def wallets() -> Response:
    """Answer the ids of all wallets."""
    return _json(_sandbox().world.wallets())


@_answers("GET /sandbox/images/{tokenId}.svg", "a token's picture")
def image(key: str) -> Response:
    """Answer the picture that belongs to an id."""
    response = Response(draw(normalize_uuid(key, "token id")), mimetype="image/svg+xml")
    response.headers["Content-Security-Policy"] = "default-src 'none'"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "public, max-age=86400"
    return response


@_answers("GET /", "")
def index() -> Response:
    """Tell a person who opens the address what can be asked here."""
    calls = {call: about for call, (_, about) in _CALLS.items() if about}
    return _json({"about": "nftsync sandbox: a local stand-in for the provider", "calls": calls})


def _form(**fields: object) -> type[msgspec.Struct]:
    """What the body of a call must be: each field, and no other."""
    given = [each if isinstance(each, tuple) else (name, each) for name, each in fields.items()]
    return msgspec.defstruct("Body", given, rename="camel", forbid_unknown_fields=True)


_TRANSFER = _form(from_wallet_id=str, to_wallet_id=str, token_id=str, amount=int | str)
_MINT = _form(wallet_id=str, amount=int | str, metadata=msgspec.Raw)
_EDIT = _form(metadata=msgspec.Raw)
_EMIT = _form(
    type=WebhookType,
    resource_type=str,
    resource_id=str,
    action=str,
    changes=("changes", Changes, None),
)
_SCRIPT = _form(webhooks=list[Any])


def _given(form: type[msgspec.Struct]) -> tuple[Any, ...]:
    return msgspec.structs.astuple(decode(request.get_data(), form))


@_answers(
    "PATCH /api/organization/v1/current-organization/webhook-config",
    "where webhooks go: url, enabled, sharedSecret, webhookTypes",
)
def webhook_config() -> Response:
    """Change the webhook configuration; the answer is the sandbox's own (document: not shown)."""
    return _json(_sandbox().configure(request.get_data()).shown())


@_answers("POST /sandbox/transfer", "moves NFTs: fromWalletId, toWalletId, tokenId, amount")
def transfer() -> Response:
    """Move NFTs."""
    return _json({"webhooks": _sandbox().transfer(*_given(_TRANSFER))})


@_answers("POST /sandbox/mint", "makes a token: walletId, amount, metadata")
def mint() -> Response:
    """Make a token."""
    made, caused = _sandbox().mint(*_given(_MINT))
    return _json({"tokenId": made, "webhooks": caused})


@_answers("POST /sandbox/tokens/{tokenId}", "changes a token's metadata: metadata")
def edit_metadata(key: str) -> Response:
    """Change a token's metadata."""
    return _json({"webhooks": _sandbox().edit_metadata(key, *_given(_EDIT))})


@_answers(
    "POST /sandbox/emit", "sends one webhook: type, resourceType, resourceId, action, changes"
)
def emit() -> Response:
    """Send one webhook."""
    return _json({"webhooks": _sandbox().emit(*_given(_EMIT))})


@_answers("GET /sandbox/deliveries", "each webhook with its attempts, newest last")
def deliveries() -> Response:
    """List the webhooks."""
    return _json(_sandbox().deliveries())


@_answers(
    "POST /sandbox/faults", f"lets the next webhooks go wrong: webhooks, a list of {FAULTS_TEXT}"
)
def script() -> Response:
    """Let the next webhooks go wrong."""
    (webhooks,) = _given(_SCRIPT)
    _sandbox().script(webhooks)
    return _json({"webhooks": webhooks})


#: A world, or what builds one once the base URL is known (pictures are served from there).
WorldSource: TypeAlias = World | Callable[[str], World]


class SandboxServer:
    """A running sandbox; a context manager that stops it on leaving.

    Args:
        world: what it serves, or a function from the base URL to it.
        host: the address to listen on.
        port: the port; 0 takes any free one.
        options: see `create_app`.

    Attributes:
        url: the base URL, without a slash at its end.
        port: the port it listens on.
        world: what it serves; edits of it send no webhooks.
        sandbox: all that is behind it; edits here send the webhooks that follow.
        app: the Flask app.

    Raises:
        InputError: the port is taken or may not be used, or see `create_app`.
        StoreError: the state file cannot be written.
    """

    def __init__(
        self, world: WorldSource, *, host: str = "127.0.0.1", port: int = 0, **options: Any
    ) -> None:
        listener = Listener(host, port)
        self.port, self.url = listener.port, listener.url
        try:
            source = world if isinstance(world, World) else partial(world, self.url)
            self.app = create_app(source, **options)
        except BaseException:
            listener.close()
            raise
        self.sandbox: Sandbox = self.app.extensions[EXTENSION]
        self.world = self.sandbox.world
        self._server = HttpServer(
            self.app,
            listener,
            threads=64,
            connections=1000,
            largest_body=2 * _MOST_BYTES,  # so that the app answers what is a bit too large
            ident="nftsync-sandbox",
        )
        self._sender = Sender(self.sandbox)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the requests in work, close every connection, free the port, end deliveries."""
        self._server.close()
        self._sender.close()
        self.world.state.close()


def serve_forever(
    start: Callable[[], SandboxServer], ready: Callable[[SandboxServer], None]
) -> None:
    """Serve until Ctrl-C or SIGTERM, then return; for the main thread.

    Args:
        start: makes the server.
        ready: called once it serves.

    Raises:
        InputError: what `start` raises.
    """
    with stop_signals() as wait, start() as server:
        ready(server)
        wait()
