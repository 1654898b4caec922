"""The sandbox's server."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from os import PathLike
from random import Random
from typing import Any

import msgspec
from flask import Blueprint, Flask, Response, current_app, request
from werkzeug import exceptions
from werkzeug.local import LocalProxy
from werkzeug.wrappers import Response as BaseResponse

from nftsync.errors import InputError, NftsyncError
from nftsync.provider.webhooks import WebhookType
from nftsync.records import normalize_uuid
from nftsync.sandbox.consumer import ConsumerFaults, Consumers
from nftsync.sandbox.generator import draw
from nftsync.sandbox.state import State
from nftsync.sandbox.webhooks import Changes, Fault, Sandbox, Sender
from nftsync.sandbox.world import World, decode
from nftsync.wsgi import HttpServer, Listener

_EXTENSION = "nftsync_sandbox"
_CONSUMERS = "nftsync_sandbox_consumers"

#: Limit of a request body, in bytes.
_MOST_BYTES = 4 * 1024 * 1024


class Faults:
    """Delays and refusals of the provider's calls; `requests` counts the calls by kind.

    Args:
        latency: seconds before each response.
        fail_rate: share of requests that get a 500 or 503, from 0 to 1.
        rate_limit: requests per second, with a burst of one second; more get a 429.
    """

    def __init__(
        self, latency: float = 0, fail_rate: float = 0, rate_limit: float | None = 0, seed: int = 0
    ) -> None:
        self.latency = latency
        self.requests: Counter[str] = Counter()
        self._fail_rate = fail_rate
        self._rate_limit = rate_limit
        self._due = 0.0  # time of the next request at an even rate
        self._random = Random(f"faults {seed}")  # noqa: S311 - a simulation, to be repeatable
        self._lock = threading.Lock()

    def draw(self, kind: str = "other") -> exceptions.HTTPException | None:
        """Count a request, and return its refusal, if any."""
        with self._lock:
            self.requests[kind] += 1
            if self._rate_limit:
                at = time.monotonic()
                due = max(self._due, at)
                if due - at >= 1:
                    reason = f"more than {self._rate_limit:g} requests per second"
                    return exceptions.TooManyRequests(reason, retry_after=1)
                self._due = due + 1 / self._rate_limit
            if self._random.random() < self._fail_rate:
                down = exceptions.ServiceUnavailable("the sandbox is unavailable")
                broken = exceptions.InternalServerError("the sandbox failed")
                return self._random.choice((down, broken))
        return None


def create_app(sandbox: Sandbox, faults: Faults, consumers: Consumers) -> Flask:
    """Create the app of the provider and the consumers."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    app.extensions[_EXTENSION] = sandbox
    app.extensions[_CONSUMERS] = consumers
    app.register_error_handler(exceptions.HTTPException, _refused)
    app.register_error_handler(NftsyncError, _refused)
    app.register_blueprint(_calls)

    @app.before_request
    def inject_faults() -> None:
        if request.path.startswith(("/v1/", "/api/")):
            refusal = faults.draw((request.endpoint or "other").rpartition(".")[2])
            time.sleep(faults.latency)
            if refusal is not None:
                raise refusal

    return app


_sandbox: Any = LocalProxy(lambda: current_app.extensions[_EXTENSION])
_consumers: Any = LocalProxy(lambda: current_app.extensions[_CONSUMERS])


def _refused(error: exceptions.HTTPException | NftsyncError) -> BaseResponse:
    if isinstance(error, InputError):
        error = exceptions.BadRequest(str(error))
    elif isinstance(error, NftsyncError):
        error = exceptions.InternalServerError(str(error))
    response = error.get_response()  # keeps its headers
    response.data = msgspec.json.encode({"error": error.description}) + b"\n"
    response.content_type = "application/json"
    return response


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", mimetype="application/json")


def _read(body: bytes | None, missing: str) -> Response:
    if body is None:
        raise exceptions.NotFound(missing)
    response = Response(body, mimetype="application/json")
    response.add_etag()
    response.make_conditional(request)
    return response


#: The provider's calls (provider's document, section Endpoints) and the sandbox's. The front page
#: shows their docstrings.
_calls = Blueprint("calls", __name__)


@_calls.get("/v1/wallets/<wallet_id>/nft-balances")
def balances(wallet_id: str) -> Response:
    """Return a wallet's balances."""
    wallet = normalize_uuid(wallet_id, "wallet id")
    return _read(_sandbox.world.balances_body(wallet), f"wallet {wallet} does not exist")


@_calls.get("/v1/tokens/<token_id>")
def token(token_id: str) -> Response:
    """Return one token with its metadata."""
    token = normalize_uuid(token_id, "token id")
    return _read(_sandbox.world.token_body(token), f"token {token} does not exist")


@_calls.get("/sandbox/wallets")
def wallets() -> Response:
    """Return the ids of all wallets."""
    return _json(_sandbox.world.wallets())


@_calls.get("/sandbox/images/<token_id>.svg")
def image(token_id: str) -> Response:
    """Return a token's picture."""
    return Response(draw(normalize_uuid(token_id, "token id")), mimetype="image/svg+xml")


@_calls.get("/")
def index() -> Response:
    """Return this list."""
    calls = {}
    for rule in current_app.url_map.iter_rules():
        [method] = set(rule.methods or ()) - {"HEAD", "OPTIONS"}
        calls[f"{method} {rule.rule}"] = current_app.view_functions[rule.endpoint].__doc__
    return _json({"about": "nftsync sandbox: a local stand-in for the provider", "calls": calls})


def _form(*fields: Any) -> type[msgspec.Struct]:
    return msgspec.defstruct("Body", fields, rename="camel", forbid_unknown_fields=True)


_TRANSFER = _form(
    ("from_wallet_id", str), ("to_wallet_id", str), ("token_id", str), ("amount", int | str)
)
_METADATA = ("metadata", dict[str, msgspec.Raw])
_MINT = _form(("wallet_id", str), ("amount", int | str), _METADATA)
_EDIT = _form(_METADATA)
_EMIT = _form(
    ("type", WebhookType),
    ("resource_type", str),
    ("resource_id", str),
    ("action", str),
    ("changes", Changes, None),
)
_SCRIPT = _form(
    ("webhooks", list[Fault] | msgspec.UnsetType, msgspec.UNSET),
    ("consumers", ConsumerFaults | msgspec.UnsetType, msgspec.UNSET),
)


def _fields(form: type[msgspec.Struct]) -> tuple[Any, ...]:
    return msgspec.structs.astuple(decode(request.get_data(), form))


@_calls.patch("/api/organization/v1/current-organization/webhook-config")
def webhook_config() -> Response:
    """Change the webhook configuration: url, enabled, sharedSecret, webhookTypes."""
    # The response is the sandbox's own (provider's document: not shown).
    return _json(_sandbox.configure(request.get_data()))


@_calls.post("/sandbox/transfer")
def transfer() -> Response:
    """Transfer NFTs: fromWalletId, toWalletId, tokenId, amount."""
    return _json({"webhooks": _sandbox.transfer(*_fields(_TRANSFER))})


@_calls.post("/sandbox/mint")
def mint() -> Response:
    """Mint a token: walletId, amount, metadata."""
    token_id, webhooks = _sandbox.mint(*_fields(_MINT))
    return _json({"tokenId": token_id, "webhooks": webhooks})


@_calls.post("/sandbox/tokens/<token_id>")
def edit_metadata(token_id: str) -> Response:
    """Change a token's metadata: metadata."""
    return _json({"webhooks": _sandbox.edit_metadata(token_id, *_fields(_EDIT))})


@_calls.post("/sandbox/emit")
def emit() -> Response:
    """Send one webhook: type, resourceType, resourceId, action, changes."""
    return _json({"webhooks": _sandbox.emit(*_fields(_EMIT))})


@_calls.get("/sandbox/deliveries")
def deliveries() -> Response:
    """Return each webhook with its attempts, newest last."""
    return _json(_sandbox.deliveries())


@_calls.post("/sandbox/faults")
def script() -> Response:
    """Inject faults into webhooks and consumers (see docs/use/commands.md)."""
    faults = decode(request.get_data(), _SCRIPT)
    webhooks, consumers = msgspec.structs.astuple(faults)
    if webhooks is consumers is msgspec.UNSET:
        raise InputError("webhooks and consumers are missing")
    _sandbox.script.extend(webhooks or ())
    _consumers.script(consumers or {})
    return _json(faults)


@_calls.post("/sandbox/consumer")
@_calls.post("/sandbox/consumer/<name>")
def receive(name: str = "default") -> BaseResponse:
    """Record a message from nftsync, and answer it."""
    response: BaseResponse = _consumers.receive(name, request.headers, request.get_data())
    return response


@_calls.get("/sandbox/consumer")
@_calls.get("/sandbox/consumer/<name>")
def messages(name: str = "default") -> Response:
    """Return the newest 1,000 messages of a consumer, newest last."""
    return _json(_consumers.records(name))


class SandboxServer(AbstractContextManager["SandboxServer"]):
    """A running sandbox, and a context manager that stops it.

    Args:
        world: the world, or a function that builds it for a base URL; unused if `state` has one.
        host, port, advice: see `Listener`.
        seed: for faults and retries.
        time_scale: factor for the waits between attempts.
        on_broken: called from another thread with an error that ends the server or the deliveries.

    Raises:
        InUse: another sandbox uses the state file.
        InputError: the port, the state file, the world or a number is unusable.
    """

    def __init__(
        self,
        world: World | Callable[[str], World],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advice: str = "",
        state: str | PathLike[str] | None = None,
        seed: int = 0,
        time_scale: float = 1.0,
        on_broken: Callable[[Exception], object] | None = None,
        **faults: Any,
    ) -> None:
        if not all(map(math.isfinite, filter(None, (time_scale, *faults.values())))):
            raise InputError("latency, fail rate, rate limit and time scale must be finite numbers")
        with ExitStack() as undo:
            stored = State(state)
            undo.callback(stored.close)
            listener = Listener(host, port, advice)
            undo.callback(listener.close)
            self.port, self.url = listener.port, listener.url
            if stored["facts"]:
                self.world = World(state=stored)
            else:
                self.world = world if isinstance(world, World) else world(self.url)
                if state is not None:
                    self.world.state.copy_into(stored)
                    self.world.state = stored
            self.sandbox = Sandbox(self.world, time_scale=time_scale, seed=seed)
            injected = Faults(seed=seed, **faults)
            self.requests = injected.requests
            self.consumers = Consumers()
            self.app = create_app(self.sandbox, injected, self.consumers)
            undo.pop_all()
        # Twice the app's limit, so that the app itself refuses slightly larger bodies.
        self._server = HttpServer(
            self.app,
            listener,
            largest_body=2 * _MOST_BYTES,
            ident="nftsync-sandbox",
            on_broken=on_broken,
        )
        self._sender = Sender(self.sandbox, on_broken)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish current requests, free the port, and end deliveries."""
        self.consumers.close()
        self._server.close()
        self._sender.close()
        self.world.state.close()
