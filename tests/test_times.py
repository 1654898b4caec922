"""Times and durations as people write them and as they are stored."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync.errors import InputError
from nftsync.times import format_time, now, parse_duration, parse_time


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_stored_time_is_read_back_as_it_is(moment):
    stored = format_time(moment)
    assert len(stored) == 27
    assert parse_time(stored) == stored
    assert datetime.fromisoformat(stored) == moment
    assert parse_time(moment) == stored


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_stored_times_sort_as_the_times_they_name(one, other):
    assert (format_time(one) < format_time(other)) == (one < other)
    assert format_time(datetime.now(UTC)) <= now()


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31 12:00", "2026-01-31T12:00:00.000000Z"),
        ("  2026-01-31T12:00:00Z\n", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00.5+02:00", "2026-01-31T10:00:00.500000Z"),
        ("2026-01-31T23:30:00-01:00", "2026-02-01T00:30:00.000000Z"),
        ("20260131T120000Z", "2026-01-31T12:00:00.000000Z"),
        ("0005-01-01T00:00:00Z", "0005-01-01T00:00:00.000000Z"),
        ("2024-02-29", "2024-02-29T23:59:59.999999Z"),
        ("20240229", "2024-02-29T23:59:59.999999Z"),
        ("2024-W09-4", "2024-02-29T23:59:59.999999Z"),
        ("2024W094", "2024-02-29T23:59:59.999999Z"),
        (date(2026, 1, 31), "2026-01-31T23:59:59.999999Z"),
        (datetime(2026, 1, 31), "2026-01-31T00:00:00.000000Z"),  # noqa: DTZ001
        (
            datetime(2026, 1, 31, tzinfo=timezone(timedelta(hours=5.5))),
            "2026-01-30T18:30:00.000000Z",
        ),
    ],
)
def test_a_time_without_an_offset_is_utc_and_a_bare_date_the_end_of_that_day(written, stored):
    assert parse_time(written) == stored


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-02-30", "2026-13-01", "2026-01-31T25:00", "1767225600", "31.01.2026"),
        *("2026-W05", "2026W05", "2026-01", "2026", "x" * 1000, "0000-01-01"),
        "2026-01-31T12:00:00+99:00",
    ],
)
def test_what_names_no_time_or_day_is_refused_with_the_text_and_an_example(text):
    with pytest.raises(InputError) as caught:
        parse_time(text)
    assert repr(text) in str(caught.value)
    assert "2026-01-31" in str(caught.value)


def test_a_time_outside_the_calendar_in_utc_is_refused():
    for text in ("0001-01-01T00:00+01:00", "9999-12-31T23:30-01:00"):
        for value in (text, datetime.fromisoformat(text)):
            with pytest.raises(InputError, match="outside the years 1 to 9999"):
                parse_time(value)


@given(st.text(alphabet="0123456789-+:TZW. ", max_size=30) | st.text(max_size=30))
def test_any_text_is_a_time_or_refused(text):
    with suppress(InputError):
        assert len(parse_time(text)) == 27


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("6h", 21_600), ("7d", 604_800), ("0s", 0), (" 1d ", 86_400)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


def test_what_is_no_duration_or_leads_out_of_the_calendar_is_refused():
    for text in ("", "5", "h", "1.5h", "-1h", "1 h", "1H", "1w", "1h30m", "１h", "PT1H", "1h\nx"):
        with pytest.raises(InputError, match="write 90s, 15m, 6h or 7d"):
            parse_duration(text)
    for text in ("999999999d", "3000000d", "99999999h"):
        with pytest.raises(InputError, match="too long a duration"):
            parse_duration(text)
    assert datetime.now(UTC) - parse_duration("36525d") < datetime.now(UTC)
