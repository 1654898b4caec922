"""Names of NFTs, wallets and collections, and the spellings of a contract."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync.errors import InputError
from nftsync.pull.list_files import read_collections_file
from nftsync.pull.plan import name_collections
from nftsync.records import CONTENT_COLUMNS, TokenRead
from nftsync.store.contracts import (
    contract_key,
    guess_name,
    label_contract,
    nft_name,
    series_of,
    short_address,
)
from nftsync.store.mirror import Mirror
from nftsync.store.wallets import wallet_names

TOKEN = "8d1cc10a-7fbf-42e7-b58d-5110899866aa"
LONG = "52435875175126190479447740508185965837690552500527637822603658699938581184513"


@pytest.mark.parametrize(
    ("name", "collection", "on_chain_id", "shown"),
    [
        ("Salt Cartography #7", "Salt Cartography", "7", "Salt Cartography #7"),
        (None, "Salt Cartography", "7", "Salt Cartography #7"),
        (" \n\t", "0x8f4f…8e63", "7", "0x8f4f…8e63 #7"),
        ("\u200b\u200d\ufe0f", "Salt Cartography", LONG, "Salt Cartography #52435875…4513"),
        (None, "Salt Cartography", None, "Salt Cartography 8d1cc10a…66aa"),
        (None, None, "7", "8d1cc10a…66aa"),
        (None, None, None, "8d1cc10a…66aa"),
        ("two\nlines\x1b[31m", None, None, "two lines [31m"),
        ("🜁", "Salt Cartography", "7", "🜁"),
    ],
)
def test_an_nft_without_a_name_is_its_collection_and_on_chain_id(
    name, collection, on_chain_id, shown
):
    assert nft_name(name, collection, on_chain_id, TOKEN) == shown


_HOSTILE = st.none() | st.text() | st.text("\u200d\u202e\x00\x9b\n \ufe0fA7#") | st.just("9" * 5000)


@given(_HOSTILE, _HOSTILE, _HOSTILE, st.uuids().map(str))
def test_the_name_of_an_nft_is_one_short_line_of_visible_text(
    name, collection, on_chain_id, token_id
):
    shown = nft_name(name, collection, on_chain_id, token_id)
    assert 0 < len(shown) <= 130
    assert shown == shown.strip()
    assert len(shown.splitlines()) == 1
    assert not {"Cc", "Cs", "Zl", "Zp"}.intersection(map(unicodedata.category, shown))
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200b\u200e\u200f")


_ALIKE = st.sampled_from([TOKEN, "8d1cc10a-0000-42e7-b58d-5110899866aa"])
_LABELS = st.sampled_from([None, "", " ", "Treasury", "8d1cc10a…66aa", f"Treasury {TOKEN}", TOKEN])


@given(st.lists(st.tuples(st.uuids().map(str) | _ALIKE, _LABELS), unique_by=lambda one: one[0]))
def test_each_wallet_has_its_own_name(wallets):
    names = wallet_names(wallets)
    assert len(set(names)) == len(wallets)
    assert all(names)
    labels = [label for _, label in wallets]
    for name, label in zip(names, labels, strict=True):
        assert name.startswith((label or "").strip())
    if labels.count("Treasury") == 1:
        assert names[labels.index("Treasury")] == "Treasury"


def test_a_shared_label_gets_the_short_id():
    ids = (TOKEN, "aaaaaaaa" + TOKEN[8:], "bbbbbbbb" + TOKEN[8:])
    names = wallet_names([*zip(ids, ("Treasury", "Treasury", None), strict=True)])
    assert names == ["Treasury 8d1cc10a…66aa", "Treasury aaaaaaaa…66aa", "bbbbbbbb…66aa"]


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("Cool Cat #123", "Cool Cat"),
        ("Cool Cat 007", "Cool Cat"),
        ("Gen 2: Cats (12 of 100)", "Gen 2: Cats"),
        ("Print No. 12/100", "Print"),
        ("Cube – Edition 3", "Cube"),
        ("#4", ""),
        ("Cool Cat", None),
        ("Route66", None),
        ("3428.eth", None),
    ],
)
def test_a_series_is_a_name_without_the_number_at_its_end(name, series):
    assert series_of(name) == series


@pytest.mark.parametrize(
    ("names", "guessed"),
    [
        ([f"Cool Cat #{n}" for n in range(50)], "Cool Cat"),
        (["Season 2"] * 9, "Season 2"),
        (["Salt Cartography 1"] * 9, "Salt Cartography"),
        ([f"Tale\u202e \n of  Five ({n}/9)" for n in range(9)], "Tale of Five"),
        ([*(f"Cool Cat #{n}" for n in range(40)), *"abcdefghij"], "Cool Cat"),
        ([*(f"Cool Cat #{n}" for n in range(39)), *"abcdefghij"], None),
        ([*(f"Cool Cat #{n}" for n in range(40)), *[None] * 11], None),
        ([f"Cool Cat #{n}" for n in range(5)], "Cool Cat"),
        ([f"Cool Cat #{n}" for n in range(4)], None),
        (["Print 1/9"] * 9, "Print"),
        (["Print 1 of 9)"] * 9, "Print"),
        (["Print 21"] * 9, "Print 21"),
        ([" ", ""] * 50, None),
        ([], None),
        ([f"{n}.eth" for n in range(100)], None),
        ([f"#{n}" for n in range(100)], None),
        ([f"{'long ' * 30}#{n}" for n in range(100)], None),
    ],
)
def test_nearly_all_tokens_must_share_it(names, guessed):
    assert guess_name(names) == guessed


def test_an_address_has_one_spelling_and_a_short_one():
    starknet = "0x" + "da11" * 15 + "e"
    keys = {"0X" + "aB" * 20: "0x" + "ab" * 20, "0x" + "00Ab" * 10: "0x" + "00ab" * 10}
    # An address of 40 digits keeps its zeros; others are numbers.
    spellings = (starknet, "0x0" + starknet[2:], "0X000" + starknet[2:].upper())
    keys |= dict.fromkeys(spellings, starknet)
    keys |= dict.fromkeys((f"0x{'0' * zeros}1" for zeros in (0, 1, 40, 63)), "0x1")
    keys |= {f"0x{'0' * 40}": f"0x{'0' * 40}", f"0x{'0' * 64}": "0x0"}
    others = ("KT1Ab", "0x", "0xg1", "0x" + "A" * 65, "0xA\n", "0x2::Kiosk", "A" * 64)
    keys |= dict(zip(others, others, strict=True))
    assert {address: contract_key(address) for address in keys} == keys
    assert short_address("0x8f4f" + "0" * 32 + "8e63") == "0x8f4f…8e63"
    assert short_address("KT1Ab") == "KT1Ab"


CATS, DOGS = "0x" + "Ca" * 20, "0x" + "d0" * 20


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    with Mirror(tmp_path / "nftsync.db", write_gap=0) as opened:
        yield opened


def read(mirror: Mirror, tokens: dict[int, tuple[str | None, str | None]]) -> None:
    """Apply a read by id of each token: its contract and name."""
    with mirror.transaction() as transaction:
        for number, (contract, name) in tokens.items():
            fields = {"contract_address": contract, "name": name}
            one = TokenRead(
                token_id=f"0a9b1c2d-0000-4000-8000-{number:012}",
                sequence=mirror.numbers.take(),
                started_at="2026-01-31T00:00:00.000000Z",
                outcome="ok",
                content=tuple(map(fields.get, CONTENT_COLUMNS)),
            )
            transaction.apply([one])


def contracts_of(mirror: Mirror) -> list[tuple[str, str, str | None, str | None]]:
    query = "SELECT contract, contract_address, name, name_source FROM contracts"
    return mirror.connection.execute(query).fetchall()


def cats(numbers: range, name: str = "Cool Cat", address: str = CATS) -> dict[int, tuple[str, str]]:
    return {number: (address, f"{name} #{number}") for number in numbers}


def test_a_name_is_guessed_as_tokens_come_and_change(mirror):
    key = CATS.lower()
    read(mirror, {100: (DOGS, None), 101: (None, "Stray"), **cats(range(1, 4))})
    mirror.index_tokens()
    assert contracts_of(mirror) == [(DOGS, DOGS, None, None), (key, CATS, None, None)]
    read(mirror, cats(range(4, 8), address=key))
    mirror.index_tokens()
    assert contracts_of(mirror)[1] == (key, CATS, "Cool Cat", "guessed")
    read(mirror, cats(range(1, 8), "Cold Cat"))
    assert contracts_of(mirror)[1] == (key, CATS, "Cold Cat", "guessed")
    # Three moved to another contract, so fewer than five are left.
    read(mirror, cats(range(1, 4), "Cold Cat", DOGS))
    assert contracts_of(mirror)[1] == (key, CATS, None, None)


def test_the_first_200_tokens_of_a_contract_name_it(mirror):
    key = CATS.lower()
    read(mirror, cats(range(160), "Box"))
    mirror.index_tokens()
    read(mirror, cats(range(160, 1_000)))
    mirror.index_tokens()
    assert contracts_of(mirror) == [(key, CATS, "Box", "guessed")]
    read(mirror, cats(range(201, 999), "Dull Dog"))
    assert contracts_of(mirror) == [(key, CATS, "Box", "guessed")]
    read(mirror, cats(range(1)))
    assert contracts_of(mirror) == [(key, CATS, None, None)]
    read(mirror, cats(range(160)))
    assert contracts_of(mirror) == [(key, CATS, "Cool Cat", "guessed")]


def test_a_given_name_comes_before_the_file_and_the_file_before_a_guess(mirror):
    key = CATS.lower()
    connection = mirror.connection

    def named() -> tuple[str | None, str | None]:
        return {row[0]: row[2:] for row in contracts_of(mirror)}[key]

    name_collections(mirror, {key.upper().replace("X", "x"): "From the file", DOGS: "Dogs"})
    assert named() == ("From the file", "file")
    read(mirror, cats(range(6)))
    mirror.index_tokens()
    assert contracts_of(mirror)[0] == (key, CATS, "From the file", "file")
    assert contracts_of(mirror)[1] == (DOGS, DOGS, "Dogs", "file")
    label_contract(connection, CATS, "Mine")
    assert named() == ("Mine", "given")
    name_collections(mirror, {key: "Newer"})
    assert named() == ("Mine", "given")
    assert contracts_of(mirror)[1] == (DOGS, DOGS, None, None)
    label_contract(connection, key, "")
    assert named() == ("Newer", "file")
    before = connection.total_changes
    name_collections(mirror, {key: "Newer"})
    assert connection.total_changes == before
    name_collections(mirror, {})
    assert named() == ("Cool Cat", "guessed")
    with pytest.raises(InputError, match=f"; similar: '{CATS}'; to list c"):
        label_contract(connection, CATS[:-1] + "b", "Cats")
    unknown = "unknown collection or contract 'Cats'; to list collections: `nftsync collections`"
    with pytest.raises(InputError, match=unknown):
        label_contract(connection, "Cats", "Cats")


HEAD = "contract_address,name\n"


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (f"{HEAD}{CATS},Cats\n{DOGS},Dogs\n", {CATS.lower(): "Cats", DOGS: "Dogs"}),
        (f"name\tcontract\nCafé ☕\t{CATS}\n".encode("utf-16"), {CATS.lower(): "Café ☕"}),
        (f"{HEAD}{CATS},Old\n0x{'CA' * 20},New\n", {CATS.lower(): "New"}),
        (f"# ours\n{HEAD}{CATS},\n{DOGS},Dogs\n", {DOGS: "Dogs"}),
        (f"{HEAD}KT1Ab,Art\nkt1ab,Other\n", {"KT1Ab": "Art", "kt1ab": "Other"}),
        (HEAD, {}),
        ("", "the first line of .*collections.csv must be headings: contract_address,name"),
        (f"{CATS},Cats\n", "must be headings"),
        ("name\nCats\n", "contract_address is missing"),
        (f"{HEAD}{CATS},Cats\n,Dogs\n", "csv, line 3: a name without"),
        (f"{HEAD}{CATS},\n", "csv has no collections"),
    ],
)
def test_a_file_names_contracts_or_is_refused_with_its_line(content, names, tmp_path):
    file = tmp_path / "collections.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    if isinstance(names, str):
        with pytest.raises(InputError, match=names):
            read_collections_file(file)
    else:
        assert read_collections_file(file) == names


def test_many_names_are_stored(mirror):
    names = {f"KT{number}": f"Collection {number}" for number in range(5_000)}
    for _ in range(2):
        name_collections(mirror, names)
    assert {row[0]: row[2] for row in contracts_of(mirror)} == names
