"""docs/use/questions.md: the demo answers each question, in at most three lines."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import polars as pl
import pytest
from matplotlib.axes import Axes

from nftsync import frames
from tests.docs.pages import ROOT, blocks, read, sections
from tests.docs.runner import evaluated

PAGE = ROOT / "docs" / "use" / "questions.md"
#: Questions that write files instead.
WRITTEN = {"Can I have Excel or Parquet?", "What do I give an auditor?"}
#: Which wallets have no label and no group.
UNNAMED = ("wallet_no % 2", "wallet_no > 0")
#: Columns that depend on the time of the question, names, and numbers of rows.
IGNORED = ["age", "days", "wallet_label", "name", "nft", "index"]


@pytest.fixture
def demo_data(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    shutil.copytree(demo.parent, "data")
    now = frames.holdings("data/demo.db")
    mine = now[["contract_address", "blockchain_token_id"]].drop_duplicates()
    mine.rename(columns={"contract_address": "contract"}).assign(note="x").to_csv("mine.csv")
    return tmp_path


def _printed(script: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-euc", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _answers(house: list[str] | None = None) -> dict[str, Any]:
    """Return the answer to each question: the value of its last line, or its output.

    Args:
        house: the wallets to name where the page names the group.
    """
    questions = sections(read(PAGE), "###")
    setting, *answers = blocks(PAGE)
    assert len(answers) == len(questions)
    names: dict[str, object] = {}
    evaluated(setting.text, names)
    found = {}
    for question, block in zip(questions, answers, strict=True):
        assert len([*filter(None, block.text.splitlines())]) <= 3, question
        run = _printed if block.language == "sh" else lambda text: evaluated(text, names)
        text = block.text
        if house is not None:
            text = text.replace('group="house"', f"wallet={house}")
        found[question] = run(text)
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


def _comparable(answer: Any, names: dict[str, str]) -> pd.DataFrame:
    """The rows of an answer, with ids of wallets for their names, and summed over groups."""
    rows = _rows(answer).drop(columns=IGNORED, errors="ignore").replace(names)
    if "wallet_group" in rows:
        rows = rows.drop(columns="wallet_group")
        if "wallet_id" not in rows:
            by = [name for name in ("at", "collection", "currency") if name in rows]
            rows = rows.groupby(by, as_index=False).sum()
    order = rows.astype(str).sort_values([*rows.columns]).index
    return rows.loc[order].reset_index(drop=True)


def test_answers_without_labels_groups_and_names_have_the_same_numbers(demo_data: Path) -> None:
    expected, names = _answers(), _ids()
    house = [*frames.wallets("data/demo.db", group="house")["wallet_id"]]
    for unnamed in UNNAMED:
        with closing(sqlite3.connect("data/demo.db")) as connection, connection:
            connection.execute(
                f"UPDATE wallets SET label = NULL, wallet_group = NULL WHERE {unnamed}"
            )
            connection.execute("UPDATE tokens SET name = NULL WHERE name LIKE 'Lowtide Studies%'")
        shutil.rmtree("audit")
        answers, other_names = _answers(house), _ids()
        assert other_names.keys() != names.keys()
        for question in answers.keys() - WRITTEN:
            pd.testing.assert_frame_equal(
                _comparable(answers[question], other_names),
                _comparable(expected[question], names),
                obj=f"{question} ({unnamed})",
            )
        _check_written_files()


def _ids() -> dict[str, str]:
    """The id of each wallet's name."""
    wallets = frames.wallets("data/demo.db")
    return dict(zip(wallets["wallet"], wallets["wallet_id"], strict=True))


def test_the_demo_answers_each_question_in_at_most_three_lines(demo_data: Path) -> None:
    answers = _answers()
    assert len(answers) == 28
    for question, answer in answers.items():
        assert question in WRITTEN or len(_rows(answer)) > 0, question
    now = frames.holdings("data/demo.db")
    by_collection = now.groupby("collection")["wallet"].agg(set)

    who = answers["Who holds a collection?"]
    assert set(who["wallet"]) == by_collection["Harbour Passes"]
    both = answers["Who holds both of two collections?"]
    assert set(both) == by_collection["Harbour Passes"] & by_collection["Kiln Tokens"]
    assert set(answers["What does a group hold?"].index.levels[0]) <= set(
        now.loc[now["wallet_group"] == "house", "wallet"]
    )
    pivot = answers["How many does each group hold?"]
    assert pivot.loc["All", "All"] == now["amount"].sum()
    rarest = answers["Which traits and NFTs are rare?"]
    assert rarest.is_monotonic_increasing
    assert 0 < rarest.iloc[0] < rarest.iloc[-1] < 1
    worth = answers["What are the holdings worth?"]
    assert worth.sum() == Decimal("12.50") * int(now["amount"].sum())
    left = answers["What left a wallet last month, and to whom?"]
    assert set(left["kind"]) <= {"transfer", "sent"}
    statement = answers["What changed between two month ends?"]
    total = statement.iloc[-1]
    assert (
        total["opening"] + total["initial"] + total["received"] - total["sent"]
        == (total["closing"])
    )
    assert len(answers["Which collections are new this week?"]) == 1
    monthly = answers["How did each collection grow by month?"]
    assert monthly.index.is_monotonic_increasing
    assert monthly.iloc[-1].sum() == len(now)
    assert {at.day for at in monthly.index[:-1]} <= {28, 29, 30, 31}
    assert isinstance(answers["Can I customize a chart?"], go.Figure)
    duck = answers["How do I use DuckDB or Polars?"]
    assert duck["len"].sum() == len(now)
    page = json.loads(answers["How do I use Datasette?"])
    assert len(page) == sum(now["collection"] == "Kiln Tokens")
    joined = answers["How do I join my own table?"]
    assert len(joined) == len(now)
    assert joined["note"].notna().all()
    ages = answers["How old are holdings?"]
    assert ages.between(0, 366).all()
    moved = answers["How many transfers were there in each month?"]
    assert moved.sum() == frames.transfers("data/demo.db")["amount"].sum()
    _check_written_files()


def _check_written_files() -> None:
    """They hold what the frames show."""
    assert frames.load("holdings.parquet").equals(frames.holdings("data/demo.db"))
    assert Path("holdings.xlsx").stat().st_size > 10_000
    assert {path.suffix for path in Path("audit").iterdir()} >= {".xlsx", ".json", ".txt"}
    assert "86d25a4e-a434-4ff4-9332-8b79b3e1578d" in Path("audit/treasury.txt").read_text()
