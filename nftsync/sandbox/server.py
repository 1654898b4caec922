"""The sandbox's server: the provider's API, deliberate faults, and `/sandbox/`."""

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
from nftsync.records import normalize_uuid
from nftsync.sandbox.generator import draw
from nftsync.sandbox.state import State
from nftsync.sandbox.webhooks import Changes, Fault, Sandbox, Sender, WebhookType
from nftsync.sandbox.world import World, decode
from nftsync.wsgi import HttpServer, Listener

_EXTENSION = "nftsync_sandbox"

#: The greatest body of a request, in bytes.
_MOST_BYTES = 4 * 1024 * 1024


class Faults:
    """How the provider is slow and refuses requests on purpose.

    Args:
        latency: seconds before each answer.
        fail_rate: the share of requests that end in a 500 or 503, from 0 to 1.
        rate_limit: requests per second; what comes faster, past a second's worth saved up, is
            refused with 429. None or 0 is no limit.
        seed: which requests fail is drawn from it.

    Attributes:
        requests: how many requests came, refused ones included, by kind: `balances`, `token`,
            `webhook_config`, or `other` for no call.
    """

    def __init__(
        self, latency: float = 0, fail_rate: float = 0, rate_limit: float | None = 0, seed: int = 0
    ) -> None:
        self.latency = latency
        self.requests: Counter[str] = Counter()
        self._fail_rate = fail_rate
        self._rate_limit = rate_limit
        self._due = 0.0  # when the next request is, where all come evenly
        self._random = Random(f"faults {seed}")  # noqa: S311 - a simulation, to be repeatable
        self._lock = threading.Lock()

    def draw(self, kind: str = "other") -> exceptions.HTTPException | None:
        """Count one request, and let it through, or tell how it is refused."""
        with self._lock:
            self.requests[kind] += 1
            if self._rate_limit:
                at = time.monotonic()
                due = max(self._due, at)
                if due - at >= 1:
                    said = f"more than {self._rate_limit:g} requests per second"
                    return exceptions.TooManyRequests(said, retry_after=1)
                self._due = due + 1 / self._rate_limit
            if self._random.random() < self._fail_rate:
                down = exceptions.ServiceUnavailable("the sandbox is unavailable")
                broken = exceptions.InternalServerError("the sandbox failed")
                return self._random.choice((down, broken))
        return None


def create_app(sandbox: Sandbox, faults: Faults) -> Flask:
    """Make the app that plays the provider.

    Args:
        sandbox: what it answers from.
        faults: what the provider's calls meet.
    """
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    app.extensions[_EXTENSION] = sandbox
    app.register_error_handler(exceptions.HTTPException, _refused)
    app.register_error_handler(NftsyncError, _refused)
    app.register_blueprint(_calls)

    @app.before_request
    def meet_faults() -> None:
        if request.path.startswith(("/v1/", "/api/")):
            refusal = faults.draw((request.endpoint or "other").rpartition(".")[2])
            time.sleep(faults.latency)
            if refusal is not None:
                raise refusal

    return app


_sandbox: Any = LocalProxy(lambda: current_app.extensions[_EXTENSION])


def _refused(error: exceptions.HTTPException | NftsyncError) -> BaseResponse:
    if isinstance(error, InputError):
        error = exceptions.BadRequest(str(error))
    elif isinstance(error, NftsyncError):
        error = exceptions.InternalServerError(str(error))
    response = error.get_response()  # with its headers
    response.data = msgspec.json.encode({"error": error.description}) + b"\n"
    response.content_type = "application/json"
    return response


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", mimetype="application/json")


def _read(body: bytes | None, missing: str) -> Response:
    """Answer a read; 304 where the client has that very answer."""
    if body is None:
        raise exceptions.NotFound(missing)
    response = Response(body, mimetype="application/json")
    response.add_etag()
    response.make_conditional(request)
    return response


#: The provider's calls as in its document, section Endpoints, and our own; the front page tells a
#: person what each is for, in the words of its docstring.
_calls = Blueprint("calls", __name__)


@_calls.get("/v1/wallets/<wallet_id>/nft-balances")
def balances(wallet_id: str) -> Response:
    """What a wallet holds."""
    wallet = normalize_uuid(wallet_id, "wallet id")
    return _read(_sandbox.world.balances_body(wallet), f"there is no wallet {wallet}")


@_calls.get("/v1/tokens/<token_id>")
def token(token_id: str) -> Response:
    """One token with its metadata."""
    token = normalize_uuid(token_id, "token id")
    return _read(_sandbox.world.token_body(token), f"there is no token {token}")


@_calls.get("/sandbox/wallets")
def wallets() -> Response:
    """The ids of all wallets."""
    return _json(_sandbox.world.wallets())


@_calls.get("/sandbox/images/<token_id>.svg")
def image(token_id: str) -> Response:
    """A token's picture."""
    return Response(draw(normalize_uuid(token_id, "token id")), mimetype="image/svg+xml")


@_calls.get("/")
def index() -> Response:
    """This list."""
    calls = {}
    for rule in current_app.url_map.iter_rules():
        [method] = set(rule.methods or ()) - {"HEAD", "OPTIONS"}
        calls[f"{method} {rule.rule}"] = current_app.view_functions[rule.endpoint].__doc__
    return _json({"about": "nftsync sandbox: a local stand-in for the provider", "calls": calls})


def _form(*fields: Any) -> type[msgspec.Struct]:
    """What the body of a call must be: each field, and no other."""
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
_SCRIPT = _form(("webhooks", list[Fault]))


def _given(form: type[msgspec.Struct]) -> tuple[Any, ...]:
    return msgspec.structs.astuple(decode(request.get_data(), form))


@_calls.patch("/api/organization/v1/current-organization/webhook-config")
def webhook_config() -> Response:
    """Where webhooks go: url, enabled, sharedSecret, webhookTypes."""
    # What it is answered is the sandbox's own (document: not shown).
    return _json(_sandbox.configure(request.get_data()))


@_calls.post("/sandbox/transfer")
def transfer() -> Response:
    """Moves NFTs: fromWalletId, toWalletId, tokenId, amount."""
    return _json({"webhooks": _sandbox.transfer(*_given(_TRANSFER))})


@_calls.post("/sandbox/mint")
def mint() -> Response:
    """Makes a token: walletId, amount, metadata."""
    made, caused = _sandbox.mint(*_given(_MINT))
    return _json({"tokenId": made, "webhooks": caused})


@_calls.post("/sandbox/tokens/<token_id>")
def edit_metadata(token_id: str) -> Response:
    """Changes a token's metadata: metadata."""
    return _json({"webhooks": _sandbox.edit_metadata(token_id, *_given(_EDIT))})


@_calls.post("/sandbox/emit")
def emit() -> Response:
    """Sends one webhook: type, resourceType, resourceId, action, changes."""
    return _json({"webhooks": _sandbox.emit(*_given(_EMIT))})


@_calls.get("/sandbox/deliveries")
def deliveries() -> Response:
    """Each webhook with its attempts, newest last."""
    return _json(_sandbox.deliveries())


@_calls.post("/sandbox/faults")
def script() -> Response:
    """Lets the next webhooks go wrong: webhooks, a list (docs/use/commands.md tells of what)."""
    (webhooks,) = _given(_SCRIPT)
    _sandbox.script.extend(webhooks)
    return _json({"webhooks": webhooks})


class SandboxServer(AbstractContextManager["SandboxServer"]):
    """A running sandbox; a context manager that stops it on leaving.

    Args:
        world: what it serves, or what builds it once the base URL is known, which serves the
            pictures; neither counts where the state has a world.
        host: the address to listen on.
        port: the port; 0 takes any free one.
        state: a file that keeps the world, the webhook configuration and the undelivered webhooks
            over restarts; None keeps nothing.
        seed: which requests fail, and how retries spread, is drawn from it.
        time_scale: what the waits between a webhook's attempts are multiplied by.
        on_broken: called, from another thread, with what ends the server or the deliveries though
            nobody closed them. If None, it is only logged.
        faults: what the provider's calls meet; see `Faults`.

    Attributes:
        url: the base URL, without a slash at its end.
        port: the port it listens on.
        world: what it serves; edits of it send no webhooks.
        sandbox: all that is behind it; edits here send the webhooks that follow.
        app: the Flask app.
        requests: see `Faults`.

    Raises:
        InputError: the port is taken or may not be used, a figure is none, the world cannot be
            made, or the state file cannot be used.
        StoreError: the state file cannot be written.
    """

    def __init__(
        self,
        world: World | Callable[[str], World],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        state: str | PathLike[str] | None = None,
        seed: int = 0,
        time_scale: float = 1.0,
        on_broken: Callable[[Exception], object] | None = None,
        **faults: Any,
    ) -> None:
        if not all(map(math.isfinite, filter(None, (time_scale, *faults.values())))):
            raise InputError("latency, fail rate, rate limit and time scale are finite numbers")
        with ExitStack() as undo:
            listener = Listener(host, port)
            undo.callback(listener.close)
            self.port, self.url = listener.port, listener.url
            kept = State(state)
            undo.callback(kept.close)
            if kept.facts:
                self.world = World(kept=kept)
            else:
                self.world = world if isinstance(world, World) else world(self.url)
                if state is not None:
                    self.world.state.copy_into(kept)
                    self.world.state = kept
            self.sandbox = Sandbox(self.world, time_scale=time_scale, seed=seed)
            met = Faults(seed=seed, **faults)
            self.requests = met.requests
            self.app = create_app(self.sandbox, met)
            undo.pop_all()
        # Twice as much, so that the app answers what is a bit too large.
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
        """Finish the requests in work, close every connection, free the port, end deliveries."""
        self._server.close()
        self._sender.close()
        self.world.state.close()
