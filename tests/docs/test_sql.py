"""docs/use/sql.md: each query runs in SQLite and DuckDB, and says what the frames say."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import duckdb
import pandas as pd
import pytest

from nftsync import exact_sum, frames
from tests.docs.conftest import History
from tests.docs.pages import ROOT, blocks, read, sections
from tests.docs.runner import Runner

PAGE = ROOT / "docs" / "use" / "sql.md"
CONTRACT = "0xb47e3cd837dDF8e4c57F05d70Ab865de6e193BBB"
END_OF_DAY = "2026-01-31T23:59:59.999999Z"

Rows: TypeAlias = list[dict[str, Any]]
Ask: TypeAlias = Callable[[str], Rows]


class Databases(NamedTuple):
    """The same data twice, and what stands in the place of the page's examples."""

    path: Path
    sqlite: Ask
    duckdb: Ask
    contract: str
    between: str


@pytest.fixture
def databases(history: History, runner: Runner) -> Iterator[Databases]:
    """The database with its history, and what the page makes of it in DuckDB."""
    holdings = frames.holdings(history.database)
    contract = holdings["contract_address"].str.lower().mode()[0]
    contracts = holdings["contract_address"]
    assert contracts.nunique() > contracts.str.lower().nunique()
    runner.replace |= {CONTRACT: contract, END_OF_DAY: history.between}
    with (
        closing(sqlite3.connect(f"file:{history.database}?mode=ro", uri=True)) as live,
        duckdb.connect() as files,
    ):
        exact_sum.register(live)
        live.row_factory = sqlite3.Row

        def in_sqlite(query: str) -> Rows:
            return [dict(row) for row in live.execute(runner.replaced(query))]

        def in_duckdb(query: str) -> Rows:
            rows: Rows = files.sql(runner.replaced(query)).to_arrow_table().to_pylist()
            return [{name: _plain(value) for name, value in row.items()} for row in rows]

        for block in blocks(PAGE):
            if block.text.startswith("nftsync export"):
                runner.run(block)
            if "CREATE MACRO" in block.text:
                files.execute(block.text)
        yield Databases(history.database, in_sqlite, in_duckdb, contract, history.between)


def _plain(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(value, datetime) else value


def _lower(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(contract=frame["contract_address"].str.lower())


def _held(databases: Databases, **which: Any) -> pd.DataFrame:
    return _lower(frames.holdings(databases.path, **which)).query("amount != 0")


def _by_wallet(holdings: pd.DataFrame) -> pd.DataFrame:
    groups = holdings.groupby("wallet_id")["amount"]
    return groups.agg(tokens="size", amount="sum").reset_index()


def _same(rows: Rows, expected: pd.DataFrame, columns: str) -> None:
    """Check that rows equal a frame's, in columns of the same names, in any order."""
    names = columns.split()
    said = [[_number(row[name]) for name in names] for row in rows]
    shown = [[_number(x) for x in line] for line in expected[names].to_numpy(object)]
    assert len(rows) == len(shown) > 1
    for ours, theirs in zip(sorted(said, key=repr), sorted(shown, key=repr), strict=True):
        for name, our, their in zip(names, ours, theirs, strict=True):
            same = pytest.approx(their, abs=1e-3 if "seconds" in name else None)
            assert our == (same if isinstance(their, float) else their)


def _number(value: Any) -> Any:
    if value is None or value is pd.NaT:
        return None
    value = _plain(value)
    return int(value) if str(value).isdigit() else value


def _expected(databases: Databases) -> dict[str, tuple[pd.DataFrame, str]]:
    """By question: the frame that answers it, and the columns that the query returns, too."""
    path, between = databases.path, databases.between
    holdings = _held(databases)
    changed, then = frames.diff(path, between), _by_wallet(_held(databases, as_of=between))
    assert set(changed["kind"]) >= {"arrived", "left"}
    assert not then.equals(_by_wallet(holdings))
    collections = _lower(frames.collections(path))
    pairs = frames.overlap(holdings).query("both > 0")
    names = ["contract_a", "contract_b", "wallets_a", "wallets_b"]
    pairs[names[:2]] = pairs[names[:2]].apply(lambda column: column.str.lower())
    ordered = pairs["contract_a"] < pairs["contract_b"]
    mirrored = dict(zip(names, [names[x] for x in (1, 0, 3, 2)], strict=True))
    pairs = pd.concat([pairs[ordered], pairs[~ordered].rename(columns=mirrored)])
    webhooks = frames.webhooks(path)
    webhooks["lag"] = (webhooks["finished_at"] - webhooks["received_at"]).dt.total_seconds()
    by_state = webhooks.groupby(["resource_type", "state"], as_index=False)
    counted = by_state.agg(
        webhooks=("lag", "size"),
        oldest=("received_at", "min"),
        mean_seconds=("lag", "mean"),
        most_seconds=("lag", "max"),
    )
    wallets = frames.wallets(path).query("tracked").sort_values(["synced_at", "wallet_id"])
    return {
        "Who holds a collection?": (
            _held(databases, contract=databases.contract),
            "wallet_id token_id amount held_since",
        ),
        "Which holdings changed since a time?": (changed, "wallet_id token_id before after kind"),
        "What did each wallet hold at a time?": (then, "wallet_id tokens amount"),
        "How many holders does each collection have?": (
            collections[collections["held"] > 0],
            "contract held holders amount",
        ),
        # With ten, each collection of the examples is whole: for one, see below.
        "How concentrated is each collection?": (
            _lower(frames.concentration(holdings)),
            "contract holders amount top10_share",
        ),
        "Which collections have holders in common?": (pairs, " ".join([*names, "both", "jaccard"])),
        "Which wallets have gone unread the longest?": (wallets.head(10), "wallet_id synced_at"),
        "How many webhooks are in each state, and how long did they take?": (
            counted,
            "resource_type state webhooks oldest mean_seconds most_seconds",
        ),
    }


def test_each_question_is_answered_in_both_as_the_frames_answer_it(databases):
    asked = sections(sections(read(PAGE), "##")["Questions"], "###")
    expected = _expected(databases)
    assert list(asked) == list(expected)
    for heading, text in asked.items():
        queries = [x for x in blocks(PAGE) if x.language == "sql" and x.text in text]
        (for_sqlite,) = [block.text for block in queries if block.mark != "DuckDB"]
        (for_duckdb,) = [block.text for block in queries if block.mark == "DuckDB"] or [for_sqlite]
        for ask, query in ((databases.sqlite, for_sqlite), (databases.duckdb, for_duckdb)):
            rows = ask(query)
            _same(rows, *expected[heading])
            if heading.startswith("Who"):
                amounts = [int(row["amount"]) for row in rows]
                assert amounts == sorted(amounts, reverse=True)
            elif "concentrated" in heading:
                frame = expected[heading][0].drop(columns="top10_share")
                shares = frame.rename(columns={"top1_share": "top10_share"})
                _same(
                    ask(query.replace("place <= 10", "place <= 1")), shares, "contract top10_share"
                )
            elif "unread" in heading:
                wallets = expected[heading][0]["wallet_id"].tolist()
                assert [row["wallet_id"] for row in rows] == wallets
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
