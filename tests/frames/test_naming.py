"""Names of wallets, NFTs and collections in each frame, and one spelling of each contract."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder, at, rows_of
from tests.kit.held_frames import CONTRACTS, called, folded
from tests.kit.readers import READERS

#: Spans may begin before the first read, and frames may be empty.
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
ADDRESS = "0x" + "cd" * 20
#: Frames whose rows have a wallet, an NFT, or both.
NAMED = ["holdings", "holdings_as_of", "changes", "diff", "holding_ages", "wallets", "tokens"]
NAMED += ["tokens_as_of", "token_changes", "quality", "traits", "transfers"]


@pytest.fixture
def nameless(build):
    """Return wallets and NFTs with and without names; two wallets share a label."""
    for number, label in enumerate(("Treasury", "Treasury", None, "Sales"), 1):
        group = "house" if number == 1 else None
        build.wallet(number, label=label, wallet_group=group, synced_at=at(9), status="ok")
    extra = '{"metadata":{"attributes":[{"trait_type":"Place","value":"bay"}]}}'
    for number, name in enumerate(("Atlas", None, " ", None), 1):
        contract = {"contract_address": ADDRESS, "blockchain_token_id": str(number)}
        build.token(number, name=name, extra=extra, **(contract if number < 4 else {}))
        build.balance(number, number, "2", 1)
        build.change(number, number, None, "2", 1, baseline=1)
    for number in range(1, 5):
        build.change(number, number, "2", "1", 5)
        build.change(number % 4 + 1, number, None, "1", 5)
        build.balance(number % 4 + 1, number, "1", 5)
        build.token_change(number, "{}", "{}", 6)
    build.connection.execute("UPDATE balance_rows SET amount = '1'")
    return build.close()


@pytest.mark.parametrize("name", NAMED)
def test_each_wallet_and_each_nft_has_a_name_of_its_own(name, nameless):
    frame = READERS[name](nameless)
    if "wallet" in frame:
        pairs = frame[["wallet", "wallet_id"]].drop_duplicates()
        assert [len(pairs), *pairs.nunique()] == [4, 4, 4]
        assert {"Sales", "Treasury"} & {*pairs["wallet"]} == {"Sales"}
    if "nft" in frame:
        assert frame["nft"].notna().all()
        assert {"0xcdcd…cdcd #2", "0xcdcd…cdcd #3"} < {*frame["nft"]}


@pytest.mark.parametrize(("short", "column"), [("wallet", "wallet_id"), ("group", "wallet_group")])
def test_a_statement_takes_the_names_that_the_command_takes(short, column, nameless):
    for read, span in ((frames.statement, {"start": at(2)}), (frames.holdings_over_time, {})):
        frame = read(nameless, by=short, **span)
        pd.testing.assert_frame_equal(frame, read(nameless, by=column, **span))
        if short == "wallet":
            assert frame["wallet"].notna().all()
            assert frame["wallet"].nunique() == frame["wallet_id"].nunique()


def test_known_sides_of_a_transfer_have_names_and_groups(nameless):
    frame = frames.transfers(nameless)
    wallets = frames.wallets(nameless).set_index("wallet_id")[["wallet", "wallet_group"]]
    for side in ("from", "to"):
        about = frame[[f"{side}_wallet_id", f"{side}_wallet", f"{side}_group"]]
        known = about.dropna(subset=f"{side}_wallet_id")
        named = wallets.loc[known[f"{side}_wallet_id"]].fillna("")
        assert known.iloc[:, 1:].fillna("").to_numpy().tolist() == named.to_numpy().tolist()
        assert len(known) == about[f"{side}_wallet"].notna().sum() == 4


MIXED = ["0x" + digits * 20 for digits in ("ab", "AB", "aB", "Ab")]


@pytest.fixture
def collections(build, command):
    """Return a collection in four spellings, one without a name, and an NFT without a contract."""
    for wallet in (1, 2):
        build.wallet(wallet)
    for number in range(1, 9):
        address = MIXED[number % 4] if number < 5 else ADDRESS if number != 7 else None
        about = {"contract_address": address, "edition_id": number, "image": "?"}
        build.token(number, name=f"Token {number}", **about)
        build.balance(number % 2 + 1, number, "1")
        build.change(number % 2 + 1, number, None, "1", 1)
    build.index()
    path = build.close()
    label = "collections", "label", MIXED[0].upper().replace("X", "x"), "Salt Harbours"
    command(*label, "-d", path).says()
    return path


SPELLED = ["holdings", "holdings_as_of", "tokens", "tokens_as_of", "collections", "concentration"]


@pytest.mark.parametrize("name", [*SPELLED, "editions", "holding_ages", "quality", "diff"])
def test_a_contract_has_one_spelling_and_one_name(name, collections):
    found = READERS[name](collections)[["contract", "collection"]].drop_duplicates()
    known = found.dropna(subset="contract")
    assert dict(known.to_numpy()) == {MIXED[0]: "Salt Harbours", ADDRESS: "0xcdcd…cdcd"}
    assert len(known) == 2
    assert found.loc[found["contract"].isna(), "collection"].isna().all()


def test_measures_use_the_names_of_a_frame_and_addresses_without_them(collections):
    held = frames.holdings(collections)
    bare = held.drop(columns=["contract", "collection"])
    for given_frame, name in ((held, "Salt Harbours"), (bare, "0xabab…abab")):
        (pair,) = frames.overlap(given_frame).to_dict("records")
        assert {pair["collection_a"], pair["collection_b"]} == {name, "0xcdcd…cdcd"}
        for measure in (frames.concentration, frames.editions):
            names = measure(given_frame)[["contract", "collection"]].dropna()
            assert dict(names.to_numpy()) == {MIXED[0]: name, ADDRESS: "0xcdcd…cdcd"}


def test_a_collection_can_be_chosen_by_a_name_that_only_one_has(collections, command):
    by_address = frames.holdings(collections, contract=MIXED[2])
    assert len(by_address) == 4
    for name in ("Salt Harbours", "salt harbours"):
        pd.testing.assert_frame_equal(frames.holdings(collections, contract=name), by_address)
        assert len(frames.holdings(collections, contract=name, as_of=at(9))) == 4
        assert len(frames.diff(collections, at(0), contract=name)) == 4
    with pytest.raises(InputError, match="'Salt Harbour'; similar: 'Salt Harbours'"):
        frames.holdings(collections, contract="Salt Harbour")
    command("collections", "label", ADDRESS, "SALT harbours", "-d", collections).says()
    assert len(frames.holdings(collections, contract="Salt Harbours")) == 4
    with pytest.raises(InputError, match=f"2 collections are called 'salt harbours'.*{ADDRESS}"):
        frames.holdings(collections, contract="salt harbours")


def test_a_past_frame_has_the_contracts_of_its_time_under_their_present_names(build):
    build.wallet(1)
    build.token(1, contract_address="new")
    build.change(1, 1, None, "1", 0)
    build.token_change(1, '{"contract_address": "old"}', '{"contract_address": "new"}', 5)
    build.insert("contracts", contract="old", contract_address="old", given_name="Old Masters")
    for time, name, other in ((at(4), "Old Masters", "new"), (at(5), "new", "old")):
        assert frames.holdings(build.path, as_of=time)["collection"].tolist() == [name]
        for contract, count in ((name, 1), (other, 0)):
            assert len(frames.holdings(build.path, as_of=time, contract=contract)) == count


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
ANY = st.sampled_from(CONTRACTS) | TEXTS | st.just(f"{CONTRACTS[2]}\0")


@settings(max_examples=30)
@given(addresses=st.lists(ANY, min_size=1, max_size=8))
def test_sql_and_frames_agree_on_any_address(tmp_path_factory, addresses):
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
    for shown_row, row, address in zip(found.to_numpy().tolist(), rows, addresses, strict=True):
        # SQLite counts the characters before a NUL.
        shown = 2 if address is not None and "\0" in address else 3
        assert shown_row[:shown] == list(row)[:shown]
    assert found.to_numpy().tolist() == [
        [None] * 3 if address is None else [address, folded(address), called(address)]
        for address in addresses
    ]


def test_collections(build):
    contracts = [("b", 5), ("a", 1), ("b", 2), (MIXED[2], 3), ("A", 4), (None, 6), (MIXED[1], 7)]
    for wallet in (1, 2, 3):
        build.wallet(wallet)
    for token, (contract, seen) in enumerate(contracts, start=1):
        build.token(token, seen, contract_address=contract, updated_at=at(seen + 10))
    great = "1" + "0" * 99
    held = [(1, 1, great), (1, 3, "00"), (1, 4, "2"), (2, 4, "2"), (3, 4, "000"), (1, 5, "")]
    for balance in held:
        build.balance(*balance)
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
