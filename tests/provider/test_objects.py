"""Reads of webhooks' objects, and failures that mean the provider is down."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.errors import InputError, UnusableResponse
from nftsync.provider.client import Client, finish
from nftsync.provider.wire import CutShort, check_object
from nftsync.pull.reads import AnyTask, ObjectTask, TokenTask, WalletTask, read
from nftsync.records import Effort, ObjectRead, SequenceNumbers, TokenRead, WalletRead
from tests.kit.provider import Sender, raw, reply, silence, token, uuid, wallet

PATH = f"/v1/transactions/{uuid(1)}"
TASKS: list[AnyTask] = [
    WalletTask(wallet(1)),
    TokenTask(token(1)),
    ObjectTask("Transaction", uuid(1), PATH),
]


def read_one(client: Client, task: AnyTask) -> WalletRead | TokenRead | ObjectRead:
    return finish(read(client, SequenceNumbers(0, 6), task))


def test_an_object_is_kept_as_it_was_sent(provider, make_client):
    for body in (
        b' {"a": [1, {"b": null}], "a": 2} \n',
        b'{"amount": ' + b"9" * 5_000 + b', "x": 1e999, "y": -0.10}',
        '{"name": "\u00e9\\u0000\\ud83d\\ude00"}'.encode(),
    ):
        provider.bodies[PATH] = body
        found = read_one(make_client(), ObjectTask("Transaction", uuid(1), PATH))
        assert isinstance(found, ObjectRead)
        assert (found.resource_type, found.resource_id) == ("Transaction", uuid(1))
        assert (found.outcome, found.body, found.error) == ("ok", body.decode(), None)
        assert (found.effort, found.provider_down) == (Effort(1, 0), False)
        assert found.sequence > 6
    assert {(x.method, x.path, x.body) for x in provider.requests()} == {("GET", PATH, b"")}


def test_what_is_no_object_fails_the_read_and_not_the_provider(provider, make_client):
    for answer, message in (
        (reply(b"[1]"), r"^\$: expected .?object"),
        (reply(b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}"), "nested more than 200"),
        (reply(b'{"a": '), "cut short"),
    ):
        provider.always(answer)
        with pytest.raises(UnusableResponse, match=message):
            finish(make_client(attempts=2).object(PATH, Effort()))
        found = read_one(make_client(attempts=2), TASKS[2])
        assert (found.outcome, found.body, found.provider_down) == ("failed", None, False)
        assert found.error


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_OBJECTS = st.dictionaries(st.text(max_size=8), _JSON, max_size=3)


@settings(max_examples=60)
@given(
    st.binary(max_size=60) | (_OBJECTS | _JSON).map(lambda value: json.dumps(value).encode()),
    st.data(),
)
def test_any_body_is_an_object_or_refused_and_cut_anywhere_it_is_cut_short(body, data):
    try:
        kept = check_object(body)
    except UnusableResponse:
        return
    assert isinstance(json.loads(kept.decode()), dict)
    assert kept == body or b"\\ud" in body
    with pytest.raises(CutShort):
        check_object(body.strip()[: data.draw(st.integers(0, len(body.strip()) - 1))])


def test_a_path_that_is_not_encoded_is_never_sent(provider, make_client):
    for path in ("", "v1", "http://h/x", "/a b", "/a\r\nX: y", "/\u00e9", "/a\0", "/a\n"):
        with pytest.raises(InputError, match="is not an encoded path"):
            finish(make_client().object(path, Effort()))
    assert provider.requests() == []


# The provider is down ---------------------------------------------------------------------------

DOWN: dict[str, Sender] = {
    **{str(status): reply(status=status) for status in (401, 403, 429, 500, 503, 599)},
    "asks for a day": reply(status=503, retry_after="86400"),
    "asks for a day, with 429": reply(status=429, retry_after="86400"),
    "resets": raw(then="reset"),
    "breaks off": reply(b"{}", length=9),
    "keeps silent": silence(),
}
NOT_DOWN: dict[str, Sender] = {
    **{str(status): reply(status=status) for status in (301, 304, 400, 404, 410, 422)},
    "not JSON": reply(b"<html>"),
    "half a packed body": reply(gzip.compress(b'{"a": 1}')[:-9], content_encoding="gzip"),
    "packed wrongly": reply(b"{}", content_encoding="br"),
    "an endless body": reply(b" " * 2_000_000),
}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_provider_that_refuses_everybody_or_gives_no_answer_is_down_and_no_other(
    provider, make_client, task
):
    for down, faults in ((True, DOWN), (False, NOT_DOWN)):
        for name, fault in faults.items():
            provider.always(fault)
            client = make_client(attempts=1, timeout=0.5, max_bytes=1_000_000)
            found = read_one(client, task)
            assert (found.outcome, found.provider_down) == ("failed", down), name
