"""Signatures: the reference implementation of Standard Webhooks verifies ours."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from nftsync.errors import InputError
from nftsync.watch.signing import key_of, signature

secrets = st.binary(min_size=24, max_size=64).map(
    lambda key: f"whsec_{base64.b64encode(key).decode()}"
)
bodies = st.text().map(str.encode)
ids = st.uuids().map(lambda number: f"msg_{number.hex}")


def signed(secrets: list[str], message_id: str, body: bytes) -> tuple[int, str]:
    timestamp = int(time.time())
    return timestamp, signature(secrets, message_id, timestamp, body)


def verify(secret: str, message_id: str, signed: tuple[int, str], body: bytes) -> None:
    timestamp, header = signed
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": header,
    }
    Webhook(secret).verify(body, headers, json_parse=False)


@given(secret=secrets, message_id=ids, body=bodies)
def test_the_reference_implementation_verifies_a_signature(secret, message_id, body):
    header = signed([secret], message_id, body)
    verify(secret, message_id, header, body)
    with pytest.raises(WebhookVerificationError):
        verify(secret, message_id, header, body + b" ")
    with pytest.raises(WebhookVerificationError):
        verify(secret, f"{message_id}0", header, body)


@given(pair=st.lists(secrets, min_size=2, max_size=2, unique=True), other=secrets, body=bodies)
def test_during_a_rotation_either_secret_verifies_and_no_other(pair, other, body):
    header = signed(pair, "msg_1", body)
    for secret in pair:
        verify(secret, "msg_1", header, body)
    # HMAC pads a key with zeros, so some secrets are equal.
    if key_of(other).ljust(64, b"\0") not in {key_of(x).ljust(64, b"\0") for x in pair}:
        with pytest.raises(WebhookVerificationError):
            verify(other, "msg_1", header, body)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        base64.b64encode(bytes(24)).decode(),  # without the prefix
        f"whsec_{base64.b64encode(bytes(23)).decode()}",
        f"whsec_{base64.b64encode(bytes(65)).decode()}",
        f"whsec_{base64.b64encode(bytes(24)).decode()}\n",
        f"whsec_{base64.b64encode(bytes(25)).decode().rstrip('=')}",
        "whsec_" + "é" * 40,
    ],
)
def test_other_secrets_are_refused_and_not_shown(secret):
    message = r"^must be whsec_ and the Base64 of 24 to 64 random bytes$"
    with pytest.raises(InputError, match=message):
        key_of(secret)
