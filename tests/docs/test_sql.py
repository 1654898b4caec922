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
from nftsync.times import format_time
from tests.docs.pages import ROOT, Block, blocks, read, sections
from tests.docs.runner import Runner
from tests.docs.session import History

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
    runner.session.replace |= {CONTRACT: contract, END_OF_DAY: history.between}
    with (
        closing(sqlite3.connect(f"file:{history.database}?mode=ro", uri=True)) as live,
        duckdb.connect() as files,
    ):
        exact_sum.register(live)
        live.row_factory = sqlite3.Row

        def in_sqlite(query: str) -> Rows:
            return [dict(row) for row in live.execute(runner.session.replaced(query))]

        def in_duckdb(query: str) -> Rows:
            rows: Rows = files.sql(runner.session.replaced(query)).to_arrow_table().to_pylist()
            return [{name: _plain(value) for name, value in row.items()} for row in rows]

        for block in blocks(PAGE):
            if block.language == "sh" and block.is_run:
                runner.run(block)
            if "CREATE MACRO" in block.text:
                files.execute(block.text)
        yield Databases(history.database, in_sqlite, in_duckdb, contract, history.between)


def _plain(value: Any) -> Any:
    return format_time(value) if isinstance(value, datetime) else value


def _held(databases: Databases, **which: Any) -> pd.DataFrame:
    holdings = frames.holdings(databases.path, **which)
    holdings["contract"] = holdings["contract_address"].str.lower()
    return holdings[holdings["amount"] != 0]


def _same(rows: Rows, expected: pd.DataFrame, columns: str) -> None:
    """The rows say what the frame says, in columns of the same names, in any order."""
    names = columns.split()
    said = [tuple(_number(row[name]) for name in names) for row in rows]
    assert sorted(said, key=repr) == sorted(
        (tuple(map(_number, line)) for line in expected[names].itertuples(index=False)), key=repr
    )
    assert len(rows) > 1


def _number(value: Any) -> Any:
    if isinstance(value, pd.Timestamp):
        return format_time(value)
    if value is None or value is pd.NaT:
        return None
    return int(value) if str(value).isdigit() else value


def who_holds_a_collection(databases: Databases, rows: Rows) -> None:
    held = _held(databases, contract=databases.contract)
    _same(rows, held, "wallet_id token_id amount held_since")
    amounts = [int(row["amount"]) for row in rows]
    assert amounts == sorted(amounts, reverse=True)


def which_holdings_changed_since_a_time(databases: Databases, rows: Rows) -> None:
    changed = frames.diff(databases.path, databases.between)
    assert set(changed["kind"]) >= {"arrived", "left"}
    _same(rows, changed, "wallet_id token_id before after kind")


def what_did_each_wallet_hold_at_a_time(databases: Databases, rows: Rows) -> None:
    def by_wallet(held: pd.DataFrame) -> pd.DataFrame:
        groups = held.groupby("wallet_id")["amount"]
        return groups.agg(tokens="size", amount="sum").reset_index()

    then = by_wallet(_held(databases, as_of=databases.between))
    assert not then.equals(by_wallet(_held(databases)))
    _same(rows, then, "wallet_id tokens amount")


def how_many_holders_does_each_collection_have(databases: Databases, rows: Rows) -> None:
    known = frames.collections(databases.path)
    known["contract"] = known["contract_address"].str.lower()
    _same(rows, known[known["held"] > 0], "contract held holders amount")


def how_concentrated_is_each_collection(databases: Databases, rows: Rows) -> None:
    expected = frames.concentration(_held(databases))
    expected["contract"] = expected["contract_address"].str.lower()
    _same(rows, expected, "contract holders amount")
    # With ten, each collection of the examples is whole; with one, the order matters.
    (query,) = [block.text for block in _queries("How concentrated is each collection?")]
    for most, found in (
        (10, rows),
        *((1, ask(query.replace("place <= 10", "place <= 1"))) for ask in databases[1:3]),
    ):
        shares = dict(zip(expected["contract"], expected[f"top{most}_share"], strict=True))
        assert {row["contract"]: row["top10_share"] for row in found} == pytest.approx(shares)


def which_collections_have_holders_in_common(databases: Databases, rows: Rows) -> None:
    def pairs(of: Any) -> dict[Any, Any]:
        return {
            frozenset([(a.lower(), in_a), (b.lower(), in_b)]): (both, pytest.approx(jaccard))
            for a, b, in_a, in_b, both, jaccard in of
        }

    names = ["contract_a", "contract_b", "wallets_a", "wallets_b", "both", "jaccard"]
    found = frames.overlap(_held(databases))
    expected = pairs(found.loc[found["both"] > 0, names].itertuples(index=False))
    assert pairs([row[name] for name in names] for row in rows) == expected
    assert len(rows) == len(expected) > 1
    assert all(row["contract_a"] < row["contract_b"] for row in rows)


def which_wallets_have_gone_unread_the_longest(databases: Databases, rows: Rows) -> None:
    wallets = frames.wallets(databases.path)
    oldest = wallets[wallets["tracked"]].sort_values(["synced_at", "wallet_id"])
    assert [row["wallet_id"] for row in rows] == oldest["wallet_id"].head(10).tolist()
    _same(rows, oldest.head(10), "wallet_id synced_at")
    hours = [row["hours"] for row in rows]
    assert hours == sorted(hours, reverse=True)
    assert all(0 <= hour < 24 for hour in hours)


def how_many_webhooks_are_in_each_state_and_how_long_did_they_take(
    databases: Databases, rows: Rows
) -> None:
    webhooks = frames.webhooks(databases.path)
    webhooks["lag"] = (webhooks["finished_at"] - webhooks["received_at"]).dt.total_seconds()
    expected = webhooks.groupby(["resource_type", "state"], as_index=False).agg(
        webhooks=("lag", "size"),
        oldest=("received_at", "min"),
        mean_seconds=("lag", "mean"),
        most_seconds=("lag", "max"),
    )
    _same(rows, expected, "resource_type state webhooks oldest")
    for name in ("mean_seconds", "most_seconds"):
        seconds = sorted(row[name] for row in rows)
        assert seconds == pytest.approx(sorted(expected[name]), abs=1e-3)


QUESTIONS: dict[str, Callable[[Databases, Rows], None]] = {
    f"{name.replace('_', ' ').capitalize()}?": answer
    for name, answer in [*globals().items()]
    if name.startswith(("who", "which", "what", "how"))
}


def _queries(heading: str) -> list[Block]:
    """The queries below a heading of the page."""
    text = sections(sections(read(PAGE), "##")["Questions"], "###")[heading]
    return [block for block in blocks(PAGE) if block.language == "sql" and block.text in text]


def test_each_question_is_answered_in_both_as_the_frames_answer_it(databases):
    asked = sections(sections(read(PAGE), "##")["Questions"], "###")
    assert [heading.replace(",", "") for heading in asked] == list(QUESTIONS)
    for heading, agrees in zip(asked, QUESTIONS.values(), strict=True):
        queries = _queries(heading)
        (for_sqlite,) = [block.text for block in queries if block.mark != "DuckDB"]
        (for_duckdb,) = [block.text for block in queries if block.mark == "DuckDB"] or [for_sqlite]
        agrees(databases, databases.sqlite(for_sqlite))
        agrees(databases, databases.duckdb(for_duckdb))


def test_python_sqlite_utils_and_datasette_print_each_wallets_sum(history, runner, capsys):
    sums = frames.holdings(history.database).groupby("wallet_id")["amount"].sum()
    _, table, shown = [runner.run(block) for block in blocks(PAGE)[:4] if block.is_run]
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed == {wallet: str(amount) for wallet, amount in sums.items()}
    in_table = [int(line.split()[-1]) for line in str(table).splitlines()[2:]]
    answered = json.loads(str(shown).strip().splitlines()[-1])
    assert sorted(int(row["amount"]) for row in answered) == sorted(in_table) == sorted(sums)
    assert max(sums) > 2**255
