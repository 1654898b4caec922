"""Twelve monthly statements over the demo's year, against the holdings at each month's end."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from nftsync import frames
from tests.frames.test_statement import assert_adds_up

GROUPS = ("wallet_group", "wallet_id", "contract")
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")


def month_ends() -> list[date]:
    """The ends of the last twelve months and today, oldest first; the demo's year begins later."""
    first = datetime.now(UTC).date().replace(day=1)
    ends: list[date] = [datetime.now(UTC).date()]
    for _ in range(12):
        ends.append(first - timedelta(days=1))
        first = ends[-1].replace(day=1)
    return ends[::-1]


def price_rows(holdings: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Two currencies, names and addresses, prices of single tokens, and collections without one."""
    names = holdings.drop_duplicates("contract").sort_values("contract")
    pairs = zip(names["contract"], names["collection"], strict=True)
    for place, (contract, name) in enumerate(pairs):
        for month, day in enumerate(month_ends()):
            if place % 4 and month % (place % 4) == 0:
                yield {
                    "contract": name.upper()
                    if place % 2
                    else contract.upper().replace("X", "x", 1),
                    "date": str(day - timedelta(days=place)),
                    "price": f"{place}.{month:02}" if place % 3 else f"0.{month:018}",
                    "currency": "EUR" if place % 3 else "ETH",
                }
    for place, token in enumerate(sorted(holdings["token_id"].unique())[::40]):
        yield {"token_id": token, "date": "2026-01-15", "price": f"{place}.5", "currency": "EUR"}


@pytest.fixture
def prices(demo: Path, tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    columns = ["contract", "token_id", "date", "price", "currency", "source"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(price_rows(frames.holdings(demo)))
    return path


def priced(row: dict[str, str], day: date, table: list[dict[str, str]]) -> dict[str, str] | None:
    """The newest price of a holding up to a day, by the rule in plain words."""
    dated = [price for price in table if price["date"] <= str(day)]
    own = [price for price in dated if price["token_id"] == row["token_id"]]
    names = {row["contract"].lower(), row["collection"].lower()}
    newest = own or [price for price in dated if price["contract"].lower() in names]
    return max(newest, key=lambda price: price["date"], default=None)


@pytest.mark.parametrize("by", GROUPS)
def test_twelve_monthly_statements_meet_each_other_and_the_holdings_and_their_values(
    demo: Path, prices: Path, by: str
) -> None:
    table = list(csv.DictReader(prices.read_text(encoding="utf-8").splitlines()))

    @cache
    def expected(day: date | str) -> dict[str, dict[str, Fraction | int]]:
        """Holdings, amount, values and unpriced holdings of each group, from `holdings`."""
        sums: dict[str, dict[str, Fraction | int]] = {}
        for row in frames.holdings(demo, as_of=day, amounts="exact").to_dict("records"):
            if row["amount"] == 0:
                continue
            price = priced(row, day, table)
            entry = {"": 1, "_amount": row["amount"], "_unpriced": int(price is None)}
            if price is not None:
                entry[f"_value_{price['currency']}"] = Fraction(price["price"]) * row["amount"]
            for group in (row[by], "total"):
                of_group = sums.setdefault(group, {})
                for name, number in entry.items():
                    of_group[name] = of_group.get(name, 0) + number
        return sums

    units = ("", "_amount", "_unpriced", "_value_ETH", "_value_EUR")
    closing: dict[str, list[object]] | None = None
    for start, end in pairwise(month_ends()):
        frame = frames.statement(demo, start, end, by, prices=prices, amounts="exact")
        assert_adds_up(frame)
        for name in ("unpriced", "value_ETH", "value_EUR"):
            for side in ("opening", "closing"):
                column = frame[f"{side}_{name}"]
                assert sum(map(Fraction, column[:-1])) == Fraction(column.iloc[-1])
        rows = {row[by]: row for row in frame.to_dict("records")}
        for side, day in (("opening", frame.attrs["start"]), ("closing", end)):
            for group, row in rows.items():
                sums = expected(day).get(group, {})
                assert [Fraction(row[side + unit]) for unit in units] == [
                    sums.get(unit, 0) for unit in units
                ]
            assert rows.keys() >= expected(day).keys()
        opening = {group: [row[f"opening{x}"] for x in units] for group, row in rows.items()}
        if closing is not None:
            assert {group: row for group, row in opening.items() if row[0]} == closing
        closing = {
            group: [row[f"closing{x}"] for x in units]
            for group, row in rows.items()
            if row["closing"]
        }
    assert closing is not None
    assert all(float(str(x)) > 0 for x in closing["total"])
