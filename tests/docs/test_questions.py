"""docs/use/questions.md: each question has an answer of a line or two, which the demo has."""

import shutil
from pathlib import Path

from nftsync import frames
from tests.docs.pages import ROOT, blocks, read, sections
from tests.docs.runner import evaluated

PAGE = ROOT / "docs" / "use" / "questions.md"


def test_each_question_is_answered_in_at_most_two_lines(demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo.parent, "data")
    setting, *answers = [block.text for block in blocks(PAGE)]
    assert len(answers) == len(sections(read(PAGE), "##")) == 11
    names: dict[str, object] = {}
    evaluated(setting, names)
    shown = {}
    for answer in answers:
        assert answer.count("\n") <= 2
        shown[answer] = evaluated(answer, names)
        assert shown[answer] is not None or "save" in answer
    for answer, value in shown.items():
        if "frames.save" not in answer:
            assert len(value) > 0, answer
    (who, both) = (next(shown[a] for a in answers if text in a) for text in ("contract=", "both"))
    assert set(who["name"].str.partition(" #")[0]) == {"Harbour Passes"}
    assert len(both) == 1
    assert frames.load("holdings.parquet").equals(frames.holdings("data/demo.db"))
    assert Path("holdings.xlsx").stat().st_size > 10_000
