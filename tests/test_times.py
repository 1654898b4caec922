import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync.errors import InputError
from nftsync.times import format_time, now, parse_duration, parse_time, up_to_now

IN_UTC = "; days and times without an offset are UTC"
INDIA = timezone(timedelta(hours=5.5))
MOMENTS = st.datetimes(timezones=st.just(UTC))


@given(MOMENTS, MOMENTS)
def test_stored_times_sort_as_the_times_they_name_and_are_read_back(one, other):
    stored = format_time(one)
    assert len(stored) == 27
    assert parse_time(stored) == parse_time(one) == stored
    assert datetime.fromisoformat(stored) == one
    assert (stored < format_time(other)) == (one < other)
    assert format_time(datetime.now(UTC)) <= now()


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31 12:00", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T00:00", "2026-01-31T00:00:00.000000Z"),
        ("  2026-01-31T12:00:00Z\n", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00.5+02:00", "2026-01-31T10:00:00.500000Z"),
        ("2026-01-31T23:30:00-01:00", "2026-02-01T00:30:00.000000Z"),
        ("20260131T120000Z", "2026-01-31T12:00:00.000000Z"),
        ("0005-01-01T00:00:00Z", "0005-01-01T00:00:00.000000Z"),
        (datetime(2026, 1, 31), "2026-01-31T00:00:00.000000Z"),  # noqa: DTZ001
        (datetime(2026, 1, 31, tzinfo=INDIA), "2026-01-30T18:30:00.000000Z"),
    ],
)
def test_a_time_without_an_offset_is_utc_whatever_it_is_for(written, stored):
    assert parse_time(written, "start") == parse_time(written, "end") == stored


@given(st.dates())
def test_a_day_is_its_start_where_something_begins_and_else_its_end(day):
    year, week, weekday = day.isocalendar()
    written = [day, day.isoformat(), f" {day.isoformat().replace('-', '')}\n"]
    if 1 <= year <= 9999:
        written += [f"{year:04}-W{week:02}-{weekday}", f"{year:04}W{week:02}{weekday}"]
    for one in written:
        assert parse_time(one, "start") == parse_time(one) == f"{day.isoformat()}T00:00:00.000000Z"
        assert parse_time(one, "end") == f"{day.isoformat()}T23:59:59.999999Z"


def test_today_and_yesterday_are_days_in_utc():
    for text, ago in (("today", 0), (" yesterday\n", 1)):
        before = datetime.now(UTC).date()
        start, end = parse_time(text, "start"), parse_time(text, "end")
        days = {before - timedelta(ago), datetime.now(UTC).date() - timedelta(ago)}
        assert date.fromisoformat(start[:10]) in days
        assert date.fromisoformat(end[:10]) in days
        assert (start[10:], end[10:]) == ("T00:00:00.000000Z", "T23:59:59.999999Z")


@given(st.integers(0, 36_525), st.sampled_from("smhd"), st.sampled_from(["start", "end"]))
def test_a_duration_is_so_long_ago_to_either_edge(count, unit, edge):
    before = datetime.now(UTC)
    moment = datetime.fromisoformat(parse_time(f"{count}{unit}", edge))
    assert before <= moment + parse_duration(f"{count}{unit}") <= datetime.now(UTC)


def ahead(**by):
    return format_time(datetime.now(UTC) + timedelta(**by))


def test_what_has_begun_is_taken_and_of_a_day_under_way_the_present(one_day):
    def never():
        raise AssertionError("asked")

    for moment in (ahead(), ahead(seconds=-1), ahead(seconds=50), "0001-01-01T00:00:00.000000Z"):
        assert up_to_now(moment, never) == moment
    assert up_to_now(parse_time("yesterday", "end"), never) == parse_time("yesterday", "end")
    clock = datetime.now(UTC)
    for day in ("today", clock.date()):
        present = up_to_now(parse_time(day, "end"), lambda: None)
        assert format_time(clock) <= present <= now()
    # The clock of stored rows may have been ahead.
    stored = ahead(minutes=30)
    assert up_to_now(stored, lambda: stored) == stored
    tomorrow = parse_time(clock.date() + timedelta(days=1), "end")
    far = ahead(days=9)
    assert up_to_now(tomorrow, lambda: far) == tomorrow
    assert up_to_now(parse_time(date.fromisoformat(far[:10]), "end"), lambda: far) == far


@pytest.mark.parametrize(
    ("by", "said"), [({"minutes": 2}, IN_UTC), ({"hours": 13}, IN_UTC), ({"days": 5 * 366}, "")]
)
def test_a_time_to_come_is_refused_with_the_time_it_is(by, said):
    moment = ahead(**by)
    with pytest.raises(InputError) as caught:
        up_to_now(moment, now)
    told = rf"{re.escape(moment)} is in the future: it is \S+Z now{said}"
    assert re.fullmatch(told, str(caught.value))


def test_a_day_of_the_next_year_may_have_been_one_of_this():
    clock = datetime.now(UTC)
    day = clock.date().replace(month=1, day=2, year=clock.year + 1)
    for edge in ("start", "end"):
        with pytest.raises(InputError) as caught:
            up_to_now(parse_time(day, edge), lambda: None)
        assert str(caught.value).startswith(f"{day} is in the future: it is {clock.year}")
        if (clock.month, clock.day) != (1, 1):
            meant = ("; did you mean", "; days and times")  # in its last hours the year is ahead
            assert any(each in str(caught.value) for each in meant)


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "Today", "to day", "tomorrow", "7 d", "-7d", "7d ago", "2026-02-30"),
        *("2026-13-01", "2026-01-31T25:00", "1767225600", "31.01.2026"),
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


@given(
    st.text(alphabet="0123456789-+:TZW. smhd", max_size=30)
    | st.text(max_size=30)
    | st.from_regex(r"\A\d{1,40}[smhdw]?\Z"),
    st.sampled_from(["start", "end"]),
)
def test_any_text_is_a_time_or_a_duration_or_refused(text, edge):
    with suppress(InputError):
        stored = parse_time(text, edge)
        assert len(stored) == 27
        assert datetime.fromisoformat(stored).tzinfo is not None
    with suppress(InputError):
        assert parse_duration(text) >= timedelta()


def test_a_duration_is_a_number_and_a_unit_and_stays_in_the_calendar():
    texts = {"90s": 90, "15m": 900, "6h": 21_600, "7d": 604_800, "0s": 0, " 1d ": 86_400}
    assert {text: parse_duration(text).total_seconds() for text in texts} == texts
    for text in ("", "5", "h", "1.5h", "-1h", "1 h", "1H", "1w", "1h30m", "１h", "PT1H", "1h\nx"):
        with pytest.raises(InputError, match="^[^\n]*write 90s, 15m, 6h or 7d"):
            parse_duration(text)
    for text in ("999999999d", "3000000d", "99999999h"):
        with pytest.raises(InputError, match="too long a duration"):
            parse_duration(text)
    assert datetime.now(UTC) - parse_duration("36525d") < datetime.now(UTC)
