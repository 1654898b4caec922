"""docs/use/questions.md and sql.md: the answers are those of the frames."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pandas as pd
import plotly.graph_objects as go
import polars as pl
import pytest
from matplotlib.axes import Axes

from nftsync import exact_sum, frames
from tests.docs.pages import ROOT, blocks, read, sections
from tests.docs.runner import evaluated

PAGE = ROOT / "docs" / "use" / "questions.md"
#: Questions that write files instead.
WRITTEN = {
    "Can I have a frame in Excel or Parquet?",
    "Can an auditor have Excel as of a month end?",
}


def _answers() -> dict[str, Any]:
    """Return the answer to each question: the value of its last line, or its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    questions = sections(read(PAGE), "###")
    setting, *answers = blocks(PAGE)
    names: dict[str, object] = {}
    evaluated(setting.text, names)
    found: dict[str, Any] = {}
    for question, block in zip(questions, answers, strict=True):
        assert len([*filter(None, block.text.splitlines())]) <= 3, question
        if block.language == "sh":
            words, own = ["bash", "-euc", block.text], {**os.environ, "PATH": path}
            found[question] = subprocess.run(
                words, env=own, stdout=subprocess.PIPE, text=True, check=True
            ).stdout
        else:
            found[question] = evaluated(block.text, names)
    return found


def _rows(answer: Any) -> pd.DataFrame:
    """An answer as a frame: of a chart, the lengths of its bars."""
    if isinstance(answer, go.Figure):
        return pd.DataFrame({"length": answer.data[0].x})
    if isinstance(answer, Axes):
        return pd.DataFrame({"length": [bar.get_width() for bar in answer.patches]})
    if isinstance(answer, str):
        return pd.DataFrame(json.loads(answer))
    if isinstance(answer, pl.DataFrame):
        return answer.to_pandas()
    if isinstance(answer, list):
        return pd.DataFrame({"wallet": answer})
    if isinstance(answer, pd.DataFrame) and answer.columns.name == "wallet_group":
        return answer.melt(ignore_index=False).reset_index()
    return pd.DataFrame(answer.reset_index())


def test_the_demo_answers_each_question_in_at_most_three_lines(demo, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    shutil.copytree(demo.parent, "data")
    now = frames.holdings("data/demo.db")
    mine = now[["contract_address", "blockchain_token_id"]].drop_duplicates()
    mine.rename(columns={"contract_address": "contract"}).assign(note="x").to_csv("mine.csv")
    answers = _answers()
    assert len(answers) == 28
    for question, answer in answers.items():
        assert question in WRITTEN or len(_rows(answer)) > 0, question
    by_collection = now.groupby("collection")["wallet"].agg(set)
    harbour, kiln = by_collection["Harbour Passes"], by_collection["Kiln Tokens"]
    assert set(answers["Who holds a collection?"]["wallet"]) == harbour
    assert set(answers["Who holds both of two collections?"]) == harbour & kiln
    house = set(now.loc[now["wallet_group"] == "house", "wallet"])
    assert set(answers["What does a group hold?"].index.levels[0]) <= house
    pivot = answers["How many does each group hold?"]
    assert pivot.loc["All", "All"] == now["amount"].sum()
    rarest = answers["Which traits and NFTs are rare?"]
    assert rarest.is_monotonic_increasing
    assert 0 < rarest.iloc[0] < rarest.iloc[-1] < 1
    worth = answers["What are the holdings worth?"]
    assert worth.sum() == Decimal("12.50") * int(now["amount"].sum())
    left = answers["What left a wallet last month, and to whom?"]
    assert set(left["kind"]) <= {"transfer", "sent"}
    total = answers["What changed between two month ends?"].iloc[-1]
    sums = total["opening"] + total["initial"] + total["received"] - total["sent"]
    assert sums == total["closing"]
    assert len(answers["Which collections are new this week?"]) == 1
    monthly = answers["How did each collection grow by month?"]
    assert monthly.index.is_monotonic_increasing
    assert monthly.iloc[-1].sum() == len(now)
    assert {at.day for at in monthly.index[:-1]} <= {28, 29, 30, 31}
    assert isinstance(answers["Can I customize a chart?"], go.Figure)
    assert answers["How do I use DuckDB or Polars?"]["len"].sum() == len(now)
    page = json.loads(answers["How do I use Datasette?"])
    assert len(page) == sum(now["collection"] == "Kiln Tokens")
    joined = answers["How do I join my own table?"]
    assert len(joined) == len(now)
    assert joined["note"].notna().all()
    assert answers["How old are holdings?"].between(0, 366).all()
    moved = answers["How many transfers were there in each month?"]
    assert moved.sum() == frames.transfers("data/demo.db")["amount"].sum()
    # The files hold what the frames show.
    assert frames.load("holdings.parquet").equals(now)
    assert Path("holdings.xlsx").stat().st_size > 10_000
    assert {path.suffix for path in Path("audit").iterdir()} >= {".xlsx", ".json", ".txt"}
    assert "86d25a4e-a434-4ff4-9332-8b79b3e1578d" in Path("audit/treasury.txt").read_text()


SQL = ROOT / "docs" / "use" / "sql.md"

Rows: TypeAlias = list[dict[str, Any]]


def _held(path: Path, **which: Any) -> pd.DataFrame:
    return frames.holdings(path, **which).query("amount != 0")


def _by_wallet(holdings: pd.DataFrame) -> pd.DataFrame:
    groups = holdings.groupby("wallet_id")["amount"]
    return groups.agg(tokens="size", amount="sum").reset_index()


def _expected(
    path: Path, contract: str, wallet: str, between: str
) -> dict[str, tuple[pd.DataFrame, str]]:
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
        "What does a wallet hold?": (
            _held(path, wallet=wallet),
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
    values = {"collection": contract, "wallet": "Treasury"}
    values |= dict.fromkeys(("since", "at"), history.between)
    expected = _expected(history.database, contract, "Treasury", history.between)
    asked = sections(sections(read(SQL), "##")["Questions"], "###")
    assert list(asked) == list(expected)
    with closing(sqlite3.connect(history.database)) as live, duckdb.connect() as files:
        exact_sum.register(live)
        live.row_factory = sqlite3.Row
        for block in blocks(SQL):
            if block.text.startswith("nftsync export"):
                runner.run(block)
            if "CREATE MACRO" in block.text:
                files.execute(block.text)

        def in_sqlite(query: str) -> Rows:
            return [*map(dict, live.execute(query, values))]

        def in_duckdb(query: str) -> Rows:
            names = [name for name in values if f":{name}" in query]
            query = re.sub(rf":({'|'.join(values)})\b", r"$\1", query)
            parameters = {name: values[name] for name in names}
            return files.sql(query, params=parameters).to_arrow_table().to_pylist()

        for heading, text in asked.items():
            queries = [x for x in blocks(SQL) if x.language == "sql" and x.text in text]
            (for_sqlite,) = [x.text for x in queries if x.mark != "DuckDB"]
            (for_duckdb,) = [x.text for x in queries if x.mark == "DuckDB"] or [for_sqlite]
            _check(in_sqlite, for_sqlite, heading, *expected[heading])
            _check(in_duckdb, for_duckdb, heading, *expected[heading])


def _check(
    ask: Callable[[str], Rows], query: str, heading: str, expected: pd.DataFrame, columns: str
) -> None:
    rows = ask(query)
    _same(rows, expected, columns)
    if heading.startswith("Who "):
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
    _, table, shown = [runner.run(block) for block in blocks(SQL)[:4] if block.is_run]
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert printed == {wallet: str(amount) for wallet, amount in sums.items()}
    in_table = [int(line.split()[-1]) for line in str(table).splitlines()[2:]]
    held: Counter[str] = Counter()
    for row in json.loads(str(shown).strip().splitlines()[-1]):
        held[row["wallet_id"]] += int(row["amount"])
    assert sorted(held.values()) == sorted(in_table) == sorted(sums)
    assert max(sums) > 2**255
