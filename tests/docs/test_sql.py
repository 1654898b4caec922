"""docs/use/sql.md: each query runs in SQLite and DuckDB, and says what the frames say."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pandas as pd
import pytest

from nftsync import exact_sum, frames
from tests.docs.pages import ROOT, blocks, read, sections

PAGE = ROOT / "docs" / "use" / "sql.md"
CONTRACT = "0xb47e3cd837dDF8e4c57F05d70Ab865de6e193BBB"
END_OF_DAY = "2026-01-31T23:59:59.999999Z"

Rows: TypeAlias = list[dict[str, Any]]

Rows: TypeAlias = list[dict[str, Any]]


def _held(path: Path, **which: Any) -> pd.DataFrame:
    return frames.holdings(path, **which).query("amount != 0")


def _by_wallet(holdings: pd.DataFrame) -> pd.DataFrame:
    groups = holdings.groupby("wallet_id")["amount"]
    return groups.agg(tokens="size", amount="sum").reset_index()


def _expected(path: Path, contract: str, between: str) -> dict[str, tuple[pd.DataFrame, str]]:
    """By question: the frame that answers it, and the columns that the query returns, too."""
    holdings = _held(path)
    changed, then = frames.diff(path, between), _by_wallet(_held(path, as_of=between))
    assert set(changed["kind"]) >= {"arrived", "left"}
    assert not then.equals(_by_wallet(holdings))
    pairs = frames.overlap(holdings).query("both > 0")
    names = ["contract_a", "contract_b", "wallets_a", "wallets_b"]
    ordered = pairs["contract_a"].str.lower() < pairs["contract_b"].str.lower()
    mirrored = dict(zip(names, [names[x] for x in (1, 0, 3, 2)], strict=True))
    pairs = pd.concat([pairs[ordered], pairs[~ordered].rename(columns=mirrored)])
    webhooks = frames.webhooks(path)
    webhooks["lag"] = (webhooks["finished_at"] - webhooks["received_at"]).dt.total_seconds()
    counted = webhooks.groupby(["resource_type", "state"], as_index=False).agg(
        webhooks=("lag", "size"),
        oldest=("received_at", "min"),
        mean_seconds=("lag", "mean"),
        most_seconds=("lag", "max"),
    )
    wallets = frames.wallets(path).query("tracked").sort_values(["synced_at", "wallet_id"])
    return {
        "Who holds a collection?": (
            _held(path, contract=contract),
            "wallet_id token_id amount held_since",
        ),
        "Which holdings changed since a time?": (changed, "wallet_id token_id before after kind"),
        "What did each wallet hold at a time?": (then, "wallet_id tokens amount"),
        "How many holders does each collection have?": (
            frames.collections(path).query("held > 0"),
            "contract_address held holders amount",
        ),
        # With ten, each collection of the examples is whole: for one, see below.
        "How concentrated is each collection?": (
            frames.concentration(holdings),
            "contract_address holders amount top10_share",
        ),
        "Which collections have holders in common?": (pairs, " ".join([*names, "both", "jaccard"])),
        "Which wallets have gone unread the longest?": (wallets.head(10), "wallet_id synced_at"),
        "How many webhooks are in each state, and how long did they take?": (
            counted,
            "resource_type state webhooks oldest mean_seconds most_seconds",
        ),
    }


def _same(rows: Rows, expected: pd.DataFrame, columns: str) -> None:
    """Check that rows equal a frame's, in columns of the same names, in any order.

    Queries return contracts in lower case.
    """
    names = [name.removesuffix("_address") for name in columns.split()]
    said = sorted(([_plain(row[name]) for name in names] for row in rows), key=repr)
    frame = expected[columns.split()].set_axis(names, axis=1)
    lower = {name: frame[name].str.lower() for name in names if name.startswith("contract")}
    cells = frame.assign(**lower).to_numpy(object)
    shown = sorted(([*map(_plain, row)] for row in cells), key=repr)
    assert len(said) == len(shown) > 1
    for ours, theirs in zip(said, shown, strict=True):
        for name, our, their in zip(names, ours, theirs, strict=True):
            same = pytest.approx(their, abs=1e-3 if "seconds" in name else None)
            assert our == (same if isinstance(their, float) else their)


def _plain(value: Any) -> Any:
    if value is None or value is pd.NaT:
        return None
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}"
    return int(value) if str(value).isdigit() else value


def test_each_question_is_answered_in_both_as_the_frames_answer_it(history, runner):
    contracts = frames.holdings(history.database)["contract_address"]
    contract = contracts.str.lower().mode()[0]
    assert contracts.nunique() > contracts.str.lower().nunique()
    runner.replace |= {CONTRACT: contract, END_OF_DAY: history.between}
    expected = _expected(history.database, contract, history.between)
    asked = sections(sections(read(PAGE), "##")["Questions"], "###")
    assert list(asked) == list(expected)
    with closing(sqlite3.connect(history.database)) as live, duckdb.connect() as files:
        exact_sum.register(live)
        live.row_factory = sqlite3.Row
        for block in blocks(PAGE):
            if block.text.startswith("nftsync export"):
                runner.run(block)
            if "CREATE MACRO" in block.text:
                files.execute(block.text)

        def in_sqlite(query: str) -> Rows:
            return [*map(dict, live.execute(runner.replaced(query)))]

        def in_duckdb(query: str) -> Rows:
            return files.sql(runner.replaced(query)).to_arrow_table().to_pylist()

        for heading, text in asked.items():
            queries = [x for x in blocks(PAGE) if x.language == "sql" and x.text in text]
            (for_sqlite,) = [x.text for x in queries if x.mark != "DuckDB"]
            (for_duckdb,) = [x.text for x in queries if x.mark == "DuckDB"] or [for_sqlite]
            _check(in_sqlite, for_sqlite, heading, *expected[heading])
            _check(in_duckdb, for_duckdb, heading, *expected[heading])


def _check(
    ask: Callable[[str], Rows], query: str, heading: str, expected: pd.DataFrame, columns: str
) -> None:
    rows = ask(query)
    _same(rows, expected, columns)
    if heading.startswith("Who"):
        amounts = [int(row["amount"]) for row in rows]
        assert amounts == sorted(amounts, reverse=True)
    elif "concentrated" in heading:
        frame = expected.assign(top10_share=expected["top1_share"])
        one = ask(query.replace("place <= 10", "place <= 1"))
        _same(one, frame, "contract_address top10_share")
    elif "unread" in heading:
        assert [row["wallet_id"] for row in rows] == expected["wallet_id"].tolist()
        hours = [row["hours"] for row in rows]
        assert 24 > hours[0] >= hours[-1] >= 0
        assert hours == sorted(hours, reverse=True)


def test_python_sqlite_utils_and_datasette_print_each_wallets_sum(history, runner, capsys):
    sums = frames.holdings(history.database).groupby("wallet_id")["amount"].sum()
    _, table, shown = [runner.run(block) for block in blocks(PAGE)[:4] if block.is_run]
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed == {wallet: str(amount) for wallet, amount in sums.items()}
    in_table = [int(line.split()[-1]) for line in str(table).splitlines()[2:]]
    answered = json.loads(str(shown).strip().splitlines()[-1])
    assert sorted(int(row["amount"]) for row in answered) == sorted(in_table) == sorted(sums)
    assert max(sums) > 2**255
