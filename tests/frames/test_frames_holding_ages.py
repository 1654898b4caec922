"""How long holdings have been there, against a plain replay of the log."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from frames_database import Builder, at, token_id, wallet_id
from histories import READS, Change, Histories, Read, moment, size
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError

BUCKETS = [
    "under a day",
    "under a week",
    "under a month",
    "under 3 months",
    "under a year",
    "a year or more",
]
DTYPES = {
    "wallet_id": "str",
    "wallet_label": "str",
    "token_id": "str",
    "contract_address": "str",
    "name": "str",
    "amount": "object",
    "held_since": "datetime64[us, UTC]",
    "age": "timedelta64[us]",
    "bucket": "category",
    "censored": "bool",
}


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


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return Histories(tmp_path_factory.mktemp("ages"))


@settings(max_examples=60)
@given(reads=READS, then=st.integers(-1, 20))
def test_ages_are_those_of_a_replay(histories: Histories, reads: list[Read], then: int) -> None:
    """Also where a clock that stood still gave a wallet's first and later reads one time."""
    clock = histories.play(reads)
    log = list(histories.log())
    for frame, until in (
        (frames.holding_ages(histories.path), clock),
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


@settings(max_examples=15)
@given(reads=READS)
def test_at_the_last_change_they_are_those_of_now(histories: Histories, reads: list[Read]) -> None:
    clock = histories.play(reads)
    now = frames.holding_ages(histories.path)
    then = frames.holding_ages(histories.path, at=moment(clock))
    timeless = [name for name in DTYPES if name not in {"age", "bucket"}]
    pd.testing.assert_frame_equal(now[timeless], then[timeless])
    assert (then["age"] == pd.Timestamp(moment(clock)) - then["held_since"]).all()
    # The changes are in the future of this machine's clock.
    assert (now["age"] == pd.Timedelta(0)).all()


DAY = 86_400


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0, "under a day"),
        (DAY - 0.000001, "under a day"),
        (DAY, "under a week"),
        (7 * DAY - 0.000001, "under a week"),
        (7 * DAY, "under a month"),
        (30 * DAY - 0.000001, "under a month"),
        (30 * DAY, "under 3 months"),
        (91 * DAY - 0.000001, "under 3 months"),
        (91 * DAY, "under a year"),
        (365 * DAY - 0.000001, "under a year"),
        (365 * DAY, "a year or more"),
        (4000 * DAY, "a year or more"),
    ],
)
def test_buckets_begin_at_their_bound(build: Builder, seconds: float, bucket: str) -> None:
    build.wallet(1)
    build.token(1)
    build.change(1, 1, None, "1", 0)
    row = frames.holding_ages(build.path, at=at(seconds)).iloc[0]
    assert row["bucket"] == bucket
    assert row["age"] == timedelta(seconds=seconds)


def _long_ago(build: Builder) -> Path:
    build.wallet(1, label="Vault")
    build.wallet(2)
    build.token(1, name="after", contract_address="a")
    build.token(2)
    build.token_change(1, '{"name": "before"}', '{"name": "after"}', 50)
    build.balance(1, 1, "7", held_since=at(1), updated_at=at(40))
    build.balance(1, 2, "0")
    build.balance(2, 1, "1.5", 30)
    build.change(1, 1, None, "5", 1, baseline=1)
    build.change(1, 2, None, "0", 1, baseline=1)
    build.change(2, 1, None, "1.5", 30)
    build.change(1, 1, "5", "7", 40)
    return build.path


def test_what_grew_since_the_first_read_is_as_old_as_that(build: Builder) -> None:
    found = frames.holding_ages(_long_ago(build))
    assert found["wallet_label"].tolist()[0] == "Vault"
    assert found["amount"].tolist() == [7, None]
    assert found["held_since"].tolist() == [pd.Timestamp(at(1)), pd.Timestamp(at(30))]
    assert found["censored"].tolist() == [True, False]
    earlier = frames.holding_ages(build.path, at=at(20))
    assert earlier["amount"].tolist() == [5]
    assert earlier["name"].tolist() == ["before"]
    assert earlier["censored"].tolist() == [True]


def test_wallets_can_be_left_out(build: Builder) -> None:
    path = _long_ago(build)
    kept = frames.holding_ages(path, exclude=[wallet_id(1).upper(), wallet_id(77)])
    assert kept["wallet_id"].tolist() == [wallet_id(2)]
    assert kept["token_id"].tolist() == [token_id(1)]
    with pytest.raises(InputError, match="wallet id"):
        frames.holding_ages(path, exclude="Treasury")


def test_an_empty_database_and_a_time_before_all(build: Builder) -> None:
    for frame in (
        frames.holding_ages(build.path),
        frames.holding_ages(_long_ago(build), at=at(0)),
    ):
        assert len(frame) == 0
        assert {name: str(kind) for name, kind in frame.dtypes.items()} == DTYPES
        assert frame["bucket"].cat.ordered
        assert frame["bucket"].cat.categories.tolist() == BUCKETS
