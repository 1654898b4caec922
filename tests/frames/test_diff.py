"""Differences and statements between two times, and the times that functions take."""

import warnings
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError, NftsyncWarning
from tests.kit.database import START, at, rows_of, token_id, wallet_id
from tests.kit.histories import READS, moment, size, sums
from tests.kit.readers import ENTRIES

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")


@settings(max_examples=40)
@given(reads=READS, times=st.tuples(st.integers(-1, 20), st.integers(-1, 20)))
def test_diff_is_the_difference_of_the_holdings_as_of_both_times(histories, reads, times):
    histories.play(reads)
    start, end = map(moment, sorted(times))
    frame = frames.diff(histories.path, start, end)
    before, after = histories.held(start), histories.held(end)
    expected = {}
    for change in histories.log():
        old, new = (held.get(change[:2], 0) for held in (before, after))
        if start < change.at <= end and old != new:
            row = expected.setdefault(change[:2], {"before_text": change.old})
            row |= {"after_text": change.new, "changed_at": change.at}
            for name, amount in (("before", old), ("after", new)):
                row[name] = amount if isinstance(amount, int) and amount else None
            if old != 0:
                row["kind"] = "left" if new == 0 else "changed"
            else:
                is_first = change.baseline and size(change.new) != 0
                row.setdefault("kind", "first_seen" if is_first else "arrived")
    columns = ["before_text", "after_text", "changed_at", "before", "after", "kind"]
    keys = list(zip(frame["wallet_id"], frame["token_id"], strict=True))
    assert dict(zip(keys, rows_of(frame, columns), strict=True)) == expected
    assert frame["changed_at"].is_monotonic_increasing


def test_names_are_those_at_the_end(build):
    build.wallet(1, label="Vault")
    build.token(1, contract_address="KT1", name="after")
    build.token_change(1, '{"name": "before"}', '{"name": "after"}', 50)
    build.change(1, 1, None, "1", 10)
    for end, name in ((at(49), "before"), (at(50), "after"), (None, "after")):
        (row,) = frames.diff(build.path, at(5), end, contract="KT1").to_dict("records")
        assert (row["token_id"], row["name"], row["wallet_label"]) == (token_id(1), name, "Vault")


def test_an_empty_frame_has_the_types_of_others(build, small_database):
    types = frames.explain("diff").set_index("column")["type"].to_dict()
    types |= {"before": "Int64", "after": "Int64"}
    del types["database"]  # only with several
    nothing = ({"wallet": []}, {"wallet": wallet_id(77)}, {"contract": "0x" + "00" * 20})
    for frame in (
        frames.diff(build.path, "2020-01-01"),
        *(frames.diff(small_database, *span) for span in ((at(2), at(2)), ("today", "today"))),
        *(frames.diff(small_database, at(0), **filters) for filters in nothing),
    ):
        assert len(frame) == 0
        assert {name: str(kind) for name, kind in frame.dtypes.items()} == types
    for span, text in (((), r"diff\(db, start\)"), ((at(2), at(1)), "is after end")):
        with pytest.raises(InputError, match=text):
            frames.diff(small_database, *span)


def test_days_are_whole_and_today_ends_now(one_day, build):
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


def test_a_time_in_the_future_is_refused(small_database):
    clock = datetime.now(UTC)
    for ahead in (clock + timedelta(minutes=2), clock.date() + timedelta(days=2), "2990-01-31"):
        for read, times in (
            *((frames.diff, {"start": ahead}), (frames.diff, {"start": at(0), "end": ahead})),
            *((frames.holdings, {"as_of": ahead}), (frames.tokens, {"as_of": ahead})),
            *((frames.changes, {"since": ahead}), (frames.holding_ages, {"at": ahead})),
            *((frames.holdings_over_time, {name: ahead}) for name in ("start", "end")),
        ):
            with pytest.raises(InputError, match=r"\S+ is in the future: it is 2\S+Z now"):
                read(small_database, **times)
    # Clocks may differ a little.
    for start in (clock, clock + timedelta(seconds=30), pd.Timestamp.now("UTC")):
        assert frames.diff(small_database, start).empty


@pytest.mark.parametrize("where", ["change", "state", "run", "wallet"])
def test_a_database_whose_clock_ran_ahead_can_be_compared(build, where):
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


LABELS = {wallet_id(1): "Vault", wallet_id(2): "Vault", wallet_id(3): "Desk"}


@settings(max_examples=40)
@given(
    reads=READS,
    by=st.sampled_from(["wallet_id", "wallet_label"]),
    times=st.lists(st.integers(-1, 20), min_size=2, max_size=4).map(sorted),
)
def test_consecutive_statements_add_up_and_meet_the_holdings_at_each_time(
    histories, reads, by, times
):
    histories.play(reads)
    histories.label(LABELS)
    begin = histories.begin()

    def group_of(wallet, token):
        return wallet if by == "wallet_id" else LABELS.get(wallet)

    for start, end in pairwise(map(moment, times)):
        if end < begin:
            with pytest.raises(InputError, match="the period ends before the history"):
                frames.statement(histories.path, start, end, by)
            continue
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            frame = frames.statement(histories.path, start, end, by, amounts="exact")
        assert [f"the history begins at {begin}" in str(x.message) for x in notes] == [True] * (
            start < begin
        )
        assert frame.attrs == {"start": max(start, begin), "end": end}
        for unit in ("", "_amount"):
            opening, initial, received, sent, closing = (frame[f"{x}{unit}"] for x in ENTRIES)
            assert (opening + initial + received - sent == closing).all()
            for column in (opening, initial, received, sent, closing):
                assert sum(column[:-1]) == column.iloc[-1]
                assert (column >= 0).all()
        rows = frame[:-1]
        keys = [None if pd.isna(key) else key for key in rows[by]]
        for name, time in (("opening", "start"), ("closing", "end")):
            pairs = zip(keys, rows[name], rows[f"{name}_amount"], strict=True)
            held = sums(histories.held(frame.attrs[time]), group_of).items()
            assert {pair for pair in pairs if pair[1]} == {(key, *pair[:2]) for key, pair in held}


@settings(max_examples=20)
@given(reads=READS, times=st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted))
def test_since_a_time_is_the_same_as_from_the_state_before_it(histories, reads, times):
    histories.play(reads)
    start, until = (max(moment(time), histories.begin()) for time in times)
    db = histories.path
    before = pd.Timestamp(start) - pd.Timedelta(microseconds=1)
    by_state = frames.statement(db, before, until, "wallet_id", amounts="exact")
    by_change = frames.statement(db, by="wallet_id", since=start, until=until, amounts="exact")
    pd.testing.assert_frame_equal(by_state, by_change)
    assert by_state.attrs == by_change.attrs


@pytest.fixture
def month(build):
    """Two groups: an initial holding, a transfer within a group, one between groups, an amount."""
    for number, group in ((1, "house"), (2, "house"), (3, "customers")):
        build.wallet(number, label=f"W{number}", wallet_group=group)
    build.token(1, contract_address="0xAb", name="Kite #1")
    build.token(2, contract_address="0xCd", name="Moss #2")
    build.change(1, 1, None, "1", 0, baseline=1)
    build.change(2, 2, None, "5", 20, baseline=1)
    build.change(1, 1, "1", None, 30)
    build.change(2, 1, None, "1", 30)
    build.change(2, 2, "5", "2", 40)
    build.change(3, 2, None, "3", 40)
    return build.path


def test_a_statement_by_group_shows_initial_holdings_and_both_sides_of_transfers(month):
    frame = frames.statement(month, at(10), at(50)).set_index("wallet_group")
    assert frame[[*ENTRIES]].T.to_dict("list") == {
        "house": [1, 1, 1, 1, 2],
        "customers": [0, 0, 1, 0, 1],
        "total": [1, 1, 2, 1, 3],
    }
    assert frame[[f"{name}_amount" for name in ENTRIES]].T.to_dict("list") == {
        "house": [1, 5, 1, 4, 3],
        "customers": [0, 0, 3, 0, 3],
        "total": [1, 5, 4, 4, 6],
    }
    of_house = frames.statement(month, at(10), at(50), by="collection", group="house")
    assert list(of_house["collection"]) == ["0xab", "0xcd", "total"]
    assert list(of_house["closing"]) == [1, 1, 2]
    without = frames.statement(month, at(10), at(50), exclude=["W2"])
    assert without.set_index("wallet_group").loc["total", "closing"] == 1
    nothing = frames.statement(month, at(10), at(50), wallet=wallet_id(4))
    assert nothing[["wallet_group", "closing"]].to_numpy().tolist() == [["total", 0]]


def test_prices_value_both_balances_and_an_unknown_name_is_a_warning(month):
    day = at(10)[:10]
    columns = ["contract", "token_id", "date", "price", "currency"]
    rows = [
        ("0xAb", None, day, "1.10", "EUR"),
        ("0xAc", None, day, "3", "EUR"),
        (None, token_id(2), day, f"0.{1:018}", "ETH"),
    ]
    prices = pd.DataFrame(rows, columns=columns)
    with pytest.warns(
        NftsyncWarning, match="name '0xac', which matches no known collection; .*'0xAb'"
    ):
        frame = frames.statement(month, at(10), at(50), prices=prices)
    assert frame.filter(like="_value_").to_dict("list") == {
        "opening_value_ETH": [Decimal(0)] * 3,
        "opening_value_EUR": [Decimal("1.10"), 0, Decimal("1.10")],
        "closing_value_ETH": [Decimal("2e-18"), Decimal("3e-18"), Decimal("5e-18")],
        "closing_value_EUR": [Decimal("1.10"), 0, Decimal("1.10")],
    }
    assert not frame.filter(like="unpriced").any(axis=None)
    with pytest.warns(NftsyncWarning, match="3 of 3 holdings have no price at"):
        none = frames.statement(month, at(10), at(50), prices=prices[::2].assign(date="2999-01-01"))
    assert none["closing_unpriced"].tolist() == [2, 1, 3]
    nothing = frames.statement(month, at(10), at(50), prices=prices[:1], wallet=wallet_id(4))
    assert nothing["closing_value_EUR"].map(type).tolist() == [Decimal]


BEGINS = "before the history, which begins at 2026-03-01T00:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs its start"),
        ({"start": at(5), "since": at(5)}, "start and since are aliases"),
        ({"start": at(5), "end": at(6), "until": at(6)}, "end and until are aliases"),
        ({"start": at(-2), "end": at(-1)}, BEGINS),
        ({"start": at(5), "by": "wallet_grup"}, "did you mean 'wallet_group'"),
        ({"start": at(5), "end": at(1)}, "is after end"),
    ],
)
def test_unusable_arguments_are_named(month, arguments, text):
    with pytest.raises(InputError, match=text):
        frames.statement(month, **arguments)
