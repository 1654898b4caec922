"""Wallets, groups, contracts and times as arguments of frames; a frame without rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import charts, frames
from nftsync.errors import InputError
from tests.kit.database import Builder, at, token_id, wallet_id

#: Spans may begin before the first read, and frames may be empty.
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")


CATS, DOGS = "0x" + "ab" * 20, "KT1dogs"


#: The contract of each token, as sent; the last has none.
SENT = {1: "0x" + "aB" * 20, 2: "0x" + "Ab" * 20, 3: DOGS, 4: DOGS, 5: None}


KEYS = {token_id(n): sent and (CATS if sent != DOGS else DOGS) for n, sent in SENT.items()}


GROUPS = {1: "house", 2: "house", 3: "customers", 4: None}


Frame = Callable[..., pd.DataFrame]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four wallets, of which each holds several of five tokens, and some of each log."""
    build = Builder(tmp_path_factory.mktemp("filtered") / "filtered.db")
    build.insert("contracts", contract=CATS, contract_address=SENT[1], given_name="Cool Cats")
    build.insert("contracts", contract=DOGS, contract_address=DOGS, given_name="Dogs")
    for number, group in GROUPS.items():
        label = f"Wallet {number}"
        build.wallet(number, number, label=label, wallet_group=group, synced_at=at(50 + number))
    for number, address in SENT.items():
        build.token(number, number, contract_address=address, name=None, image="ftp://x")
        build.token_change(number, '{"name": "A"}', '{"name": null}', 10 + number)
    for wallet in GROUPS:
        build.state(wallet, wallet, 20 + wallet, wallet)
        build.state(wallet, 30 + wallet, 50 + wallet, 30 + wallet)
    pairs = [(wallet, token) for wallet in GROUPS for token in SENT if token != wallet]
    for wallet, token in pairs:
        build.balance(wallet, token, str(wallet * token), wallet)
        build.change(wallet, token, None, "1", wallet, baseline=1)
    for wallet, token in pairs:
        build.change(wallet, token, "1", str(wallet * token), 30 + wallet)
    for number in range(1, 6):
        build.insert("sync_runs", kind="sync", status="ok", started_at=at(number * 10))
        build.insert(
            "webhooks", webhook_id=f"w-{number}", received_at=at(number * 10), state="pending"
        )
        build.insert(
            "messages",
            message_id=f"m-{number}",
            rule="r",
            destination="d",
            keys="[]",
            created_at=at(number * 10),
            state="pending",
        )
    return build.close()


def of_wallets(*numbers: int) -> Callable[[pd.DataFrame], Any]:
    return lambda frame: frame["wallet_id"].isin([wallet_id(number) for number in numbers])


def of_contract(key: str) -> Callable[[pd.DataFrame], Any]:
    return lambda frame: frame["token_id"].map(KEYS) == key


def within(column: str, first: float, last: float) -> Callable[[pd.DataFrame], Any]:
    return lambda frame: frame[column].between(pd.Timestamp(at(first)), pd.Timestamp(at(last)))


def both(*conditions: Callable[[pd.DataFrame], Any]) -> Callable[[pd.DataFrame], Any]:
    return lambda frame: pd.concat([each(frame) for each in conditions], axis=1).all(axis=1)


WALLET = [
    ({"wallet": wallet_id(1)}, of_wallets(1)),
    ({"wallet": ["Wallet 1", wallet_id(3)]}, of_wallets(1, 3)),
    ({"wallet": wallet_id(77)}, of_wallets()),
    ({"wallet": []}, of_wallets()),
    ({"wallet": [wallet_id(1).upper(), wallet_id(77)]}, of_wallets(1)),
    ({"group": "house"}, of_wallets(1, 2)),
    ({"group": "HOUSE"}, of_wallets(1, 2)),
    ({"group": ["house", "customers"]}, of_wallets(1, 2, 3)),
    ({"wallet": ["Wallet 1", "Wallet 3"], "group": "house"}, of_wallets(1)),
    ({"wallet": "Wallet 3", "group": "house"}, of_wallets()),
]


CONTRACT = [
    ({"contract": CATS}, of_contract(CATS)),
    ({"contract": CATS.upper()}, of_contract(CATS)),
    ({"contract": "cool cats"}, of_contract(CATS)),
    ({"contract": DOGS}, of_contract(DOGS)),
]


HELD = [
    *WALLET,
    *CONTRACT,
    ({"contract": "0x" + "ba" * 20}, of_wallets()),
    ({"group": "house", "contract": "Dogs"}, both(of_wallets(1, 2), of_contract(DOGS))),
]


def span(column: str, first: float, last: float) -> list[Any]:
    return [
        ({"since": at(first)}, within(column, first, 10_000)),
        ({"until": at(last)}, within(column, 0, last)),
        ({"since": at(first), "until": at(last)}, within(column, first, last)),
        ({"since": "2026-03-01", "until": "2026-03-01"}, within(column, 0, 10_000)),
        ({"until": "2026-02-28"}, within(column, -2, -1)),
    ]


#: A frame, its filters, and the condition that its rows meet.
CASES = [
    *((frames.holdings, *case) for case in HELD),
    *((lambda db, **c: frames.holdings(db, as_of=at(40), **c), *case) for case in HELD),
    *((frames.holding_ages, *case) for case in HELD),
    *((lambda db, **c: frames.holding_ages(db, at=at(20), **c), *case) for case in HELD),
    *((frames.changes, *case) for case in [*HELD, *span("observed_at", 2, 33)]),
    (
        frames.changes,
        {"wallet": wallet_id(2), "contract": "Dogs", "since": at(3), "until": at(32)},
        both(of_wallets(2), of_contract(DOGS), within("observed_at", 3, 32)),
    ),
    (
        lambda db, **c: frames.changes(db, after=20, **c),
        {"group": "house", "until": at(31)},
        both(of_wallets(1), within("observed_at", 31, 31)),
    ),
    *((frames.wallets, *case) for case in WALLET),
    *((frames.wallet_states, *case) for case in WALLET),
    # States with reads in the span.
    (
        frames.wallet_states,
        {"since": at(23), "until": at(33)},
        both(within("last_read_at", 23, 10_000), within("first_read_at", 0, 33)),
    ),
    *((frames.tokens, *case) for case in CONTRACT),
    *((lambda db, **c: frames.tokens(db, as_of=at(3), **c), *case) for case in CONTRACT),
    *((frames.quality, *case) for case in CONTRACT),
    (frames.collections, {"contract": "cool cats"}, lambda frame: frame["contract"] == CATS),
    (frames.collections, {"contract": DOGS}, lambda frame: frame["contract"] == DOGS),
    *((frames.token_changes, *case) for case in [*CONTRACT, *span("observed_at", 12, 14)]),
    *((frames.runs, *case) for case in span("started_at", 20, 40)),
    *((frames.webhooks, *case) for case in span("received_at", 20, 40)),
    *((frames.messages, *case) for case in span("created_at", 20, 40)),
]


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
@pytest.mark.parametrize(("read", "filters", "condition"), CASES)
def test_a_filtered_frame_has_the_matching_rows_of_the_whole_frame(
    path: Path, read: Frame, filters: dict[str, Any], condition: Callable[[pd.DataFrame], Any]
) -> None:
    whole = read(path)
    expected = whole[condition(whole)].reset_index(drop=True)
    ages = "age" in whole.columns
    found = read(path, **filters)
    pd.testing.assert_frame_equal(
        found.drop(columns="age") if ages else found,
        expected.drop(columns="age") if ages else expected,
    )


MEASURES = [
    frames.concentration,
    frames.overlap,
    frames.editions,
    lambda holdings, **filters: frames.concentration(holdings, "wallet_group", **filters),
]


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("filters", [filters for filters, _ in HELD[1::3]])
def test_a_measure_filters_the_holdings_that_it_reads_from_a_database(
    path: Path, measure: Frame, filters: dict[str, Any]
) -> None:
    held = frames.holdings(path, **filters)
    pd.testing.assert_frame_equal(measure(path, **filters), measure(held))


@pytest.mark.parametrize("measure", MEASURES[:3])
def test_a_measure_of_a_frame_refuses_filters(path: Path, measure: Frame) -> None:
    for name in ("wallet", "group", "contract"):
        with pytest.raises(InputError, match=f"{name}= filters a database only"):
            measure(frames.holdings(path), **{name: "house"})


@pytest.mark.parametrize(("filters", "condition"), HELD[::2])
@pytest.mark.parametrize("by", ["wallet_id", "contract"])
def test_holdings_over_time_end_with_the_filtered_holdings(
    path: Path, filters: dict[str, Any], condition: Callable[[pd.DataFrame], Any], by: str
) -> None:
    steps = frames.holdings_over_time(path, by=by, **filters)
    held = frames.holdings(path)
    held = held[condition(held)]
    last = steps.drop_duplicates(by, keep="last").set_index(by)["amount"]
    sums = held.groupby(by, dropna=False)["amount"].sum()
    assert last.to_dict() == sums.to_dict()


def test_freshness_counts_only_the_filtered_wallets(path: Path) -> None:
    def oldest(**filters: Any) -> list[Any]:
        row = frames.freshness(path, **filters).set_index("what").loc["oldest wallet read"]
        return [row["count"], row["at"], row["detail"]]

    assert oldest() == [4, pd.Timestamp(at(51)), "Wallet 1"]
    assert oldest(wallet=["Wallet 2", wallet_id(4)]) == [2, pd.Timestamp(at(52)), "Wallet 2"]
    assert oldest(group="customers") == [1, pd.Timestamp(at(53)), "Wallet 3"]
    whole, some = frames.freshness(path), frames.freshness(path, group="customers")
    assert list(some["what"]) == list(whole["what"])


def test_an_unusable_filter_is_an_error_that_lists_the_usable_ones(
    path: Path, build: Builder
) -> None:
    with pytest.raises(InputError, match=r"None of the 4 wallets is in group 'nope'") as raised:
        frames.holdings(path, group="nope")
    assert str(raised.value).endswith("Groups: customers, house")
    for read in (frames.changes, frames.wallets, frames.freshness, frames.holdings_over_time):
        with pytest.raises(InputError, match="is in group 'nope'"):
            read(path, group=["house", "nope"])
    for group in (7, [None], b"house"):
        with pytest.raises(InputError, match="is not a group"):
            frames.holdings(path, group=group)  # type: ignore[arg-type]
    for read in (frames.tokens, frames.quality, frames.collections, frames.changes):
        for unknown in ("Cats", CATS[:-2], DOGS.lower(), ""):
            with pytest.raises(InputError, match=f"unknown collection or contract '{unknown}'"):
                read(path, contract=unknown)
    for log in ("changes", "token_changes", "runs", "webhooks", "messages"):
        with pytest.raises(InputError, match=r"since \(.*\) is after until \(.*\)"):
            getattr(frames, log)(path, since=at(2), until=at(1))
        with pytest.raises(InputError, match="'soon' is not a time"):
            getattr(frames, log)(path, until="soon")
    for wrong in ("", "x", [wallet_id(1), "x"], [None], 7):
        for read in (frames.holdings, frames.wallet_states):
            with pytest.raises(InputError):
                read(path, wallet=wrong)
    build.wallet(1)
    with pytest.raises(InputError, match="in group 'house'. No wallet has a group"):
        frames.holdings(build.path, group="house")


# Labels ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
def test_a_label_of_several_wallets_lists_their_ids(build: Builder) -> None:
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


#: Functions that take wallets, besides those with rows that the tests above filter.
TAKING_WALLETS: dict[str, Callable[[Any, Any], Any]] = {
    "diff": lambda db, wallet: frames.diff(db, at(0), wallet=wallet),
    "diff without": lambda db, wallet: frames.diff(db, at(0), exclude=wallet),
    "holding_ages": lambda db, wallet: frames.holding_ages(db, at=at(100), exclude=wallet),
    "holdings_over_time": lambda db, wallet: frames.holdings_over_time(db, exclude=wallet),
    "concentration": lambda db, wallet: frames.concentration(db, exclude=wallet),
    "overlap": lambda db, wallet: frames.overlap(db, exclude=wallet),
    "editions": lambda db, wallet: frames.editions(db, exclude=wallet),
    "chart": lambda db, wallet: pd.DataFrame(
        {"json": [charts.arrivals_and_departures(db, exclude=wallet).to_json()]}
    ),
}


@pytest.mark.parametrize("name", TAKING_WALLETS)
def test_a_label_stands_for_its_wallet(small_database: Path, name: str) -> None:
    by_id = TAKING_WALLETS[name](small_database, wallet_id(1))
    for label in ("vAULT", [" Vault ", wallet_id(1)]):
        pd.testing.assert_frame_equal(TAKING_WALLETS[name](small_database, label), by_id)
    with pytest.raises(InputError, match="'Volt' is neither a wallet id .*; similar: 'Vault'"):
        TAKING_WALLETS[name](small_database, "Volt")


@pytest.mark.parametrize("measure", MEASURES[:3])
def test_a_measure_of_a_frame_uses_the_labels_of_the_frame(
    small_database: Path, measure: Frame
) -> None:
    held = frames.holdings(small_database)
    by_id = measure(held, exclude=wallet_id(1))
    pd.testing.assert_frame_equal(measure(held, exclude=["vault"]), by_id)
    with pytest.raises(InputError, match="no column 'wallet_label'"):
        measure(held.drop(columns="wallet_label"), exclude="Vault")


# Forms of arguments ----------------------------------------------------------------------------


def test_changes_since_a_time_and_after_a_change(small_database: Path) -> None:
    def ids(after: int | None, since: str | None = None) -> list[int]:
        return list(frames.changes(small_database, since=since, after=after)["change_id"])

    assert ids(None, at(4)) == [5, 6, 7]
    assert ids(None, at(4.5)) == [7]
    assert ids(None, at(6)) == ids(7) == ids(2**70) == []
    assert ids(5) == [6, 7]
    assert ids(0) == ids(-(2**70)) == list(range(1, 8))
    assert ids(np.int64(6)) == ids(5, at(5)) == ids(6, at(1)) == [7]  # type: ignore[arg-type]
    with pytest.raises(InputError):
        frames.changes(small_database, after="5")  # type: ignore[arg-type]


@settings(max_examples=25)
@given(
    steps=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2)), max_size=30),
    seek=st.integers(-1, 70),
)
def test_a_time_is_found_in_a_log_with_gaps(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], seek: int
) -> None:
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
    assert len(frames.holdings(path, as_of=at(seek))) == sum(when <= seek for _, when in rows)


def test_a_wallet_can_have_any_form(small_database: Path) -> None:
    one = wallet_id(2)
    for wallet in (UUID(one), one.upper(), pd.Series([one]), iter([one]), (one,)):
        assert set(frames.holdings(small_database, wallet=wallet)["wallet_id"]) == {one}


def test_a_time_can_have_any_form_and_a_date_is_its_end(small_database: Path) -> None:
    moment = datetime(2026, 3, 1, 0, 0, 4, tzinfo=UTC)
    texts = at(4), "2026-03-01T00:00:04", "2026-03-01T01:00:04+01:00"
    for time in (*texts, moment, pd.Timestamp(moment), np.datetime64("2026-03-01T00:00:04")):
        assert frames.changes(small_database, since=time)["change_id"].tolist() == [5, 6, 7]
        assert token_id(4) in set(frames.holdings(small_database, as_of=time)["token_id"])
    assert len(frames.holdings(small_database, as_of=date(2026, 3, 1))) == 4
    assert len(frames.holdings(small_database, as_of="2026-02-28")) == 0


# No rows -----------------------------------------------------------------------------------------


@pytest.fixture
def sparse(build: Builder) -> Builder:
    """One wallet sold its token, one was never read, one was read in part."""
    build.wallet(1, label="Vault")
    build.wallet(2, label="Desk")
    build.wallet(3)
    build.token(1, contract_address="0x" + "aB" * 20)
    build.state(1, 10, 30, 10)
    build.change(1, 1, None, "1", 10, baseline=1)
    build.change(1, 1, "1", None, 20)
    build.change(3, 1, None, "0", 25)
    return build


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
def test_missing_data_is_a_warning(sparse: Builder, filters: dict[str, Any], text: str) -> None:
    with pytest.warns(nftsync.NftsyncWarning, match=text) as warned:
        assert frames.holdings(sparse.path, **filters).empty
    assert warned[0].filename == __file__
    assert len(str(warned[0].message)) < 300


def test_a_frame_of_wallets_without_holdings_is_empty_without_a_warning(sparse: Builder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for filters in (
            *({}, {"as_of": at(20)}, {"wallet": "Vault"}, {"wallet": []}),
            *({"contract": "0X" + "AB" * 20}, {"wallet": [wallet_id(1), wallet_id(9)]}),
        ):
            assert frames.holdings(sparse.path, **filters).empty
    empty = Builder(sparse.path.with_name("empty.db")).close()
    with pytest.warns(nftsync.NftsyncWarning, match="no data yet"):
        frames.holdings(empty)
