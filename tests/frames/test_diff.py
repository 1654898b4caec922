"""What differs between two times, against plain definitions of it."""

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
from nftsync.times import format_time
from tests.kit.database import START, Builder, at, rows_of, token_id, wallet_id
from tests.kit.histories import READS, Change, Histories, Read, moment, size

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(the history begins|no balances are known):nftsync.NftsyncWarning"
)


def defined(
    log: list[Change], differences: dict[tuple[str, str], Any], start: str, end: str
) -> list[dict[str, Any]]:
    """The rows of two states that differ, with what the changes between them say."""
    rows = []
    for (wallet, token), (before, after) in differences.items():
        changes = [
            each
            for each in log
            if (each.wallet, each.token) == (wallet, token) and start < each.at <= end
        ]
        first, last = changes[0], changes[-1]
        if before == 0:
            kind = "first_seen" if first.baseline and size(first.new) != 0 else "arrived"
        else:
            kind = "left" if after == 0 else "changed"
        rows.append(
            {
                "wallet_id": wallet,
                "token_id": token,
                "before": before if type(before) is int and before else None,
                "before_text": first.old,
                "after": after if type(after) is int and after else None,
                "after_text": last.new,
                "kind": kind,
                "changed_at": last.at,
            }
        )
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


def test_names_are_those_at_the_end_and_contracts_match_whatever_their_case(build: Builder) -> None:
    build.wallet(1, label="Vault")
    build.token(1, contract_address="0x" + "aB" * 20, name="after")
    build.token(2, contract_address="KT1", name="Two")
    build.token_change(1, '{"name": "before"}', '{"name": "after"}', 50)
    build.change(1, 1, None, "1", 10)
    build.change(1, 2, None, "1", 10)
    for end, name in ((at(49), "before"), (at(50), "after"), (None, "after")):
        found = frames.diff(build.path, at(5), end, contract="0x" + "Ab" * 20)
        assert found[["token_id", "name", "wallet_label"]].to_numpy().tolist() == [
            [token_id(1), name, "Vault"]
        ]
    with pytest.raises(InputError, match="unknown collection or contract 'kt1'"):
        frames.diff(build.path, at(5), contract="kt1")
    assert len(frames.diff(build.path, at(5), contract="KT1")) == 1


def test_empty_databases_and_windows(build: Builder, small_database: Path) -> None:
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


def test_what_cannot_be_compared(small_database: Path) -> None:
    for arguments, options, said in (
        ((), {}, r"diff\(db, start\)"),
        ((at(2), at(1)), {}, "is after end"),
        (("lately",), {}, "not a time"),
        ((at(0),), {"exclude": "Treasury"}, "nor the label of a wallet"),
        ((at(0),), {"contract": 7}, "contract"),
    ):
        with pytest.raises(InputError, match=said):
            frames.diff(small_database, *arguments, **options)


def test_a_time_to_come_is_refused(small_database: Path) -> None:
    clock = datetime.now(UTC)
    for ahead in (clock + timedelta(minutes=2), clock.date() + timedelta(days=2), "2990-01-31"):
        for read in (
            lambda ahead: frames.diff(small_database, ahead),
            lambda ahead: frames.diff(small_database, at(0), ahead),
            lambda ahead: frames.holdings(small_database, as_of=ahead),
            lambda ahead: frames.tokens(small_database, as_of=ahead),
            lambda ahead: frames.changes(small_database, since=ahead),
            lambda ahead: frames.holding_ages(small_database, at=ahead),
            lambda ahead: frames.holdings_over_time(small_database, start=ahead),
            lambda ahead: frames.holdings_over_time(small_database, end=ahead),
        ):
            with pytest.raises(InputError, match=r"\S+ is in the future: it is 2\S+Z now"):
                read(ahead)
    # For clocks that differ a little.
    for start in (clock, clock + timedelta(seconds=30), pd.Timestamp.now("UTC")):
        assert frames.diff(small_database, start).empty


def test_days_are_whole_and_today_has_come_so_far(one_day: None, build: Builder) -> None:
    """`7d` is an instant; a day is its start where a span begins, else its end."""
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
    assert frames.diff(build.path, format_time(ahead - timedelta(seconds=1))).shape[0] == (
        where == "change"
    )
    with pytest.raises(InputError, match="in the future"):
        frames.diff(build.path, ahead + timedelta(seconds=1))
