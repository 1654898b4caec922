"""Signatures of messages (Standard Webhooks 1.0)."""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Sequence

from nftsync.errors import InputError

_PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """Return a secret's key; InputError if it is malformed."""
    try:
        key = binascii.a2b_base64(secret.removeprefix(_PREFIX), strict_mode=True)
    except ValueError:
        key = b""
    if not secret.startswith(_PREFIX) or not 24 <= len(key) <= 64:
        raise InputError(f"must be {_PREFIX} and the Base64 of 24 to 64 random bytes")
    return key


def signature(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = [hmac.digest(key_of(secret), signed, "sha256") for secret in secrets]
    return " ".join(f"v1,{binascii.b2a_base64(x, newline=False).decode()}" for x in digests)
