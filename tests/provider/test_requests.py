import json
import re
import shlex
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync.errors import AccessRefused, InputError, ReadError, SettingsError, UnusableResponse
from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import Auth
from nftsync.provider.wire import CutShort, check_object
from tests.kit.errors import everything_said
from tests.kit.provider import Peer, balances, entry, head, path_of, raw, reply, token, uuid, wallet
from tests.kit.waiting import has_ended, wait_until
from tests.kit.worlds import PATIENCE

SECRET = "s3cr3t-t0k3n"
EMPTY = balances()
ONE = balances(entry(token(1)))


def test_a_read_requests_json_in_the_name_of_nftsync(provider, make_client):
    provider.always(reply(EMPTY))
    make_client().balances()
    below = make_client(base_url=provider.url + "/api/")
    below.run(below.client.balances, wallet(1).upper())
    seen, other = provider.requests()
    assert (seen.method, seen.path, seen.query) == ("GET", path_of(1), "")
    assert other.path == f"/api{path_of(1)}"
    assert seen.headers["user-agent"] == f"nftsync/{nftsync.__version__}"
    assert seen.headers["accept"] == "application/json"
    assert seen.headers["host"] == f"127.0.0.1:{provider.port}"
    assert set(seen.headers) == {"host", "user-agent", "accept", "accept-encoding"}
    assert seen.body == b""


def test_each_thread_keeps_one_connection_also_after_a_refusal(provider, make_client):
    client = make_client()
    provider.always(reply(b"x" * 60_000, 404), reply(b"<html>", 403), reply(EMPTY))
    for _ in range(2):
        client.fails(number=0)
    together = threading.Barrier(4)

    def read(number: int) -> None:
        together.wait(PATIENCE)
        for _ in range(10):
            client.balances(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, range(1, 5)))
    assert provider.connections == 1 + 4
    used = {(seen.path, seen.connection) for seen in provider.requests()}
    assert len(used) == len({path for path, _ in used}) == 5


def test_a_connection_that_the_provider_closed_is_replaced_without_a_retry(provider, make_client):
    whole = head(f"content-length: {len(EMPTY)}") + EMPTY
    closed = threading.Event()

    def answer_and_close(peer: Peer) -> bool:
        raw(whole, then="keep")(peer)
        peer.sock.shutdown(2)
        closed.set()
        return False

    provider.always(answer_and_close, reply(EMPTY))
    client = make_client()
    client.balances()
    assert closed.wait(PATIENCE)
    client.balances()
    assert (provider.connections, client.last) == (2, (1, 0))


def test_a_response_that_came_before_its_request_is_never_used(provider, make_client):
    """One in the same packet as the response before cannot be told from it; later ones can."""
    whole = [head(f"content-length: {len(x)}") + x for x in (ONE, EMPTY)]
    came = threading.Event()

    def twice(peer: Peer) -> bool:
        raw(*whole, pause=0.5, then="keep")(peer)
        came.set()
        return True

    provider.always(twice, reply(ONE))
    client = make_client(attempts=1)
    for _ in range(2):
        assert client.balances().entries
        assert came.wait(10)
    assert provider.connections == 2


def test_headers_are_sent_and_a_token_replaces_authorization(provider, make_client):
    provider.always(reply(b'{"metadata": {}}'))
    headers = {"X-Api-Key": SECRET, "AUTHORIZATION": "Basic eA=="}
    for more, sent in (({}, "Basic eA=="), ({"api_token": SECRET}, f"Bearer {SECRET}")):
        client = make_client(headers=headers, **more)
        client.token()
        client.client.configure_webhooks({"enabled": True})
        for seen in provider.requests()[-2:]:
            assert seen.headers["x-api-key"] == SECRET
            assert seen.headers["authorization"] == sent


def counting(before: str = "", then: str = "echo t$(wc -c < runs)") -> str:
    """A token command that counts its runs in a file and prints `t1`, `t2`, ..."""
    return shlex.join(["sh", "-c", f"cd {Path.cwd()}; {before} printf x >> runs; {then}"])


def runs() -> int:
    return len(Path("runs").read_text()) if Path("runs").exists() else 0


def test_16_threads_run_the_token_command_once_for_each_token(provider, make_client):
    client = make_client(token_command=counting())
    assert runs() == 0
    accepted = ["t1"]
    together = threading.Barrier(16)

    def answer(peer: Peer) -> bool:
        is_good = peer.seen.headers["authorization"] == f"Bearer {accepted[0]}"
        return (reply(EMPTY) if is_good else reply(status=401))(peer)

    def read(number: int) -> None:
        together.wait(PATIENCE)
        client.balances(number)

    provider.always(answer)
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(read, range(16)))
        assert runs() == 1
        assert set(client.spent.values()) == {(1, 0)}
        accepted[0] = "t2"
        list(threads.map(read, range(16)))
    assert runs() == 2
    assert set(client.spent.values()) <= {(2, 1), (1, 0)}
    refused = [x for x in provider.requests()[16:] if x.headers["authorization"] == "Bearer t1"]
    assert len(provider.requests()) == 16 + len(refused) + 16
    assert 1 <= len(refused) <= 16
    accepted[0] = "another"  # so that the new token is refused, too
    client.fails("401", AccessRefused)
    assert (runs(), client.last) == (3, (2, 1))


def test_a_failing_command_runs_once_for_all_waiting_threads_and_again_later():
    wait = "while [ ! -e go ]; do sleep 0.01; done;"
    auth = Auth(token_command=counting(wait, "exit 1"))
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(auth.headers) for _ in range(8)]
        wait_until(lambda: sum("renew" in stack for stack in stacks()) == 8)
        Path("go").touch()
        assert all(isinstance(each.exception(30), SettingsError) for each in asked)
    assert runs() == 1
    with pytest.raises(SettingsError):
        auth.headers()
    assert runs() == 2


def stacks() -> list[set[str]]:
    """Return the names of the functions that each thread is in."""
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
def test_an_error_shows_no_output_of_the_token_command(provider, make_client, command, message):
    with pytest.raises(SettingsError) as caught:
        make_client(token_command=command).balances()
    assert re.match(rf"token_command \(NFTSYNC_TOKEN_COMMAND\) {message}", str(caught.value))
    assert SECRET not in everything_said(caught.value)
    assert provider.requests() == []


def test_a_token_command_gets_no_settings_and_ends_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("NFTSYNC_HEADERS", f'{{"X-Key": "{SECRET}"}}')
    monkeypatch.setenv("VAULT_ADDR", "vault.example")
    seen, child = tmp_path / "seen", tmp_path / "child"
    auth = Auth(token_command=f"sh -c 'env > {seen}; echo t'")
    assert auth.headers()[0] == {"Authorization": "Bearer t"}
    assert "VAULT_ADDR=vault.example" in seen.read_text()
    assert "NFTSYNC_" not in seen.read_text()
    starts = f"sleep 300 >&2 & echo $! > {child}"
    printed = r'printf "\357\273\277 t\r\n\r\n "'
    auth = Auth(token_command=f"sh -c '{starts}; {printed}'")
    assert auth.headers()[0] == {"Authorization": "Bearer t"}
    wait_until(lambda: has_ended(child))
    auth = Auth(token_command=f"sh -c '{starts}; wait'", command_timeout=0.5)
    with pytest.raises(SettingsError, match="took more than 0.5 s"):
        auth.headers()
    wait_until(lambda: has_ended(child))


def test_the_keys_of_connections_are_never_written(tmp_path, monkeypatch):
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    access = access_to(ClientConfig(base_url="https://api.example.com"))
    assert access.network.tls.keylog_filename is None


def test_the_webhook_configuration_is_patched_with_the_given_fields(provider, make_client):
    provider.always(reply(status=204), reply(SECRET.encode(), 400))
    changes = {"url": "https://me.example/w\u00e9", "enabled": False, "sharedSecret": SECRET}
    client = make_client().client
    client.configure_webhooks(changes)
    with pytest.raises(ReadError, match="400") as caught:
        client.configure_webhooks(changes)
    assert SECRET not in everything_said(caught.value)
    seen, _ = provider.requests()
    path = "/api/organization/v1/current-organization/webhook-config"
    assert (seen.method, seen.path) == ("PATCH", path)
    assert seen.headers["content-type"] == "application/json"
    assert json.loads(seen.body) == changes


PATH = f"/v1/transactions/{uuid(1)}"
_DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b' {"a": [1, {"b": null}], "a": 2} \n', None),
        (b'{"amount": ' + b"9" * 5_000 + b', "x": 1e999, "y": -0.10}', None),
        ('{"name": "\u00e9\\u0000\\ud83d\\ude00"}'.encode(), None),
        # Without unreadable fields:
        (b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'),
        (b'{"a": 1.50, "b": %s, "c": {"d": NaN}, "e": "x"}' % _DEEP, '{"a":1.50,"e":"x"}'),
        (rb'{"id": "7", "a": "\ud83d"}', '{"id":"7","a":"\ufffd"}'),
        (b'{"id": "7", "a": "\xe2", "b": -Infinity}', '{"id":"7","a":"\ufffd"}'),
    ],
    ids=range(7),
)
def test_an_object_is_kept_as_sent_without_its_unreadable_fields(provider, make_client, body, kept):
    provider.bodies[PATH] = body
    assert make_client().object(PATH).decode() == (kept or body.decode())
    assert [(x.method, x.path, x.body) for x in provider.requests()] == [("GET", PATH, b"")]


def test_a_body_without_an_object_fails_and_the_provider_is_not_down(provider, make_client):
    for body, message in ((b"[1]", r"^\$: expected .?object"), (b'{"a": ', "cut short")):
        provider.always(reply(body))
        with pytest.raises(UnusableResponse, match=message) as caught:
            make_client(attempts=2).object(PATH)
        assert not caught.value.provider_down


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60)
@given(
    st.binary(max_size=60)
    | (st.dictionaries(st.text(), _JSON) | _JSON).map(json.dumps).map(str.encode),
    st.data(),
)
def test_any_body_is_an_object_or_refused_and_a_cut_is_called_cut_short(body, data):
    try:
        kept = check_object(body)
    except UnusableResponse:
        return
    assert isinstance(json.loads(kept.decode()), dict)
    assert kept == body or b"\\ud" in body
    with pytest.raises(CutShort):
        check_object(body.strip()[: data.draw(st.integers(0, len(body.strip()) - 1))])


def test_an_unencoded_path_is_never_sent(provider, make_client):
    for path in ("", "v1", "http://h/x", "/a b", "/a\r\nX: y", "/\u00e9", "/a\0", "/a\n"):
        with pytest.raises(InputError, match="is not an encoded path"):
            make_client().object(path)
    assert provider.requests() == []


def test_a_date_to_retry_at_is_compared_with_the_clock_of_the_provider(provider, make_client):
    there = "Thu, 01 Jan 2099 00:00:00 GMT"
    provider.always(reply(status=503, date=there, retry_after=there), reply(EMPTY))
    client = make_client()
    client.balances()
    assert client.last == (2, 1)
