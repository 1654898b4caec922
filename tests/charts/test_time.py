"""Charts over time and of webhooks, compared with frames and plain Python."""

from collections import Counter
from datetime import datetime, timedelta
from itertools import accumulate

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import charts, frames
from nftsync.errors import InputError
from tests.charts.world import played
from tests.kit.database import Builder, at, wallet_id
from tests.kit.serve_process import query

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(the history begins|no balances are known|.* excluded):nftsync.NftsyncWarning"
)
DAY = 86_400
CHANGES = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(1, 6),
        st.sampled_from([None, "0", "1", "2", "1.5", str(2**256 - 1)]),
        st.sampled_from([0, 1, 59, 3_600, DAY * 3]),
    ),
    min_size=1,
    max_size=40,
).map(lambda changes: [*accumulate(changes, lambda last, one: (*one[:3], last[3] + one[3]))])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return the path of a new database."""
    return tmp_path_factory.mktemp("time") / "nftsync.db"


def holdings_at(steps: pd.DataFrame, plotted: str) -> int:
    """Return the number of holdings after all first reads and all changes up to a time."""
    before = steps[steps["at"] <= pd.Timestamp(plotted, tz="UTC")]
    return steps["first_seen"].sum() + before["arrived"].sum() - before["left"].sum()


@settings(max_examples=20)
@given(changes=CHANGES, every=st.sampled_from([None, "6h", "D", "W-WED", "ME"]))
def test_the_line_is_exact_at_each_of_its_points(path, changes, every):
    played(path, changes)
    figure, steps = charts.holdings_over_time(path, every=every), frames.holdings_over_time(path)
    assert bool(figure.data) == steps[["arrived", "left"]].any(axis=None)
    if figure.data:
        line = figure.data[0]
        assert line.line.shape == "hv"
        assert [holdings_at(steps, x) for x in line.x] == list(line.y)


@settings(max_examples=12)
@given(changes=CHANGES, by=st.sampled_from(["contract_address", "wallet_group", "wallet_id"]))
def test_lines_of_groups_and_the_rest_add_up_to_all_holdings(path, changes, by):
    played(path, changes)
    figure = charts.holdings_over_time(path, by=by, top=2)
    steps = frames.holdings_over_time(path)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    for *counts, x in zip(*(line.y for line in lines), lines[0].x if lines else [], strict=True):
        assert sum(counts) == holdings_at(steps, x)
    ends = [line.y[-1] for line in lines if "other" not in line.name]
    assert ends == sorted(ends, reverse=True)


def test_lines_end_at_the_last_read_and_start_at_since(path):
    played(path, [(1, 1, "1", 0), (1, 2, "1", 100)], read_at=500)
    begin, end = at(50).rstrip("Z"), at(500).rstrip("Z")
    (line, _) = charts.holdings_over_time(path).data
    assert (line.x[-1], line.y[-1]) == (end, 2)
    (line,) = charts.holdings_over_time(path, since=at(50), freq="5m").data
    assert list(line.x) == [begin, "2026-03-01T00:04:59.999999", end]
    assert list(line.y) == [1, 2, 2]
    (line,) = charts.holdings_over_time(path, since=at(50)).data
    assert list(line.x) == [begin, end], "a sync is not drawn by the second"
    later = charts.holdings_over_time(path, since=at(501))
    assert "since the given time" in later.layout.annotations[0].text


def test_the_line_of_several_databases_is_their_sum(path, tmp_path):
    played(path, [(1, 1, "1", 0), (1, 2, "1", 300)])
    other = played(tmp_path / "other.db", [(1, 1, "1", 100), (1, 1, None, 200)])
    query(other, "UPDATE wallets SET wallet_id = '9' || substr(wallet_id, 2)")
    steps = frames.holdings_over_time([path, other])
    line = charts.holdings_over_time([path, other], every="1m").data[0]
    assert len(line.x) == 7
    assert [holdings_at(steps, time) for time in line.x] == list(line.y)


def test_first_reads_are_marked_and_excluded_wallets_count_nowhere(path):
    changes = [(1, 1, "1", 0), (1, 2, "1", 0), (2, 1, "1", 60), (1, 3, "1", 110)]
    played(path, [*changes, (3, 1, "4", 3_710)])
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


def test_more_than_2000_periods_are_refused(path):
    played(path, [(1, 1, "1", 0), (1, 2, "1", 1), (1, 3, "1", 2_999)])
    assert len(charts.holdings_over_time(path, every="2s").data[0].x) == 1_501
    with pytest.raises(InputError, match="3,000 periods are more than 2,000"):
        charts.holdings_over_time(path, every="1s")
    with pytest.raises(InputError, match="2,999 periods"):
        charts.arrivals_and_departures(path, every="1s")


def floored(time: pd.Timestamp, every: str) -> pd.Timestamp:
    if every == "7d":
        time -= timedelta(days=time.weekday())
    return time.floor({"1s": "1s", "1h": "1h"}.get(every, "1D"))


@settings(max_examples=20)
@given(changes=CHANGES, every=st.sampled_from(["1s", "1h", "1d", "7d", None]))
def test_bars_count_arrivals_and_departures_in_each_period(path, changes, every):
    if every == "1s":  # 2,000 bars at most
        changes = [change for change in changes if change[3] < 2_000] or [(1, 1, "1", 0)]
    played(path, changes)
    figure, steps = (
        charts.arrivals_and_departures(path, every=every),
        frames.holdings_over_time(path),
    )
    if not steps[["arrived", "left"]].any(axis=None):
        assert not figure.data
        return
    for bars, name, sign in zip(figure.data, ("arrived", "left"), (1, -1), strict=True):
        assert sign * sum(bars.y) == steps[name].sum()
        if every is None:
            assert len(bars.x) <= 60
            continue
        counts = Counter()
        for time, count in zip(steps["at"], steps[name], strict=True):
            counts[floored(time, every)] += count
        times = [floored(pd.Timestamp(x, tz="UTC"), every) for x in bars.x]
        assert dict(zip(times, (sign * y for y in bars.y), strict=True)) == +counts


@settings(max_examples=15)
@given(changes=CHANGES)
def test_bars_of_a_frame_are_its_arrivals_and_departures(path, changes):
    played(path, changes)
    diff, transfers = frames.diff(path, at(-1)), frames.transfers(path)
    grown = np.sign(diff["after"].astype(float) - diff["before"].astype(float)).fillna(0)
    moved = diff["kind"].map({"arrived": 1, "left": -1, "first_seen": 0}).fillna(grown)
    sides = [transfers[side].notna().sum() for side in ("to_wallet_id", "from_wallet_id")]
    for frame, counts in ((diff, [(moved > 0).sum(), (moved < 0).sum()]), (transfers, sides)):
        figure = charts.arrivals_and_departures(frame)
        found = [sign * sum(bars.y) for sign, bars in zip((1, -1), figure.data, strict=False)]
        assert found == (counts if any(counts) else [])


@pytest.mark.parametrize(
    ("times", "period"),
    [
        ([0, 100], "hour"),
        ([0, 100, 800], "hour"),
        ([0, *range(100, 400 * DAY, 7 * DAY)], "week"),
        ([0, *range(100, 1_200 * DAY, 7 * DAY)], "month"),
        ([0, *range(0, 45 * DAY, DAY)], "day"),
    ],
)
def test_the_chosen_period_fits_the_changes(path, times, period):
    """The first read is a second before the other changes."""
    changes = [(1, token, "1", time + (token > 1)) for token, time in enumerate(times, start=1)]
    played(path, changes, wallets=1, tokens=len(times))
    title = charts.arrivals_and_departures(path).layout.xaxis.title.text
    assert f"one bar per {period}" in title


def test_a_comparison_takes_no_options_of_a_database(path):
    played(path, [(1, 1, "1", 0)])
    diff, transfers = frames.diff(path, at(-1)), frames.transfers(path)
    assert "No arrivals" in charts.arrivals_and_departures(diff).layout.annotations[0].text
    for frame, options, text in (
        *((diff, {"since": at(0)}, "frames.diff"), (diff, {"exclude": [wallet_id(1)]}, "frames.d")),
        (diff.drop(columns="changed_at"), {}, "changed_at"),
        (transfers.drop(columns="observed_at"), {}, "observed_at"),
    ):
        with pytest.raises(InputError, match=text):
            charts.arrivals_and_departures(frame, **options)


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
    states = pd.Series(state, dtype="str")
    return pd.DataFrame(
        {
            "created_at_utc": pd.Series([each.isoformat() for each in sent], dtype="str"),
            "received_at": came,
            "finished_at": done.mask(states.isin(WAITING)),
            "state": states,
        }
    )


@settings(max_examples=25)
@given(webhooks=WEBHOOKS)
def test_lag_lines_are_cumulative_shares(webhooks):
    figure = charts.webhook_lag(webhook_frame(webhooks))
    arriving = sorted(lag / 1_000 for _, lag, _, _ in webhooks if lag >= 0)
    working = sorted(work / 1_000 for _, _, work, state in webhooks if state == "done")
    lags = [lags for lags in (arriving, working) if lags]
    for line, marks, each in zip(figure.data[::2], figure.data[1::2], lags, strict=True):
        shown, count = [max(lag, 0.001) for lag in each], len(each)
        assert list(line.x) == pytest.approx(shown)
        assert list(line.y) == pytest.approx([100 * (n + 1) / count for n in range(count)])
        # The shortest lag that this share did not exceed.
        ranks = [-(-share * count // 100) - 1 for share in (50, 90, 99)]
        assert list(marks.x) == pytest.approx([shown[rank] for rank in ranks])
    if early := sum(lag < 0 for _, lag, _, _ in webhooks):
        assert f"{early} received before" in figure.layout.title.subtitle.text


@settings(max_examples=25)
@given(webhooks=WEBHOOKS)
def test_backlog_is_the_received_and_unsettled_webhooks(webhooks):
    def counts(time):
        now = datetime.fromisoformat(f"{time}Z")
        waiting = given_up = 0
        for received, _, work, state in webhooks:
            came = START + timedelta(milliseconds=received)
            ended = state not in WAITING and came + timedelta(milliseconds=work) <= now
            waiting += came <= now and not ended
            given_up += ended and state in GIVEN_UP
        return waiting, given_up

    figure = charts.webhook_backlog(webhook_frame(webhooks))
    lines = bool(webhooks) + any(state in GIVEN_UP for *_, state in webhooks)
    assert len(figure.data) == lines
    for place, line in enumerate(figure.data):
        assert [counts(x)[place] for x in line.x] == list(line.y)


def test_unreadable_times_are_left_out_and_counted(tmp_path):
    build = Builder(tmp_path / "nftsync.db")
    sent = [
        *(at(0), "2026-03-01T00:00:00.0000001+00:00", "2026-03-01T02:00:00+02:00"),
        *("2026-03-01T00:00:00", None, "", "yesterday", "2026-03-01", "2026-13-01T00:00:00Z"),
        *("9" * 5_000, "0001-01-01T00:00:00+14:00"),
    ]
    done = {"received_at": at(2), "finished_at": at(5), "state": "done"}
    for number, text in enumerate(sent):
        build.insert("webhooks", webhook_id=str(number), created_at_utc=text, **done)
    figure = charts.webhook_lag(build.close())
    subtitle = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "7 without a readable createdAtUtc" in subtitle
    assert figure.layout.yaxis.title.text == "share of webhooks (%)"
    arriving, marks, working, _ = figure.data
    assert (list(arriving.x), set(working.x)) == ([2, 2, 2, 2], {3})
    assert "median 2 s" in marks.name


def test_many_webhooks_are_drawn_with_few_points():
    webhooks = [(index * 3, index % 997, index % 5_003, "done") for index in range(5_000)]
    frame = webhook_frame(webhooks)
    assert sum(len(trace.x) for trace in charts.webhook_lag(frame).data) <= 1_010
    (line,) = charts.webhook_backlog(frame).data
    assert len(line.x) <= 2_000
    assert line.y[-1] == 0
