"""Reads of webhooks' objects, and which failures say that the provider itself is down."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from provider import MakeClient, Provider, Sender, raw, reply, silence, token, uuid, wallet

from nftsync.errors import InputError, UnusableAnswer
from nftsync.provider.client import Client
from nftsync.provider.wire import CutShort, check_object
from nftsync.pull.reads import AnyTask, ObjectTask, TokenTask, WalletTask, read
from nftsync.records import Effort, ObjectRead, SequenceNumbers, TokenRead, WalletRead

PATH = f"/v1/transactions/{uuid(1)}"
TASKS: list[AnyTask] = [
    WalletTask(wallet(1)),
    TokenTask(token(1)),
    ObjectTask("Transaction", uuid(1), PATH),
]
each_kind = pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)


def read_one(client: Client, task: AnyTask) -> WalletRead | TokenRead | ObjectRead:
    return read(client, SequenceNumbers(0, 6), task)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b' {"a": [1, {"b": null}], "a": 2} \n',
        b'{"amount": ' + b"9" * 5_000 + b"}",
        b'{"x": 1e999, "y": -0.10}',
        '{"name": "\u00e9\\u0000\\ud83d\\ude00"}'.encode(),
    ],
)
def test_an_object_is_kept_as_it_was_sent(
    provider: Provider, make_client: MakeClient, body: bytes
) -> None:
    provider.bodies[PATH] = body
    found = read_one(make_client(), ObjectTask("Transaction", uuid(1), PATH))
    assert isinstance(found, ObjectRead)
    assert (found.resource_type, found.resource_id) == ("Transaction", uuid(1))
    assert (found.outcome, found.body, found.error) == ("ok", body.decode(), None)
    assert (found.effort, found.provider_down) == (Effort(1, 0), False)
    assert found.sequence > 6
    assert found.started_at.endswith("Z")
    (seen,) = provider.requests()
    assert (seen.method, seen.path, seen.body) == ("GET", PATH, b"")


LIES: dict[str, tuple[Sender, str]] = {
    "no object": (reply(b"[1]"), r"^\$: expected `?object"),
    "null": (reply(b"null"), r"^\$: expected `?object"),
    "text": (reply(b'"x"'), r"^\$: expected `?object"),
    "HTML": (reply(b"<html>"), "it looks like HTML"),
    "NaN": (reply(b'{"a": NaN}'), "not JSON"),
    "two objects": (reply(b"{} {}"), "not JSON"),
    "UTF-16": (reply("{}".encode("utf-16")), "not UTF-8"),
    "Latin-1": (reply(b'{"a": "\xe9"}'), "not UTF-8"),
    "a mark before it": (reply(b"\xef\xbb\xbf{}"), "not JSON"),
    "a NUL": (reply(b'{"a": "\0"}'), "not JSON"),
    "deep": (reply(b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}"), "nested over 200"),
    "bottomless": (reply(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "nested"),
    "nothing": (reply(b""), "the body is empty"),
    "half": (reply(b'{"a": '), "cut short"),
    "a redirect": (reply(status=302, location="/"), "redirect"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_object_fails_the_read_and_not_the_provider(
    provider: Provider, make_client: MakeClient, lie: str
) -> None:
    answer, message = LIES[lie]
    provider.always(answer)
    with pytest.raises(UnusableAnswer, match=message.replace("`?", ".?")):
        make_client(attempts=2).object(PATH, Effort())
    found = read_one(make_client(attempts=2), TASKS[2])
    assert isinstance(found, ObjectRead)
    assert (found.outcome, found.body, found.provider_down) == ("failed", None, False)
    assert found.error


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_body_is_an_object_or_refused(body: bytes) -> None:
    try:
        kept = check_object(body)
    except UnusableAnswer:
        return
    assert isinstance(json.loads(kept.decode()), dict)


objects = st.dictionaries(
    st.text(st.characters(codec="utf-8")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    ),
    max_size=4,
)


@settings(deadline=None)
@given(objects)
def test_any_object_is_kept(value: dict[str, object]) -> None:
    body = json.dumps(value).encode()
    if b"\\ud" not in body:
        assert check_object(body) == body


@settings(deadline=None)
@given(objects.map(lambda value: json.dumps(value).encode()), st.data())
def test_an_object_cut_anywhere_is_cut_short(body: bytes, data: st.DataObject) -> None:
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(CutShort):
        check_object(cut)


@pytest.mark.parametrize(
    "path", ["", "v1", "http://h/x", "/a b", "/a\r\nX: y", "/\u00e9", "/a\0", "/a\n"]
)
def test_a_path_that_is_not_encoded_is_never_sent(
    provider: Provider, make_client: MakeClient, path: str
) -> None:
    with pytest.raises(InputError, match="is no encoded path"):
        make_client().object(path, Effort())
    assert provider.requests() == []


# The provider is down ---------------------------------------------------------------------------

DOWN: dict[str, Sender] = {
    **{str(status): reply(status=status) for status in (401, 403, 429, 500, 502, 503, 504, 599)},
    "asks for a day": reply(status=503, retry_after="86400"),
    "asks for a day, with 429": reply(status=429, retry_after="86400"),
    "closes": raw(),
    "resets": raw(then="reset"),
    "breaks off": reply(b"{}", length=9),
    "keeps silent": silence(),
}


@each_kind
@pytest.mark.parametrize("fault", DOWN)
def test_a_provider_that_refuses_everybody_or_gives_no_answer_is_down(
    provider: Provider, make_client: MakeClient, fault: str, task: AnyTask
) -> None:
    provider.always(DOWN[fault])
    found = read_one(make_client(attempts=1, timeout=0.5), task)
    assert (found.outcome, found.provider_down) == ("failed", True)


NOT_DOWN: dict[str, Sender] = {
    **{str(status): reply(status=status) for status in (301, 304, 400, 404, 409, 410, 422)},
    "not JSON": reply(b"<html>"),
    "half a body": reply(b'{"a'),
    "half a packed body": reply(gzip.compress(b'{"a": 1}')[:-9], content_encoding="gzip"),
    "packed wrongly": reply(b"{}", content_encoding="br"),
    "an endless body": reply(b" " * 2_000_000),
}


@each_kind
@pytest.mark.parametrize("fault", NOT_DOWN)
def test_an_object_that_is_unknown_or_unusable_says_nothing_of_the_provider(
    provider: Provider, make_client: MakeClient, fault: str, task: AnyTask
) -> None:
    provider.always(NOT_DOWN[fault])
    found = read_one(make_client(attempts=1, max_bytes=1_000_000), task)
    assert (found.outcome, found.provider_down) == ("failed", False)
