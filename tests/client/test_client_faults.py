"""What the client does when the provider refuses, breaks off, drips, floods or says "not now"."""

from __future__ import annotations

import gzip
import json
import random
import socket
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider import (
    MakeClient,
    Peer,
    Provider,
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
from stopping import ends_in_stopped

from nftsync.errors import (
    AccessRefused,
    NoConnection,
    ReadError,
    SettingsError,
    Stopped,
    UnusableAnswer,
)
from nftsync.provider import Auth, Client, Health, Lane, Pace, Tally
from nftsync.provider.exchange import _retry_after
from nftsync.provider.wire import CutShort

GOOD = balances(entry(token(1)))
PACKED = gzip.compress(GOOD)


class RecordingLane(Lane):
    """Remembers the waits instead of waiting."""

    def __init__(self) -> None:
        super().__init__(Pace())
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def chunked(body: bytes, *, last: bytes = b"0\r\n\r\n", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return head("transfer-encoding: chunked", *lines) + b"%x\r\n%s\r\n%s" % (len(body), body, last)


# What is tried again ----------------------------------------------------------------------------

BREAKS: dict[str, Sender] = {
    "closed before the answer": raw(),
    "reset before the answer": raw(then="reset"),
    "closed within the status line": raw(b"HTTP/1."),
    "closed within the headers": raw(head("content-length: 9")[:-2]),
    "closed within the body": reply(GOOD, length=len(GOOD) + 1),
    "reset within the body": raw(head(f"content-length: {len(GOOD)}") + GOOD[:9], then="reset"),
    "closed within a chunk": raw(chunked(GOOD)[:-12]),
    "closed before the last chunk": raw(chunked(GOOD, last=b"")),
    "no HTTP": raw(b"220 mail.example ESMTP\r\n"),
    "headers without end": endless(b"x: y\r\n", b"HTTP/1.1 200 OK\r\n"),
}


@pytest.mark.parametrize("fault", BREAKS)
def test_a_broken_connection_is_tried_again(
    provider: Provider, make_client: MakeClient, fault: str
) -> None:
    provider.always(BREAKS[fault], BREAKS[fault], reply(GOOD))
    tally = Tally()
    found = make_client().balances(wallet(1), tally)
    assert found.entries is not None
    assert tally.effort() == (3, 2)
    assert len(provider.requests()) == 3


@pytest.mark.parametrize("fault", BREAKS)
def test_a_connection_that_always_breaks_fails_the_read_after_all_attempts(
    provider: Provider, make_client: MakeClient, fault: str
) -> None:
    provider.always(BREAKS[fault])
    tally = Tally()
    with pytest.raises(NoConnection, match=r"^the connection broke: ") as caught:
        make_client(attempts=3).balances(wallet(1), tally)
    assert caught.value.status is None
    assert tally.effort() == (3, 2)
    assert len(provider.requests()) == 3


def test_a_refused_connection_is_tried_again(make_client: MakeClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    tally = Tally()
    with pytest.raises(NoConnection, match=r"^no connection: .*refused"):
        make_client(url=f"http://127.0.0.1:{port}", attempts=4).balances(wallet(1), tally)
    assert tally.effort() == (4, 3)


def test_a_host_that_can_have_no_address_is_an_error_of_ours(make_client: MakeClient) -> None:
    with pytest.raises(SettingsError, match=r"^base_url \(NFTSYNC_BASE_URL\) cannot be used: "):
        make_client(url="http://xn--/")
    with pytest.raises(NoConnection, match=r"^no connection: 'a+\.example' is no host name$"):
        make_client(url=f"http://{'a' * 64}.example", attempts=1).balances(wallet(1), Tally())


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("/v1?key=hush", "query or fragment: end it before the ? or #, and give a key in headers"),
        ("?key=hush", "query or fragment: end it before the ? or #"),
        ("/v1?", "query or fragment: end it before the ? or #"),
        ("/v1#hush", "query or fragment: end it before the ? or #"),
        (":hush@127.0.0.1/?key=hush", "user name or password; api_token and headers are for that"),
    ],
)
def test_an_address_that_may_hold_a_secret_is_refused_and_not_repeated(
    provider: Provider, make_client: MakeClient, rest: str, problem: str
) -> None:
    with pytest.raises(SettingsError, match=r"^base_url \(NFTSYNC_BASE_URL\) must not ") as caught:
        make_client(url=provider.url + rest)
    assert problem in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 599])
def test_429_and_5xx_are_tried_again(
    provider: Provider, make_client: MakeClient, status: int
) -> None:
    provider.always(reply(b"busy", status), reply(b"busy", status), reply(GOOD))
    tally = Tally()
    assert make_client(attempts=3).balances(wallet(1), tally).entries
    assert tally.effort() == (3, 2)
    provider.always(reply(b"busy", status))
    tally = Tally()
    with pytest.raises(ReadError, match=f"^the provider answered {status}$") as caught:
        make_client(attempts=3).balances(wallet(1), tally)
    assert caught.value.status == status
    assert tally.effort() == (3, 2)


def test_one_attempt_means_one_request(provider: Provider, make_client: MakeClient) -> None:
    provider.always(reply(status=503))
    tally = Tally()
    with pytest.raises(ReadError):
        make_client(attempts=1).balances(wallet(1), tally)
    assert (tally.effort(), len(provider.requests())) == ((1, 0), 1)


CUT_SHORT = [
    *(reply(body) for body in (b"", GOOD[:-1], GOOD[: len(GOOD) // 2], '{"x": "é'.encode()[:-1])),
    reply(PACKED[:-12], content_encoding="gzip"),
]


@pytest.mark.parametrize("cut", CUT_SHORT)
def test_a_body_that_is_whole_but_whose_json_or_packing_is_cut_short_is_tried_again(
    provider: Provider, make_client: MakeClient, cut: Sender
) -> None:
    provider.always(cut, reply(GOOD))
    tally = Tally()
    assert make_client().balances(wallet(1), tally).entries
    assert tally.effort() == (2, 1)
    provider.always(cut)
    with pytest.raises(CutShort, match="the compressed body is cut short|the body is "):
        make_client(attempts=2).balances(wallet(1), Tally())
    assert len(provider.requests()) == 4


def test_waits_grow_and_are_jittered(provider: Provider, make_client: MakeClient) -> None:
    provider.always(reply(status=503))
    pace = RecordingLane()
    with pytest.raises(ReadError):
        make_client(pace=pace, attempts=12, first_wait=0.5).balances(wallet(1), Tally())
    assert len(pace.waits) == 11
    for number, wait in enumerate(pace.waits):
        least = min(30.0, 0.5 * 2**number)
        assert least <= wait <= least + 0.5
    assert len({wait % 0.5 for wait in pace.waits}) > 1


# What is not tried again ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 402, 404, 405, 408, 409, 410, 418, 422, 499])
def test_another_4xx_is_final(provider: Provider, make_client: MakeClient, status: int) -> None:
    provider.always(reply(b"no", status, retry_after="1"))
    tally = Tally()
    with pytest.raises(ReadError, match=f"^the provider answered {status}") as caught:
        make_client().balances(wallet(1), tally)
    assert (caught.value.status, tally.effort()) == (status, (1, 0))
    assert not isinstance(caught.value, (AccessRefused, NoConnection, UnusableAnswer))
    assert len(provider.requests()) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_401_and_403_are_final(provider: Provider, make_client: MakeClient, status: int) -> None:
    provider.always(reply(b"no", status))
    tally = Tally()
    with pytest.raises(AccessRefused) as caught:
        make_client().balances(wallet(1), tally)
    assert (caught.value.status, tally.effort()) == (status, (1, 0))


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_endless_or_not(
    provider: Provider, make_client: MakeClient, status: int
) -> None:
    path = f"/v1/wallets/{wallet(1)}/nft-balances"
    provider.always(reply(GOOD))
    provider.on(path, reply(GOOD, status, location=path), reply(GOOD, status, location="/there"))
    client = make_client()
    for _ in range(2):
        tally = Tally()
        with pytest.raises(UnusableAnswer, match=f"{status}, a redirect, which is not followed"):
            client.balances(wallet(1), tally)
        assert tally.effort() == (1, 0)
    assert [seen.path for seen in provider.requests()] == [path, path]


UNUSABLE: dict[str, tuple[Sender, str]] = {
    "HTML": (reply(b"<html>Welcome to the hotel's Wi-Fi"), "it looks like HTML"),
    "another shape": (reply(b"{}"), "nftTokenBalances"),
    "no gzip": (reply(GOOD, content_encoding="gzip"), "cannot be decompressed"),
    "damaged gzip": (
        reply(PACKED[:20] + b"\xff" * 30 + PACKED[50:], content_encoding="gzip"),
        "cannot be decompressed",
    ),
    "packed as never asked for": (reply(GOOD, content_encoding="br"), "content encoding 'br'"),
    "packed twice": (
        reply(gzip.compress(PACKED), content_encoding="gzip, gzip"),
        "content encoding 'gzip, gzip'",
    ),
}


@pytest.mark.parametrize("fault", UNUSABLE)
def test_an_unusable_answer_is_final(
    provider: Provider, make_client: MakeClient, fault: str
) -> None:
    answer, message = UNUSABLE[fault]
    provider.always(answer)
    tally = Tally()
    with pytest.raises(UnusableAnswer) as caught:
        make_client().balances(wallet(1), tally)
    assert message in str(caught.value)
    assert not isinstance(caught.value, CutShort)
    assert tally.effort() == (1, 0)


# Bodies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        reply(PACKED, content_encoding="gzip"),
        reply(PACKED, content_encoding="X-GZIP"),
        raw(chunked(PACKED, content_encoding="gzip"), then="keep"),
        raw(*(bytes([x]) for x in chunked(PACKED, content_encoding="gzip")), then="keep"),
        reply(GOOD, content_encoding="identity"),
        reply(GOOD, content_encoding="utf-8"),
        raw(chunked(GOOD), then="keep"),
        raw(head() + GOOD),
        raw(head(f"content-length: {len(GOOD)}", status=100) + head() + GOOD),
    ],
)
def test_a_body_may_come_packed_in_chunks_or_until_the_end(
    provider: Provider, make_client: MakeClient, answer: Sender
) -> None:
    provider.always(answer)
    tally = Tally()
    found = make_client().balances(wallet(1), tally)
    assert [x[:2] for x in found.entries or []] == [(token(1), "1")]
    assert tally.effort() == (1, 0)
    assert "gzip" in provider.requests()[0].headers["accept-encoding"]


def test_a_body_of_just_max_bytes_is_read(provider: Provider, make_client: MakeClient) -> None:
    provider.always(reply(GOOD), reply(PACKED, content_encoding="gzip"))
    client = make_client(max_bytes=len(GOOD))
    assert client.balances(wallet(1), Tally()).entries
    assert client.balances(wallet(1), Tally()).entries
    for answer in (reply(GOOD), reply(PACKED, content_encoding="gzip")):
        provider.always(answer)
        with pytest.raises(UnusableAnswer, match="larger than"):
            make_client(max_bytes=len(GOOD) - 1).balances(wallet(1), Tally())


def test_a_body_without_end_stops_at_max_bytes(provider: Provider, make_client: MakeClient) -> None:
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    for answer in (
        endless(b" " * 65536, head()),
        endless(chunk, head("transfer-encoding: chunked")),
    ):
        provider.always(answer)
        tally = Tally()
        with pytest.raises(UnusableAnswer, match="larger than 1,000,000 bytes") as caught:
            make_client(max_bytes=1_000_000).balances(wallet(1), tally)
        assert caught.value.status == 200
        assert tally.effort() == (1, 0)


def test_a_gzip_bomb_stops_at_max_bytes_and_is_never_unpacked_whole(
    provider: Provider, make_client: MakeClient
) -> None:
    bomb = gzip.compress(b" " * 200_000_000, 9)
    provider.always(reply(bomb, content_encoding="gzip"))
    client = make_client(max_bytes=1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(UnusableAnswer, match="larger than"):
            client.balances(wallet(1), Tally())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(
    "answer",
    [
        endless(b" " * 65536, head(status=503)),
        reply(b"not gzip", 503, content_encoding="gzip"),
        reply(b"x" * 1_000_000, 503),
    ],
)
def test_the_body_of_a_refusal_is_of_no_interest(
    provider: Provider, make_client: MakeClient, answer: Sender
) -> None:
    provider.always(answer, reply(GOOD))
    tally = Tally()
    assert make_client(max_bytes=100_000).balances(wallet(1), tally).entries
    assert tally.effort() == (2, 1)


# Time -------------------------------------------------------------------------------------------

DRIPS: dict[str, Sender] = {
    "silence": silence(),
    "headers that drip": endless(b"x: y\r\n", b"HTTP/1.1 200 OK\r\n", pause=0.05),
    "interim answers that drip": endless(head(status=100), pause=0.05),
    "a body that drips": endless(b" ", head("content-length: 999999"), pause=0.05),
    "chunks that drip": endless(b"1\r\n \r\n", head("transfer-encoding: chunked"), pause=0.05),
    "a body that stops": raw(head("content-length: 99") + b"{", then="hold"),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_an_attempt_ends_by_its_timeout_however_it_drips(
    provider: Provider, make_client: MakeClient, drip: str
) -> None:
    provider.always(DRIPS[drip])
    tally = Tally()
    began = time.monotonic()
    with pytest.raises(NoConnection, match=r"^no whole answer within 0\.5 s$"):
        make_client(timeout=0.5, attempts=2).balances(wallet(1), tally)
    assert time.monotonic() - began < 8
    assert tally.effort() == (2, 1)
    assert len(provider.requests()) == 2


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (401, 1), (503, 2)])
@pytest.mark.parametrize("body", ["cut short", "drips"])
def test_the_status_of_a_refusal_counts_whatever_becomes_of_its_body(
    provider: Provider, make_client: MakeClient, status: int, requests: int, body: str
) -> None:
    start = f"HTTP/1.1 {status} X\r\ncontent-length: 99\r\n\r\n".encode()
    provider.always(raw(start + b"x") if body == "cut short" else endless(b" ", start, pause=0.05))
    tally = Tally()
    with pytest.raises(ReadError, match=str(status)):
        make_client(timeout=0.5, attempts=2).balances(wallet(1), tally)
    assert tally.requests == requests


def test_what_drips_in_within_the_timeout_is_read(
    provider: Provider, make_client: MakeClient
) -> None:
    """Also where a pause is longer than the slices in which the client waits."""
    whole = head(f"content-length: {len(GOOD)}") + GOOD
    provider.always(raw(whole[:30], whole[30:90], whole[90:], pause=0.4, then="keep"))
    tally = Tally()
    assert make_client().balances(wallet(1), tally).entries
    assert tally.effort() == (1, 0)


# "Not now" --------------------------------------------------------------------------------------


def date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def all_threads(client: Client, count: int) -> None:
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(lambda n: client.balances(wallet(n), Tally()), range(count)))


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_holds_all_threads_back(
    provider: Provider, make_client: MakeClient, status: int, form: str
) -> None:
    def not_now(peer: Peer) -> bool:
        return reply(status=status, retry_after="1" if form == "seconds" else date(2))(peer)

    provider.always(not_now, reply(GOOD))
    client = make_client(attempts=1)
    with pytest.raises(ReadError, match=f"{status}"):
        client.balances(wallet(0), Tally())
    all_threads(client, 8)
    refused, *others = provider.requests()
    gaps = [seen.at - refused.at for seen in others]
    assert len(gaps) == 8
    assert min(gaps) >= 0.9
    assert max(gaps) - min(gaps) > 0.001, "without jitter all come back at the same instant"


def test_one_429_stops_the_requests_of_all_busy_threads(
    provider: Provider, make_client: MakeClient
) -> None:
    client = make_client()
    all_here = threading.Barrier(8)

    def answer(peer: Peer) -> bool:
        if peer.seen.number < 8:
            all_here.wait(30)
        if peer.seen.number == 0:
            return reply(status=429, retry_after="1")(peer)
        while not client.pace._pace._resume_at:  # until the refused thread has heard
            time.sleep(0.001)
        return reply(GOOD)(peer)

    provider.always(answer)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: client.balances(wallet(n), Tally()), range(40)))
    seen = provider.requests()
    assert len(seen) == 41
    assert min(x.at for x in seen[8:]) >= seen[0].at + 0.9


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("after", ["301", "99999999999999999999", "far"])
def test_more_than_five_minutes_fails_the_read_at_once(
    provider: Provider, make_client: MakeClient, status: int, after: str
) -> None:
    provider.always(
        reply(status=status, retry_after=date(400) if after == "far" else after), reply(GOOD)
    )
    tally = Tally()
    client = make_client()
    with pytest.raises(ReadError, match=rf"answered {status} and asks to wait \d+ s") as caught:
        client.balances(wallet(1), tally)
    assert caught.value.status == status
    assert tally.effort() == (1, 0)
    assert client.balances(wallet(2), Tally()).entries, "the others are not held back"


def test_five_minutes_are_waited(provider: Provider, make_client: MakeClient) -> None:
    pace = RecordingLane()
    provider.always(reply(status=429, retry_after="300"), reply(GOOD))
    client = make_client(pace=pace, attempts=1)
    with pytest.raises(ReadError, match=r"429$"):
        client.balances(wallet(1), Tally())
    assert time.monotonic() + 290 < pace._pace._resume_at <= time.monotonic() + 300


@pytest.mark.parametrize("after", ["0", "past", "soon", "-1", "1.5", "", "x" * 100])
def test_a_retry_after_that_says_nothing_leaves_the_growing_waits(
    provider: Provider, make_client: MakeClient, after: str
) -> None:
    pace = RecordingLane()
    provider.always(reply(status=503, retry_after=date(-99) if after == "past" else after))
    with pytest.raises(ReadError, match=r"503$"):
        make_client(pace=pace, attempts=4, first_wait=0.5).balances(wallet(1), Tally())
    first, second, third = [wait for wait in pace.waits if wait >= 0.5]
    assert 0.5 <= first <= 1.0 <= second <= 1.5
    assert 2.0 <= third <= 2.5


@given(
    st.text(max_size=60) | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ .\d+")
)
def test_any_retry_after_is_a_time_or_nothing(text: str) -> None:
    seconds = _retry_after(text)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    "text",
    ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:00 +99999999999999"],
)
def test_a_date_beyond_all_calendars_says_nothing(text: str) -> None:
    assert _retry_after(text) is None


# Pace -------------------------------------------------------------------------------------------


def test_the_rate_limit_spaces_requests_of_all_threads_evenly(
    provider: Provider, make_client: MakeClient
) -> None:
    provider.always(reply(GOOD))
    client = make_client(pace=Pace(50).lane())
    began = time.monotonic()
    all_threads(client, 25)
    times = sorted(seen.at for seen in provider.requests())
    assert len(times) == 25
    for number, at in enumerate(times):
        assert at - began >= number / 50


def test_a_request_with_a_new_token_keeps_to_the_rate_limit(
    provider: Provider, make_client: MakeClient
) -> None:
    provider.always(reply(status=401), reply(GOOD))
    client = make_client(pace=Pace(2).lane(), auth=Auth(token_command="echo x"))
    began = time.monotonic()
    client.balances(wallet(1), Tally())
    _, second = provider.requests()
    assert second.at - began >= 0.5


def in_wait(lane: Lane) -> bool:
    # Threading offers no other way to see that a thread waits for the event.
    return bool(lane.stopped._cond._waiters or lane._pace._ordinary)  # type: ignore[attr-defined]


@pytest.mark.parametrize("why", ["pause", "rate limit", "retry"])
def test_a_stop_wakes_a_thread_that_waits(
    provider: Provider, make_client: MakeClient, why: str
) -> None:
    pace = Pace(0.001 if why == "rate limit" else None).lane()
    provider.always(
        reply(GOOD if why == "rate limit" else b"", 200 if why == "rate limit" else 503)
    )
    client = make_client(pace=pace, first_wait=60.0)
    if why == "pause":
        pace.pause(60)
    if why == "rate limit":
        client.balances(wallet(1), Tally())

    def until_it_waits() -> None:
        while not in_wait(pace):
            time.sleep(0.005)

    took = ends_in_stopped(
        lambda: client.balances(wallet(1), Tally()), until_it_waits, pace.stopped.set
    )
    assert took < 5
    assert len(provider.requests()) == (0 if why == "pause" else 1)


def test_nothing_is_sent_after_a_stop(provider: Provider, make_client: MakeClient) -> None:
    provider.always(reply(GOOD))
    client = make_client()
    client.pace.stopped.set()
    with pytest.raises(Stopped):
        client.balances(wallet(1), Tally())
    assert provider.requests() == []


@pytest.mark.parametrize("drip", DRIPS)
def test_a_stop_ends_a_request_in_flight_and_is_no_failed_read(
    provider: Provider, make_client: MakeClient, drip: str
) -> None:
    provider.always(DRIPS[drip])
    health = Health()
    client = make_client(timeout=60.0, health=health)
    took = ends_in_stopped(
        lambda: client.balances(wallet(1), Tally()),
        lambda: provider.wait_for(1),
        client.pace.stopped.set,
    )
    assert took < 5
    assert len(provider.requests()) == 1
    assert health._unanswered == 0


def test_a_stopped_client_can_be_closed_and_left(provider: Provider) -> None:
    provider.always(silence())
    with Client(provider.url, timeout=60.0) as client:
        ends_in_stopped(
            lambda: client.token(token(1), Tally()),
            lambda: provider.wait_for(1),
            client.pace.stopped.set,
        )


# Many threads, many faults ----------------------------------------------------------------------


def test_a_fault_of_one_wallet_never_shows_in_another(
    provider: Provider, make_client: MakeClient
) -> None:
    """16 threads over a provider that answers at random with every fault there is."""
    faults = [*BREAKS.values(), *(x for x, _ in UNUSABLE.values()), reply(status=404), raw()]
    chance = random.Random(5)
    lock = threading.Lock()

    def answer(peer: Peer) -> bool:
        number = int(peer.seen.path.split("/")[3][-12:], 16)
        with lock:
            fault = chance.choice(faults) if chance.random() < 0.4 else None
        return (fault or reply(balances(entry(token(number), str(number)))))(peer)

    provider.always(answer)
    client = make_client(first_wait=0.001)
    tallies = [Tally() for _ in range(300)]

    def read(number: int) -> str:
        try:
            found = client.balances(wallet(number), tallies[number])
        except ReadError:
            return "failed"
        assert [x[:2] for x in found.entries or []] == [(token(number), str(number))]
        return "ok"

    with ThreadPoolExecutor(16) as threads:
        outcomes = list(threads.map(read, range(300)))
    assert {"ok", "failed"} == set(outcomes)
    assert sum(tally.requests for tally in tallies) == len(provider.requests())
    for number, tally in enumerate(tallies):
        asked = provider.requests(f"/v1/wallets/{wallet(number)}/nft-balances")
        assert tally.effort() == (len(asked), len(asked) - 1)


# TLS --------------------------------------------------------------------------------------------


def test_an_unknown_certificate_is_refused(certificate: str, make_client: MakeClient) -> None:
    with Provider(certificate=certificate) as secure:
        secure.always(reply(GOOD))
        with pytest.raises(NoConnection, match="certificate"):
            make_client(url=secure.url, attempts=1).balances(wallet(1), Tally())
        assert secure.requests() == []


def test_over_tls_answers_drip_in_connections_are_kept_and_a_stop_ends_the_wait(
    certificate: str, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    large = json.dumps(json.loads(GOOD) | {"x": "y" * 300_000}).encode()
    whole = head(f"content-length: {len(large)}") + large
    parts = [whole[:40], whole[40:100_000], whole[100_000:]]
    with Provider(certificate=certificate) as secure:
        secure.always(raw(*parts, pause=0.4, then="keep"), reply(GOOD), silence())
        client = make_client(url=secure.url, timeout=30.0)
        tally = Tally()
        assert client.balances(wallet(1), tally).unknown_field == "x"
        assert client.balances(wallet(1), tally).entries
        assert (tally.effort(), secure.connections) == ((2, 0), 1)
        took = ends_in_stopped(
            lambda: client.balances(wallet(1), Tally()),
            lambda: secure.wait_for(3),
            client.pace.stopped.set,
        )
        assert took < 5


def test_the_environment_sets_no_proxy(
    provider: Provider, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    provider.always(reply(GOOD))
    assert make_client().balances(wallet(1), Tally()).entries


def test_no_cookie_is_kept(provider: Provider, make_client: MakeClient) -> None:
    provider.always(reply(GOOD, set_cookie="session=1; Path=/"))
    client = make_client()
    client.balances(wallet(1), Tally())
    client.balances(wallet(1), Tally())
    assert all("cookie" not in seen.headers for seen in provider.requests())
