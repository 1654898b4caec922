"""docs/use/data.md: what pandas does with either kind of amounts, and the count of arrivals."""

import re
import sqlite3
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nftsync import charts, frames
from tests.docs.pages import ROOT, read, tables
from tests.kit.database import Builder

#: Together the greatest sum of the one kind, and far beyond it.
AMOUNTS = {"`Int64`": (2**63 - 1 - 3 - 7, 3, 7), "Python integers": (2**256 - 1, 3, 2**70 + 1)}

PAGE = read(ROOT / "docs" / "use" / "data.md")
_, *LINES = next(table for table in tables(PAGE) if table[0][1:] == [*AMOUNTS])


@pytest.fixture(scope="module")
def holdings(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Of each kind, as it is and exactly: two wallets, one amount of which is unknown."""
    made = []
    for kind, amounts in AMOUNTS.items():
        build = Builder(tmp_path_factory.mktemp("amounts") / "nftsync.db")
        build.wallet(1)
        build.wallet(2)
        for token, amount in enumerate([*map(str, amounts), "1.5"], start=1):
            build.token(token, name=f"NFT {token}")
            build.balance(1 + token % 2, token, amount)
        database = build.close()
        frame, known = frames.holdings(database), frames.holdings(database, amounts="exact")
        assert (frame["amount"].dtype == object) == (kind == "Python integers")
        made.append((frame, known.dropna(subset="amount")))
    return made


def amounts_in(value: Any) -> set[int | float]:
    """Return all numbers of a result; 0 may stand for a missing one."""
    if isinstance(value, pd.DataFrame):
        value = value["amount"] if "amount" in value else value.melt()["value"]
    if isinstance(value, pd.Series | np.ndarray):
        return {one for one in value.tolist() if not pd.isna(one)} - {0}
    return {value.item() if isinstance(value, np.generic) else value}


def done(line: str, frame: pd.DataFrame, known: pd.DataFrame) -> str:
    """What becomes of a line; `known` has the known amounts as Python integers."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            value = eval(line, {"pd": pd, "connection": connection, "holdings": frame})
        except (TypeError, OverflowError, ValueError) as error:
            kinds = (TypeError, OverflowError, ValueError)
            return next(kind.__name__ for kind in kinds if isinstance(error, kind))
    if value is None or ".to_sql(" in line:
        return "written"
    if type(value).__name__ == "Figure":
        return "drawn"
    if isinstance(value, pd.Series) and "unique" in value.index:
        return "counts"
    if isinstance(getattr(value, "dtype", None), pd.CategoricalDtype):
        return "binned"
    found = amounts_in(value)
    if any(isinstance(one, float) for one in found):
        return "rounded"
    if isinstance(value, pd.DataFrame) and "amount" in value:
        return "exact" if found <= set(known["amount"]) else "wraps"
    return "exact" if found == amounts_in(eval(line, {"holdings": known})) else "wraps"


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_pandas_does_what_the_table_says(line, holdings):
    for told, (frame, known) in zip(line[1:], holdings, strict=True):
        said = re.match(r"\w+", told)
        assert said is not None
        assert said[0] == done(line[0].strip("`"), frame.copy(), known)


def test_the_four_numbers_of_arrivals_on_the_demo_are_those_of_the_frames(demo):
    section = PAGE.partition("### How many NFTs arrived?")[2]
    documented = re.findall(r"^\| `frames.*?\| (\d+) \|", section, re.MULTILINE)
    moved = frames.transfers(demo, "30d")
    moved = moved[moved["to_wallet_id"].notna()]
    total = frames.statement(demo, "30d").iloc[-1]
    arrived = (frames.diff(demo, "30d")["kind"] == "arrived").sum()
    numbers = [len(moved), total["received"], arrived, total["received_amount"]]
    assert documented == [*map(str, numbers)]
    for shown, figure in (
        (total["received"], charts.arrivals_and_departures(demo, since="30d")),
        (len(moved), charts.arrivals_and_departures(moved)),
    ):
        assert f"{shown} arrivals and " in str(figure.layout.title)
