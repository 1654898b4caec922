"""docs/sql.md: each query runs in SQLite and DuckDB, and says what the frames say."""

from __future__ import annotations

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
from docs_pages import ROOT, Block, blocks, read, sections
from docs_runner import Runner
from docs_session import History

from nftsync import exact_sum, frames
from nftsync.times import format_time

PAGE = ROOT / "docs" / "sql.md"
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
    assert (
        holdings["contract_address"].nunique() > holdings["contract_address"].str.lower().nunique()
    )
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


# What the frames say: each of these has a heading in the page ------------------------------------


def _held(databases: Databases, **which: Any) -> pd.DataFrame:
    holdings = frames.holdings(databases.path, **which)
    return holdings[holdings["amount"] != 0]


def _contracts(frame: pd.DataFrame) -> pd.Series[str]:
    return frame["contract_address"].str.lower()


def who_holds_what_of_a_collection(databases: Databases, rows: Rows) -> None:
    held = _held(databases, contract=databases.contract)
    expected = set(zip(held["wallet_id"], held["token_id"], held["amount"], strict=True))
    found = [(row["wallet_id"], row["token_id"], int(row["amount"])) for row in rows]
    assert set(found) == expected
    assert len(found) == len(expected) > 1
    amounts = [amount for _, _, amount in found]
    assert amounts == sorted(amounts, reverse=True)
    since = dict(
        zip(zip(held["wallet_id"], held["token_id"], strict=True), held["held_since"], strict=True)
    )
    assert all(
        row["held_since"] == format_time(since[row["wallet_id"], row["token_id"]]) for row in rows
    )


def what_changed_since_a_time(databases: Databases, rows: Rows) -> None:
    changed = frames.diff(databases.path, databases.between)
    kinds = dict(zip(changed["kind"], changed["kind"], strict=True))
    assert set(kinds) >= {"arrived", "left"}
    assert {
        (
            row["wallet_id"],
            row["token_id"],
            _number(row["before"]),
            _number(row["after"]),
            row["kind"],
        )
        for row in rows
    } == set(
        zip(
            *(changed[name] for name in ("wallet_id", "token_id", "before", "after", "kind")),
            strict=True,
        )
    )
    assert len(rows) == len(changed)


def _number(amount: str | None) -> int | None:
    return None if amount is None else int(amount)


def what_did_each_wallet_hold_at_a_time(databases: Databases, rows: Rows) -> None:
    then = (
        _held(databases, as_of=databases.between)
        .groupby("wallet_id")["amount"]
        .agg(["size", "sum"])
    )
    now = _held(databases).groupby("wallet_id")["amount"].agg(["size", "sum"])
    assert not then.equals(now)
    assert {row["wallet_id"]: (row["tokens"], int(row["amount"])) for row in rows} == {
        wallet: (size, total) for wallet, size, total in then.itertuples()
    }


def how_many_holders_does_each_collection_have(databases: Databases, rows: Rows) -> None:
    known = frames.collections(databases.path)
    known = known[known["held"] > 0]
    assert {
        row["contract"]: (row["held"], row["holders"], int(row["amount"])) for row in rows
    } == dict(
        zip(
            _contracts(known),
            zip(known["held"], known["holders"], known["amount"], strict=True),
            strict=True,
        )
    )


def how_concentrated_is_each_collection(databases: Databases, rows: Rows) -> None:
    measured = frames.concentration(frames.holdings(databases.path))
    expected = dict(
        zip(
            _contracts(measured),
            zip(measured["holders"], measured["amount"], measured["top10_share"], strict=True),
            strict=True,
        )
    )
    assert {row["contract"] for row in rows} == set(expected)
    for row in rows:
        holders, amount, share = expected[row["contract"]]
        assert (row["holders"], int(row["amount"])) == (holders, amount)
        assert row["top10_share"] == pytest.approx(share)


def which_collections_have_holders_in_common(databases: Databases, rows: Rows) -> None:
    """The frame shows addresses as they are spelled, and so may have a pair the other way round."""
    overlap = frames.overlap(frames.holdings(databases.path))
    expected = {
        frozenset([(a.lower(), of_a), (b.lower(), of_b)]): (both, pytest.approx(share))
        for a, b, of_a, of_b, both, share in overlap[
            ["contract_a", "contract_b", "wallets_a", "wallets_b", "both", "jaccard"]
        ].itertuples(index=False)
    }
    found = {
        frozenset([(row["contract_a"], row["wallets_a"]), (row["contract_b"], row["wallets_b"])]): (
            row["both"],
            row["jaccard"],
        )
        for row in rows
    }
    assert found == expected
    assert len(rows) == len(expected) > 1
    assert all(row["contract_a"] < row["contract_b"] for row in rows)


def which_wallets_were_not_read_for_longest(databases: Databases, rows: Rows) -> None:
    wallets = frames.wallets(databases.path)
    oldest = wallets[wallets["tracked"]].sort_values(["synced_at", "wallet_id"])
    assert [row["wallet_id"] for row in rows] == oldest["wallet_id"].head(10).tolist()
    assert [row["synced_at"] for row in rows] == [*map(format_time, oldest["synced_at"].head(10))]
    hours = [row["hours"] for row in rows]
    assert hours == sorted(hours, reverse=True)
    assert all(0 <= hour < 24 for hour in hours)
    fresh = frames.freshness(databases.path).set_index("what")
    assert format_time(fresh.loc["oldest wallet read", "at"]) == rows[0]["synced_at"]


def what_became_of_the_webhooks_and_how_fast(databases: Databases, rows: Rows) -> None:
    webhooks = frames.webhooks(databases.path)
    webhooks["lag"] = (webhooks["finished_at"] - webhooks["received_at"]).dt.total_seconds()
    expected = webhooks.groupby(["resource_type", "state"]).agg(
        webhooks=("lag", "size"),
        oldest=("received_at", "min"),
        mean=("lag", "mean"),
        most=("lag", "max"),
    )
    assert len(rows) == len(expected) > 0
    for row in rows:
        group = expected.loc[(row["resource_type"], row["state"])]
        assert (row["webhooks"], row["oldest"]) == (group["webhooks"], format_time(group["oldest"]))
        assert row["mean_seconds"] == pytest.approx(group["mean"], abs=1e-3)
        assert row["most_seconds"] == pytest.approx(group["most"], abs=1e-3)


QUESTIONS: dict[str, Callable[[Databases, Rows], None]] = {
    "Who holds what of a collection?": who_holds_what_of_a_collection,
    "What changed since a time?": what_changed_since_a_time,
    "What did each wallet hold at a time?": what_did_each_wallet_hold_at_a_time,
    "How many holders does each collection have?": how_many_holders_does_each_collection_have,
    "How concentrated is each collection?": how_concentrated_is_each_collection,
    "Which collections have holders in common?": which_collections_have_holders_in_common,
    "Which wallets were not read for longest?": which_wallets_were_not_read_for_longest,
    "What became of the webhooks, and how fast?": what_became_of_the_webhooks_and_how_fast,
}


def _queries(heading: str) -> list[Block]:
    """The queries below a heading of the page."""
    text = sections(sections(read(PAGE), "##")["Questions"], "###")[heading]
    return [block for block in blocks(PAGE) if block.language == "sql" and block.text in text]


def test_each_question_is_answered_in_both_as_the_frames_answer_it(databases: Databases) -> None:
    asked = sections(sections(read(PAGE), "##")["Questions"], "###")
    assert list(asked) == list(QUESTIONS)
    for heading, agrees in QUESTIONS.items():
        queries = _queries(heading)
        (for_sqlite,) = [block.text for block in queries if block.mark != "DuckDB"]
        (for_duckdb,) = [block.text for block in queries if block.mark == "DuckDB"] or [for_sqlite]
        agrees(databases, databases.sqlite(for_sqlite))
        agrees(databases, databases.duckdb(for_duckdb))


def test_the_share_is_of_the_largest_holders(databases: Databases) -> None:
    """With ten, each collection of the examples is whole; with two, order matters."""
    (query,) = [block.text for block in _queries("How concentrated is each collection?")]
    held = _held(databases)
    expected = {}
    for contract, group in held.groupby(_contracts(held)):
        by_wallet = sorted(group.groupby("wallet_id")["amount"].sum(), reverse=True)
        expected[contract] = pytest.approx(sum(by_wallet[:2]) / sum(by_wallet))
    for ask in (databases.sqlite, databases.duckdb):
        rows = ask(query.replace("place <= 10", "place <= 2"))
        assert {row["contract"]: row["top10_share"] for row in rows} == expected
        assert min(row["top10_share"] for row in rows) < 1


def test_python_sqlite_utils_and_datasette_print_each_wallets_sum(
    history: History, runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    sums = frames.holdings(history.database).groupby("wallet_id")["amount"].sum()
    _, table, shown = [runner.run(block) for block in blocks(PAGE)[:4] if block.is_run]
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed == {wallet: str(amount) for wallet, amount in sums.items()}
    in_table = [int(line.split()[-1]) for line in str(table).splitlines()[2:]]
    answered = json.loads(str(shown).strip().splitlines()[-1])
    assert sorted(int(row["amount"]) for row in answered) == sorted(in_table) == sorted(sums)
    assert max(sums) > 2**255
