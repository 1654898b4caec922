"""The provider's calls as a WSGI app (provider's document, section Endpoints), and `/sandbox/`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING

from flask import Flask, Response, current_app, jsonify, request
from werkzeug.exceptions import HTTPException

from nftsync.errors import InputError, StoreError
from nftsync.records import normalize_uuid
from nftsync.sandbox import control_calls, pictures
from nftsync.sandbox.control import RequestCounts, Sandbox, open_sandbox
from nftsync.sandbox.control_calls import EXTENSION, json_response
from nftsync.sandbox.faults import Faults, Refusal

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

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

_UUID = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_READ = re.compile(f"/v1/(?:wallets/({_UUID})/nft-balances|tokens/({_UUID}))")
#: A single strong validator, of those that `If-None-Match` may name.
_ONE_ETAG = re.compile(r'"[^",]*"')


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
    app.wsgi_app = _short_cut(app, sandbox)  # type: ignore[method-assign, assignment]
    return app


def _short_cut(app: Flask, sandbox: Sandbox) -> WSGIApplication:
    """Answer the provider's reads without what Flask does around a view: most of their time.

    Flask answers what is unusual, and every request where something else is to come before it.
    """
    flask_app = app.wsgi_app
    hooks = app.before_request_funcs[None]

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = _READ.fullmatch(environ["PATH_INFO"])
        known = environ.get("HTTP_IF_NONE_MATCH")
        if (
            path is None
            or environ["REQUEST_METHOD"] != "GET"
            or not (known is None or _ONE_ETAG.fullmatch(known))
            or "HTTP_IF_MATCH" in environ
            or hooks != [_meet_faults]
        ):
            return flask_app(environ, start_response)
        wallet_id, token_id = path.groups()
        sandbox.requests.add("balances" if wallet_id else "token")
        found = sandbox.faults.meet() or (
            _balances(sandbox.world, wallet_id) if wallet_id else _token(sandbox.world, token_id)
        )
        if isinstance(found, Refusal):
            with app.app_context():
                return _refused(found)(environ, start_response)
        etag = f'"{found.etag}"'
        if etag == known:
            start_response("304 NOT MODIFIED", [("ETag", etag)])
            return []
        length = str(len(found.body))
        start_response(
            "200 OK",
            [("Content-Type", "application/json"), ("Content-Length", length), ("ETag", etag)],
        )
        return [found.body]

    return answer


def balances(wallet_id: str) -> Response:
    """Answer what a wallet holds."""
    return _conditional(_balances(_sandbox().world, wallet_id))


def token(token_id: str) -> Response:
    """Answer one token's record."""
    return _conditional(_token(_sandbox().world, token_id))


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
    return None if refusal is None else _refused(refusal)


def _balances(world: World, wallet_id: str) -> Answer | Refusal:
    key = normalize_uuid(wallet_id, "wallet id")
    return world.balances(key) or Refusal(404, f"there is no wallet {key}")


def _token(world: World, token_id: str) -> Answer | Refusal:
    key = normalize_uuid(token_id, "token id")
    return world.token(key) or Refusal(404, f"there is no token {key}")


def _conditional(answer: Answer | Refusal) -> Response:
    if isinstance(answer, Refusal):
        return _refused(answer)
    response = Response(answer.body, mimetype="application/json")
    response.set_etag(answer.etag)
    response.make_conditional(request)
    return response


def _refused(refusal: Refusal) -> Response:
    response = _error(refusal.status, refusal.error)
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
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
