from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.provider.waits import asked_wait

AT = "Wed, 21 Oct 2026 07:28:00 GMT"
EPOCH = int(datetime(2026, 10, 21, 7, 28, tzinfo=UTC).timestamp())


def asked(status: int = 429, **headers: str) -> float | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asked_wait(status, {"date": AT, **named})


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
