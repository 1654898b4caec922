"""Requests: user agent, credentials, connections, conditions, bodies; reads of objects."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync.errors import AccessRefused, InputError, ReadError, SettingsError, UnusableResponse
from nftsync.provider.client import Client, access_to, finish
from nftsync.provider.config import ClientConfig, Paging
from nftsync.provider.rate_limit import Auth
from nftsync.provider.wire import CutShort, WalletList, check_object
from nftsync.pull.reads import ObjectTask, Task, TokenTask, WalletTask, read
from nftsync.records import Effort, ObjectRead, SequenceNumbers, TokenRead, WalletRead
from tests.kit.provider import (
    Peer,
    balances,
    entry,
    head,
    raw,
    reply,
    silence,
    token,
    uuid,
    wallet,
)  # fmt: skip
from tests.kit.waiting import has_ended, wait_until
from tests.kit.worlds import PATIENCE
from tests.provider.conftest import everything_known_of

SECRET = "s3cr3t-t0k3n"
EMPTY = balances()


class Counting:
    """A token command that counts its runs in a file and prints `t1`, `t2`, ..."""

    def __init__(self, folder: Path, before: str = "", then: str = "echo t$(wc -c < runs)") -> None:
        self.runs = folder / "runs"
        self.line = shlex.join(["sh", "-c", f"cd {folder}; {before} printf x >> runs; {then}"])

    @property
    def count(self) -> int:
        return self.runs.stat().st_size if self.runs.exists() else 0


def accepting(bearer: str) -> Any:
    """Answer that bearer token with an empty list, any other with 401."""

    def answer(peer: Peer) -> bool:
        good = peer.seen.headers.get("authorization") == f"Bearer {bearer}"
        return (reply(EMPTY) if good else reply(status=401))(peer)

    return answer


def test_a_read_asks_for_json_in_the_name_of_nftsync(provider, make_client):
    provider.always(reply(EMPTY))
    finish(make_client().balances(wallet(1), Effort()))
    finish(make_client(base_url=provider.url + "/api/").balances(wallet(1).upper(), Effort()))
    seen, below = provider.requests()
    path = f"/v1/wallets/{wallet(1)}/nft-balances"
    assert (seen.method, seen.path, seen.query) == ("GET", path, "")
    assert below.path == f"/api{path}"
    assert seen.headers["user-agent"] == f"nftsync/{nftsync.__version__}"
    assert seen.headers["accept"] == "application/json"
    assert seen.headers["host"] == f"127.0.0.1:{provider.port}"
    assert set(seen.headers) == {"host", "user-agent", "accept", "accept-encoding"}
    assert seen.body == b""


# Connections ------------------------------------------------------------------------------------


def test_each_thread_keeps_one_connection_a_refusal_too(provider, make_client):
    client = make_client()
    provider.always(reply(b"x" * 60_000, 404), reply(b"<html>", 403), reply(EMPTY))
    for _ in range(2):
        with pytest.raises(ReadError):
            finish(client.balances(wallet(0), Effort()))
    together = threading.Barrier(4)

    def read(number: int) -> None:
        together.wait(PATIENCE)
        for _ in range(10):
            finish(client.balances(wallet(number), Effort()))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, range(1, 5)))
    assert provider.connections == 1 + 4
    used = {(seen.path, seen.connection) for seen in provider.requests()}
    assert len(used) == len({path for path, _ in used}) == 5


def test_a_connection_that_the_provider_has_closed_is_replaced_without_a_retry(
    provider, make_client
):
    whole = head(f"content-length: {len(EMPTY)}") + EMPTY
    closed = threading.Event()

    def answer_and_close(peer: Peer) -> bool:
        raw(whole, then="keep")(peer)
        peer.sock.shutdown(2)
        closed.set()
        return False

    provider.always(answer_and_close, reply(EMPTY))
    client, effort = make_client(), Effort()
    finish(client.balances(wallet(1), effort))
    assert closed.wait(PATIENCE)
    finish(client.balances(wallet(1), effort))
    assert (provider.connections, effort.requests, effort.retries) == (2, 2, 0)


# Credentials ------------------------------------------------------------------------------------


def test_headers_are_sent_on_every_request_and_a_token_takes_the_place_of_one(
    provider, make_client
):
    provider.always(reply(b'{"metadata": {}}'))
    headers = {"X-Api-Key": SECRET, "AUTHORIZATION": "Basic eA=="}
    for more, sent in (({}, "Basic eA=="), ({"api_token": SECRET}, f"Bearer {SECRET}")):
        client = make_client(headers=headers, **more)
        finish(client.token(token(1), Effort()))
        client.configure_webhooks({"enabled": True})
        for seen in provider.requests()[-2:]:
            assert seen.headers["x-api-key"] == SECRET
            assert seen.headers["authorization"] == sent


def test_the_token_command_runs_once_at_the_start_and_once_after_a_401_for_16_threads(
    provider, make_client, tmp_path
):
    command = Counting(tmp_path)
    client = make_client(token_command=command.line)
    assert command.count == 0
    accepted = ["t1"]
    together = threading.Barrier(16)
    provider.always(lambda peer: accepting(accepted[0])(peer))

    def read(number: int) -> Effort:
        together.wait(PATIENCE)
        effort = Effort()
        finish(client.balances(wallet(number), effort))
        return effort

    with ThreadPoolExecutor(16) as threads:
        first = list(threads.map(read, range(16)))
        assert command.count == 1
        accepted[0] = "t2"
        second = list(threads.map(read, range(16)))
    assert command.count == 2
    assert {(effort.requests, effort.retries) for effort in first} == {(1, 0)}
    assert {(effort.requests, effort.retries) for effort in second} <= {(2, 1), (1, 0)}
    refused = [x for x in provider.requests()[16:] if x.headers["authorization"] == "Bearer t1"]
    assert len(provider.requests()) == 16 + len(refused) + 16
    assert 1 <= len(refused) <= 16
    accepted[0], effort = "another", Effort()  # so that a new token is refused, too
    with pytest.raises(AccessRefused, match="401"):
        finish(client.balances(wallet(1), effort))
    assert (command.count, effort) == (3, Effort(2, 1))


def test_a_command_that_fails_is_run_once_for_all_waiting_threads_and_again_later(tmp_path):
    wait = "while [ ! -e go ]; do sleep 0.01; done;"
    auth = Auth(token_command=(command := Counting(tmp_path, wait, "exit 1")).line)
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(auth.headers) for _ in range(8)]
        while sum("renew" in stack for stack in stacks()) < 8:
            pass
        (tmp_path / "go").touch()
        assert all(isinstance(each.exception(30), SettingsError) for each in asked)
    assert command.count == 1
    with pytest.raises(SettingsError):
        auth.headers()
    assert command.count == 2


def stacks() -> list[set[str]]:
    """The names of the functions that each thread is in."""
    frames = sys._current_frames().values()
    return [{step.name for step in traceback.extract_stack(frame)} for frame in frames]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"sh -c 'echo {SECRET}; echo {SECRET} >&2; exit 3'", "failed with exit code 3"),
        (f"echo '{SECRET} {SECRET}'", "printed no valid token"),
        (f"echo {SECRET}\u00e9", "printed no valid token"),
        ("true", "printed no valid token"),
        ("sh -c 'yes SECRET & wait'".replace("SECRET", SECRET), "printed more than 64 KiB"),
        ("/no/such/program", "cannot be run: No such file"),
        ("/dev/null", "cannot be run: Permission denied"),
        ("a\0b", "cannot be run"),
    ],
)
def test_a_token_command_that_fails_says_so_and_shows_none_of_its_output(
    provider, make_client, command, message
):
    client = make_client(token_command=command)
    with pytest.raises(SettingsError) as caught:
        finish(client.balances(wallet(1), Effort()))
    assert re.match(rf"token_command \(NFTSYNC_TOKEN_COMMAND\) {message}", str(caught.value))
    assert SECRET not in everything_known_of(caught.value)
    assert provider.requests() == []


def test_marks_and_line_ends_around_a_token_do_not_belong_to_it(provider, make_client):
    provider.always(reply(EMPTY))
    client = make_client(token_command=r"printf '\357\273\277 token\r\n\r\n '")
    finish(client.balances(wallet(1), Effort()))
    assert provider.requests()[0].headers["authorization"] == "Bearer token"


# Conditions -------------------------------------------------------------------------------------


def test_if_none_match_is_sent_only_where_the_answer_is_known(provider, make_client):
    provider.always(
        reply(EMPTY, etag='"v1"'), reply(EMPTY, etag='"v1"'), reply(status=304), reply(EMPTY)
    )
    client = make_client()
    known = finish(client.balances(wallet(1), Effort()))
    assert (known.entries, known.etag) == ([], '"v1"')
    assert finish(client.balances(wallet(1), Effort(), etag='"v1"')).entries == []
    again = finish(client.balances(wallet(1), Effort(), etag='"v1"', known_digest=known.digest))
    assert (again.unchanged, again.entries, again.digest) == (True, [], known.digest)
    finish(client.balances(wallet(1), Effort(), known_digest=known.digest))
    sent = [seen.headers.get("if-none-match") for seen in provider.requests()]
    assert sent == [None, None, '"v1"', None]


def test_a_304_that_was_not_asked_for_and_a_validator_that_cannot_be_sent_are_no_use(
    provider, make_client
):
    provider.always(reply(status=304))
    for arguments in ({}, {"etag": '"v1"'}, {"known_digest": "d"}):
        with pytest.raises(UnusableResponse, match="304: not modified"):
            finish(make_client().balances(wallet(1), Effort(), **arguments))
    for etag in ("\u00e9", "", "x" * 9_000):
        provider.always(reply(EMPTY, etag=etag))
        assert finish(make_client().balances(wallet(1), Effort())).etag is None


# Pages ------------------------------------------------------------------------------------------

PAGING = Paging(next="next", param="after")


def paged(*pages: bytes) -> Any:
    """Answer the cursor `N` with page N, and no cursor with page 0."""

    def answer(peer: Peer) -> bool:
        query = peer.seen.query
        return reply(pages[int(query.removeprefix("after=")) if query else 0])(peer)

    return answer


def test_pages_are_never_asked_for_conditionally_but_known_by_their_digest(provider, make_client):
    provider.always(paged(balances(entry(token(1)), next=1), balances(entry(token(2)))))
    client = make_client(paging=PAGING)
    first = finish(client.balances(wallet(1), Effort()))
    known = {"etag": '"v1"', "known_digest": first.digest}
    again = finish(client.balances(wallet(1), Effort(), **known))
    assert not first.unchanged
    assert again == WalletList([], digest=first.digest, unchanged=True)
    assert all("if-none-match" not in seen.headers for seen in provider.requests())
    cursor = "a+b/c=&d?#\u00e9 %20\n"  # is sent as it came
    provider.always(reply(balances(next=cursor)), reply(EMPTY))
    finish(client.balances(wallet(1), Effort()))
    assert provider.requests()[-1].query == "after=a%2Bb%2Fc%3D%26d%3F%23%C3%A9+%2520%0A"


def test_a_cursor_that_comes_again_or_is_too_long_fails_the_read(provider, make_client):
    provider.always(paged(balances(next=1), balances(next=2), balances(next=1)))
    with pytest.raises(UnusableResponse, match=r"^\$\.next: the cursor '1' repeats$"):
        finish(make_client(paging=PAGING).balances(wallet(1), Effort()))
    assert len(provider.requests()) == 3
    provider.always(reply(balances(next="x" * 10_000)))
    with pytest.raises(UnusableResponse, match=r"^\$\.next: the cursor is too long"):
        finish(make_client(paging=PAGING).balances(wallet(1), Effort()))
    assert len(provider.requests()) == 4


def test_a_page_that_fails_is_asked_for_again_and_not_the_first(provider, make_client):
    answers = iter(
        [balances(entry(token(1)), next=1), b"", balances(entry(token(2)), next=2), b"{", EMPTY]
    )
    provider.always(lambda peer: reply(next(answers))(peer))
    effort = Effort()
    found = finish(make_client(paging=PAGING).balances(wallet(1), effort))
    assert [x[0] for x in found.entries or []] == [token(1), token(2)]
    queries = [seen.query for seen in provider.requests()]
    assert queries == ["", "after=1", "after=1", "after=2", "after=2"]
    assert effort == Effort(5, 2)


def test_the_webhook_configuration_is_patched_with_what_was_given(provider, make_client):
    provider.always(reply(status=204), reply(SECRET.encode(), 400))
    changes = {"url": "https://me.example/w\u00e9", "enabled": False, "sharedSecret": SECRET}
    make_client().configure_webhooks(changes)
    with pytest.raises(ReadError, match="400") as caught:
        make_client().configure_webhooks(changes)
    assert SECRET not in everything_known_of(caught.value)
    seen, _ = provider.requests()
    path = "/api/organization/v1/current-organization/webhook-config"
    assert (seen.method, seen.path) == ("PATCH", path)
    assert seen.headers["content-type"] == "application/json"
    assert json.loads(seen.body) == changes


def test_a_token_command_knows_no_setting_of_ours_and_ends_with_all_it_started(
    tmp_path, monkeypatch
):
    """Our secrets are no business of a program that prints a token."""
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("NFTSYNC_HEADERS", f'{{"X-Key": "{SECRET}"}}')
    monkeypatch.setenv("VAULT_ADDR", "vault.example")
    seen, child = tmp_path / "seen", tmp_path / "child"
    auth = Auth(token_command=f"sh -c 'env > {seen}; echo t'")
    assert auth.headers()[0] == {"Authorization": "Bearer t"}
    assert "VAULT_ADDR=vault.example" in seen.read_text()
    assert "NFTSYNC_" not in seen.read_text()
    starts = f"sleep 300 >&2 & echo $! > {child}"
    auth = Auth(token_command=f"sh -c '{starts}; echo t'")
    assert auth.headers()[0] == {"Authorization": "Bearer t"}
    wait_until(lambda: has_ended(child))
    auth = Auth(token_command=f"sh -c '{starts}; wait'", command_timeout=0.5)
    with pytest.raises(SettingsError, match="took more than 0.5 s"):
        auth.headers()
    wait_until(lambda: has_ended(child))


def test_the_keys_of_connections_are_written_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    access = access_to(ClientConfig(base_url="https://api.example.com"))
    assert access.network.tls.keylog_filename is None


# Objects of webhooks, and failures that mean the provider is down --------------------------------

PATH = f"/v1/transactions/{uuid(1)}"
TASKS: list[Task] = [
    WalletTask(wallet(1)),
    TokenTask(token(1)),
    ObjectTask("Transaction", uuid(1), PATH),
]


def read_one(client: Client, task: Task) -> WalletRead | TokenRead | ObjectRead:
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


def test_an_object_is_kept_without_its_unreadable_fields(provider, make_client):
    deep = b"[" * 100_000 + b"]" * 100_000
    for body, kept in (
        (b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'),
        (b'{"a": 1.50, "b": %s, "c": {"d": NaN}, "e": "x"}' % deep, '{"a":1.50,"e":"x"}'),
        (rb'{"id": "7", "a": "\ud83d"}', '{"id":"7","a":"\ufffd"}'),
        (b'{"id": "7", "a": "\xe2", "b": -Infinity}', '{"id":"7","a":"\ufffd"}'),
    ):
        provider.bodies[PATH] = body
        found = read_one(make_client(), ObjectTask("Transaction", uuid(1), PATH))
        assert isinstance(found, ObjectRead)
        assert (found.outcome, found.body) == ("ok", kept)


def test_what_is_no_object_fails_the_read_and_not_the_provider(provider, make_client):
    for body, message in (
        (b"[1]", r"^\$: expected .?object"),
        (b'{"a": ', "cut short"),
    ):
        provider.always(reply(body))
        found = read_one(make_client(attempts=2), TASKS[2])
        assert (found.outcome, found.body, found.provider_down) == ("failed", None, False)
        assert re.search(message, found.error)


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


DOWN = [
    *(reply(status=status) for status in (401, 403, 429, 500, 503, 599)),
    *(reply(status=status, retry_after="86400") for status in (429, 503)),
    *(raw(then="reset"), reply(b"{}", length=9), silence()),
]
NOT_DOWN = [
    *(reply(status=status) for status in (301, 304, 400, 404, 410, 422)),
    *(reply(b"<html>"), reply(b" " * 2_000_000), reply(b"{}", content_encoding="br")),
    reply(gzip.compress(b'{"a": 1}')[:-9], content_encoding="gzip"),
]


def test_a_provider_that_refuses_everybody_or_gives_no_answer_is_down_and_no_other(
    provider, make_client
):
    faults = [*((True, fault) for fault in DOWN), *((False, fault) for fault in NOT_DOWN)]
    for (down, fault), task in zip(faults, cycle(TASKS), strict=False):
        provider.always(fault)
        client = make_client(attempts=1, timeout=0.5, max_bytes=1_000_000)
        found = read_one(client, task)
        assert (found.outcome, found.provider_down) == ("failed", down), found.error
