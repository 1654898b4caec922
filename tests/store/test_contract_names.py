"""What tokens' names have in common, and the spellings of a contract."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync.store.contracts import contract_key, guess_name, series_of, short_address
from nftsync.text import without_controls


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
def test_a_series_is_a_name_without_the_number_at_its_end(name: str, series: str | None) -> None:
    assert series_of(name) == series


@pytest.mark.parametrize(
    ("names", "guessed"),
    [
        ([f"Cool Cat #{n}" for n in range(50)], "Cool Cat"),
        ([*(f"Cool Cat #{n}" for n in range(45)), *"abcde"], "Cool Cat"),
        (["Season 2"] * 9, "Season 2"),
        (["Salt Cartography 1"] * 9, "Salt Cartography"),
        ([f"Tale\u202e \n of  Five ({n}/9)" for n in range(9)], "Tale of Five"),
        ([f"Cool Cat #{n}" for n in range(4)], None),
        ([f"{n}.eth" for n in range(100)], None),
        ([f"#{n}" for n in range(100)], None),
        ([" "] * 100, None),
        ([f"{'long ' * 30}#{n}" for n in range(100)], None),
        ([*(f"A #{n}" for n in range(50)), *(f"B #{n}" for n in range(50))], None),
        ([*(f"A #{n}" for n in range(50)), *[None] * 50], None),
        ([], None),
    ],
)
def test_nearly_all_tokens_must_share_it(names: list[str | None], guessed: str | None) -> None:
    assert guess_name(names) == guessed


_SERIES = st.sampled_from(["Cool Cat", "Café ☕", "A B", *"cdefghijkl"])
_NAMES = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.builds(lambda series, number: f"{series} #{number}", _SERIES, st.integers(0, 99)),
)


@given(names=st.lists(_NAMES, max_size=80), cats=st.integers(0, 80))
def test_a_guess_is_the_series_of_four_fifths_of_at_least_five_names(
    names: list[str | None], cats: int
) -> None:
    names += [f"Cool Cat #{number}" for number in range(cats)]
    by_series: dict[str, list[str]] = {}
    for line in (without_controls(name) if name else "" for name in names):
        series = series_of(line)
        by_series.setdefault(line if series is None else series, []).append(line)
    least = max(5, 0.8 * len(names))
    shared = [one for one, lines in by_series.items() if one and len(lines) >= least]
    is_first = re.compile(r".*\D0*1(?:/\d+| of \d+)?[\s)\]]*", re.IGNORECASE).fullmatch
    expected = [
        x if len({*by_series[x]}) > 1 or is_first(by_series[x][0]) else by_series[x][0]
        for x in shared
    ]
    assert [guess_name(names)] == (expected or [None])


def test_an_address_has_one_spelling_and_a_short_one() -> None:
    assert contract_key("0X" + "aB" * 20) == "0x" + "ab" * 20
    assert contract_key("KT1Ab") == "KT1Ab"
    # An address of 40 digits keeps its zeros; others are numbers.
    assert contract_key("0x" + "00Ab" * 10) == "0x" + "00ab" * 10
    starknet = "0x" + "da11" * 15 + "e"
    for spelling in (starknet, "0x0" + starknet[2:], "0X000" + starknet[2:].upper()):
        assert contract_key(spelling) == starknet
    assert {contract_key(f"0x{'0' * zeros}1") for zeros in (0, 1, 40, 63)} == {"0x1"}
    assert contract_key(f"0x{'0' * 40}") == f"0x{'0' * 40}"
    assert contract_key(f"0x{'0' * 64}") == "0x0"
    for other in ("0x", "0xg1", "0x" + "A" * 65, "0xA\n", "0x2::Kiosk", "A" * 64):
        assert contract_key(other) == other
    assert short_address("0x8f4f" + "0" * 32 + "8e63") == "0x8f4f…8e63"
    assert short_address("KT1Ab") == "KT1Ab"
