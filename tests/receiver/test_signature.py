"""Signatures: what OpenSSL makes is accepted, and nothing else is."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync.provider.webhooks import Accepted, Refused, sign, verify

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

bodies = st.binary(max_size=200)
secrets = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=3)
#: As a header arrives: any bytes, read as latin-1; and texts that no header can be.
headers = st.none() | st.text(st.characters(max_codepoint=255)) | st.text()


@pytest.mark.parametrize(("secret", "body", "made"), OPENSSL)
def test_what_openssl_makes_is_made_and_accepted(secret: str, body: bytes, made: str) -> None:
    assert sign(secret, body) == made
    assert verify(body, made, [secret]) == Accepted(0)
    assert verify(body, made, ["another", secret]) == Accepted(1)
    assert verify(body + b" ", made, [secret]) == Refused("wrong")
    assert verify(body, made, ["another"]) == Refused("wrong")


@settings(max_examples=50)
@given(bodies, headers, secrets)
@example(b"x", None, ["secret"])
@example(b"x", "", ["secret"])
def test_whatever_comes_is_accepted_or_refused_for_a_reason(
    body: bytes, header: str | None, known: list[str]
) -> None:
    verdict = verify(body, header, known)
    right = [sign(secret, body) for secret in known]
    if header in right:
        assert verdict == Accepted(right.index(header))
    else:
        assert isinstance(verdict, Refused)
        assert verdict.reason in ("missing", "malformed", "wrong")


@settings(max_examples=50)
@given(bodies)
def test_other_spellings_of_the_same_bytes_are_refused(body: bytes) -> None:
    good = sign("secret", body)
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = good[:42] + digits[digits.index(good[42]) ^ 1] + "="
    assert base64.b64decode(twin) == base64.b64decode(good)
    assert verify(body, twin, ["secret"]) == Refused("wrong")
    others = [f" {good}", f"{good}\n", good.rstrip("="), f"{good}=", f"{good}, {good}"]
    for other in others:
        assert verify(body, other, ["secret"]) == Refused("malformed")
