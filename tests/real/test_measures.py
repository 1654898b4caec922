"""Measures of real collections, against plain Python straight from the file."""

from __future__ import annotations

import pandas as pd
import pytest

from nftsync import frames
from tests.kit.held_frames import folded, measures, shown
from tests.real.real_data import Slice, needs_data

pytestmark = needs_data

#: How much each holder has of each collection, and which tokens are held of it.
Amounts = dict[str, dict[str, int]]
Tokens = dict[str, set[str]]


def by_contract(real_slice: Slice, exclude: tuple[str, ...] = ()) -> tuple[Amounts, Tokens]:
    amounts: Amounts = {}
    tokens: Tokens = {}
    for wallet in real_slice.wallets:
        for balance in wallet["nftTokenBalances"]:
            if int(balance["amount"]) and wallet["walletId"] not in exclude:
                contract = folded(balance["token"]["contractAddress"])
                of = amounts.setdefault(contract, {})
                of[wallet["walletId"]] = of.get(wallet["walletId"], 0) + int(balance["amount"])
                tokens.setdefault(contract, set()).add(balance["tokenId"])
    return amounts, tokens


@pytest.fixture(scope="module")
def holdings(real_slice: Slice) -> pd.DataFrame:
    return frames.holdings(real_slice.database)


def test_concentration_is_its_definition_with_and_without_the_largest_holders(
    real_slice: Slice, holdings: pd.DataFrame
) -> None:
    amounts, _ = by_contract(real_slice)
    largest = tuple(sorted(amounts, key=lambda contract: -len(amounts[contract]))[:1])
    out = tuple(sorted(amounts[largest[0]], key=lambda each: -amounts[largest[0]][each])[:3])
    for exclude in ((), out):
        amounts, tokens = by_contract(real_slice, exclude)
        assert len(amounts) > 100
        found = {
            folded(contract): rest
            for contract, _, _, *rest in shown(frames.concentration(holdings, exclude=exclude))
        }
        assert found == {
            contract: [len(tokens[contract]), len(of), *measures(list(of.values())), 0]
            for contract, of in amounts.items()
        }


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
