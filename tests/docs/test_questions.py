"""docs/use/questions.md: the demo answers each question, in at most three lines."""

import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import polars as pl
from matplotlib.axes import Axes

from nftsync import frames
from tests.docs.pages import ROOT, blocks, read, sections
from tests.docs.runner import evaluated

PAGE = ROOT / "docs" / "use" / "questions.md"
#: Questions that write files instead.
WRITTEN = {"Can I have Excel or Parquet?", "What do I give an auditor?"}


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
