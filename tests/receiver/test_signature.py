"""Signatures: what OpenSSL makes is accepted, and nothing else is."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync.provider.webhooks import sign, verify

#: secret, body, and what `openssl dgst -sha256 -mac HMAC -macopt hexkey:... -binary | openssl
#: base64` made of them.
OPENSSL = [
    ("secret", b'{"id":"1"}', "YUYUKizgFZ6EwHZ4geTsgLw5faYlJufRn3B5XreUYMA="),
    ("secret", b"", "+eZuF5tnR65UEI+C+K3os8Jddv0wr95sOVgixTAZYWk="),
    (
        "Schlüssel-鍵-🔑",
        "körper\n".encode() + b"\x00\xff",
        "ba29cfjfa54FJJIx928NexyUrrBwDLJGyzFIM6Hetlk=",
    ),
    ("k" * 100, b"a longer key than a block", "CrRsboPdLpY87v6JX6qnRrY5hoKAh+HKcOaAYseHRbg="),
    (" padded secret ", b'{"changes":null}', "RNd5EcUcekW0TKaz4L/RxA4MKpHAV/YZDQqqCpbf3zM="),
]

#: As a header arrives: any bytes, read as latin-1; and texts that no header can be.
headers = st.none() | st.text(st.characters(max_codepoint=255)) | st.text()


@pytest.mark.parametrize(("secret", "body", "made"), OPENSSL)
def test_what_openssl_makes_is_made_and_accepted(secret: str, body: bytes, made: str) -> None:
    assert sign(secret, body) == made
    assert verify(body, made, [secret]) == 0
    assert verify(body, made, ["another", secret]) == 1
    assert verify(body + b" ", made, [secret]) == verify(body, made, ["another"]) == "wrong"


@settings(max_examples=50)
@given(st.binary(max_size=200), headers)
@example(b"x", None)
@example(b"x", "")
def test_no_other_header_is_accepted(body: bytes, header: str | None) -> None:
    """Nor another spelling of the same bytes."""
    good = sign("secret", body)
    if header != good:
        assert verify(body, header, ["secret"]) in {"missing", "malformed", "wrong"}
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = good[:42] + digits[digits.index(good[42]) ^ 1] + "="
    assert base64.b64decode(twin) == base64.b64decode(good)
    assert verify(body, twin, ["secret"]) == "wrong"
    for other in (f" {good}", f"{good}\n", good.rstrip("="), f"{good}=", f"{good}, {good}"):
        assert verify(body, other, ["secret"]) == "malformed"
