"""Signatures: the reference implementation of Standard Webhooks verifies ours."""

import base64
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from nftsync.errors import InputError
from nftsync.watch.signing import key_of, signature


def written(key: bytes) -> str:
    return f"whsec_{base64.b64encode(key).decode()}"


SECRETS = st.binary(min_size=24, max_size=64).map(written)
IDS = st.uuids().map(lambda number: f"msg_{number.hex}")


@settings(max_examples=30)
@given(st.lists(SECRETS, min_size=1, max_size=2, unique=True), SECRETS, IDS, st.text())
def test_a_signature_verifies_with_each_secret_of_a_rotation_and_nothing_else(
    secrets, other, message_id, text
):
    timestamp, body = int(time.time()), text.encode()
    header = signature(secrets, message_id, timestamp, body)

    def is_verified(secret: str, message_id: str, body: bytes) -> bool:
        names = ("id", "timestamp", "signature")
        values = (message_id, str(timestamp), header)
        headers = {f"webhook-{name}": value for name, value in zip(names, values, strict=True)}
        try:
            Webhook(secret).verify(body, headers, json_parse=False)
        except WebhookVerificationError:
            return False
        return True

    assert all(is_verified(secret, message_id, body) for secret in secrets)
    assert not is_verified(secrets[0], message_id, body + b" ")
    assert not is_verified(secrets[0], f"{message_id}0", body)
    # HMAC pads a key with zeros, so some secrets are equal.
    if key_of(other).ljust(64, b"\0") not in {key_of(x).ljust(64, b"\0") for x in secrets}:
        assert not is_verified(other, message_id, body)


@pytest.mark.parametrize(
    "secret",
    [
        *("", "whsec_", "whsec_" + "é" * 40, f"{written(bytes(24))}\n"),
        *(written(bytes(23)), written(bytes(65)), written(bytes(25)).rstrip("=")),
        written(bytes(24)).removeprefix("whsec_"),
    ],
)
def test_other_secrets_are_refused_and_not_shown(secret):
    message = r"^must be whsec_ and the Base64 of 24 to 64 random bytes$"
    with pytest.raises(InputError, match=message):
        key_of(secret)
