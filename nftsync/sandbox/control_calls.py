"""The calls that drive the simulation, and the webhook configuration's: JSON in and out."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from flask import Blueprint, Response, current_app, request

from nftsync.sandbox.control import Sandbox
from nftsync.sandbox.inputs import decode_body
from nftsync.sandbox.webhook_faults import FAULTS_TEXT
from nftsync.sandbox.webhooks import Changes

__all__ = ["CALLS", "CONFIG_PATH", "EXTENSION", "blueprint", "json_response"]

#: Where an app keeps its `Sandbox`: `app.extensions[EXTENSION]`.
EXTENSION = "nftsync_sandbox"

#: The webhook configuration's path (provider's document, section Endpoints).
CONFIG_PATH = "/api/organization/v1/current-organization/webhook-config"

#: What each call is for, for the front page.
CALLS = {
    f"PATCH {CONFIG_PATH}": "where webhooks go: url, enabled, sharedSecret, webhookTypes",
    "POST /sandbox/transfer": "moves NFTs: fromWalletId, toWalletId, tokenId, amount",
    "POST /sandbox/mint": "makes a token: walletId, amount, metadata",
    "POST /sandbox/tokens/{tokenId}": "changes a token's metadata: metadata",
    "POST /sandbox/emit": "sends one webhook: type, resourceType, resourceId, action, changes",
    "GET /sandbox/deliveries": "each webhook with its attempts, newest last",
    "POST /sandbox/faults": f"lets the next webhooks go wrong: webhooks, a list of {FAULTS_TEXT}",
}

_Amount: TypeAlias = int | str


class _Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pass


class _Transfer(_Body):
    from_wallet_id: str
    to_wallet_id: str
    token_id: str
    amount: _Amount


class _Mint(_Body):
    wallet_id: str
    amount: _Amount
    metadata: msgspec.Raw


class _Edit(_Body):
    metadata: msgspec.Raw


class _Emit(_Body):
    type: str
    resource_type: str
    resource_id: str
    action: str
    changes: Changes = None


class _Script(_Body):
    webhooks: list[Any]


def configure() -> Response:
    """Change the webhook configuration; the answer is the sandbox's own (document: not shown)."""
    return json_response(_sandbox().configure(request.get_data()).shown())


def transfer() -> Response:
    """Move NFTs."""
    given = decode_body(request.get_data(), _Transfer, "transfer")
    return _caused(
        _sandbox().transfer(given.from_wallet_id, given.to_wallet_id, given.token_id, given.amount)
    )


def mint() -> Response:
    """Make a token."""
    given = decode_body(request.get_data(), _Mint, "mint")
    token, webhooks = _sandbox().mint(given.wallet_id, given.amount, given.metadata)
    return _caused(webhooks, tokenId=token)


def edit_metadata(token_id: str) -> Response:
    """Change a token's metadata."""
    given = decode_body(request.get_data(), _Edit, "change")
    return _caused(_sandbox().edit_metadata(token_id, given.metadata))


def emit() -> Response:
    """Send one webhook."""
    given = decode_body(request.get_data(), _Emit, "webhook")
    return _caused(
        _sandbox().emit(
            given.type, given.resource_type, given.resource_id, given.action, given.changes
        )
    )


def deliveries() -> Response:
    """List the webhooks."""
    return json_response(_sandbox().deliveries())


def script() -> Response:
    """Let the next webhooks go wrong."""
    given = decode_body(request.get_data(), _Script, "script")
    _sandbox().script(given.webhooks)
    return json_response({"webhooks": given.webhooks})


def blueprint() -> Blueprint:
    """The calls as a Flask blueprint."""
    calls = Blueprint("control", __name__)
    calls.add_url_rule(CONFIG_PATH, "webhook_config", configure, methods=["PATCH"])
    for path, view in (
        ("transfer", transfer),
        ("mint", mint),
        ("tokens/<token_id>", edit_metadata),
        ("emit", emit),
        ("faults", script),
    ):
        calls.add_url_rule(f"/sandbox/{path}", view_func=view, methods=["POST"])
    calls.add_url_rule("/sandbox/deliveries", view_func=deliveries)
    return calls


def json_response(value: object) -> Response:
    """Answer a value as JSON."""
    return Response(msgspec.json.encode(value) + b"\n", mimetype="application/json")


def _caused(webhooks: list[str], **fields: str) -> Response:
    return json_response({**fields, "webhooks": webhooks})


def _sandbox() -> Sandbox:
    sandbox: Sandbox = current_app.extensions[EXTENSION]
    return sandbox
