import base64
import hashlib
import json
import sqlite3
import uuid
from contextlib import closing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync.provider.webhooks import Unusable, Webhook, read_webhook, sign, verify
from tests.kit.serve_process import ORGANIZATION
from tests.receiver.conftest import body, fields

#: secret, body, and what `openssl dgst -sha256 -mac HMAC -macopt hexkey:... -binary | openssl
#: base64` made of them.
OPENSSL = [
    ("secret", b'{"id":"1"}', "YUYUKizgFZ6EwHZ4geTsgLw5faYlJufRn3B5XreUYMA="),
    ("secret", b"", "+eZuF5tnR65UEI+C+K3os8Jddv0wr95sOVgixTAZYWk="),
    ("Schlüssel-鍵-🔑", b"k\xc3\xb6rper\n\0\xff", "ba29cfjfa54FJJIx928NexyUrrBwDLJGyzFIM6Hetlk="),
    ("k" * 100, b"a longer key than a block", "CrRsboPdLpY87v6JX6qnRrY5hoKAh+HKcOaAYseHRbg="),
    (" padded secret ", b'{"changes":null}', "RNd5EcUcekW0TKaz4L/RxA4MKpHAV/YZDQqqCpbf3zM="),
]

#: As a header arrives: any bytes, read as latin-1; and texts that no header can be.
headers = st.none() | st.text(st.characters(max_codepoint=255)) | st.text()


@pytest.mark.parametrize(("secret", "content", "made"), OPENSSL)
def test_what_openssl_makes_is_made_and_accepted(secret, content, made):
    assert sign(secret, content) == made
    assert verify(content, made, [secret]) == 0
    assert verify(content, made, ["another", secret]) == 1
    assert verify(content + b" ", made, [secret]) == verify(content, made, ["another"]) == "wrong"


@settings(max_examples=50)
@given(st.binary(max_size=200), headers)
@example(b"x", None)
@example(b"x", "")
def test_no_other_header_is_accepted(content, header):
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
    """Values survive SQLite unchanged, and a reason is one safe line."""
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


def usable(content: bytes, organization_id: str | None = None) -> Webhook:
    read = read_webhook(content, organization_id)
    assert isinstance(read, Webhook), read
    assert_storable(read)
    return read


def test_all_fields_are_read_ids_in_lower_case_and_changes_to_the_letter():
    sent = fields(id=str(uuid.uuid4()).upper(), futureField={"x": [1]}, changes="HERE")
    changes = '{"amount": 1.10, "n":123456789012345678901234567890e-2, "\\u00e4": {"b": [ ]}}'
    for text in ("null", changes, "[1, 2]", '"text"', "1.50", "true", '{"a": 1, "a": 2}'):
        content = json.dumps(sent).replace('"HERE"', text).encode()
        read = read_webhook(content, ORGANIZATION.upper())
        ids = (sent["id"].lower(), ORGANIZATION)
        texts = ("update", "Wallet", sent["resourceId"], sent["createdAtUtc"])
        assert read == Webhook(*ids, *texts, None if text == "null" else text)


#: Values of any type, as JSON or what some writers take for it.
ODD = [
    *(None, 1, True, 1.5, 2**70, float("nan"), float("-inf"), [], {}, ["x"], "", "  "),
    *("a\x00b", "a\nb", "a\x1b[2Jb", "\x9b", "x" * 201, "\ud800", "\udc00\ud800"),
    *({"resourceId": 1, "resourceType": [{"id": "}"}]}, [[{}] * 50] * 50),
]


def _with(text: bytes, name: str = "x") -> bytes:
    return body(**{name: "HERE"}).replace(b'"HERE"', text)


ANYTHING = [
    *(b"NaN", b"[-Infinity]", b"9" * 5_000, b"1." + b"9" * 5_000, b"1e999999", b"-0", b"0x10"),
    *(b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    *(b'"\xff"', b'"cut \xe9\x8d"', b'{"\xff": ["\xed\xa0\x80"]}', b'"\\ud800"', b'"a\tb\nc"'),
    *(b'{"a": 1, "a": 2}', b'{"b": {"a": 1, "\\u0061": 2}}', b'"\\x"', b"undefined", b"{,}"),
]


COLUMNS = {
    "action": "action",
    "changes": "changes",
    "organizationId": "organization_id",
    "createdAtUtc": "created_at_utc",
}


@pytest.mark.parametrize("name", [*COLUMNS, "id", "x"])
def test_other_fields_than_type_and_id_of_the_object_may_be_anything(name):
    """Only a field that cannot be kept as JSON text stays empty; the body has it as it came."""
    odd = [_with(json.dumps(value).encode(), name) for value in ODD]
    absent = json.dumps({key: value for key, value in fields().items() if key != name}).encode()
    for content in (absent, *odd, *(_with(text, name) for text in ANYTHING)):
        read = usable(content)
        assert read.resource_type == "Wallet"
        assert read.resource_id.encode() in content
        digest = hashlib.sha256(content).hexdigest()
        assert (read.webhook_id == digest) if name == "id" else read.webhook_id.encode() in content
        if name in {"action", "organizationId", "createdAtUtc"} and content in odd:
            assert getattr(read, COLUMNS[name]) is None


def test_a_body_may_begin_with_a_byte_order_mark_or_be_of_another_unicode_encoding():
    sent = body(changes={"name": "Schlüssel"})
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        assert usable(sent.decode().encode(encoding)) == usable(sent)


def test_a_field_that_is_repeated_counts_once_and_a_needed_one_not_with_two_values():
    content = body()[:-1]
    other = str(uuid.uuid4()).encode()
    assert usable(content + b', "action": "last", "x": 1, "x": 2}').action == "last"
    again = json.loads(content + b"}")["resourceId"].encode()
    assert usable(content + b', "resourceId":"' + again + b'"}').resource_id == again.decode()
    for more in (b'"resourceId": "' + other + b'"', b'"resourceType": "Token"'):
        assert "several" in reason(content + b", " + more + b"}")


SPELLINGS = ["{}", " {}\n", "{{{}}}", "urn:uuid:{}", "\u00a0{}"]


def test_another_spelling_of_a_uuid_is_that_uuid():
    for spelling in SPELLINGS:
        for text in (ORGANIZATION.upper(), ORGANIZATION.replace("-", "")):
            ids = dict.fromkeys(("id", "resourceId", "organizationId"), spelling.format(text))
            read = usable(body(**ids), ORGANIZATION)
            assert {read.webhook_id, read.resource_id, read.organization_id} == {ORGANIZATION}
    assert usable(body(resourceType=" Wallet ")).resource_type == "Wallet"


NO_UUIDS = [
    *("", "..", "../../v1/admin", f"{ORGANIZATION}/../x", ORGANIZATION.replace("-", "%2f", 1)),
    *(f"{ORGANIZATION}\r\nHost: x", ORGANIZATION.replace("-", "\u2010"), "0x" + "1" * 30),
    *(ORGANIZATION.replace("0", "０", 1), f"{ORGANIZATION},{ORGANIZATION}", "x" * 100_000),
]
HARMFUL = ["", " ", "a\x00b", "a\nb", "a\x1b[2Jb", "a\x7fb", "a\x9bb", "x" * 201]


def test_a_type_or_id_of_the_object_that_cannot_be_used_is_named():
    for name in ("resourceType", "resourceId"):
        left = {key: value for key, value in fields().items() if key != name}
        assert reason(json.dumps(left).encode()).startswith(f"{name}: expected")
        for value in (None, 1, True, 1.5, [], {}, ["x"], float("nan")):
            assert reason(body(**{name: value})).startswith(f"{name}: ")
        for value in NO_UUIDS if name == "resourceId" else HARMFUL:
            assert reason(body(**{name: value})).startswith(f"{name}: expected")


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"null", b"[]", b'"x"', b"1", b"{", b"}", b"{}x", b"\xff\x00{", b"[" * 100_000),
        *(body()[:-1], body()[:-2], body() + b"}", body() * 2, b"[" + body() + b"]", body()[1:]),
        *(body().replace(b",", b";"), body().replace(b":", b"=", 1), body()[:-1] + b",}"),
        *(b"resourceType=Wallet&resourceId=" + ORGANIZATION.encode(), b"<xml/>", _with(b"[[1]")),
        *(b"\x1f\x8b\x08\x00packed", _with(b"1 2"), _with(b'"x')),
    ],
)
def test_what_is_no_json_object_is_unusable(content):
    assert reason(content) == "not a JSON object"


def test_a_body_made_to_take_long_is_judged_as_fast_as_any():
    """In time that grows with the square of their size, these would take minutes."""
    for opening in (b"[" * 201, b"[" * 150 + b'"' + b"[" * 150, b"{"):
        assert reason(opening + b'"' + b'\\"' * 130_000) == "not a JSON object"
    keys = ", ".join(f'"{number}": NaN' for number in [*range(20_000), 19_999])
    usable(_with(f"{{{keys}}}".encode()))
    usable(body()[:-1] + f", {keys}}}".encode())


def test_another_organization_is_refused_with_its_fields_and_none_is_any():
    content = body()
    other = str(uuid.UUID(int=5))
    read = read_webhook(content, other)
    assert isinstance(read, Unusable)
    assert read.reason == f"it is for another organization, {ORGANIZATION}"
    assert read.webhook == read_webhook(content, None)
    for value in (None, 1, "", "none", [], {}):
        assert usable(body(organizationId=value), ORGANIZATION).organization_id is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80)
@example({}, False, [(0, b"\xff\x00{")])
@given(
    st.dictionaries(st.sampled_from([*fields(), "other"]), json_values, max_size=3),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=3),
)
def test_a_type_and_an_id_are_enough_and_other_bytes_are_read_or_refused(changed, escaped, edits):
    for needed in ({"resourceType": "Wallet", "resourceId": ORGANIZATION}, {}):
        text = json.dumps(fields() | changed | needed, ensure_ascii=escaped)
        content = bytearray(text.encode("utf-8", "surrogatepass"))
        if needed:
            read = usable(bytes(content))
            assert (read.resource_type, read.resource_id) == ("Wallet", ORGANIZATION)
            if read.changes is not None:
                assert json.loads(read.changes) == json.loads(text)["changes"]
        for place, put in edits:
            content[place : place + len(put)] = put
        assert_storable(read_webhook(bytes(content), None))
