"""Faults of the provider: refusals, broken connections, slow and huge bodies."""

from __future__ import annotations

import gzip
import random
import socket
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from nftsync.errors import (
    AccessRefused,
    NoConnection,
    ReadError,
    SettingsError,
    Stopped,
    UnusableResponse,
)
from nftsync.provider.client import finish
from nftsync.provider.rate_limit import GiveUpRule, RateLimiter
from nftsync.provider.wire import CutShort
from nftsync.records import Effort
from tests.kit.provider import (
    Peer,
    Sender,
    balances,
    endless,
    entry,
    head,
    raw,
    reply,
    silence,
    token,
    wallet,
)
from tests.provider.conftest import everything_known_of

SECRET = "s3cr3t-t0k3n"
GOOD = balances(entry(token(1)))
PACKED = gzip.compress(GOOD)


def chunked(body: bytes, *, last: bytes = b"0\r\n\r\n", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return head("transfer-encoding: chunked", *lines) + b"%x\r\n%s\r\n%s" % (len(body), body, last)


# Retried faults ---------------------------------------------------------------------------------

BREAKS: list[Sender] = [
    raw(),
    raw(then="reset"),
    reply(GOOD, length=len(GOOD) + 1),
    raw(head(f"content-length: {len(GOOD)}") + GOOD[:9], then="reset"),
    raw(chunked(GOOD, last=b"")),
    endless(b"x: y\r\n" * 1_000, b"HTTP/1.1 200 OK\r\n"),
    raw(b"SSH-2.0-x\r\n"),
]
STATUSES = {
    408: " Request Timeout", 421: " Misdirected Request", 425: " Too Early",
    429: " Too Many Requests", 500: " Internal Server Error", 501: " Not Implemented",
    505: " HTTP Version Not Supported", 599: "",
}  # fmt: skip
CUT_SHORT = [
    *(reply(body) for body in (b"", GOOD[:-1], GOOD[: len(GOOD) // 2], '{"x": "é'.encode()[:-1])),
    reply(PACKED[:-12], content_encoding="gzip"),
]
RETRIED: list[tuple[Sender, type[ReadError], str, int | None]] = [
    *((fault, NoConnection, "the connection broke: .*", None) for fault in BREAKS),
    *((reply(b"busy", status), ReadError, f"the provider answered {status}{name}", status)
      for status, name in STATUSES.items()),
    *((fault, CutShort, "the (compressed )?body is (empty|cut short)", None)
      for fault in CUT_SHORT),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "kind", "message", "status"), RETRIED)
def test_a_fault_that_may_pass_is_retried_until_no_attempt_is_left(
    provider, make_client, fault, kind, message, status
):
    provider.always(fault)
    client, effort = make_client(attempts=3, api_token=SECRET), Effort()
    with pytest.raises(kind, match=rf"^{message} \(after 3 attempts\)$") as caught:
        finish(client.balances(wallet(1), effort))
    assert caught.value.status == status
    assert SECRET not in everything_known_of(caught.value) + repr(client)
    assert effort == Effort(3, 2)
    assert len(provider.requests()) == 3
    provider.always(fault, fault, reply(GOOD))
    assert finish(client.balances(wallet(1), Effort())).entries


def test_the_waits_between_tries_grow(provider, make_client):
    provider.always(reply(status=503, retry_after="soon"))
    with pytest.raises(ReadError, match=r"503 Service Unavailable \(after 4 attempts\)$"):
        finish(make_client(attempts=4, first_wait=0.05).balances(wallet(1), Effort()))
    times = [seen.at for seen in provider.requests()]
    assert all(b - a >= 0.05 * 2**n for n, (a, b) in enumerate(pairwise(times)))


def test_an_address_without_a_server_or_that_cannot_exist_is_named(make_client):
    with pytest.raises(SettingsError, match=r"^base_url \(NFTSYNC_BASE_URL\) cannot be used: "):
        make_client(base_url="http://xn--/")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for host, problem in (
        (f"127.0.0.1:{port}", ".*refused"),
        (f"{'a' * 64}.example", "not a valid host name"),
    ):
        effort = Effort()
        with pytest.raises(NoConnection, match=rf"^no connection to \S+: {problem}"):
            finish(make_client(base_url=f"http://{host}", attempts=4).token(token(1), effort))
        assert effort == Effort(4, 3)


# Faults without retry ---------------------------------------------------------------------------

UNUSABLE: list[tuple[Sender, str]] = [
    (reply(b"<html>Welcome to the hotel's Wi-Fi"), "it looks like HTML"),
    (reply(b"{}"), "nftTokenBalances"),
    (reply(GOOD, content_encoding="gzip"), "cannot be decompressed"),
    (
        reply(PACKED[:20] + b"\xff" * 30 + PACKED[50:], content_encoding="gzip"),
        "cannot be decompressed",
    ),
    (reply(GOOD, content_encoding="br"), "content encoding 'br'"),
    (reply(gzip.compress(PACKED), content_encoding="gzip, gzip"), "encoding 'gzip, gzip'"),
]
REDIRECTS = [
    (reply(GOOD, status, location=location), f"{status}, a redirect, which nftsync does not follow")
    for status in (301, 302, 307)
    for location in (f"/v1/wallets/{wallet(1)}/nft-balances", "/there")
]
REFUSED = [
    *((reply(b"no", status, retry_after="1"), status) for status in (400, 401, 404, 410, 413, 422)),
    (reply(b"no", 403, x_ratelimit_remaining="9", x_ratelimit_reset="1"), 403),
    (reply(b"no", 403, ratelimit_reset="1"), 403),
    (reply(b"no", 403, retry_after="never"), 403),
]
FINAL: list[tuple[Sender, type[ReadError], str]] = [
    *((answer, UnusableResponse, message) for answer, message in [*UNUSABLE, *REDIRECTS]),
    *((answer, AccessRefused if status in {401, 403} else ReadError, f" answered {status}")
      for answer, status in REFUSED),
]  # fmt: skip


def test_a_fault_that_would_repeat_is_final(provider, make_client):
    for number, (answer, kind, message) in enumerate(FINAL, start=1):
        provider.always(answer, reply(GOOD))
        effort = Effort()
        with pytest.raises(kind, match=message) as caught:
            finish(make_client(headers={"X-Key": SECRET}).balances(wallet(1), effort))
        assert type(caught.value) is kind
        assert provider.requests()[-1].headers["x-key"] == SECRET
        assert SECRET not in everything_known_of(caught.value)
        assert effort == Effort(1, 0)
        assert len(provider.requests()) == number


# Bodies -----------------------------------------------------------------------------------------


def test_a_body_may_come_packed_in_chunks_or_until_the_end(provider, make_client):
    for answer in (
        reply(PACKED, content_encoding="X-GZIP"),
        raw(chunked(PACKED, content_encoding="gzip"), then="keep"),
        reply(GOOD, content_encoding="identity"),
        reply(GOOD, content_encoding="utf-8"),
        raw(chunked(GOOD), then="keep"),
    ):
        provider.always(answer)
        effort = Effort()
        found = finish(make_client().balances(wallet(1), effort))
        assert [x[:2] for x in found.entries or []] == [(token(1), "1")]
        assert effort == Effort(1, 0)
    assert "gzip" in provider.requests()[0].headers["accept-encoding"]


def test_a_body_of_just_max_bytes_is_read(provider, make_client):
    for answer in (reply(GOOD), reply(PACKED, content_encoding="gzip")):
        provider.always(answer)
        client = make_client(max_bytes=len(GOOD))
        assert finish(client.balances(wallet(1), Effort())).entries
        with pytest.raises(UnusableResponse, match="larger than"):
            finish(make_client(max_bytes=len(GOOD) - 1).balances(wallet(1), Effort()))


def test_a_gzip_bomb_stops_at_max_bytes_and_is_never_unpacked_whole(provider, make_client):
    bomb = gzip.compress(b" " * 60_000_000, 1)
    provider.always(reply(bomb, content_encoding="gzip"))
    client = make_client(max_bytes=1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(UnusableResponse, match="larger than"):
            finish(client.balances(wallet(1), Effort()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_the_body_of_a_refusal_is_of_no_interest(provider, make_client):
    for answer in (
        endless(b" " * 65536, head(status=503)),
        reply(b"not gzip", 503, content_encoding="gzip"),
        reply(b"x" * 1_000_000, 503),
    ):
        provider.always(answer, reply(GOOD))
        effort = Effort()
        assert finish(make_client(max_bytes=100_000).balances(wallet(1), effort)).entries
        assert effort == Effort(2, 1)


# Time -------------------------------------------------------------------------------------------

DRIPS: dict[str, Sender] = {
    "silence": silence(),
    "headers that drip": endless(b"x: y\r\n", b"HTTP/1.1 200 OK\r\n", pause=0.05),
    "a body that drips": endless(b" ", head("content-length: 999999"), pause=0.05),
    "a body that stops": raw(head("content-length: 99") + b"{", then="hold"),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_an_attempt_ends_by_its_timeout_however_it_drips(provider, make_client, drip):
    provider.always(DRIPS[drip])
    effort = Effort()
    began = time.monotonic()
    with pytest.raises(
        NoConnection, match=r"^no complete response within 0\.5 s \(after 2 attempts\)$"
    ):
        finish(make_client(timeout=0.5, attempts=2).balances(wallet(1), effort))
    assert time.monotonic() - began < 8
    assert effort == Effort(2, 1)


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (503, 2)])
def test_the_status_of_a_refusal_counts_whatever_becomes_of_its_body(
    provider, make_client, status, requests
):
    start = f"HTTP/1.1 {status} X\r\ncontent-length: 99\r\n\r\n".encode()
    for answer in (raw(start + b"x"), endless(b" ", start, pause=0.05)):
        provider.always(answer)
        effort = Effort()
        with pytest.raises(ReadError, match=str(status)):
            finish(make_client(timeout=0.5, attempts=2).balances(wallet(1), effort))
        assert effort.requests == requests


@pytest.mark.parametrize("when", ["pause", "rate limit", "silence", "headers that drip"])
def test_a_stop_ends_whatever_a_read_waits_for_and_nothing_is_sent_after_it(
    provider, make_client, when
):
    limiter = RateLimiter(0.001 if when == "rate limit" else None)
    provider.always(reply(GOOD), DRIPS.get(when, reply(GOOD)))
    rule = GiveUpRule()
    client = make_client(limiter=limiter, first_wait=60.0, timeout=60.0, rule=rule)
    finish(client.balances(wallet(1), Effort()))
    if when == "pause":
        limiter.pause(60)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(finish, client.balances(wallet(2), Effort()))
        if when in {"pause", "rate limit"}:
            time.sleep(0.1)
        else:
            provider.wait_for(2)
        client.stop()
        assert isinstance(reading.exception(20), Stopped)
    before = len(provider.requests())
    with pytest.raises(Stopped):
        finish(client.balances(wallet(3), Effort()))
    assert len(provider.requests()) == before
    assert rule.reason is None


def test_a_fault_of_one_wallet_never_shows_in_another(provider, make_client):
    """16 threads over a provider that answers at random with every fault there is."""
    faults = [*BREAKS, *(answer for answer, _, _ in FINAL)]
    chance = random.Random(5)
    lock = threading.Lock()

    def answer(peer: Peer) -> bool:
        number = int(peer.seen.path.split("/")[3][-12:], 16)
        with lock:
            fault = chance.choice(faults) if chance.random() < 0.4 else None
        return (fault or reply(balances(entry(token(number), str(number)))))(peer)

    provider.always(answer)
    client = make_client(first_wait=0.001)
    efforts = [Effort() for _ in range(80)]

    def read(number: int) -> str:
        try:
            found = finish(client.balances(wallet(number), efforts[number]))
        except ReadError:
            return "failed"
        assert [x[:2] for x in found.entries or []] == [(token(number), str(number))]
        return "ok"

    with ThreadPoolExecutor(16) as threads:
        outcomes = list(threads.map(read, range(80)))
    assert {"ok", "failed"} == set(outcomes)
    assert sum(effort.requests for effort in efforts) == len(provider.requests())
    for number, effort in enumerate(efforts):
        asked = provider.requests(f"/v1/wallets/{wallet(number)}/nft-balances")
        assert effort == Effort(len(asked), len(asked) - 1)
