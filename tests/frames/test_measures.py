"""Concentration of holders, overlap between contracts, and editions, against their definitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import token_id, wallet_id
from tests.kit.held_frames import (
    CONTRACTS,
    Held,
    called,
    counted,
    exact_amount,
    folded,
    frame_of_held,
    holdings_of,
    measures,
    shown,
)

# Concentration ----------------------------------------------------------------------------------


def contract_of(token: int) -> str | None:
    return CONTRACTS[token % len(CONTRACTS)]


def about(token: int) -> dict[str, Any]:
    return {"contract_address": contract_of(token), "edition_id": token % 3 or None}


def concentration_of(rows: list[Held], group_of: Callable[[int], Any]) -> list[list[object]]:
    groups: dict[Any, list[Held]] = defaultdict(list)
    names: dict[Any, Any] = {}
    for row in rows:
        name = group_of(row[1])
        key = folded(name) if isinstance(name, str) else name
        names.setdefault(key, name)
        groups[key].append(row)
    found = []
    for key, held in groups.items():
        totals: dict[int, int] = defaultdict(int)
        for wallet, _, amount in held:
            if (value := exact_amount(amount)) is not None:
                totals[wallet] += value
        tokens, holders = ({row[place] for row in held} for place in (1, 0))
        unknown = sum(exact_amount(amount) is None for *_, amount in held)
        sizes = measures(list(totals.values()))
        found.append([names[key], len(tokens), len(holders), *sizes, unknown])
    return sorted(found, key=lambda row: (-row[2], row[0] is None, row[0] or ""))


@settings(max_examples=50)
@given(
    holdings_of() | holdings_of(wallets=40, tokens=2, size=80),
    st.sets(st.integers(1, 12), max_size=3),
)
def test_concentration_agrees_with_the_definition(
    held: dict[tuple[int, int], str], out: set[int]
) -> None:
    frame, exclude = frame_of_held(held, about), [wallet_id(number).upper() for number in out]
    assert shown(frames.concentration(frame, exclude=exclude)) == [
        [name, *((None, None) if name is None else (folded(name), called(name))), *rest]
        for name, *rest in concentration_of(counted(held, out), contract_of)
    ]
    by_edition = frames.concentration(frame, by="edition_id", exclude=exclude)
    expected = concentration_of(counted(held, out), lambda token: token % 3 or None)
    assert shown(by_edition) == expected
    assert by_edition["edition_id"].dtype == "Int64"


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        ([3, 10, 2], [2, 3, 10]),
        (["b", 1, "a"], [1, "a", "b"]),
        (pd.Categorical(["y", "x", "y"], categories=["y", "x"]), ["y", "x"]),
        ([(1, 2), (0, 1), None], [(0, 1), (1, 2), None]),
    ],
)
def test_any_column_may_name_the_groups(values: Any, ordered: list[Any]) -> None:
    held = {(1, token): "1" for token in range(1, len(values) + 1)}
    frame = frame_of_held(held, about)
    frame["kind"] = pd.Series(values, index=frame.index)
    found = frames.concentration(frame, "kind")
    assert found["kind"].dtype == frame["kind"].dtype
    assert list(found["kind"]) == ordered
    assert int(found["tokens"].sum()) == len(values)


def test_unusable_groups_are_refused() -> None:
    for by in ("holders", "unknown_amounts", None, ["token_id"], 1):
        with pytest.raises(InputError, match="name a column of the frame"):
            frames.concentration(frame_of_held({(1, 1): "1"}, about), by=by)  # type: ignore[arg-type]
    frame = frame_of_held({(1, 1): "1"}, about)
    frame["tags"] = [["a", "list"]]
    with pytest.raises(InputError, match="cannot group holdings by 'tags'"):
        frames.concentration(frame, by="tags")


NEARLY_HEX = tuple(
    before + digits * 20 + after
    for before, after in [("0x", "Z"), ("A0x", ""), ("0x", "\n"), ("0x", "a")]
    for digits in ("ab", "AB")
)


ADDRESSES = (*CONTRACTS, *NEARLY_HEX)


def of_address(token: int) -> dict[str, Any]:
    return {"contract_address": ADDRESSES[token % len(ADDRESSES)]}


def common_holders(rows: list[Held]) -> list[list[object]]:
    wallets: dict[str, set[int]] = {}
    for wallet, token, _ in rows:
        name = of_address(token)["contract_address"]
        if name is not None:
            wallets.setdefault(folded(name), set()).add(wallet)
    found = []
    for a, b in combinations(sorted(wallets), 2):
        both = len(wallets[a] & wallets[b])
        if both:
            either = len(wallets[a] | wallets[b])
            sizes = (len(wallets[a]), len(wallets[b]))
            found.append([a, b, called(a), called(b), *sizes, both, both / either])
    return sorted(found, key=lambda row: (-row[6], row[0], row[1]))


@settings(max_examples=40)
@given(holdings_of(wallets=8, tokens=30, size=120), st.sets(st.integers(1, 8), max_size=2))
def test_overlap_agrees_with_the_definition(
    held: dict[tuple[int, int], str], out: set[int]
) -> None:
    found = frames.overlap(
        frame_of_held(held, of_address), exclude=[wallet_id(number) for number in out]
    )
    assert found.to_numpy(dtype=object).tolist() == common_holders(counted(held, out))


def test_more_pairs_than_are_counted_in_one_step() -> None:
    """60 wallets that hold 400 contracts make 4.8 million pairs."""
    contracts = [f"KT{number:04}" for number in range(400)]
    holders = [wallet_id(number) for number in range(60)]
    frame = pd.DataFrame(
        [(holder, contract, 1) for holder in holders for contract in contracts],
        columns=["wallet_id", "contract_address", "amount"],
    )
    few = frame[:400:100].assign(wallet_id=wallet_id(61))
    found = frames.overlap(pd.concat([frame, few]).assign(token_id=token_id(1)))
    assert list(zip(found["contract_a"], found["contract_b"], strict=True)) == [
        *combinations(contracts[::100], 2),
        *(pair for pair in combinations(contracts, 2) if not set(pair) <= set(contracts[::100])),
    ]
    assert found["both"].tolist() == [61] * 6 + [60] * (400 * 399 // 2 - 6)


# Editions ---------------------------------------------------------------------------------------


#: Ends of names with a number.
ENDINGS = (
    *(" #{}", "#{}", " {}", " {}/12", " ({}/12)", " ({} of 12)", " [{}]", " No. {}", " no {}"),
    *(", Nr. {}", " - Edition {}", ": Edition #{}", " Ed. {} / 7", " #000{}", "_{}", " №{}"),
)


COLUMNS = ("contract_address", "name", "edition_id", "total_edition")


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


def edition_row(key: tuple[Any, ...], held: list[Held], tokens: dict[int, Any]) -> list[object]:
    """Return the columns from `numbered` on, by the definition."""
    _, _, total, numbered = key
    amounts = [exact_amount(amount) for _, _, amount in held]
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


def edition_rows(rows: list[Held], tokens: dict[int, dict[str, Any]]) -> list[list[object]]:
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
            *(key[1], *edition_row(key, series[key], tokens)),
        ]
        for key in order
    ]


#: The columns of 10 tokens, by their numbers.
DESCRIBED = st.lists(token(), min_size=10, max_size=10).map(
    lambda drawn: dict(enumerate(drawn, start=1))
)


def of_tokens(*tokens: tuple[str | None, int | None, int | None]) -> Any:
    """Return the holdings of one wallet with one of each token: name, edition and total."""
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
def test_a_long_list_of_gaps_is_shortened(count: int, step: int) -> None:
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
    """A backtracking regular expression would take hours."""
    names = [
        "9 " * 50_000,
        " #" * 50_000 + "1",
        "1" * 100_000,
        "no " * 30_000 + "1",
        "\0" * 9 + "1",
    ]
    found = frames.editions(of_tokens(*((name, 1, None) for name in names)))
    assert len(found) == len(names)


@settings(max_examples=30)
@given(DESCRIBED, holdings_of(wallets=4, tokens=10), st.sets(st.integers(1, 4), max_size=1))
def test_editions_agree_with_the_definition(
    tokens: dict[int, dict[str, Any]], held: dict[tuple[int, int], str], out: set[int]
) -> None:
    frame = frame_of_held(held, lambda number: {name: tokens[number][name] for name in COLUMNS})
    found = frames.editions(frame, exclude=[wallet_id(number) for number in out])
    assert shown(found) == edition_rows(counted(held, out), tokens)
