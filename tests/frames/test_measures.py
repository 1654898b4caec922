"""Concentration of holders, overlap between contracts, and editions, against their definitions."""

from collections import defaultdict
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


def about(token: int) -> dict[str, Any]:
    return {"contract_address": CONTRACTS[token % len(CONTRACTS)], "edition_id": token % 3 or None}


def concentration_of(rows: list[Held], by: str) -> list[list[object]]:
    """Return the columns of a group, `tokens`, `holders` and the measures, by the definition."""
    groups: dict[Any, tuple[Any, list[Any]]] = {}
    for wallet, token, amount in rows:
        name = about(token)[by]
        key = folded(name) if isinstance(name, str) else name
        groups.setdefault(key, (name, []))[1].append((wallet, token, exact_amount(amount)))
    found = []
    for name, held in groups.values():
        wallets, tokens, amounts = zip(*held, strict=True)
        known = [(wallet, amount) for wallet, _, amount in held if amount is not None]
        totals = [sum(n for one, n in known if one == wallet) for wallet in {*dict(known)}]
        sizes = (*measures(totals), amounts.count(None))
        found.append([name, len({*tokens}), len({*wallets}), *sizes])
    return sorted(found, key=lambda row: (-row[2], row[0] is None, row[0] or ""))


@settings(max_examples=50)
@given(
    holdings_of() | holdings_of(wallets=40, tokens=2, size=80),
    st.sets(st.integers(1, 12), max_size=3),
)
def test_concentration_agrees_with_the_definition(held, out):
    frame, exclude = frame_of_held(held, about), [wallet_id(number).upper() for number in out]
    rows = counted(held, out)
    assert shown(frames.concentration(frame, exclude=exclude)) == [
        [name, *((None, None) if name is None else (folded(name), called(name))), *rest]
        for name, *rest in concentration_of(rows, "contract_address")
    ]
    by_edition = frames.concentration(frame, by="edition_id", exclude=exclude)
    assert shown(by_edition) == concentration_of(rows, "edition_id")
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
def test_any_column_may_name_the_groups(values, ordered):
    held = {(1, token): "1" for token in range(1, len(values) + 1)}
    frame = frame_of_held(held, about)
    frame["kind"] = pd.Series(values, index=frame.index)
    found = frames.concentration(frame, "kind")
    assert found["kind"].dtype == frame["kind"].dtype
    assert list(found["kind"]) == ordered
    assert int(found["tokens"].sum()) == len(values)


def test_unusable_groups_are_refused():
    frame = frame_of_held({(1, 1): "1"}, about).assign(tags=[["a", "list"]])
    for by in ("holders", "unknown_amounts", None, ["token_id"], 1):
        with pytest.raises(InputError, match="name a column of the frame"):
            frames.concentration(frame, by=by)
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
    wallets = defaultdict(set)
    for wallet, token, _ in rows:
        if (name := of_address(token)["contract_address"]) is not None:
            wallets[folded(name)].add(wallet)
    found = []
    for a, b in combinations(sorted(wallets), 2):
        if both := len(wallets[a] & wallets[b]):
            sizes = (len(wallets[a]), len(wallets[b]), both)
            found.append([a, b, called(a), called(b), *sizes, both / len(wallets[a] | wallets[b])])
    return sorted(found, key=lambda row: (-row[6], row[0], row[1]))


@settings(max_examples=40)
@given(holdings_of(wallets=8, tokens=30, size=120), st.sets(st.integers(1, 8), max_size=2))
def test_overlap_agrees_with_the_definition(held, out):
    exclude = [wallet_id(number) for number in out]
    found = frames.overlap(frame_of_held(held, of_address), exclude=exclude)
    assert found.to_numpy(dtype=object).tolist() == common_holders(counted(held, out))


def test_more_pairs_than_are_counted_in_one_step():
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
    """Return the numbers between others."""
    gaps = [(a + 1, b - 1) for a, b in pairwise(numbers) if b - a > 1]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in gaps)


def edition_row(
    total: int | None, numbered: bool, held: list[tuple[Any, int, int | None]]
) -> list[object]:
    """Return the columns from `numbered` on, by the definition."""
    editions, wallets, amounts = zip(*held, strict=True)
    about = [None] * 5
    count = sum(amount or 0 for amount in amounts)
    if numbered:
        numbers = sorted(set(editions))
        count, beyond = len(numbers), None
        if total is not None:
            beyond = min(sum(not a <= n < a + total for n in numbers) for a in (0, 1))
        gaps = numbers[-1] - numbers[0] + 1 - count
        about = [numbers[0], numbers[-1], gaps, ranges(numbers), beyond]
    share = count / total if total is not None and total > 0 and count else None
    return [numbered, total, count, share, *about, len(set(wallets)), amounts.count(None)]


def edition_rows(rows: list[Held], tokens: dict[int, dict[str, Any]]) -> list[list[object]]:
    contracts: dict[Any, list[Any]] = {None: [None] * 3}
    numbers_of, series, chosen = defaultdict(set), defaultdict(list), []
    for wallet, number, amount in rows:
        about = tokens[number]
        address, name, edition, total = (about[column] for column in COLUMNS)
        if edition is not None or total is not None:
            key = None if address is None else folded(address)
            contracts.setdefault(key, [address, key, called(str(key))])
            place = (key, total, edition is not None)
            numbers_of[place, name].add(edition)
            chosen.append((place, about, (edition, wallet, exact_amount(amount))))
    for place, about, held in chosen:
        is_own = about["own"] and len(numbers_of[place, about["name"]]) == 1
        series[place[0], about["series" if is_own else "name"], *place[1:]].append(held)
    order = sorted(series, key=lambda key: [(x is None, "" if x is None else x) for x in key])
    return [[*contracts[key[0]], key[1], *edition_row(*key[2:], series[key])] for key in order]


def of_tokens(*tokens: tuple[str | None, int | None, int | None]) -> pd.DataFrame:
    """Return the holdings of one wallet with one of each token: name, edition and total."""
    held = {(1, number): "1" for number in range(len(tokens))}
    return frame_of_held(held, lambda n: dict(zip(COLUMNS, ("a", *tokens[n]), strict=True)))


def test_a_name_loses_its_own_number_only():
    names = [
        *(("Foo #12", 12, "Foo"), ("Bar #12", 13, "Bar #12"), ("Baz #12", -12, "Baz #12")),
        *(("Foo #-12", -12, "Foo #-12"), ("Zero #0", 0, "Zero"), ("Piano 12", 12, "Piano")),
        *(("Foo 3 of 12", 12, "Foo 3 of 12"), ("Foo12", 12, "Foo12"), ("0x12", 12, "0x12")),
        *(("12", 12, ""), ("No. 13", 13, ""), ("12 Foo", 12, "12 Foo"), ("Foo ١٢", 12, "Foo ١٢")),
        ("Foo #1234567890123456789012", 1234567890123456789, "Foo #1234567890123456789012"),
        *(("Most #9223372036854775807", 2**63 - 1, "Most"), ("A #12 (b)", 12, "A #12 (b)")),
    ]
    found = frames.editions(of_tokens(*((name, edition, None) for name, edition, _ in names)))
    assert set(found["series"]) == {series for *_, series in names}


def test_absurd_numbers_cost_no_more_than_others():
    least, most, great = -(2**63), 2**63 - 1, 10**15
    columns = ["lowest", "highest", "gaps", "gap_ranges", "beyond_total"]
    for numbers, total, expected in (
        ((great, -great), None, [-great, great, 2 * great - 1, f"{1 - great}-{great - 1}", None]),
        ((least, most), None, [least, most, None, f"{least + 1}-{most - 1}", None]),
        ((-1, most), None, [-1, most, most, f"0-{most - 1}", None]),
        ((most, least, 1), 3, [least, most, None, f"{least + 1}-0, 2-{most - 1}", 2]),
    ):
        found = frames.editions(of_tokens(*(("A", number, total) for number in numbers)))
        assert shown(found[columns]) == [expected]


@pytest.mark.parametrize(("count", "step"), [(40, 2), (68, 2), (300, 2), (40, 10**17)])
def test_a_long_list_of_gaps_is_shortened(count, step):
    numbers = [number * step for number in range(count)]
    whole = ranges(numbers)
    (text,) = frames.editions(of_tokens(*(("A", number, None) for number in numbers)))["gap_ranges"]
    if len(whole) <= 200:
        assert text == whole
    else:
        assert 150 < len(text) <= 200
        assert text.endswith(", …")
        assert whole.startswith(text.removesuffix("…"))


def test_a_hostile_name_takes_no_time():
    """A backtracking regular expression would take hours."""
    names = [
        "9 " * 50_000,
        " #" * 50_000 + "1",
        "1" * 100_000,
        "no " * 30_000 + "1",
        "\0" * 9 + "1",
    ]
    assert len(frames.editions(of_tokens(*((name, 1, None) for name in names)))) == len(names)


@settings(max_examples=30)
@given(
    st.lists(token(), min_size=10, max_size=10),
    holdings_of(wallets=4, tokens=10),
    st.sets(st.integers(1, 4), max_size=1),
)
def test_editions_agree_with_the_definition(drawn, held, out):
    tokens = dict(enumerate(drawn, start=1))
    frame = frame_of_held(held, lambda number: {name: tokens[number][name] for name in COLUMNS})
    found = frames.editions(frame, exclude=[wallet_id(number) for number in out])
    assert shown(found) == edition_rows(counted(held, out), tokens)
