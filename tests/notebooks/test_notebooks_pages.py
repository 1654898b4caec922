"""The pages that show the notebooks after a run: docs/notebooks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from notebook_worlds import NOTEBOOKS, PAGES, read

_CODE = re.compile(r"^```python\n(.*?)\n```$", re.DOTALL | re.M)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MOST_BYTES = 150_000

#: Run this when one of these tests fails.
AGAIN = "python docs/notebooks/make_pages.py"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_has_code_and_texts_and_what_came_out_but_nothing_of_a_machine(
    notebook: Path,
) -> None:
    cells = read(notebook).cells
    page = (PAGES / f"{notebook.stem}.md").read_text(encoding="utf-8")
    assert _CODE.findall(page) == [c.source for c in cells if c.cell_type == "code"], AGAIN
    assert [cell.source for cell in cells if cell.source not in page] == [], AGAIN
    assert not re.search(r"Traceback|/tmp/|/home/|/root/|(?<![\w.])/[a-z]+/\w", page)
    assert re.search(r"^\|(---\|)+$", page, re.M)
    assert re.search(r"^!\[[^\]]+\]\([^)]+\.png\)$", page, re.M)


def test_each_picture_is_shown_and_small_and_each_link_leads_somewhere() -> None:
    linked = set()
    for page in PAGES.glob("*.md"):
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            assert (PAGES / target).exists(), f"{page.name}: {target}"
            linked.add(target)
    pictures = {path.name for path in PAGES.glob("*.png")}
    assert pictures == {target for target in linked if target.endswith(".png")}
    readme = [PAGES.parent / "images" / name for name in ("gallery.png", "chart.png")]
    for picture in [*PAGES.glob("*.png"), *readme]:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < _MOST_BYTES, picture.name
