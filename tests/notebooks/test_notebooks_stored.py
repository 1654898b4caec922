"""How the notebooks are kept, and that an installation has them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
from notebook_worlds import NOTEBOOKS, PAGES, ROOT, read

from nftsync.lab.jupyter import copy_missing, shipped


def test_there_are_five_in_order() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_is_kept_without_what_a_run_leaves(notebook: Path) -> None:
    text = notebook.read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    nbformat.validate(kept)  # type: ignore[no-untyped-call]
    assert (kept["nbformat"], kept["nbformat_minor"]) == (4, 5)
    assert set(kept["metadata"]) == {"kernelspec", "language_info"}
    assert kept["metadata"]["kernelspec"]["name"] == "python3"
    assert kept["metadata"]["language_info"] == {"name": "python"}
    assert text.endswith("}\n")
    idents = [cell["id"] for cell in kept["cells"]]
    assert len(set(idents)) == len(idents)
    for cell in kept["cells"]:
        assert re.fullmatch(r"[a-z][a-z-]*[a-z]", cell["id"]), "an id that a person can name"
        tags = ["parameters"] if cell["id"] == "parameters" else []
        assert cell["metadata"] == ({"tags": tags} if tags else {})
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_the_report_alone_has_parameters() -> None:
    tagged = [
        notebook.stem
        for notebook in NOTEBOOKS
        for cell in json.loads(notebook.read_text())["cells"]
        if cell["metadata"].get("tags") == ["parameters"]
    ]
    assert tagged == ["5-report"]


def test_the_report_tells_the_two_commands_that_its_page_tells() -> None:
    def commands(text: str) -> list[list[str]]:
        joined = text.replace("\\\n", " ").replace("notebooks/5-report", "5-report")
        return [line.split() for line in joined.splitlines() if "5-report.ipynb" in line][:1] + [
            line.split() for line in joined.splitlines() if "nbconvert --to" in line
        ][:1]

    told = read(NOTEBOOKS[-1]).cells[0].source
    in_cell = "\n".join(line.removeprefix("#") for line in told.splitlines())
    (block,) = re.findall(
        r"^```sh\n(papermill .*?)```$",
        (PAGES / "README.md").read_text(encoding="utf-8"),
        re.DOTALL | re.M,
    )
    assert commands(in_cell) == commands(block)
    assert len(commands(block)) == 2


def test_the_wheel_and_the_source_archive_have_them() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    expected = {
        f"notebooks/{path.name}": f"nftsync/lab/notebooks/{path.name}" for path in NOTEBOOKS
    }
    assert targets["wheel"]["force-include"] == expected
    assert "notebooks" in targets["sdist"]["include"]


def test_those_that_are_missing_are_copied_and_none_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "notebooks"
    assert [path.name for path in copy_missing(folder)] == [path.name for path in NOTEBOOKS]
    (folder / NOTEBOOKS[0].name).write_text("mine")
    (folder / NOTEBOOKS[1].name).unlink()
    assert copy_missing(folder) == [folder / NOTEBOOKS[1].name]
    assert (folder / NOTEBOOKS[0].name).read_text() == "mine"
    assert [path.read_bytes() for path in sorted(folder.iterdir())][1:] == [
        path.read_bytes() for path in NOTEBOOKS[1:]
    ]


def test_in_a_checkout_they_are_there_already() -> None:
    assert shipped() == NOTEBOOKS
    assert copy_missing(ROOT / "notebooks") == []
