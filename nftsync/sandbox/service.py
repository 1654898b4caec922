"""The provider's calls as a WSGI app (provider's document, section Endpoints), and `/sandbox/`."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from flask import Flask, Response, current_app, jsonify, request
from werkzeug.exceptions import HTTPException

from nftsync.errors import InputError
from nftsync.models import normalize_uuid
from nftsync.sandbox import pictures
from nftsync.sandbox.faults import Faults

if TYPE_CHECKING:
    from nftsync.sandbox.answers import Answer
    from nftsync.sandbox.world import World

__all__ = ["EXTENSION", "RequestCounts", "Sandbox", "create_app"]

#: Where an app keeps its `Sandbox`: `app.extensions[EXTENSION]`.
EXTENSION = "nftsync_sandbox"

_PROVIDER_PATHS = ("/v1/", "/api/")
_CALLS = {
    "GET /v1/wallets/{walletId}/nft-balances": "what a wallet holds",
    "GET /v1/tokens/{tokenId}": "one token with its metadata",
    "GET /sandbox/wallets": "the ids of all wallets",
    "GET /sandbox/images/{tokenId}.svg": "a token's picture",
}


class RequestCounts:
    """How many requests each of the provider's calls got, refused ones included."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, kind: str) -> None:
        """Count one request."""
        with self._lock:
            self._counts[kind] += 1

    def __getitem__(self, kind: str) -> int:
        with self._lock:
            return self._counts[kind]

    @property
    def total(self) -> int:
        """All of them."""
        with self._lock:
            return self._counts.total()

    def snapshot(self) -> dict[str, int]:
        """A copy by kind: `balances`, `token`, or `other` for a provider path that is no call."""
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True)
class Sandbox:
    """What an app of `create_app` works on.

    Attributes:
        world: the provider's state.
        faults: what goes wrong on purpose.
        requests: how often each call came.
    """

    world: World
    faults: Faults
    requests: RequestCounts = field(default_factory=RequestCounts)


def create_app(
    world: World,
    *,
    latency: float = 0.0,
    fail_rate: float = 0.0,
    rate_limit: float | None = None,
    seed: int = 0,
) -> Flask:
    """Make the app that plays the provider.

    Args:
        world: what it answers from.
        latency: seconds before each of the provider's answers.
        fail_rate: the share of the provider's answers that are a 500 or 503, from 0 to 1.
        rate_limit: requests per second to the provider's calls before a 429; None is no limit.
        seed: which requests fail is drawn from it.

    Raises:
        InputError: a figure is out of its range.
    """
    faults = Faults(latency=latency, fail_rate=fail_rate, rate_limit=rate_limit, seed=seed)
    sandbox = Sandbox(world, faults)
    app = Flask(__name__, static_folder=None)
    app.extensions[EXTENSION] = sandbox
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(InputError, _input_error)
    app.before_request(_meet_faults)
    app.add_url_rule("/v1/wallets/<wallet_id>/nft-balances", view_func=balances)
    app.add_url_rule("/v1/tokens/<token_id>", view_func=token)
    app.add_url_rule("/sandbox/wallets", view_func=wallets)
    app.add_url_rule("/sandbox/images/<token_id>.svg", view_func=image)
    app.add_url_rule("/", view_func=index)
    return app


def balances(wallet_id: str) -> Response:
    """Answer what a wallet holds."""
    key = normalize_uuid(wallet_id, "wallet id")
    answer = _sandbox().world.balances(key)
    return _conditional(answer) if answer else _error(404, f"there is no wallet {key}")


def token(token_id: str) -> Response:
    """Answer one token's record."""
    key = normalize_uuid(token_id, "token id")
    answer = _sandbox().world.token(key)
    return _conditional(answer) if answer else _error(404, f"there is no token {key}")


def wallets() -> Response:
    """Answer the ids of all wallets."""
    return _json(msgspec.json.encode(_sandbox().world.wallets()))


def image(token_id: str) -> Response:
    """Answer the picture that belongs to an id."""
    picture = pictures.draw(normalize_uuid(token_id, "token id"))
    response = Response(picture, mimetype="image/svg+xml")
    response.headers["Content-Security-Policy"] = "default-src 'none'"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "public, max-age=86400"
    return response


def index() -> Response:
    """Tell a person who opens the address what can be asked here."""
    return jsonify(about="nftsync sandbox: a local stand-in for the provider", calls=_CALLS)


def _sandbox() -> Sandbox:
    sandbox: Sandbox = current_app.extensions[EXTENSION]
    return sandbox


def _meet_faults() -> Response | None:
    if not request.path.startswith(_PROVIDER_PATHS):
        return None
    sandbox = _sandbox()
    sandbox.requests.add(request.endpoint or "other")
    refusal = sandbox.faults.meet()
    if refusal is None:
        return None
    response = _error(refusal.status, refusal.error)
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
    return response


def _conditional(answer: Answer) -> Response:
    response = _json(answer.body)
    response.set_etag(answer.etag)
    response.make_conditional(request)
    return response


def _json(body: bytes) -> Response:
    return Response(body, mimetype="application/json")


def _error(status: int, message: str) -> Response:
    response = jsonify(error=message)
    response.status_code = status
    return response


def _http_error(error: HTTPException) -> Response:
    response = _error(error.code or 500, error.description or error.name)
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _input_error(error: InputError) -> Response:
    return _error(400, str(error))
