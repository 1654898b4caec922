"""Differences between two times, and the times that functions take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import START, Builder, at, rows_of, token_id, wallet_id
from tests.kit.histories import READS, Change, Histories, Read, moment, size

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(the history begins|no balances are known):nftsync.NftsyncWarning"
)


def defined(
    log: list[Change], differences: dict[tuple[str, str], Any], start: str, end: str
) -> list[dict[str, Any]]:
    """Return the rows of two states that differ, with the first and last change of each."""
    rows = []
    for (wallet, token), (before, after) in differences.items():
        pair = [one for one in log if (one.wallet, one.token) == (wallet, token)]
        changes = [one for one in pair if start < one.at <= end]
        first, last = changes[0], changes[-1]
        if before == 0:
            kind = "first_seen" if first.baseline and size(first.new) != 0 else "arrived"
        else:
            kind = "left" if after == 0 else "changed"
        row = {"wallet_id": wallet, "token_id": token, "kind": kind, "changed_at": last.at}
        row |= {"before_text": first.old, "after_text": last.new}
        for name, amount in (("before", before), ("after", after)):
            row[name] = amount if type(amount) is int and amount else None
        rows.append(row)
    return sorted(rows, key=lambda row: (row["changed_at"], row["wallet_id"], row["token_id"]))


@settings(max_examples=40)
@given(reads=READS, times=st.tuples(st.integers(-1, 20), st.integers(-1, 20)))
def test_diff_is_the_difference_of_the_holdings_as_of_both_times(
    histories: Histories, reads: list[Read], times: tuple[int, int]
) -> None:
    histories.play(reads)
    histories.label({wallet_id(1): "Vault", wallet_id(2): "Desk"})
    start, end = map(moment, sorted(times))
    frame = frames.diff(histories.path, start, end)
    before, after = histories.held(start), histories.held(end)
    both = {key: (before.get(key, 0), after.get(key, 0)) for key in before.keys() | after.keys()}
    differences = {key: pair for key, pair in both.items() if pair[0] != pair[1]}
    expected = defined(list(histories.log()), differences, start, end)
    found = rows_of(frame, list(expected[0]) if expected else [])
    key = "changed_at"
    assert [row[key] for row in found] == [row[key] for row in expected]

    def order(row: dict[str, Any]) -> tuple[str, ...]:
        return row["changed_at"], row["wallet_id"], row["token_id"]

    assert sorted(found, key=order) == expected


def test_names_are_those_at_the_end(build: Builder) -> None:
    build.wallet(1, label="Vault")
    build.token(1, contract_address="KT1", name="after")
    build.token_change(1, '{"name": "before"}', '{"name": "after"}', 50)
    build.change(1, 1, None, "1", 10)
    for end, name in ((at(49), "before"), (at(50), "after"), (None, "after")):
        (row,) = frames.diff(build.path, at(5), end, contract="KT1").to_dict("records")
        assert (row["token_id"], row["name"], row["wallet_label"]) == (token_id(1), name, "Vault")


def test_an_empty_frame_has_the_types_of_others(build: Builder, small_database: Path) -> None:
    types = frames.explain("diff").set_index("column")["type"].to_dict()
    types |= {"before": "Int64", "after": "Int64"}
    for frame in (
        frames.diff(build.path, "2020-01-01"),
        frames.diff(small_database, at(2), at(2)),
        frames.diff(small_database, at(0), wallet=[]),
        frames.diff(small_database, at(0), wallet=wallet_id(77)),
        frames.diff(small_database, at(0), contract="0x" + "00" * 20),
        frames.diff(small_database, "today", "today"),
    ):
        assert len(frame) == 0
        assert {name: str(kind) for name, kind in frame.dtypes.items()} == types
    with pytest.raises(InputError, match=r"diff\(db, start\)"):
        frames.diff(small_database)
    with pytest.raises(InputError, match="is after end"):
        frames.diff(small_database, at(2), at(1))


def test_days_are_whole_and_today_ends_now(one_day: None, build: Builder) -> None:
    """`7d` is an instant; a day is its start at the start of a span, otherwise its end."""
    clock = datetime.now(UTC)
    ago = (clock - START).total_seconds()
    midnight = datetime.combine(clock.date(), datetime.min.time(), UTC)
    today, days = (midnight - START).total_seconds(), 86_400
    build.wallet(1)
    times = (today - 8 * days, today - days + 1, today - 1, today, ago)
    for token, seconds in enumerate(times, start=1):
        build.token(token)
        build.change(1, token, None, "1", seconds)
        build.balance(1, token, "1", seconds)
    path = build.close()
    yesterday = clock.date() - timedelta(days=1)
    for day in (yesterday, yesterday.isoformat(), "yesterday", np.datetime64(yesterday)):
        assert len(frames.changes(path, since=day)) == 4
        assert len(frames.holdings(path, as_of=day)) == 3
        assert len(frames.diff(path, day)) == 2
        assert len(frames.transfers(path, day, day)) == len(frames.transfers(path, day)) - 2 == 2
        assert len(frames.diff(path, day, day)) == 0
        assert len(frames.diff(path, clock.date() - timedelta(days=2), day)) == 2
        assert len(frames.holding_ages(path, at=day)) == 3
    pd.testing.assert_frame_equal(
        frames.holdings(path, as_of="today")[["token_id", "amount"]],
        frames.holdings(path)[["token_id", "amount"]],
    )
    assert frames.holding_ages(path, at="today")["age"].min() < timedelta(minutes=5)
    assert len(frames.changes(path, since="today")) == 2
    assert len(frames.diff(path, "7d", "today")) == len(frames.diff(path, "7d")) == 4


def test_a_time_in_the_future_is_refused(small_database: Path) -> None:
    clock = datetime.now(UTC)
    for ahead in (clock + timedelta(minutes=2), clock.date() + timedelta(days=2), "2990-01-31"):
        for name, times in (
            *(("diff", {"start": ahead}), ("diff", {"start": at(0), "end": ahead})),
            *(("holdings", {"as_of": ahead}), ("tokens", {"as_of": ahead})),
            *(("changes", {"since": ahead}), ("holding_ages", {"at": ahead})),
            *(("holdings_over_time", {"start": ahead}), ("holdings_over_time", {"end": ahead})),
        ):
            with pytest.raises(InputError, match=r"\S+ is in the future: it is 2\S+Z now"):
                getattr(frames, name)(small_database, **times)
    # Clocks may differ a little.
    for start in (clock, clock + timedelta(seconds=30), pd.Timestamp.now("UTC")):
        assert frames.diff(small_database, start).empty


@pytest.mark.parametrize("where", ["change", "state", "run", "wallet"])
def test_a_database_whose_clock_ran_ahead_can_be_compared(build: Builder, where: str) -> None:
    ahead = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=0)
    last = (ahead - START).total_seconds()
    build.wallet(1, synced_at=at(last) if where == "wallet" else None)
    build.token(1)
    if where == "change":
        build.change(1, 1, None, "1", last)
    elif where == "state":
        build.state(1, last, last, last)
    elif where == "run":
        build.insert("sync_runs", kind="sync", status="ok", started_at=at(0), finished_at=at(last))
    assert frames.diff(build.path, ahead).empty
    assert len(frames.diff(build.path, at(last - 1))) == (where == "change")
    with pytest.raises(InputError, match="in the future"):
        frames.diff(build.path, ahead + timedelta(seconds=1))
