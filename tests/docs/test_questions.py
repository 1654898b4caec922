"""docs/use/questions.md: the demo answers each question, in at most three lines."""

import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from nftsync import frames
from tests.docs.pages import ROOT, blocks, read, sections
from tests.docs.runner import evaluated

PAGE = ROOT / "docs" / "use" / "questions.md"
#: Questions that write files instead.
WRITTEN = {"Can I have Excel or Parquet?", "What do I give an auditor?"}


@pytest.fixture
def demo_data(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo.parent, "data")
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


def _answers() -> dict[str, Any]:
    """The answer to each question: the value of its last line, or what it prints."""
    questions = sections(read(PAGE), "###")
    setting, *answers = blocks(PAGE)
    assert len(answers) == len(questions)
    names: dict[str, object] = {}
    evaluated(setting.text, names)
    found = {}
    for question, block in zip(questions, answers, strict=True):
        assert len([*filter(None, block.text.splitlines())]) <= 3, question
        run = _printed if block.language == "sh" else lambda text: evaluated(text, names)
        found[question] = run(block.text)
    return found


def test_the_demo_answers_each_question_in_at_most_three_lines(demo_data: Path) -> None:
    answers = _answers()
    assert len(answers) == 24
    for question, answer in answers.items():
        assert question in WRITTEN or isinstance(answer, go.Figure) or len(answer) > 0, question
    now = frames.holdings("data/demo.db")
    by_collection = now.groupby("collection")["wallet_label"].agg(set)

    who = answers["Who holds a collection?"]
    assert set(who["wallet_label"]) == by_collection["Harbour Passes"]
    both = answers["Who holds both of two collections?"]
    assert set(both) == by_collection["Harbour Passes"] & by_collection["Kiln Tokens"]
    assert set(answers["What does a group hold?"].index.levels[0]) <= set(
        now.loc[now["wallet_group"] == "house", "wallet_label"]
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
    assert {row["wallet_group"] for row in page} == {"house"}
    _check_written_files()


def _check_written_files() -> None:
    """They hold what the frames show."""
    assert frames.load("holdings.parquet").equals(frames.holdings("data/demo.db"))
    assert Path("holdings.xlsx").stat().st_size > 10_000
    assert {path.suffix for path in Path("audit").iterdir()} >= {".xlsx", ".json", ".txt"}
    assert "Treasury" in Path("audit/treasury.txt").read_text()
