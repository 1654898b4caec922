"""Wallets, groups, contracts and times as arguments of frames; a frame without rows."""

import warnings
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder, at, token_id, wallet_id

#: Spans may begin before the first read, and frames may be empty.
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
CATS, DOGS = "0x" + "ab" * 20, "KT1dogs"
#: The contract of each token, as sent; the last has none.
SENT = {1: "0x" + "aB" * 20, 2: "0x" + "Ab" * 20, 3: DOGS, 4: DOGS, 5: None}
GROUPS = {1: "house", 2: "house", 3: "customers", 4: None}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Four wallets, of which each holds several of five tokens, and some of each log."""
    build = Builder(tmp_path_factory.mktemp("filtered") / "filtered.db")
    build.insert("contracts", contract=CATS, contract_address=SENT[1], given_name="Cool Cats")
    build.insert("contracts", contract=DOGS, contract_address=DOGS, given_name="Dogs")
    for number, address in SENT.items():
        build.token(number, number, contract_address=address, name=None, image="ftp://x")
        build.token_change(number, '{"name": "A"}', '{"name": null}', 10 + number)
        then = at(number * 10)
        build.insert("sync_runs", kind="sync", status="ok", started_at=then)
        build.insert("webhooks", webhook_id=f"w-{number}", received_at=then, state="pending")
        message = {"rule": "r", "destination": "d", "keys": "[]", "state": "pending"}
        build.insert("messages", message_id=f"m-{number}", created_at=then, **message)
    for wallet, group in GROUPS.items():
        label = f"Wallet {wallet}"
        build.wallet(wallet, wallet, label=label, wallet_group=group, synced_at=at(50 + wallet))
        build.state(wallet, wallet, 20 + wallet, wallet)
        build.state(wallet, 30 + wallet, 50 + wallet, 30 + wallet)
    pairs = [(wallet, token) for wallet in GROUPS for token in SENT if token != wallet]
    for wallet, token in pairs:
        build.balance(wallet, token, str(wallet * token), wallet)
        build.change(wallet, token, None, "1", wallet, baseline=1)
    for wallet, token in pairs:
        build.change(wallet, token, "1", str(wallet * token), 30 + wallet)
    return build.close()


#: Columns, and the values or the span of seconds that rows have there.
Conditions = list[tuple[str, Any]]


def matching(frame: pd.DataFrame, conditions: Conditions) -> pd.DataFrame:
    for column, wanted in conditions:
        if isinstance(wanted, set):
            frame = frame[frame[column].isin(wanted)]
        else:
            frame = frame[frame[column].between(*(pd.Timestamp(at(time)) for time in wanted))]
    return frame.reset_index(drop=True)


def of_wallets(*numbers: int) -> Conditions:
    return [("wallet_id", {wallet_id(number) for number in numbers})]


OF_CATS, OF_DOGS = ([("token_id", {token_id(n) for n in numbers})] for numbers in ((1, 2), (3, 4)))
WALLET = [
    ({"wallet": wallet_id(1)}, of_wallets(1)),
    ({"wallet": ["Wallet 1", wallet_id(3)]}, of_wallets(1, 3)),
    *(({"wallet": none}, of_wallets()) for none in (wallet_id(77), [])),
    ({"wallet": [wallet_id(1).upper(), wallet_id(77)]}, of_wallets(1)),
    *(({"group": name}, of_wallets(1, 2)) for name in ("house", "HOUSE")),
    ({"group": ["house", "customers"]}, of_wallets(1, 2, 3)),
    ({"wallet": ["Wallet 1", "Wallet 3"], "group": "house"}, of_wallets(1)),
    ({"wallet": "Wallet 3", "group": "house"}, of_wallets()),
]
CONTRACT = [
    *(({"contract": name}, OF_CATS) for name in (CATS, CATS.upper(), "cool cats")),
    ({"contract": DOGS}, OF_DOGS),
]
HELD = [
    *WALLET,
    *CONTRACT,
    ({"contract": "0x" + "ba" * 20}, of_wallets()),
    ({"group": "house", "contract": "Dogs"}, of_wallets(1, 2) + OF_DOGS),
]


def span(column: str, first: float, last: float) -> list[Any]:
    return [
        ({"since": at(first)}, [(column, (first, 10_000))]),
        ({"until": at(last)}, [(column, (0, last))]),
        ({"since": at(first), "until": at(last)}, [(column, (first, last))]),
        ({"since": "2026-03-01", "until": "2026-03-01"}, [(column, (0, 10_000))]),
        ({"until": "2026-02-28"}, [(column, (-2, -1))]),
    ]


OF_TWO = {"wallet": wallet_id(2), "contract": "Dogs", "since": at(3), "until": at(32)}
BETWEEN = {"since": at(23), "until": at(33)}
#: A frame, the arguments that are not filters, and filters with the conditions that rows meet.
CASES = [
    *((frames.holdings, options, HELD) for options in ({}, {"as_of": at(40)})),
    *((frames.holding_ages, options, HELD) for options in ({}, {"at": at(20)})),
    (frames.changes, {}, [*HELD, *span("observed_at", 2, 33)]),
    (frames.changes, {}, [(OF_TWO, of_wallets(2) + OF_DOGS + [("observed_at", (3, 32))])]),
    (
        *(frames.changes, {"after": 20}),
        [({"group": "house", "until": at(31)}, [*of_wallets(1), ("observed_at", (31, 31))])],
    ),
    *((read, {}, WALLET) for read in (frames.wallets, frames.wallet_states)),
    # States with reads in the span.
    (
        *(frames.wallet_states, {}),
        [(BETWEEN, [("last_read_at", (23, 10_000)), ("first_read_at", (0, 33))])],
    ),
    *((frames.tokens, options, CONTRACT) for options in ({}, {"as_of": at(3)})),
    (frames.quality, {}, CONTRACT),
    (frames.collections, {}, [({"contract": "cool cats"}, [("contract", {CATS})])]),
    (frames.collections, {}, [({"contract": DOGS}, [("contract", {DOGS})])]),
    (frames.token_changes, {}, [*CONTRACT, *span("observed_at", 12, 14)]),
    (frames.runs, {}, span("started_at", 20, 40)),
    (frames.webhooks, {}, span("received_at", 20, 40)),
    (frames.messages, {}, span("created_at", 20, 40)),
]


@pytest.mark.parametrize(
    ("read", "options", "filters", "conditions"),
    [(read, options, *case) for read, options, cases in CASES for case in cases],
)
def test_a_filtered_frame_has_the_matching_rows_of_the_whole_frame(
    path, read, options, filters, conditions
):
    expected, found = matching(read(path, **options), conditions), read(path, **options, **filters)
    columns = [name for name in found.columns if name != "age"]
    pd.testing.assert_frame_equal(found[columns], expected[columns])


MEASURES = [frames.concentration, frames.overlap, frames.editions]


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_filters_the_holdings_that_it_reads_and_refuses_filters_of_a_frame(path, measure):
    for filters, _ in HELD[1::3]:
        held = frames.holdings(path, **filters)
        pd.testing.assert_frame_equal(measure(path, **filters), measure(held))
    for name in ("wallet", "group", "contract"):
        with pytest.raises(InputError, match=f"{name}= filters a database only"):
            measure(held, **{name: "house"})
    held = frames.holdings(path)
    by_id = measure(held, exclude=wallet_id(1))
    pd.testing.assert_frame_equal(measure(held, exclude=["wALLET 1"]), by_id)
    with pytest.raises(InputError, match="no column 'wallet_label'"):
        measure(held.drop(columns="wallet_label"), exclude="Wallet 1")


@pytest.mark.parametrize(("filters", "conditions"), HELD[::2])
@pytest.mark.parametrize("by", ["wallet_id", "contract"])
def test_holdings_over_time_end_with_the_filtered_holdings(path, filters, conditions, by):
    steps = frames.holdings_over_time(path, by=by, **filters)
    last = steps.drop_duplicates(by, keep="last").set_index(by)["amount"]
    held = matching(frames.holdings(path), conditions)
    assert last.to_dict() == held.groupby(by, dropna=False)["amount"].sum().to_dict()


def test_freshness_counts_only_the_filtered_wallets(path):
    for filters, count, oldest in (
        ({}, 4, 1),
        ({"wallet": ["Wallet 2", wallet_id(4)]}, 2, 2),
        ({"group": "customers"}, 1, 3),
    ):
        found = frames.freshness(path, **filters).set_index("what")
        row = found.loc["oldest wallet read", ["count", "at", "detail"]]
        assert row.tolist() == [count, pd.Timestamp(at(50 + oldest)), f"Wallet {oldest}"]
        assert found.index.equals(frames.freshness(path).set_index("what").index)


LOGS = (frames.changes, frames.token_changes, frames.runs, frames.webhooks, frames.messages)
BY_GROUP = (frames.changes, frames.wallets, frames.freshness, frames.holdings_over_time)
BY_CONTRACT = (frames.tokens, frames.quality, frames.collections, frames.changes)
UNUSABLE = [
    ((frames.holdings,), {"group": "nope"}, "None of the 4 wallets is.*: customers, house$"),
    (BY_GROUP, {"group": ["house", "nope"]}, "is in group 'nope'"),
    *(((frames.holdings,), {"group": group}, "is not a group") for group in (7, [None], b"house")),
    *(
        (BY_CONTRACT, {"contract": unknown}, f"unknown collection or contract '{unknown}'")
        for unknown in ("Cats", CATS[:-2], DOGS.lower(), "")
    ),
    (LOGS, {"since": at(2), "until": at(1)}, r"since \(.*\) is after until \(.*\)"),
    (LOGS, {"until": "soon"}, "'soon' is not a time"),
    *(
        ((frames.holdings, frames.wallet_states), {"wallet": wrong}, "wallet")
        for wrong in ("", "x", [wallet_id(1), "x"], [None], 7)
    ),
    ((frames.changes,), {"after": "5"}, "after"),
]


@pytest.mark.parametrize(("reads", "filters", "text"), UNUSABLE)
def test_an_unusable_filter_is_an_error_that_lists_the_usable_ones(path, reads, filters, text):
    for read in reads:
        with pytest.raises(InputError, match=text):
            read(path, **filters)


def test_a_database_without_groups_says_so(build):
    build.wallet(1)
    with pytest.raises(InputError, match="in group 'house'. No wallet has a group"):
        frames.holdings(build.path, group="house")


def test_a_label_of_several_wallets_lists_their_ids(build):
    for number in range(1, 9):
        build.wallet(number, label="Desk" if number < 8 else "desk")
    with pytest.raises(InputError) as raised:
        frames.holdings(build.path, wallet="Desk")
    listed = ", ".join(wallet_id(number) for number in range(1, 6))
    assert str(raised.value) == (
        f"7 wallets are called 'Desk'; name one by its id: {listed} and 2 more"
    )
    assert frames.holdings(build.path, wallet="desk").empty  # that one alone is called so
    with pytest.raises(InputError, match="8 wallets are called 'DESK'"):
        frames.holdings(build.path, wallet="DESK")


@pytest.mark.parametrize(
    ("read", "options", "name"),
    [
        *((frames.diff, {"start": at(0)}, name) for name in ("wallet", "exclude")),
        (frames.holding_ages, {"at": at(100)}, "exclude"),
        *((read, {}, "exclude") for read in (frames.holdings_over_time, *MEASURES)),
    ],
)
def test_a_label_stands_for_its_wallet(small_database, read, options, name):
    by_id = read(small_database, **options, **{name: wallet_id(1)})
    for label in ("vAULT", [" Vault ", wallet_id(1)]):
        by_label = read(small_database, **options, **{name: label})
        pd.testing.assert_frame_equal(by_label, by_id)
    with pytest.raises(InputError, match="'Volt' is neither a wallet id .*; similar: 'Vault'"):
        read(small_database, **options, **{name: "Volt"})


def test_changes_since_a_time_and_after_a_change(small_database):
    def ids(after, since=None):
        return list(frames.changes(small_database, since=since, after=after)["change_id"])

    assert ids(None, at(4)) == [5, 6, 7]
    assert ids(None, at(4.5)) == [7]
    assert ids(None, at(6)) == ids(7) == ids(2**70) == []
    assert ids(5) == [6, 7]
    assert ids(0) == ids(-(2**70)) == list(range(1, 8))
    assert ids(np.int64(6)) == ids(5, at(5)) == ids(6, at(1)) == [7]


@settings(max_examples=20)
@given(
    steps=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2)), max_size=30),
    seek=st.integers(-1, 70),
)
def test_a_time_is_found_in_a_log_with_gaps(tmp_path_factory, steps, seek):
    build = Builder(tmp_path_factory.getbasetemp() / "gaps.db")
    build.wallet(1)
    change, seen, rows = 0, 0, []
    for token, (gap, wait) in enumerate(steps, start=1):
        change, seen = change + gap, seen + wait
        build.token(token)
        build.change(1, token, None, "1", seen, change_id=change)
        rows.append((change, seen))
    path = build.close()
    found = frames.changes(path, since=at(seek))["change_id"].tolist()
    assert found == [number for number, when in rows if when >= seek]
    found = frames.changes(path, until=at(seek))["change_id"].tolist()
    assert found == [number for number, when in rows if when <= seek]
    assert len(frames.holdings(path, as_of=at(seek))) == sum(when <= seek for _, when in rows)


def test_a_wallet_and_a_time_can_have_any_form_and_a_date_is_its_end(small_database):
    one = wallet_id(2)
    for wallet in (UUID(one), one.upper(), pd.Series([one]), iter([one]), (one,)):
        assert set(frames.holdings(small_database, wallet=wallet)["wallet_id"]) == {one}
    moment = datetime(2026, 3, 1, 0, 0, 4, tzinfo=UTC)
    texts = at(4), "2026-03-01T00:00:04", "2026-03-01T01:00:04+01:00"
    for time in (*texts, moment, pd.Timestamp(moment), np.datetime64("2026-03-01T00:00:04")):
        assert frames.changes(small_database, since=time)["change_id"].tolist() == [5, 6, 7]
        assert token_id(4) in set(frames.holdings(small_database, as_of=time)["token_id"])
    assert len(frames.holdings(small_database, as_of=date(2026, 3, 1))) == 4
    assert len(frames.holdings(small_database, as_of="2026-02-28")) == 0


@pytest.fixture
def sparse(build):
    """One wallet sold its token, one was never read, one was read in part."""
    build.wallet(1, label="Vault")
    build.wallet(2, label="Desk")
    build.wallet(3)
    build.token(1, contract_address="0x" + "aB" * 20)
    build.state(1, 10, 30, 10)
    build.change(1, 1, None, "1", 10, baseline=1)
    build.change(1, 1, "1", None, 20)
    build.change(3, 1, None, "0", 25)
    return build.path


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"as_of": at(5)}, f"no data at {at(5)}: the first .* from {at(10)}. Holdings before"),
        ({"as_of": at(15), "wallet": wallet_id(3)}, f"on wallet {wallet_id(3)} at .* {at(25)}"),
        ({"wallet": "desk"}, "no data on wallet Desk yet: no read has been stored"),
        ({"wallet": wallet_id(9)}, f"no data on wallet {wallet_id(9)}; list .* `nftsync wallets`"),
        ({"wallet": [wallet_id(8), wallet_id(9)]}, "no data on 2 wallets;"),
        ({"contract": "0x" + "12" * 20}, "no known token has the contract '0x1212"),
    ],
)
def test_missing_data_is_a_warning(sparse, filters, text):
    with pytest.warns(nftsync.NftsyncWarning, match=text) as warned:
        assert frames.holdings(sparse, **filters).empty
    assert warned[0].filename == __file__
    assert len(str(warned[0].message)) < 300


def test_a_frame_of_wallets_without_holdings_is_empty_without_a_warning(sparse, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for filters in (
            *({}, {"as_of": at(20)}, {"wallet": "Vault"}, {"wallet": []}),
            *({"contract": "0X" + "AB" * 20}, {"wallet": [wallet_id(1), wallet_id(9)]}),
        ):
            assert frames.holdings(sparse, **filters).empty
    with pytest.warns(nftsync.NftsyncWarning, match="no data yet"):
        frames.holdings(Builder(tmp_path / "empty.db").close())
