"""Waits that the provider asks for: their forms, and their effect on reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.provider.waits import asked_wait
from tests.kit.faults import GOOD
from tests.kit.provider import head, raw, reply

AT = "Wed, 21 Oct 2026 07:28:00 GMT"
EPOCH = int(datetime(2026, 10, 21, 7, 28, tzinfo=UTC).timestamp())


def asked(status: int = 429, **headers: str) -> float | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asked_wait(status, {"date": AT, **named})


# Forms --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        *(("120", 120), (" 7\t", 7), ("007", 7), ("+3", 3), ("0", 0), ("-5", 0), ("-0.5", 0)),
        *(("1.5", 1.5), ("2.", 2), (".5", 0.5), ('"30"', 30), ("2s", 2), ("3 seconds", 3)),
        *(("2, 5", 5), ("5,2", 5), ("5, 5", 5), ("soon, 4", 4), ("7, ", 7), ("1,5", 5)),
        ("Wed, 21 Oct 2026 07:29:30 GMT", 90),
        ("Wednesday, 21-Oct-26 07:29:30 GMT", 90),
        ("Wed Oct 21 07:29:30 2026", 90),
        ("wed, 21 oct 2026 07:29:30 gmt", 90),
        ("Mon, 21 Oct 2026 07:29:30 GMT", 90),  # the wrong day of the week
        ("21 Oct 2026 07:29:30 GMT", 90),
        ("Wed, 21 Oct 26 07:29:30 GMT", 90),
        ("Wed, 21 Oct 2026 09:29:30 +0200", 90),
        ("Wed, 21 Oct 2026 07:29:30", 90),
        *(("2026-10-21T07:29:30Z", 90), ("2026-10-21T09:29:30.5+02:00", 90.5)),
        (f"3, Wed, 21 Oct 2026 07:29:30 GMT, {AT}", 90),
        (AT, 0),
        *(("Sun, 06 Nov 1994 08:49:37 GMT", 0), ("Sunday, 06-Nov-94 08:49:37 GMT", 0)),
        *((str(EPOCH + 60), 60), (f"{EPOCH + 60}.25", 60.25), (f"{EPOCH + 60}000", 60)),
        (str(EPOCH - 60), 0),
        ("9999999", 9_999_999),
        *((text, None) for text in ("", " ", ",", "soon", "nan", "inf", "0x10", "1_0", "١", "--1")),
        *((text, None) for text in ("Wed", "Wed, 99 Oct 2026 07:29:30 GMT", "1 2", "12:00")),
    ],
)
def test_a_wait_is_understood_in_any_form(text, wait):
    got = asked(retry_after=text)
    assert got == (None if wait is None else pytest.approx(wait, abs=0.01))
    assert asked(x_ratelimit_reset=text) == got


@pytest.mark.parametrize("text", ["9" * 20, "9" * 5_000, "99999999999", "9" * 13])
def test_a_huge_number_is_a_long_wait(text):
    assert 10**9 < asked(retry_after=text) < float("inf")


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"ratelimit_reset": "5"}, 5),
        ({"x_ratelimit_reset": "1.5"}, 1.5),
        ({"x_rate_limit_reset": str(EPOCH + 5)}, 5),
        ({"x_ratelimit_reset": f"{EPOCH + 5}000"}, 5),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": "5"}, 5),
        ({"x_ratelimit_remaining": "-1", "x_ratelimit_reset": "5"}, 5),
        # The limit is not the reason.
        ({"x_ratelimit_remaining": "12", "x_ratelimit_reset": "3000"}, None),
        ({"ratelimit": "limit=100, remaining=0, reset=5"}, 5),
        ({"ratelimit": "limit=100,remaining=1,reset=5"}, None),
        ({"ratelimit": "Limit=100, Remaining=0, Reset=5"}, 5),
        ({"ratelimit": '"default";r=0;t=5'}, 5),
        ({"ratelimit": "default; r=0; t=5"}, 5),
        ({"ratelimit": '"a,r=0;t=9";r=0;t=5, "day";r=70;t=40000'}, 5),
        ({"ratelimit": '"minute";r=0;t=5, "hour";r=0;t=50'}, 50),
        ({"ratelimit": '"default";q=100;w=60'}, None),
        ({"ratelimit": "unlimited", "ratelimit_policy": '"default";q=9;w=60'}, None),
        # Retry-After goes first.
        ({"retry_after": "2", "ratelimit_reset": "50", "ratelimit": "remaining=0, reset=9"}, 2),
        ({"retry_after": "0", "x_ratelimit_reset": "50"}, 0),
        ({"retry_after": "soon", "x_ratelimit_reset": "50"}, 50),
    ],
)
def test_without_retry_after_the_reset_of_an_exhausted_limit_counts(headers, wait):
    for status in (429, 503):
        assert asked(status, **headers) == (None if wait is None else pytest.approx(wait))


def test_a_reset_beside_another_status_counts_only_if_no_request_remains():
    reset = {"x_ratelimit_reset": "5"}
    for status in (403, 408, 500, 502):
        assert asked(status, **reset) is None
        assert asked(status, **reset, x_ratelimit_remaining="0") == 5
        assert asked(status, ratelimit='"default";r=0;t=5') == 5
        assert asked(status, retry_after="4", **reset, x_ratelimit_remaining="3") == 4
    for status in (200, 301, 304, 400, 401, 404, 413):
        assert asked(status, retry_after="4", **reset, x_ratelimit_remaining="0") is None


_ANY = st.text(max_size=20) | st.builds(
    "{}{}, {} Jan {} {}:00:00 {}".format,
    st.sampled_from(["", "2, ", "-1,"]),
    st.sampled_from(["Mon", "5", ""]),
    *[st.integers(-9, 9999)] * 4,
)


@settings(max_examples=60)
@given(_ANY, _ANY, st.sampled_from(["retry-after", "ratelimit", "x-ratelimit-reset"]))
def test_any_wait_is_a_time_or_nothing(text, at, name):
    seconds = asked_wait(429, {name: text, "date": at})
    assert seconds is None or 0 <= seconds < float("inf")


# Reads ------------------------------------------------------------------------------------------


def date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def in_two_seconds() -> str:
    return str(int(datetime.now(UTC).timestamp()) + 2)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, lambda: {"retry_after": "1"}),
        (503, lambda: {"retry_after": date(2)}),
        (403, lambda: {"x_ratelimit_remaining": "0", "x_ratelimit_reset": in_two_seconds()}),
        (429, lambda: {"ratelimit": '"default";r=0;t=1'}),
    ],
)
def test_a_wait_delays_all_threads(provider, make_client, status, headers):
    provider.always(lambda peer: reply(status=status, **headers())(peer), reply(GOOD))
    client = make_client(attempts=1)
    client.fails(f"{status}")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(client.balances, range(8)))
    refused, *others = provider.requests()
    gaps = [seen.at - refused.at for seen in others]
    assert len(gaps) == 8
    assert min(gaps) >= 0.9
    assert max(gaps) - min(gaps) > 0.001, "no jitter"


def test_two_headers_of_one_name_are_a_list(provider, make_client):
    both = head("retry-after: 1", "retry-after: 301", "content-length: 0", status=429)
    provider.always(raw(both, then="keep"))
    make_client().fails("asks to wait 301 s")


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, {"retry_after": "301"}),
        (503, {"retry_after": "9" * 20}),
        (429, {"retry_after": "far"}),
        (403, {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "3600"}),
        (429, {"ratelimit": "limit=9, remaining=0, reset=301"}),
    ],
)
def test_a_wait_of_more_than_five_minutes_fails_the_read_at_once(
    provider, make_client, status, headers
):
    headers = {name: date(400) if value == "far" else value for name, value in headers.items()}
    provider.always(reply(status=status, **headers), reply(GOOD))
    client = make_client()
    client.fails(rf"answered {status} .* and asks to wait \d+ s, longer than 300 s$")
    assert client.last == (1, 0)
    assert client.balances(2).entries, "other reads do not wait"


def test_a_date_is_compared_with_the_clock_of_the_provider(provider, make_client):
    """Here, it is ten minutes fast."""
    at = datetime.now(UTC).timestamp()
    for later in ({"retry_after": date(601)}, {"x_ratelimit_reset": str(int(at) + 601)}):
        provider.always(reply(status=429, **later, date=date(600)), reply(GOOD))
        assert make_client().balances().entries
        assert asked_wait(429, {"retry-after": date(602)}) > 600


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("status", [403, 408, 421, 425, 429, 500])
def test_a_retry_uses_a_new_connection(provider, make_client, status, close):
    headers = {"retry_after": "0"} | ({"connection": "close"} if close else {})
    provider.always(reply(GOOD), reply(b"", status, **headers), reply(GOOD))
    client = make_client()
    client.balances(1)
    assert client.balances(2).entries
    assert client.last == (2, 1)
    assert [seen.connection for seen in provider.requests()] == [1, 1, 2]
