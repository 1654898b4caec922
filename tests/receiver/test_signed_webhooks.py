"""A webhook's signature, and its body: the fields, or a reason that is safe to store."""

from __future__ import annotations

import base64
import json
import sqlite3
import uuid
from contextlib import closing
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync.provider.webhooks import Unusable, Webhook, read_webhook, sign, verify
from tests.receiver.conftest import ORGANIZATION, body, fields

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


@pytest.mark.parametrize(("secret", "content", "made"), OPENSSL)
def test_what_openssl_makes_is_made_and_accepted(secret: str, content: bytes, made: str) -> None:
    assert sign(secret, content) == made
    assert verify(content, made, [secret]) == 0
    assert verify(content, made, ["another", secret]) == 1
    assert verify(content + b" ", made, [secret]) == verify(content, made, ["another"]) == "wrong"


@settings(max_examples=50)
@given(st.binary(max_size=200), headers)
@example(b"x", None)
@example(b"x", "")
def test_no_other_header_is_accepted(content: bytes, header: str | None) -> None:
    """Nor another spelling of the same bytes."""
    good = sign("secret", content)
    if header != good:
        assert verify(content, header, ["secret"]) in {"missing", "malformed", "wrong"}
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = good[:42] + digits[digits.index(good[42]) ^ 1] + "="
    assert base64.b64decode(twin) == base64.b64decode(good)
    assert verify(content, twin, ["secret"]) == "wrong"
    for other in (f" {good}", f"{good}\n", good.rstrip("="), f"{good}=", f"{good}, {good}"):
        assert verify(content, other, ["secret"]) == "malformed"


def assert_storable(read: Webhook | Unusable) -> None:
    """What came out can be bound to SQLite, comes back as it was, and a reason is one safe line."""
    webhook = read.webhook if isinstance(read, Unusable) else read
    texts = [x for x in (webhook or ()) if x is not None]
    if isinstance(read, Unusable):
        assert read.reason.isprintable()
        assert 0 < len(read.reason) <= 200
        texts.append(read.reason)
    with closing(sqlite3.connect(":memory:")) as connection:
        for text in texts:
            found = connection.execute("SELECT ?, length(?)", (text, text)).fetchone()
            assert found == (text, len(text))
        if webhook is not None and webhook.changes is not None:
            assert connection.execute("SELECT json_valid(?)", (webhook.changes,)).fetchone() == (1,)


def reason(content: bytes, organization_id: str | None = None) -> str:
    read = read_webhook(content, organization_id)
    assert isinstance(read, Unusable), read
    assert_storable(read)
    return read.reason


def test_all_fields_are_read_ids_in_lower_case_and_changes_to_the_letter() -> None:
    sent = fields(id=str(uuid.uuid4()).upper(), futureField={"x": [1]}, changes="HERE")
    changes = '{"amount": 1.10, "n":123456789012345678901234567890e-2, "\\u00e4": {"b": [ ]}}'
    for text in ("null", changes):
        content = json.dumps(sent).replace('"HERE"', text).encode()
        read = read_webhook(content, ORGANIZATION.upper())
        ids = (sent["id"].lower(), ORGANIZATION)
        texts = ("create", "Wallet", sent["resourceId"], sent["createdAtUtc"])
        assert read == Webhook(*ids, *texts, None if text == "null" else changes)


@pytest.mark.parametrize("name", [name for name in fields() if name != "changes"])
def test_a_required_field_that_is_missing_or_of_another_type_is_named(name: str) -> None:
    left = {key: value for key, value in fields().items() if key != name}
    assert reason(json.dumps(left).encode()) == f"{name}: missing"
    for value in (None, 1, True, 1.5, [], {}, ["x"]):
        assert reason(body(**{name: value})).startswith(f"{name}: expected a string")


NO_UUIDS = [
    *("", "..", "../../v1/admin", f"{ORGANIZATION}/../x", ORGANIZATION.replace("-", "%2f", 1)),
    *(f"{ORGANIZATION}\r\nHost: x", f"{ORGANIZATION}\n", f" {ORGANIZATION}"),
    *(f"{{{ORGANIZATION}}}", ORGANIZATION.replace("-", ""), ORGANIZATION.replace("0", "０", 1)),
    *(f"{ORGANIZATION},{ORGANIZATION}", "x" * 100_000),
]
HARMFUL = ["a\x00b", "a\nb", "a\x1b[2Jb", "\x7f", "\x9b", "x" * 201]


def test_an_id_that_is_no_uuid_and_a_text_that_could_do_harm_are_refused() -> None:
    for value in NO_UUIDS:
        for name in ("organizationId", "id", "resourceId"):
            assert reason(body(**{name: value})).endswith("is not a UUID")
    for value in HARMFUL:
        for name in ("resourceType", "action", "createdAtUtc"):
            assert reason(body(**{name: value})).startswith(f"{name}: ")
    for changes in ([], "x", 1, True, [{}]):
        assert reason(body(changes=changes)).startswith("changes: expected an object or null")


def _with_changes(text: str) -> bytes:
    return body(changes="HERE").replace(b'"HERE"', text.encode())


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b'"x"', b"1", b"{", b"{}x"),
        b"\xef\xbb\xbf" + body(),
        body().decode().encode("utf-16"),
        body().decode().encode("utf-16-le"),
        body().replace(b"create", b"cr\xffate"),
        body().replace(b"create", b"cr\xed\xa0\x80ate"),
        body().replace(b"create", b"\\ud800"),
        body().replace(b"create", b"a\nb"),
        body(other="HERE").replace(b'"HERE"', b'"\\udc00\\ud800"'),
        _with_changes('{"a": NaN}'),
        _with_changes('{"a": -Infinity}'),
        _with_changes('{"a": 1, "a": 2}'),
        _with_changes('{"b": {"a": 1, "\\u0061": 2}}'),
        _with_changes('{"\\ud83d": 1}'),
        _with_changes('{"a": ' + "9" * 5_000 + "}"),
        _with_changes('{"a": 1.' + "9" * 5_000 + "}"),
        _with_changes('{"a":' * 100_000 + "1" + "}" * 100_000),
        _with_changes("[" * 100_000),
        body(other="HERE").replace(b'"HERE"', b"[" * 100_000 + b"]" * 100_000),
        body().replace(b'"action"', b'"id"'),
        body()[:-1] + b', "action": "x"}',
    ],
)
def test_what_is_no_plain_json_object_is_unusable(content: bytes) -> None:
    reason(content)


def test_a_body_made_to_take_long_is_judged_as_fast_as_any() -> None:
    """In time that grows with the square of their size, these would take minutes."""
    for opening in (b"[" * 201, b"[" * 150 + b'"' + b"[" * 150):
        content = opening + b'"' + b'\\"' * 130_000
        assert reason(content).startswith(("nested more than 200", "not JSON"))
    keys = ", ".join(f'"{number}": 0' for number in [*range(200_000), 199_999])
    assert reason(_with_changes(f"{{{keys}}}")) == "the key '199999' appears twice"


def test_another_organization_is_refused_but_its_fields_are_read() -> None:
    content = body()
    read = read_webhook(content, str(uuid.UUID(int=5)))
    assert isinstance(read, Unusable)
    assert read.reason == f"it is for another organization, {ORGANIZATION}"
    assert read.webhook == read_webhook(content, None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@example({}, False, [(0, b"\xff\x00{")])
@given(
    st.dictionaries(st.sampled_from([*fields(), "other"]), json_values, max_size=3),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=3),
)
def test_good_webhooks_with_anything_put_into_them_are_read_or_refused(
    changed: dict[str, Any], escaped: bool, edits: list[tuple[int, bytes]]
) -> None:
    text = json.dumps(fields() | changed, ensure_ascii=escaped)
    content = bytearray(text.encode("utf-8", "surrogatepass"))
    for place, put in edits:
        content[place : place + len(put)] = put
    read = read_webhook(bytes(content), None)
    assert_storable(read)
    if isinstance(read, Webhook) and read.changes is not None:
        assert json.loads(read.changes) == json.loads(content)["changes"]
