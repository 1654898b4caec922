"""The provider's calls as a WSGI app (provider's document, section Endpoints), and `/sandbox/`."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING

from flask import Flask, Response, current_app, jsonify, request
from werkzeug.exceptions import HTTPException

from nftsync.errors import InputError, StoreError
from nftsync.models import normalize_uuid
from nftsync.sandbox import control_calls, pictures
from nftsync.sandbox.control import RequestCounts, Sandbox, open_sandbox
from nftsync.sandbox.control_calls import EXTENSION, json_response
from nftsync.sandbox.faults import Faults

if TYPE_CHECKING:
    from nftsync.sandbox.answers import Answer
    from nftsync.sandbox.world import World

__all__ = ["EXTENSION", "RequestCounts", "Sandbox", "create_app"]

_PROVIDER_PATHS = ("/v1/", "/api/")
_CALLS = {
    "GET /v1/wallets/{walletId}/nft-balances": "what a wallet holds",
    "GET /v1/tokens/{tokenId}": "one token with its metadata",
    "GET /sandbox/wallets": "the ids of all wallets",
    "GET /sandbox/images/{tokenId}.svg": "a token's picture",
    **control_calls.CALLS,
}
#: The greatest body of a request, in bytes.
_MOST_BYTES = 4 * 1024 * 1024


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

    Its `Sandbox` is at `app.extensions[EXTENSION]`: webhooks leave once that is started, and
    whoever makes the app closes it.

    Args:
        world: what it answers from, or what makes it; see `open_sandbox`.
        latency: seconds before each of the provider's answers.
        fail_rate: the share of the provider's answers that are a 500 or 503, from 0 to 1.
        rate_limit: requests per second to the provider's calls before a 429; None is no limit.
        seed: which requests fail, and how retries spread, is drawn from it.
        time_scale: what the waits between a webhook's attempts are multiplied by.
        state: a file that keeps the sandbox over restarts; see `open_sandbox`.

    Raises:
        InputError: a figure is out of its range, or the state file cannot be used.
        StoreError: the state file cannot be written.
    """
    faults = Faults(latency=latency, fail_rate=fail_rate, rate_limit=rate_limit, seed=seed)
    sandbox = open_sandbox(world, faults=faults, time_scale=time_scale, state=state, seed=seed)
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    app.extensions[EXTENSION] = sandbox
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(InputError, _input_error)
    app.register_error_handler(StoreError, _store_error)
    app.before_request(_meet_faults)
    app.add_url_rule("/v1/wallets/<wallet_id>/nft-balances", view_func=balances)
    app.add_url_rule("/v1/tokens/<token_id>", view_func=token)
    app.add_url_rule("/sandbox/wallets", view_func=wallets)
    app.add_url_rule("/sandbox/images/<token_id>.svg", view_func=image)
    app.add_url_rule("/", view_func=index)
    app.register_blueprint(control_calls.blueprint())
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
    return json_response(_sandbox().world.wallets())


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
    sandbox.requests.add((request.endpoint or "other").removeprefix("control."))
    refusal = sandbox.faults.meet()
    if refusal is None:
        return None
    response = _error(refusal.status, refusal.error)
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
    return response


def _conditional(answer: Answer) -> Response:
    response = Response(answer.body, mimetype="application/json")
    response.set_etag(answer.etag)
    response.make_conditional(request)
    return response


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


def _store_error(error: StoreError) -> Response:
    return _error(500, str(error))
