"""Lag and backlog of webhooks, compared with plain Python, on frames and on a database."""

from __future__ import annotations

from datetime import datetime, timedelta

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import charts
from nftsync.store import STATES
from tests.charts.world import World
from tests.kit.database import at

START = pd.Timestamp("2026-03-01", tz="UTC")
WAITING = {"pending", "running", "failed"}
GIVEN_UP = {"dead", "unrouted", "quarantined"}

#: Milliseconds: received after the start, sent before that, finished after it; and the state.
WEBHOOKS = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.integers(-50, 100_000),
        st.integers(0, 10**7),
        st.sampled_from(STATES),
    ),
    max_size=30,
)


def frame_of(webhooks: list[tuple[int, int, int, str]]) -> pd.DataFrame:
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
    figure = charts.webhook_lag(frame_of(webhooks))
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
    figure = charts.webhook_backlog(frame_of(webhooks))
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
    frame = frame_of(webhooks)
    assert sum(len(trace.x) for trace in charts.webhook_lag(frame).data) <= 1_010
    (line,) = charts.webhook_backlog(frame).data
    assert len(line.x) <= 2_000
    assert line.y[-1] == 0
