"""Holdings as of a time, ages and holdings over time, compared with a plain replay of the log."""

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError, StoreError
from tests.kit.database import at, rows_of, wallet_id
from tests.kit.held_frames import exact_amount
from tests.kit.histories import READS, moment, size, sums

#: Spans may begin before the first read, and frames may be empty.
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
CONTENT = ("name", "edition_id", "contract_address", "extra")


def described(path: Path, then: str) -> dict[str, dict[str, Any]]:
    """Return the tokens that are known at a time, replayed from their first state."""
    with closing(sqlite3.connect(path)) as connection:
        names = ("token_id", "first_seen_at", *CONTENT)
        tokens = {
            row[0]: dict(zip(names, row, strict=True))
            for row in connection.execute(f"SELECT {', '.join(names)} FROM tokens")
        }
        changes = connection.execute(
            "SELECT token_id, before, after, observed_at FROM token_changes ORDER BY change_id"
        ).fetchall()
    for token, before, _, _ in reversed(changes):
        tokens[token] |= {n: v for n, v in json.loads(before).items() if n in CONTENT}
    for about in tokens.values():
        about["updated_at"] = about["first_seen_at"]
    for token, _, after, observed in changes:
        if observed <= then:
            tokens[token] |= {n: v for n, v in json.loads(after).items() if n in CONTENT}
            tokens[token]["updated_at"] = observed
    return {token: about for token, about in tokens.items() if about["first_seen_at"] <= then}


@settings(max_examples=25)
@given(reads=READS, seconds=st.integers(-1, 20))
def test_as_of_is_the_replay_and_at_the_end_the_present(histories, reads, seconds):
    """Ages agree with these holdings, also if reads of a wallet have the same time."""
    end = moment(histories.play(reads))
    path, then = histories.path, moment(seconds)
    tokens, rows, began = described(path, then), {}, {}
    for change in histories.log():
        if change.at <= then:
            pair = change.wallet, change.token
            old = rows.pop(pair, None)
            if change.new is not None:
                kept = old["held_since"] if old else None
                since = None if size(change.new) == 0 else kept or change.at
                began[pair] = began[pair] if kept else change.baseline
                rows[pair] = {"amount_text": change.new, "held_since": since}
                rows[pair]["balance_updated_at"] = change.at
    for (wallet, token), row in rows.items():
        row |= {"wallet_id": wallet, "token_id": token}
        row |= {name: tokens[token][name] for name in CONTENT[:-1]}
        row["token_updated_at"] = tokens[token]["updated_at"]
    frame = frames.holdings(path, as_of=then, amounts="exact")
    found = rows_of(frame, [*next(iter(rows.values()), ["wallet_id"])])
    assert {(row["wallet_id"], row["token_id"]): row for row in found} == rows
    assert len(found) == len(rows)
    ages = frames.holding_ages(path, at=then, amounts="exact")
    columns = ["wallet_id", "token_id", "held_since", "amount", "censored"]
    assert {tuple(row.values()) for row in rows_of(ages, columns)} == {
        (*pair, row["held_since"], exact_amount(row["amount_text"]), began[pair])
        for pair, row in rows.items()
        if row["held_since"]
    }
    columns = ["token_id", "first_seen_at", *CONTENT, "updated_at"]
    shown = rows_of(frames.tokens(path, as_of=then), columns)
    assert {row["token_id"]: row for row in shown} == tokens
    now = frames.holdings(path).drop(columns="wallet_synced_at")
    pd.testing.assert_frame_equal(frames.holdings(path, as_of=end)[list(now.columns)], now)
    pd.testing.assert_frame_equal(frames.tokens(path, as_of=end), frames.tokens(path))
    # The changes are in the future of this machine's clock.
    ages = frames.holding_ages(path)
    assert (ages["age"] == pd.Timedelta(0)).all()
    past = frames.holding_ages(path, at=end).drop(columns=["age", "bucket"])
    pd.testing.assert_frame_equal(ages[list(past.columns)], past)


def test_certainty(build):
    build.wallet(1)
    build.token(1, seen=-5)
    build.change(1, 1, None, "1", -5)
    build.state(1, 1, 5, 2)
    build.state(1, 8, 8, 9)
    build.state(1, 20, 20, 21)
    for then, before, after, certainty in [
        (0.5, None, 1, "gap"),  # before the first read
        (1.5, None, 1, "gap"),  # read, but not yet stored
        (2, 1, 5, "bracketed"),
        (5, 1, 5, "bracketed"),
        (6, 5, 8, "gap"),
        (8.5, 5, 8, "gap"),
        (9, 8, 20, "gap"),
        (50, 20, None, "open"),
    ]:
        (row,) = frames.holdings(build.path, as_of=at(then)).to_dict("records")
        around = [pd.NaT if each is None else pd.Timestamp(at(each)) for each in (before, after)]
        assert [row["confirmed_before"], row["confirmed_after"]] == around
        assert row["certainty"] == certainty
        assert row["wallet_synced_at"] == around[0] or before is None


def test_a_broken_undo_is_an_error(build):
    build.token(1)
    change = build.token_change(1, '{"name": []}', "{}", 5)
    with pytest.raises(StoreError, match=f"token change {change}"):
        frames.tokens(build.path, as_of=at(1))


BUCKETS = ["under a day", "under a week", "under a month", "under 3 months", "under a year"]
BUCKETS += ["a year or more"]
DAY = 86_400


def test_each_age_belongs_to_the_bucket_that_it_reaches(build):
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
    empty = frames.holding_ages(build.path, at=at(-1))
    assert empty["bucket"].cat.ordered
    assert empty["bucket"].cat.categories.tolist() == BUCKETS


LABELS = {wallet_id(1): "Vault", wallet_id(2): "Vault", wallet_id(3): "Desk"}


@settings(max_examples=40)
@given(
    reads=READS,
    by=st.sampled_from([None, "wallet_id", "wallet_label", "contract_address", "collection"]),
    start=st.none() | st.integers(-1, 12),
    every=st.sampled_from([None, "1s", "4s", timedelta(seconds=7)]),
)
def test_each_row_has_the_holdings_of_its_time(histories, reads, by, start, every):
    clock = histories.play(reads)
    histories.label(LABELS)
    begin = None if start is None else moment(start)
    frame = frames.holdings_over_time(histories.path, by, begin, moment(clock + 12), every)
    frame["group"] = frame[by] if by else None
    today = rows_of(frames.tokens(histories.path), ["token_id", "contract_address"])
    contracts = {row["token_id"]: row["contract_address"] for row in today}

    def group_of(wallet, token):
        groups = {None: None, "wallet_id": wallet, "wallet_label": LABELS.get(wallet)}
        return groups.get(by, contracts[token])

    for time, of_time in groupby(rows_of(frame, list(frame)), lambda row: row["at"]):
        held = sums(histories.held(time), group_of)
        for row in of_time:
            expected = held.pop(row["group"], (0, 0, 0))
            assert (row["holdings"], row["amount"], row["unknown_amounts"]) == expected
        # Without periods, groups in which nothing changed have no row then.
        assert every is None or not held
    for _, of_group in frame.groupby("group", dropna=False):
        moved = of_group["arrived"] + of_group["first_seen"] - of_group["left"]
        assert (of_group["holdings"].diff().iloc[1:] == moved.iloc[1:]).all()
    log = [each for each in histories.log() if size(each.old) != size(each.new)]
    later = [each for each in log if begin is None or each.at >= begin]
    came = [each for each in later if size(each.old) == 0]
    assert frame["first_seen"].sum() == sum(each.baseline for each in came)
    assert frame["arrived"].sum() == sum(not each.baseline for each in came)
    assert frame["left"].sum() == sum(size(each.new) == 0 for each in later)


def test_periods_end_with_the_day_and_the_last_read(build):
    day = DAY
    build.wallet(1, label="Vault", synced_at=at(3 * day + 60))
    build.wallet(2)
    for token in (1, 2):
        build.token(token, contract_address="0x" + "aB" * 20)
    build.change(1, 1, None, "2", 10, baseline=1)
    build.change(2, 2, None, str(2**255), day)
    build.change(2, 2, str(2**255), "7", day + 5)
    build.change(1, 1, "2", None, 2 * day + 1)
    frame = frames.holdings_over_time(build.path, every="1d")
    ends = [f"2026-03-0{n}T23:59:59.999999Z" for n in (1, 2, 3)]
    assert list(frame["at"]) == [pd.Timestamp(each) for each in (*ends, at(3 * day + 60))]
    assert frame["holdings"].tolist() == [1, 2, 1, 1]
    assert frame["amount"].tolist() == [2, 9, 7, 7]
    assert frame[["arrived", "left", "first_seen"]].to_numpy().tolist() == [
        *([0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0])
    ]
    contracts = frames.holdings_over_time(build.path, "contract")
    address = "0x" + "aB" * 20
    assert contracts.iloc[0, 1:4].tolist() == [address.lower(), address, "0xabab…abab"]
    for by, every, labels in (
        ("wallet_id", None, ["Vault", "", "", "Vault"]),
        ("wallet_label", "1d", ["Vault", ""] * 4),
    ):
        frame = frames.holdings_over_time(build.path, by, every=every)
        assert frame["wallet_label"].fillna("").tolist() == labels
    sparse = frames.holdings_over_time(build.path, exclude=wallet_id(1))
    assert sparse["amount"].tolist() == [2**255, 7]
    begun = frames.holdings_over_time(build.path, start=at(day + 1), end=at(day + 5))
    columns = ["holdings", "amount", "arrived"]
    assert begun[columns].to_numpy().tolist() == [[2, 2 + 2**255, 0], [2, 9, 0]]


def test_unusable_arguments_over_time_are_named(small_database, build):
    over_time = frames.holdings_over_time
    for seconds in (0, 20_000_000):
        build.change(seconds and 1, 1, None, "1", seconds)
    assert over_time(small_database, start="today").empty
    assert over_time(small_database, end="2000-01-01", every="1d").empty
    for db, options, text in (
        (small_database, {"by": "wallet_lable"}, r"mean 'wallet_label'\? use one of contract"),
        (small_database, {"start": at(5), "end": at(4)}, "is after end"),
        (small_database, {"every": timedelta(0)}, "use a duration from 1s to a century"),
        (build.path, {"by": "wallet_id", "every": "1s"}, "choose a longer period"),
    ):
        with pytest.raises(InputError, match=text):
            over_time(db, **options)


@pytest.mark.parametrize(
    ("freq", "ends"),
    [
        ("ME", ["2026-03-31", "2026-04-30", "2026-05-30"]),
        ("2ME", ["2026-04-30", "2026-05-30"]),
        ("QE", ["2026-03-31", "2026-05-30"]),
        ("QE-APR", ["2026-04-30", "2026-05-30"]),
        ("YE", ["2026-05-30"]),
        ("W", ["2026-05-24", "2026-05-30"]),
        ("7d", ["2026-05-24", "2026-05-30"]),
        ("W-WED", ["2026-05-27", "2026-05-30"]),
    ],
)
def test_calendar_periods_end_in_utc_and_every_is_an_alias(build, freq, ends):
    build.wallet(1, synced_at=at(90 * DAY))
    build.token(1)
    build.change(1, 1, None, "2", 31 * DAY - 1, baseline=1)
    frame = frames.holdings_over_time(build.path, freq=freq)
    assert [str(time)[:10] for time in frame["at"]][-len(ends) :] == ends
    assert all(str(time)[11:19] == "23:59:59" for time in frame["at"].iloc[:-1])
    assert set(frame["holdings"]) == {1}
    assert frame.equals(frames.holdings_over_time(build.path, every=freq))
    with pytest.raises(InputError, match=r"freq='BME' is not a period; .* ME, QE"):
        frames.holdings_over_time(build.path, freq="BME")
