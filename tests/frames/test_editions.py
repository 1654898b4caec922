from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.exact_sum import exact
from tests.kit.database import wallet_id
from tests.kit.held_frames import (
    CONTRACTS,
    Held,
    called,
    counted,
    folded,
    frame_of_held,
    holdings_of,
    shown,
)

TOKENS = 10
#: How a name may go on with a number.
ENDINGS = (
    *(" #{}", "#{}", " {}", " {}/12", " ({}/12)", " ({} of 12)", " [{}]", " No. {}", " no {}"),
    *(", Nr. {}", " - Edition {}", ": Edition #{}", " Ed. {} / 7", " #000{}", "_{}", " №{}"),
)


@st.composite
def token(draw: st.DrawFn) -> dict[str, Any]:
    """A token's columns, and under `series` its name without the number it ends with."""
    number = draw(st.integers(0, 12))
    base = draw(st.sampled_from(["Gen", "The 5th", "Gen 2", "", "x\ny", "Ghost 👻", "a" * 300]))
    other = draw(st.sampled_from([number, number, number, 5, -number, 10**18, None]))
    described = {
        "contract_address": draw(st.sampled_from(CONTRACTS[:2] + CONTRACTS[-1:])),
        "edition_id": other,
        "total_edition": draw(st.sampled_from([None, 12, 12, 0, 5, -1])),
    }
    ending = draw(st.sampled_from([None, *ENDINGS]))
    if ending is None:
        name = draw(st.sampled_from(["Plain", "", None, "Gen5", "5th"]))
        return {**described, "name": name, "series": name, "own": False}
    name = base + ending.format(number)
    return {**described, "name": name, "series": base, "own": number == other}


def ranges(numbers: list[int]) -> str:
    parts = []
    for a, b in pairwise(numbers):
        if b - a == 2:
            parts.append(str(a + 1))
        elif b - a > 2:
            parts.append(f"{a + 1}-{b - 1}")
    return ", ".join(parts)


def row(key: tuple[Any, ...], held: list[Held], tokens: dict[int, Any]) -> list[object]:
    """The columns from `numbered` on, by the definitions."""
    _, _, total, numbered = key
    amounts = [exact(amount) for _, _, amount in held]
    if numbered:
        numbers = sorted({tokens[token]["edition_id"] for _, token, _ in held})
        count, beyond = len(numbers), None
        if total is not None:
            beyond = min(sum(not a <= n < a + total for n in numbers) for a in (0, 1))
        gaps = numbers[-1] - numbers[0] + 1 - count
        about = [numbers[0], numbers[-1], gaps, ranges(numbers), beyond]
    else:
        count = sum(amount for amount in amounts if amount is not None)
        about = [None] * 5
    share = count / total if total is not None and total > 0 and count else None
    holders = len({wallet for wallet, _, _ in held})
    return [numbered, total, count, share, *about, holders, amounts.count(None)]


def expected(rows: list[Held], tokens: dict[int, dict[str, Any]]) -> list[list[object]]:
    spellings: dict[str, str] = {}
    numbers_of: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    numbers = ("edition_id", "total_edition")
    chosen = [held for held in rows if any(tokens[held[1]][name] is not None for name in numbers)]

    def place(about: dict[str, Any]) -> tuple[Any, Any, bool]:
        address = about["contract_address"]
        key = None if address is None else folded(address)
        return key, about["total_edition"], about["edition_id"] is not None

    for _, number, _ in chosen:
        about = tokens[number]
        if (address := about["contract_address"]) is not None:
            spellings.setdefault(folded(address), address)
        numbers_of[(*place(about), about["name"])].add(about["edition_id"])
    series: dict[tuple[Any, ...], list[Held]] = defaultdict(list)
    for held in chosen:
        about = tokens[held[1]]
        contract, total, numbered = place(about)
        alone = len(numbers_of[(*place(about), about["name"])]) == 1
        name = about["series"] if about["own"] and alone else about["name"]
        series[(spellings.get(contract), name, total, numbered)].append(held)
    order = sorted(
        series, key=lambda key: [(one is None, "" if one is None else one) for one in key]
    )
    return [
        [
            *([None] * 3 if key[0] is None else [key[0], folded(key[0]), called(key[0])]),
            *(key[1], *row(key, series[key], tokens)),
        ]
        for key in order
    ]


COLUMNS = ("contract_address", "name", "edition_id", "total_edition")


TOKENS_DRAWN = st.lists(token(), min_size=TOKENS, max_size=TOKENS).map(
    lambda drawn: dict(enumerate(drawn, start=1))
)


@settings(max_examples=30)
@given(TOKENS_DRAWN, holdings_of(wallets=4, tokens=TOKENS), st.sets(st.integers(1, 4), max_size=1))
def test_agrees_with_the_definitions(
    tokens: dict[int, dict[str, Any]], held: dict[tuple[int, int], str], out: set[int]
) -> None:
    frame = frame_of_held(held, lambda number: {name: tokens[number][name] for name in COLUMNS})
    found = frames.editions(frame, exclude=[wallet_id(number) for number in out])
    assert shown(found) == expected(counted(held, out), tokens)


def of_tokens(*tokens: tuple[str | None, int | None, int | None]) -> Any:
    """One wallet that holds one of each token: name, edition and total."""
    about = [dict(zip(COLUMNS, ("a", *token), strict=True)) for token in tokens]
    held = {(1, number): "1" for number in range(1, len(tokens) + 1)}
    return frame_of_held(held, lambda number: about[number - 1])


def test_a_name_loses_its_own_number_only() -> None:
    names = [
        ("Foo #12", 12, "Foo"),
        ("Bar #12", 13, "Bar #12"),
        ("Baz #12", -12, "Baz #12"),
        ("Foo #-12", -12, "Foo #-12"),
        ("Zero #0", 0, "Zero"),
        ("Foo 3 of 12", 12, "Foo 3 of 12"),
        ("Foo12", 12, "Foo12"),
        ("0x12", 12, "0x12"),
        ("12", 12, ""),
        ("No. 13", 13, ""),
        ("Piano 12", 12, "Piano"),
        ("12 Foo", 12, "12 Foo"),
        ("Foo #1234567890123456789012", 1234567890123456789, "Foo #1234567890123456789012"),
        ("Most #9223372036854775807", 2**63 - 1, "Most"),
        ("Foo #12 (special)", 12, "Foo #12 (special)"),
        ("Foo ١٢", 12, "Foo ١٢"),
    ]
    found = frames.editions(of_tokens(*((name, edition, None) for name, edition, _ in names)))
    assert set(found["series"]) == {series for *_, series in names}


def test_absurd_numbers_cost_no_more_than_others() -> None:
    least, most = -(2**63), 2**63 - 1
    one = frames.editions(of_tokens(("A", 10**15, None), ("A", -(10**15), None)))
    assert one[["lowest", "highest", "gaps", "gap_ranges"]].to_numpy(dtype=object).tolist() == [
        [-(10**15), 10**15, 2 * 10**15 - 1, f"{1 - 10**15}-{10**15 - 1}"]
    ]
    two = frames.editions(of_tokens(("A", least, None), ("A", most, None)))
    assert two["gaps"].isna().all()
    assert list(two["gap_ranges"]) == [f"{least + 1}-{most - 1}"]
    three = frames.editions(of_tokens(("A", -1, None), ("A", most, None)))
    assert list(three["gaps"]) == [most]
    four = frames.editions(of_tokens(*(("A", number, 3) for number in (most, least, 1))))
    assert list(four["beyond_total"]) == [2]


@pytest.mark.parametrize(("count", "step"), [(40, 2), (68, 2), (300, 2), (40, 10**17)])
def test_many_gaps_are_cut_off(count: int, step: int) -> None:
    numbers = [number * step for number in range(count)]
    whole = ranges(numbers)
    (text,) = frames.editions(of_tokens(*(("A", number, None) for number in numbers)))["gap_ranges"]
    if len(whole) <= 200:
        assert text == whole
    else:
        assert 150 < len(text) <= 200
        assert text.endswith(", …")
        assert whole.startswith(text.removesuffix("…"))


def test_a_hostile_name_takes_no_time() -> None:
    """A regular expression that goes back to try again would take hours."""
    names = [
        "9 " * 50_000,
        " #" * 50_000 + "1",
        "1" * 100_000,
        "no " * 30_000 + "1",
        "\0" * 9 + "1",
    ]
    found = frames.editions(of_tokens(*((name, 1, None) for name in names)))
    assert len(found) == len(names)
