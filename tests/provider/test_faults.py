import gzip
import random
import socket
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from nftsync.errors import NoConnection, ReadError, SettingsError, Stopped, UnusableResponse
from nftsync.provider.rate_limit import GiveUpRule
from tests.kit.errors import everything_said
from tests.kit.faults import FAULTS, GOOD, PACKED, chunked
from tests.kit.provider import (
    Peer,
    Sender,
    endless,
    head,
    one_token_each,
    path_of,
    raw,
    reply,
    silence,
    token,
    wallet,
)

SECRET = "s3cr3t-t0k3n"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_retried_if_it_may_pass_and_shows_no_credential(provider, make_client, name):
    fault = FAULTS[name]
    attempts, after = (3, r" \(after 3 attempts\)") if fault.passing else (1, "")
    provider.always(*[fault.answer] * (2 * attempts - 1), reply(GOOD))
    client = make_client(attempts=3, api_token=SECRET, headers={"X-Key": SECRET})
    error = client.fails(f"^{fault.message}{after}$", fault.kind)
    assert (error.provider_down, error.status) == (fault.down, fault.status)
    assert SECRET not in everything_said(error) + repr(client.client)
    assert (client.last, len(provider.requests())) == ((attempts, attempts - 1), attempts)
    assert provider.requests()[-1].headers["x-key"] == SECRET
    assert client.balances(2).entries, "other reads do not wait"


def test_the_waits_between_attempts_grow(provider, make_client):
    provider.always(reply(status=503, retry_after="soon"))
    make_client(attempts=4, first_wait=0.05).fails(r"503 Service Unavailable \(after 4 attempts\)$")
    times = [seen.at for seen in provider.requests()]
    assert all(b - a >= 0.05 * 2**n for n, (a, b) in enumerate(pairwise(times)))


@pytest.mark.parametrize("headers", [{}, {"connection": "close"}])
def test_a_retry_uses_a_new_connection(provider, make_client, headers):
    provider.always(reply(GOOD), reply(b"", 429, retry_after="0", **headers), reply(GOOD))
    client = make_client()
    client.balances(1)
    assert client.balances(2).entries
    assert client.last == (2, 1)
    assert [seen.connection for seen in provider.requests()] == [1, 1, 2]


def test_an_address_without_a_server_or_that_cannot_exist_is_named(make_client):
    with pytest.raises(SettingsError, match=r"^base_url \(NFTSYNC_BASE_URL\) cannot be used: "):
        make_client(base_url="http://xn--/")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for host, problem in (
        (f"127.0.0.1:{port}", ".*refused"),
        (f"{'a' * 64}.example", "not a valid host name"),
    ):
        client = make_client(base_url=f"http://{host}", attempts=4)
        client.fails(rf"^no connection to \S+: {problem}", NoConnection)
        assert client.last == (4, 3)


def test_a_body_may_be_compressed_chunked_or_neither(provider, make_client):
    members = [gzip.compress(GOOD[start : start + 30]) for start in range(0, len(GOOD), 30)]
    client = make_client()
    for answer in (
        reply(PACKED, content_encoding="X-GZIP"),
        reply(b"".join([*members, gzip.compress(b"")]), content_encoding="gzip"),
        raw(chunked(PACKED, content_encoding="gzip"), then="keep"),
        reply(GOOD, content_encoding="identity"),
        reply(GOOD, content_encoding="utf-8"),
        raw(chunked(GOOD), then="keep"),
    ):
        provider.always(answer)
        assert [x[:2] for x in client.balances().entries] == [(token(1), "1")]
        assert client.last == (1, 0)
    assert "gzip" in provider.requests()[0].headers["accept-encoding"]
    provider.always(reply(PACKED + b"junk", content_encoding="gzip"))
    client.fails("cannot be decompressed")


def test_a_body_has_max_bytes_at_most_and_a_gzip_bomb_takes_no_memory(provider, make_client):
    for answer in (reply(GOOD), reply(PACKED, content_encoding="gzip")):
        provider.always(answer)
        assert make_client(max_bytes=len(GOOD)).balances().entries
        make_client(max_bytes=len(GOOD) - 1).fails("larger than", UnusableResponse)
    provider.always(reply(gzip.compress(b" " * 60_000_000, 1), content_encoding="gzip"))
    client = make_client(max_bytes=1_000_000)
    tracemalloc.start()
    try:
        client.fails("larger than", UnusableResponse)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_the_body_of_a_refusal_does_not_matter(provider, make_client):
    for answer in (
        endless(b" " * 65536, head(status=503)),
        reply(b"not gzip", 503, content_encoding="gzip"),
        reply(b"x" * 1_000_000, 503),
    ):
        provider.always(answer, reply(GOOD))
        client = make_client(max_bytes=100_000)
        assert client.balances().entries
        assert client.last == (2, 1)
    for status, requests in ((404, 1), (503, 2)):
        start = head("content-length: 99", status=status)
        for answer in (raw(start + b"x"), endless(b" ", start, pause=0.05)):
            provider.always(answer)
            client = make_client(timeout=2.0, attempts=2)
            client.fails(str(status))
            assert client.last[0] == requests


DRIPS: dict[str, Sender] = {
    "silence": silence(),
    "headers that drip": endless(b"x: y\r\n", b"HTTP/1.1 200 OK\r\n", pause=0.05),
    "a body that drips": endless(b" ", head("content-length: 999999"), pause=0.05),
    "a body that stops": raw(head("content-length: 99") + b"{", then="hold"),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_an_attempt_ends_by_its_timeout_however_the_answer_drips(provider, make_client, drip):
    provider.always(DRIPS[drip])
    client = make_client(timeout=0.3, attempts=2)
    message = r"^no complete response within 0\.3 s \(after 2 attempts\)$"
    assert client.fails(message, NoConnection).provider_down
    assert client.last == (2, 1)


@pytest.mark.parametrize("when", ["pause", "rate limit", "silence", "headers that drip"])
def test_a_stop_ends_every_wait_of_a_read_and_sends_nothing_afterwards(provider, make_client, when):
    provider.always(reply(GOOD), DRIPS.get(when, reply(status=429, retry_after="60")))
    limit = 0.001 if when == "rate limit" else None
    rule = GiveUpRule()
    client = make_client(rate_limit=limit, timeout=60.0, attempts=1, rule=rule)
    client.balances(1)
    if when == "pause":
        client.fails("429")
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(client.balances, 2)
        if when in DRIPS:
            provider.wait_for(2)
        else:
            time.sleep(0.1)  # to be in the wait; an earlier stop has the same outcome
        client.client.stop()
        assert isinstance(reading.exception(20), Stopped)
    before = len(provider.requests())
    with pytest.raises(Stopped):
        client.balances(3)
    assert len(provider.requests()) == before
    assert rule.reason is None


@pytest.mark.parametrize("status", [429, 403])
def test_a_wait_that_the_provider_asks_for_delays_all_threads(provider, make_client, status):
    asked = {429: {"retry_after": "1"}, 403: {"ratelimit": '"default";r=0;t=1'}}[status]
    provider.always(reply(status=status, **asked), reply(GOOD))
    client = make_client(attempts=1)
    client.fails(f"{status}")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(client.balances, range(8)))
    refused, *others = provider.requests()
    gaps = [seen.at - refused.at for seen in others]
    assert len(gaps) == 8
    assert min(gaps) >= 0.9
    assert max(gaps) - min(gaps) > 0.001, "no jitter"


def test_a_fault_of_one_wallet_never_affects_another(provider, make_client):
    """16 threads read from a provider that answers with random faults."""
    chance, lock = random.Random(5), threading.Lock()
    faults = [fault.answer for fault in FAULTS.values()]

    def answer(peer: Peer) -> bool:
        with lock:
            fault = chance.choice(faults) if chance.random() < 0.4 else one_token_each
        return fault(peer)

    provider.always(answer)
    client = make_client(first_wait=0.001)

    def read(number: int) -> str:
        try:
            found = client.balances(number)
        except ReadError:
            return "failed"
        assert [x[:2] for x in found.entries] == [(token(number), "1")]
        return "ok"

    with ThreadPoolExecutor(16) as threads:
        outcomes = list(threads.map(read, range(80)))
    assert {"ok", "failed"} == set(outcomes)
    asked = provider.attempts()
    assert client.spent == {
        wallet(number): (asked[path_of(number)], asked[path_of(number)] - 1) for number in range(80)
    }
