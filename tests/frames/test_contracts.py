"""Contracts have one spelling to group by, and a name, in each frame that shows one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from nftsync.store.contracts import label_contract, name_new_tokens
from tests.kit.database import Builder, at, rows_of
from tests.kit.held_frames import CONTRACTS, called, folded
from tests.kit.readers import READERS

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")

MIXED = ["0x" + digits * 20 for digits in ("ab", "AB", "aB", "Ab")]
TWO = "0x" + "cd" * 20


@pytest.fixture
def collections(build: Builder) -> Path:
    """A collection whose address comes in four spellings, one of a guessed name, one without."""
    for wallet in (1, 2):
        build.wallet(wallet)
    for number in range(1, 9):
        address = MIXED[number % 4] if number < 5 else [TWO, TWO, TWO, None][number % 4]
        build.token(
            number, contract_address=address, name=f"Token {number}", edition_id=number, image="?"
        )
        build.balance(number % 2 + 1, number, "1")
        build.change(number % 2 + 1, number, None, "1", 1)
    name_new_tokens(build.connection, 0, 8)
    label_contract(build.connection, MIXED[0].upper().replace("X", "x"), "Salt Harbours")
    return build.close()


@pytest.mark.parametrize(
    "name",
    [
        *("holdings", "holdings_as_of", "tokens", "tokens_as_of", "collections", "concentration"),
        *("editions", "holding_ages", "quality", "diff"),
    ],
)
def test_a_contract_has_one_spelling_and_one_name(name: str, collections: Path) -> None:
    found = READERS[name](collections)
    shown = found[["contract", "collection"]].drop_duplicates().set_index("contract")["collection"]
    assert {str(key): name for key, name in shown.items() if isinstance(name, str)} == {
        MIXED[0]: "Salt Harbours",
        TWO: "0xcdcd…cdcd",
    }
    assert found.loc[found["contract"].isna(), "collection"].isna().all()
    about = frames.collections(collections)[["contract", "holders"]].dropna()
    sizes = found.dropna(subset="contract").groupby("contract").size()
    assert len(sizes) == 2
    joined = found.merge(about, on="contract")
    assert len(joined) == sizes.sum()


def test_pairs_are_called_by_their_names_and_a_frame_without_names_by_addresses(
    collections: Path,
) -> None:
    held = frames.holdings(collections)
    bare = held.drop(columns=["contract", "collection"])
    for given_frame, name in ((held, "Salt Harbours"), (bare, "0xabab…abab")):
        (pair,) = frames.overlap(given_frame).to_dict("records")
        assert {pair["collection_a"], pair["collection_b"]} == {name, "0xcdcd…cdcd"}
        for measured in (frames.concentration(given_frame), frames.editions(given_frame)):
            names = set(measured["collection"].dropna())
            assert names == {name, "0xcdcd…cdcd"}
            assert set(measured["contract"].dropna()) == {MIXED[0], TWO}


def test_a_collection_may_be_chosen_by_its_name_if_only_one_has_it(collections: Path) -> None:
    by_address = frames.holdings(collections, contract=MIXED[2])
    assert len(by_address) == 4
    for name in ("Salt Harbours", "salt harbours"):
        pd.testing.assert_frame_equal(frames.holdings(collections, contract=name), by_address)
        assert len(frames.holdings(collections, contract=name, as_of=at(9))) == 4
        assert len(frames.diff(collections, at(0), contract=name)) == 4
    with pytest.raises(InputError, match="'Salt Harbour'; similar: 'Salt Harbours'"):
        frames.holdings(collections, contract="Salt Harbour")
    with closing(sqlite3.connect(collections, isolation_level=None)) as connection:
        label_contract(connection, TWO, "SALT harbours")
    assert len(frames.holdings(collections, contract="Salt Harbours")) == 4
    with pytest.raises(InputError, match=f"2 collections are called 'salt harbours'.*{TWO}"):
        frames.holdings(collections, contract="salt harbours")


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
def test_a_contract_is_the_one_of_that_time_and_its_name_todays(build: Builder) -> None:
    build.wallet(1)
    build.token(1, contract_address="new")
    build.change(1, 1, None, "1", 0)
    build.token_change(1, '{"contract_address": "old"}', '{"contract_address": "new"}', 5)
    build.insert("contracts", contract="old", contract_address="old", given_name="Old Masters")
    path = build.close()
    for time, name, other in ((at(4), "Old Masters", "new"), (at(5), "new", "old")):
        assert frames.holdings(path, as_of=time)["collection"].tolist() == [name]
        assert len(frames.holdings(path, as_of=time, contract=name)) == 1
        assert len(frames.holdings(path, as_of=time, contract=other)) == 0


_ADDRESSES = st.one_of(
    st.sampled_from(CONTRACTS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    st.just(f"{CONTRACTS[2]}\0"),
)


@settings(max_examples=30)
@given(addresses=st.lists(_ADDRESSES, min_size=1, max_size=8))
def test_sql_and_frames_agree_on_any_address(
    tmp_path_factory: pytest.TempPathFactory, addresses: list[str | None]
) -> None:
    build = Builder(tmp_path_factory.getbasetemp() / "addresses.db")
    build.wallet(1)
    for number, address in enumerate(addresses, start=1):
        build.token(number, contract_address=address)
        build.balance(1, number, "1")
    query = "SELECT contract_address, contract, collection FROM holdings ORDER BY token_id"
    rows = build.connection.execute(query).fetchall()
    held = frames.holdings(build.close()).sort_values("token_id")
    names = ["contract_address", "contract", "collection"]
    found = held[names].astype(object).where(held[names].notna(), None)
    for told, row, address in zip(found.to_numpy().tolist(), rows, addresses, strict=True):
        # SQLite counts the characters before a NUL.
        shown = 2 if address is not None and "\0" in address else 3
        assert told[:shown] == list(row)[:shown]
    assert found.to_numpy().tolist() == [
        [None] * 3 if address is None else [address, folded(address), called(address)]
        for address in addresses
    ]


def test_collections(build: Builder) -> None:
    contracts = [("b", 5), ("a", 1), ("b", 2), (MIXED[2], 3), ("A", 4), (None, 6), (MIXED[1], 7)]
    for wallet in (1, 2, 3):
        build.wallet(wallet)
    for token, (contract, seen) in enumerate(contracts, start=1):
        build.token(token, seen, contract_address=contract, updated_at=at(seen + 10))
    great = "1" + "0" * 99
    for wallet, token, amount in (
        *((1, 1, great), (1, 3, "00"), (1, 4, "2"), (2, 4, "2"), (3, 4, "000"), (1, 5, "")),
    ):
        build.balance(wallet, token, amount)
    columns = ["contract_address", "tokens", "held", "holders", "amount", "first_seen_at"]
    frame = frames.collections(build.path)
    assert [list(row.values()) for row in rows_of(frame, [*columns, "updated_at"])] == [
        [MIXED[2], 2, 1, 2, 4, at(3), at(17)],
        ["A", 1, 1, 1, 0, at(4), at(14)],
        ["b", 2, 1, 1, 10**99, at(2), at(15)],
        ["a", 1, 0, 0, 0, at(1), at(11)],
        [None, 1, 0, 0, 0, at(6), at(16)],
    ]
    assert frame["name_source"].isna().all()
