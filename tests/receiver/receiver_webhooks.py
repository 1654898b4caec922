"""Webhooks as the service sends them, for the tests of the receiver."""

from __future__ import annotations

import json
import uuid
from typing import Any

from nftsync.provider.webhooks import HEADER, sign

SECRET = "a secret that never shows"
ORGANIZATION = "00000000-0000-4000-8000-00000000000a"


def fields(**changed: Any) -> dict[str, Any]:
    """The fields of a good webhook with a new id."""
    return {
        "organizationId": ORGANIZATION,
        "action": "create",
        "id": str(uuid.uuid4()),
        "resourceId": str(uuid.uuid4()),
        "resourceType": "Wallet",
        "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
        "changes": None,
    } | changed


def body(**changed: Any) -> bytes:
    """The body of a good webhook with a new id."""
    return json.dumps(fields(**changed)).encode()


def headers(content: bytes, secret: str = SECRET) -> dict[str, str]:
    """The headers it is signed with."""
    return {HEADER: sign(secret, content), "Content-Type": "application/json; charset=utf-8"}


def raw(content: bytes, *lines: str, secret: str = SECRET) -> bytes:
    """A signed request as it goes over the wire."""
    head = [
        "POST /webhooks HTTP/1.1",
        "Host: receiver",
        f"{HEADER}: {sign(secret, content)}",
        f"Content-Length: {len(content)}",
        *lines,
    ]
    return "\r\n".join([*head, "", ""]).encode() + content
