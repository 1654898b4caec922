"""The one name of an NFT, and of a wallet."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync.store.contracts import nft_name
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
    name: str | None, collection: str | None, on_chain_id: str | None, shown: str
) -> None:
    assert nft_name(name, collection, on_chain_id, TOKEN) == shown


_HOSTILE = st.none() | st.text() | st.text("\u200d\u202e\x00\x9b\n \ufe0fA7#") | st.just("9" * 5000)


@given(_HOSTILE, _HOSTILE, _HOSTILE, st.uuids().map(str))
def test_the_name_of_an_nft_is_one_short_line_of_visible_text(
    name: str | None, collection: str | None, on_chain_id: str | None, token_id: str
) -> None:
    shown = nft_name(name, collection, on_chain_id, token_id)
    assert 0 < len(shown) <= 130
    assert shown == shown.strip()
    assert len(shown.splitlines()) == 1
    assert not {"Cc", "Cs", "Zl", "Zp"}.intersection(map(unicodedata.category, shown))
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200b\u200e\u200f")


_ALIKE = st.sampled_from(
    ["8d1cc10a-7fbf-42e7-b58d-5110899866aa", "8d1cc10a-0000-42e7-b58d-5110899866aa"]
)
_LABELS = st.sampled_from([None, "", " ", "Treasury", "8d1cc10a…66aa", f"Treasury {TOKEN}", TOKEN])


@given(st.lists(st.tuples(st.uuids().map(str) | _ALIKE, _LABELS), unique_by=lambda one: one[0]))
def test_each_wallet_has_its_own_name(wallets: list[tuple[str, str | None]]) -> None:
    names = wallet_names(wallets)
    assert len(set(names)) == len(wallets)
    assert all(names)
    labels = [label for _, label in wallets]
    for name, label in zip(names, labels, strict=True):
        assert name.startswith((label or "").strip())
    if labels.count("Treasury") == 1:
        assert names[labels.index("Treasury")] == "Treasury"


def test_a_shared_label_gets_the_short_id() -> None:
    wallets = [
        (TOKEN, "Treasury"),
        ("aaaaaaaa" + TOKEN[8:], "Treasury"),
        ("bbbbbbbb" + TOKEN[8:], None),
    ]
    assert wallet_names(wallets) == [
        "Treasury 8d1cc10a…66aa",
        "Treasury aaaaaaaa…66aa",
        "bbbbbbbb…66aa",
    ]
