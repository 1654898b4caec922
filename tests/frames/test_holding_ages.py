"""How long holdings have been there, against a plain replay of the log."""

from __future__ import annotations

from datetime import timedelta

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder, at, wallet_id
from tests.kit.histories import READS, Change, Histories, Read, moment, size

BUCKETS = [
    *("under a day", "under a week", "under a month", "under 3 months", "under a year"),
    "a year or more",
]


def stretches(log: list[Change], until: str) -> dict[tuple[str, str], tuple[str | None, str, bool]]:
    """Amount, start of the present stretch, and whether a first read began it, row by row."""
    held: dict[tuple[str, str], tuple[str | None, str, bool]] = {}
    for change in log:
        if change.at > until:
            break
        pair = change.wallet, change.token
        if size(change.new) == 0:
            held.pop(pair, None)
        elif pair in held:
            held[pair] = (change.new, *held[pair][1:])
        else:
            held[pair] = (change.new, change.at, change.baseline)
    return held


@settings(max_examples=30)
@given(reads=READS, then=st.integers(-1, 20))
def test_ages_are_those_of_a_replay(histories: Histories, reads: list[Read], then: int) -> None:
    """Also where a clock that stood still gave a wallet's first and later reads one time."""
    clock = histories.play(reads)
    log = list(histories.log())
    now = frames.holding_ages(histories.path)
    for frame, until in (
        (now, clock),
        (frames.holding_ages(histories.path, at=moment(then)), then),
    ):
        expected = stretches(log, moment(until))
        assert len(frame) == len(expected)
        for row in frame.to_dict("records"):
            amount, since, first_read = expected[row["wallet_id"], row["token_id"]]
            meant = size(amount)
            assert row["amount"] == (meant if type(meant) is int else None)
            assert row["held_since"] == pd.Timestamp(since)
            assert row["censored"] is first_read
    # The changes are in the future of this machine's clock.
    assert (now["age"] == pd.Timedelta(0)).all()


DAY = 86_400


def test_buckets_begin_at_their_bound(build: Builder) -> None:
    build.wallet(1)
    build.token(1)
    build.change(1, 1, None, "1", 0)
    # The clock of the database is ahead.
    build.insert(
        "sync_runs", kind="sync", status="ok", started_at=at(0), finished_at=at(4000 * DAY)
    )
    bounds = [0, DAY, 7 * DAY, 30 * DAY, 91 * DAY, 365 * DAY, 4000 * DAY]
    for bucket, first, following in zip(BUCKETS, bounds, bounds[1:], strict=False):
        for seconds in (first, following - 0.000001):
            row = frames.holding_ages(build.path, at=at(seconds)).iloc[0]
            assert row["bucket"] == bucket
            assert row["age"] == timedelta(seconds=seconds)


def test_names_are_of_the_time_and_an_empty_frame_has_all_buckets(build: Builder) -> None:
    build.wallet(1, label="Vault")
    build.token(1, name="after", contract_address="a")
    build.token_change(1, '{"name": "before"}', '{"name": "after"}', 50)
    build.balance(1, 1, "7", held_since=at(1), updated_at=at(40))
    build.change(1, 1, None, "5", 1, baseline=1)
    build.change(1, 1, "5", "7", 40)
    earlier = frames.holding_ages(build.path, at=at(20)).iloc[0]
    assert (earlier["wallet_label"], earlier["name"], earlier["amount"]) == ("Vault", "before", 5)
    unknown = [wallet_id(1).upper(), wallet_id(77)]
    assert frames.holding_ages(build.path, exclude=unknown).empty
    with pytest.raises(InputError, match="wallet id"):
        frames.holding_ages(build.path, exclude="Treasury")
    none = frames.holding_ages(build.path, at=at(0))
    assert len(none) == 0
    assert none["bucket"].cat.ordered
    assert none["bucket"].cat.categories.tolist() == BUCKETS
