"""Charts over time and of webhooks, compared with plain Python."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import charts, frames
from nftsync.errors import InputError
from tests.charts.world import World, holdings_at, log_of, played
from tests.kit.database import at, wallet_id

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(the history begins|no balances are known):nftsync.NftsyncWarning"
)


DAY = 86_400
#: Seconds since the last change, wallet, token, amount afterwards.
CHANGES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 59, 3_600, DAY * 3]),
        st.integers(1, 4),
        st.integers(1, 6),
        st.sampled_from([None, "0", "1", "2", "1.5", str(2**256 - 1)]),
    ),
    min_size=1,
    max_size=40,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return the path of a new database."""
    return tmp_path_factory.mktemp("time") / "nftsync.db"


@settings(max_examples=20)
@given(changes=CHANGES, every=st.sampled_from([None, "6h", "D", "W-WED", "ME"]))
def test_the_line_is_exact_at_each_of_its_points(path, changes, every):
    played(path, changes)
    figure, log = charts.holdings_over_time(path, every=every), log_of(path)
    assert bool(figure.data) == log.loc[~log["baseline"], "moved"].any()
    if not figure.data:
        return
    line = figure.data[0]
    assert line.line.shape == "hv"
    assert [holdings_at(log, x) for x in line.x] == list(line.y)


@settings(max_examples=15)
@given(changes=CHANGES, by=st.sampled_from(["contract_address", "wallet_group", "wallet_id"]))
def test_lines_of_groups_and_the_rest_add_up_to_all_holdings(path, changes, by):
    played(path, changes)
    figure, log = charts.holdings_over_time(path, by=by, top=2), log_of(path)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    for sums, x in zip(
        zip(*(line.y for line in lines), strict=True), lines[0].x if lines else [], strict=True
    ):
        assert sum(sums) == holdings_at(log, x)
    ends = [line.y[-1] for line in lines if "other" not in line.name]
    assert ends == sorted(ends, reverse=True)


def test_lines_end_at_the_last_read_and_start_at_since(path):
    world = World.empty(path, read_at=500)
    world.change(1, 1, "1", 0)
    world.change(1, 2, "1", 100)
    world.close()
    (line, _) = charts.holdings_over_time(path).data
    assert (line.x[-1], line.y[-1]) == (at(500).rstrip("Z"), 2)
    (line,) = charts.holdings_over_time(path, since=at(50), freq="5m").data
    ends = [at(50).rstrip("Z"), "2026-03-01T00:04:59.999999", at(500).rstrip("Z")]
    assert list(line.x) == ends
    assert list(line.y) == [1, 2, 2]
    (line,) = charts.holdings_over_time(path, since=at(50)).data
    assert list(line.x) == [ends[0], ends[2]], "a sync is not drawn by the second"
    later = charts.holdings_over_time(path, since=at(501))
    assert "since the given time" in later.layout.annotations[0].text


def test_first_reads_are_marked_and_excluded_wallets_count_nowhere(path):
    changes = [(0, 1, 1, "1"), (0, 1, 2, "1"), (60, 2, 1, "1"), (50, 1, 3, "1"), (3_600, 3, 1, "4")]
    played(path, changes)
    marks = charts.holdings_over_time(path).data[1]
    assert list(marks.x) == [at(60).rstrip("Z"), at(3_710).rstrip("Z")], "a mark per sync"
    assert list(marks.y) == [4, 5], "initial holdings count from the beginning"
    assert "3 initial holdings" in marks.hovertext[0]
    assert "1 initial holding<" in marks.hovertext[1]
    alone = charts.holdings_over_time(path, exclude=wallet_id(1).upper())
    assert not alone.data
    assert "2 initial holdings; no arrivals" in alone.layout.annotations[0].text
    assert charts.arrivals_and_departures(path).data
    assert not charts.arrivals_and_departures(path, exclude=[wallet_id(1)]).data


def test_a_line_has_at_most_2000_points_each_exact(path):
    world = World.empty(path, wallets=1, tokens=50)
    counts, held = {}, set()
    for second in range(3_000):
        token = second * second % 47 + 1
        world.change(1, token, None if token in held else "1", second)
        held ^= {token}
        counts[at(second)[:19]] = len(held)
    world.close()
    line = charts.holdings_over_time(path, every="2s").data[0]
    assert len(line.x) == 1_501
    assert [counts[x[:19]] for x in line.x[1:]] == list(line.y)[1:]
    assert line.y[-1] == len(held)
    with pytest.raises(InputError, match="3,000 periods are more than 2,000"):
        charts.holdings_over_time(path, every="1s")
    with pytest.raises(InputError, match="2,999 periods"):
        charts.arrivals_and_departures(path, every="1s")


@settings(max_examples=20)
@given(changes=CHANGES, every=st.sampled_from(["1s", "1h", "1d", "7d", None]))
def test_bars_count_arrivals_and_departures_in_each_period(path, changes, every):
    if every == "1s":
        changes = [(min(wait, 59), *rest) for wait, *rest in changes[:12]]
    played(path, changes)
    figure, log = charts.arrivals_and_departures(path, every=every), log_of(path)
    log = log[~log["baseline"]]
    if not log["moved"].any():
        assert not figure.data
        return
    for trace, sign in zip(figure.data, (1, -1), strict=True):
        times = log["at"][log["moved"] == sign]
        assert sign * sum(trace.y) == len(times)
        if every is None:
            assert len(trace.x) <= 60
            continue
        counts = {
            floored(pd.Timestamp(x, tz="UTC"), every): sign * y
            for x, y in zip(trace.x, trace.y, strict=True)
        }
        assert counts == Counter(floored(time, every) for time in times)


def floored(time: pd.Timestamp, every: str) -> pd.Timestamp:
    if every == "7d":
        time -= timedelta(days=time.weekday())
    return time.floor({"1s": "1s", "1h": "1h"}.get(every, "1D"))


def arrived_and_left(diff: pd.DataFrame) -> list[int]:
    moved = [
        {"arrived": 1, "left": -1, "first_seen": 0}.get(
            kind, 0 if None in (old, new) else new - old
        )
        for kind, old, new in zip(diff["kind"], diff["before"], diff["after"], strict=True)
    ]
    return [sum(step > 0 for step in moved), sum(step < 0 for step in moved)]


def received_and_sent(transfers: pd.DataFrame) -> list[int]:
    return [int(transfers[side].notna().sum()) for side in ("to_wallet_id", "from_wallet_id")]


@pytest.mark.filterwarnings("ignore:.* excluded:nftsync.NftsyncWarning")
@settings(max_examples=20)
@given(changes=CHANGES)
def test_bars_of_a_frame_are_its_arrivals_and_departures(path, changes):
    played(path, changes)
    for frame, counted in (
        (frames.diff(path, at(-1)), arrived_and_left),
        (frames.transfers(path), received_and_sent),
    ):
        figure, counts = charts.arrivals_and_departures(frame), counted(frame)
        assert [sign * sum(bars.y) for sign, bars in zip((1, -1), figure.data, strict=False)] == (
            counts if any(counts) else []
        )


@pytest.mark.parametrize(
    ("times", "period"),
    [
        ([0, 100], "one bar per hour"),
        ([0, 100, 800], "one bar per hour"),
        ([0, *range(100, 400 * DAY, 7 * DAY)], "one bar per week"),
        ([0, *range(100, 1_200 * DAY, 7 * DAY)], "one bar per month"),
        ([0, *range(0, 45 * DAY, DAY)], "one bar per day"),
    ],
)
def test_the_chosen_period_fits_the_changes(path, times, period):
    """The first read is a second before the other changes."""
    world = World.empty(path, wallets=1, tokens=len(times))
    for token, second in enumerate(times, start=1):
        world.change(1, token, "1", second + (token > 1))
    world.close()
    assert period in charts.arrivals_and_departures(path).layout.xaxis.title.text


def test_a_comparison_takes_no_options_of_a_database(path):
    played(path, [(0, 1, 1, "1")])
    diff = frames.diff(path, at(-1))
    assert "No arrivals" in charts.arrivals_and_departures(diff).layout.annotations[0].text
    for option in ({"since": at(0)}, {"exclude": [wallet_id(1)]}):
        with pytest.raises(InputError, match="frames.diff"):
            charts.arrivals_and_departures(diff, **option)
    with pytest.raises(InputError, match="changed_at"):
        charts.arrivals_and_departures(diff.drop(columns="changed_at"))
    with pytest.raises(InputError, match="observed_at"):
        charts.arrivals_and_departures(frames.transfers(path).drop(columns="observed_at"))


# Webhooks -----------------------------------------------------------------------------------------


START = pd.Timestamp("2026-03-01", tz="UTC")
WAITING = ("pending", "running", "failed")


GIVEN_UP = ("dead", "unrouted", "quarantined")
#: Milliseconds: received after the start, sent before that, finished after it; and the state.
WEBHOOKS = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.integers(-50, 100_000),
        st.integers(0, 10**7),
        st.sampled_from([*WAITING, *GIVEN_UP, "done"]),
    ),
    max_size=30,
)


def webhook_frame(webhooks: list[tuple[int, int, int, str]]) -> pd.DataFrame:
    received, lag, work, state = map(list, zip(*webhooks, strict=True)) if webhooks else [[]] * 4
    came = START + pd.to_timedelta(received, unit="ms")
    sent = came - pd.to_timedelta(lag, unit="ms")
    done = pd.Series(came + pd.to_timedelta(work, unit="ms"))
    return pd.DataFrame(
        {
            "created_at_utc": pd.Series([each.isoformat() for each in sent], dtype="str"),
            "received_at": came,
            "finished_at": done.mask(pd.Series(state, dtype="str").isin(WAITING)),
            "state": pd.Series(state, dtype="str"),
        }
    )


@settings(max_examples=25)
@given(webhooks=WEBHOOKS)
def test_lag_lines_are_cumulative_shares(webhooks):
    figure = charts.webhook_lag(webhook_frame(webhooks))
    arriving = sorted(lag / 1_000 for _, lag, _, _ in webhooks if lag >= 0)
    working = sorted(work / 1_000 for _, _, work, state in webhooks if state == "done")
    lags = [lags for lags in (arriving, working) if lags]
    assert len(figure.data) == 2 * len(lags)
    for line, marks, each in zip(figure.data[::2], figure.data[1::2], lags, strict=True):
        assert list(line.x) == pytest.approx([max(lag, 0.001) for lag in each])
        assert list(line.y) == pytest.approx(
            [100 * rank / len(each) for rank in range(1, len(each) + 1)]
        )
        for share, x in zip((50, 90, 99), marks.x, strict=True):
            # The shortest lag that this share did not exceed.
            kept = [lag for lag in each if max(lag, 0.001) <= x + 1e-9]
            assert len(kept) * 100 >= share * len(each)
            assert x == pytest.approx(max(min(kept[-1:]), 0.001))
            fewer = [lag for lag in each if lag < kept[-1]]
            assert len(fewer) * 100 < share * len(each)
    if early := sum(lag < 0 for _, lag, _, _ in webhooks):
        assert f"{early} received before" in figure.layout.title.subtitle.text


@settings(max_examples=25)
@given(webhooks=WEBHOOKS)
def test_backlog_is_the_received_and_unsettled_webhooks(webhooks):
    figure = charts.webhook_backlog(webhook_frame(webhooks))
    if not webhooks:
        assert not figure.data
        return

    def counts(time: str) -> tuple[int, int]:
        now = datetime.fromisoformat(time)
        waiting = given_up = 0
        for received, _, work, state in webhooks:
            came = START + timedelta(milliseconds=received)
            ended = state not in WAITING and came + timedelta(milliseconds=work) <= now
            waiting += came <= now and not ended
            given_up += ended and state in GIVEN_UP
        return waiting, given_up

    line = figure.data[0]
    assert [counts(f"{x}Z")[0] for x in line.x] == list(line.y)
    assert len(figure.data) == 1 + any(state in GIVEN_UP for *_, state in webhooks)
    if len(figure.data) == 2:
        lost = figure.data[1]
        assert [counts(f"{x}Z")[1] for x in lost.x] == list(lost.y)


def test_unreadable_times_are_left_out_and_counted(tmp_path):
    world = World.empty(tmp_path / "nftsync.db")
    sent = [
        *(at(0), "2026-03-01T00:00:00.0000001+00:00", "2026-03-01T02:00:00+02:00"),
        *("2026-03-01T00:00:00", None, "", "yesterday", "2026-03-01", "2026-13-01T00:00:00Z"),
        *("9" * 5_000, "0001-01-01T00:00:00+14:00"),
    ]
    done = {"received_at": at(2), "finished_at": at(5), "state": "done"}
    figure = charts.webhook_lag(world.close(*({"created_at_utc": text, **done} for text in sent)))
    subtitle = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "7 without a readable createdAtUtc" in subtitle
    assert figure.layout.yaxis.title.text == "share of webhooks (%)"
    arriving, marks, working, _ = figure.data
    assert list(arriving.x) == [2, 2, 2, 2]
    assert set(working.x) == {3}
    assert "median 2 s" in marks.name


def test_many_webhooks_are_drawn_with_few_points():
    webhooks = [(index * 3, index % 997, index % 5_003, "done") for index in range(5_000)]
    frame = webhook_frame(webhooks)
    assert sum(len(trace.x) for trace in charts.webhook_lag(frame).data) <= 1_010
    (line,) = charts.webhook_backlog(frame).data
    assert len(line.x) <= 2_000
    assert line.y[-1] == 0
