"""Concentration and overlap of real collections, against plain Python straight from the file.

The wallets are those of `real_slice`, with all they hold.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pandas as pd
import pytest
from real_data import ART_BLOCKS, ART_BLOCKS_FIRST, GOTCHIS, PUNKS, Slice, needs_data
from real_measures import Group, by_contract, common, folded, measures

from nftsync import frames

pytestmark = needs_data


@pytest.fixture(scope="module")
def groups(real_slice: Slice) -> dict[str, Group]:
    return by_contract(real_slice.wallets)


@pytest.fixture(scope="module")
def holdings(real_slice: Slice) -> pd.DataFrame:
    return frames.holdings(real_slice.database)


def by_name(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {folded(row["contract_address"]): row for row in frame.to_dict("records")}


def by_pair(frame: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows by their contracts in lower case; `contract_a` is the first as it is spelled."""
    found = {}
    for row in frame.to_dict("records"):
        assert row["contract_a"] < row["contract_b"]
        one, other = folded(row["contract_a"]), folded(row["contract_b"])
        if one > other:
            one, other = other, one
            row["wallets_a"], row["wallets_b"] = row["wallets_b"], row["wallets_a"]
        found[one, other] = row
    assert len(found) == len(frame)
    return found


def floats(values: dict[str, int | Fraction]) -> dict[str, int | float]:
    """Each fraction as the float next to it."""
    return {
        name: value.numerator / value.denominator if isinstance(value, Fraction) else value
        for name, value in values.items()
    }


def test_concentration_of_each_collection_is_its_definition(
    groups: dict[str, Group], holdings: pd.DataFrame
) -> None:
    found = by_name(frames.concentration(holdings))
    assert len(found) > 300
    assert set(found) == set(groups)
    for contract, group in groups.items():
        expected = floats(measures(group))
        assert {name: found[contract][name] for name in expected} == expected, contract


def test_a_database_gives_the_same_concentration_as_its_frame(
    real_slice: Slice, holdings: pd.DataFrame
) -> None:
    pd.testing.assert_frame_equal(
        frames.concentration(real_slice.database), frames.concentration(holdings)
    )


def test_without_the_largest_holders_the_rest_is_measured(
    real_slice: Slice, groups: dict[str, Group], holdings: pd.DataFrame
) -> None:
    punks = groups[PUNKS].amounts
    largest = sorted(punks, key=lambda wallet: -punks[wallet])[:3]
    found = by_name(frames.concentration(holdings, exclude=largest))
    left = by_contract(real_slice.wallets, exclude=largest)
    assert set(found) == set(left)
    for contract in (PUNKS, ART_BLOCKS, ART_BLOCKS_FIRST, GOTCHIS):
        expected = floats(measures(left[contract]))
        assert {name: found[contract][name] for name in expected} == expected


def test_overlap_of_each_pair_is_that_of_the_sets(
    groups: dict[str, Group], holdings: pd.DataFrame
) -> None:
    found = by_pair(frames.overlap(holdings))
    names = sorted(groups)
    pairs = {
        (one, other)
        for place, one in enumerate(names)
        for other in names[place + 1 :]
        if groups[one].holders & groups[other].holders
    }
    assert set(found) == pairs
    assert len(pairs) > 1000
    for one, other in pairs:
        expected = floats(common(groups, one, other))
        assert {name: found[one, other][name] for name in expected} == expected, (one, other)


def test_punk_holders_with_art_blocks(holdings: pd.DataFrame) -> None:
    found = by_pair(frames.overlap(holdings))
    assert found[ART_BLOCKS, PUNKS]["both"] == 234
    assert found[ART_BLOCKS_FIRST, PUNKS]["both"] == 30


def test_quality_names_each_token_without_a_name_or_image_or_with_a_blank_text(
    real_slice: Slice,
) -> None:
    fields = {
        "name": "name",
        "image": "image",
        "creatorName": "creator_name",
        "creatorExternalPageUrl": "creator_external_page_url",
    }
    meant = set()
    for wallet in real_slice.wallets:
        for balance in wallet["nftTokenBalances"]:
            metadata = balance["token"]["metadata"]
            for sent, column in fields.items():
                text = metadata.get(sent)
                if text is None and column in {"name", "image"}:
                    meant.add((balance["tokenId"], column, "missing"))
                elif text is not None and not text.strip():
                    meant.add((balance["tokenId"], column, "blank"))
    found = frames.quality(real_slice.database)
    assert set(zip(found["token_id"], found["field"], found["reason"], strict=True)) == meant
    assert {reason for _, _, reason in meant} == {"missing", "blank"}
    assert len(found) == len(meant)


def test_all_that_one_look_showed_has_been_held_for_nobody_knows_how_long(
    real_slice: Slice, holdings: pd.DataFrame
) -> None:
    ages = frames.holding_ages(real_slice.database)
    assert len(ages) == len(holdings) == sum(len(w["nftTokenBalances"]) for w in real_slice.wallets)
    assert ages["censored"].all()


def test_editions_of_each_series_are_those_that_the_file_lists(real_slice: Slice) -> None:
    numbers: dict[tuple[str, str, int | None], set[int]] = {}
    holders: dict[tuple[str, str, int | None], set[str]] = {}
    for wallet in real_slice.wallets:
        for balance in wallet["nftTokenBalances"]:
            metadata = balance["token"]["metadata"]
            number, total = metadata.get("editionId"), metadata.get("totalEdition")
            if number is not None:
                series = metadata["name"].removesuffix(f" #{number}")
                key = (folded(balance["token"]["contractAddress"]), series, total)
                numbers.setdefault(key, set()).add(number)
                holders.setdefault(key, set()).add(wallet["walletId"])
    assert len(numbers) > 50
    assert min(number for held in numbers.values() for number in held) == 0
    frame = frames.editions(real_slice.database)
    found = {
        (
            folded(row["contract_address"]),
            row["series"],
            None if pd.isna(row["total"]) else row["total"],
        ): row
        for row in frame[frame["numbered"]].to_dict("records")
    }
    assert set(found) == set(numbers)
    for key, held in numbers.items():
        row = found[key]
        assert (row["held"], row["lowest"], row["highest"]) == (len(held), min(held), max(held))
        assert row["gaps"] == max(held) - min(held) + 1 - len(held)
        assert row["holders"] == len(holders[key])
