"""The stored notebooks and their pages, also in an installation."""

import json
import re
import tomllib
from base64 import b64encode
from typing import Any

import nbformat
import pytest

from nftsync.notebooks.jupyter import copy_missing
from tests.notebooks.worlds import NOTEBOOKS, PAGES, ROOT, read

_CODE = re.compile(r"^```python\n(.*?)\n```$", re.DOTALL | re.M)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MOST_BYTES = 150_000

README_IMAGES = ROOT / "docs" / "images"
#: Run this when one of these tests fails.
AGAIN = "python docs/use/notebooks/make_pages.py"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_is_kept_without_what_a_run_leaves(notebook):
    text = notebook.read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    nbformat.validate(kept)  # type: ignore[no-untyped-call]
    assert (kept["nbformat"], kept["nbformat_minor"]) == (4, 5)
    assert set(kept["metadata"]) == {"kernelspec", "language_info"}
    assert kept["metadata"]["kernelspec"]["name"] == "python3"
    assert kept["metadata"]["language_info"] == {"name": "python"}
    assert text.endswith("}\n")
    idents = [cell["id"] for cell in kept["cells"]]
    assert ("parameters" in idents) == (notebook.stem == "5-report")
    assert len(set(idents)) == len(idents)
    for cell in kept["cells"]:
        assert re.fullmatch(r"[a-z][a-z-]*[a-z]", cell["id"]), "an id that a person can name"
        assert cell["metadata"] == ({"tags": [cell["id"]]} if cell["id"] == "parameters" else {})
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_the_wheel_and_the_source_archive_have_them():
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    expected = {
        f"notebooks/{path.name}": f"nftsync/notebooks/shipped/{path.name}" for path in NOTEBOOKS
    }
    assert targets["wheel"]["force-include"] == expected
    assert "notebooks" in targets["sdist"]["include"]


def test_those_that_are_missing_are_copied_and_none_is_overwritten(tmp_path):
    folder = tmp_path / "new" / "notebooks"
    assert [path.name for path in copy_missing(folder)] == [path.name for path in NOTEBOOKS]
    (folder / NOTEBOOKS[0].name).write_text("mine")
    (folder / NOTEBOOKS[1].name).unlink()
    assert copy_missing(folder) == [folder / NOTEBOOKS[1].name]
    assert (folder / NOTEBOOKS[0].name).read_text() == "mine"
    assert [path.read_bytes() for path in sorted(folder.iterdir())][1:] == [
        path.read_bytes() for path in NOTEBOOKS[1:]
    ]


# docs/use/notebooks: the notebooks after a run --------------------------------------------------


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_has_code_and_texts_and_what_came_out_but_nothing_of_a_machine(notebook):
    cells = read(notebook).cells
    page = (PAGES / f"{notebook.stem}.md").read_text(encoding="utf-8")
    assert _CODE.findall(page) == [c.source for c in cells if c.cell_type == "code"], AGAIN
    assert [cell.source for cell in cells if cell.source not in page] == [], AGAIN
    assert not re.search(r"Traceback|/tmp/|/home/|/root/|(?<![\w.])/[a-z]+/\w", page)
    assert re.search(r"^\|(---\|)+$", page, re.M)
    assert re.search(r"^!\[[^\]]+\]\([^)]+\.png\)$", page, re.M)


def test_each_picture_is_shown_and_small_and_each_link_leads_somewhere():
    linked = set()
    for page in PAGES.glob("*.md"):
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            assert (PAGES / target.partition("#")[0]).exists(), f"{page.name}: {target}"
            linked.add(target)
    pictures = {path.name for path in PAGES.glob("*.png")}
    assert pictures == {target for target in linked if target.endswith(".png")}
    readme = [README_IMAGES / name for name in ("gallery.png", "chart.png")]
    for picture in [*PAGES.glob("*.png"), *readme]:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < _MOST_BYTES, picture.name


def test_a_picture_of_a_gallery_was_taken_after_its_images_had_loaded(chromium):
    galleries = [README_IMAGES / "gallery.png", *PAGES.glob("*.gallery.png")]
    galleries += PAGES.glob("*.pictures-*.png")
    assert len(galleries) == 4
    window = chromium.new_page()
    shares = {
        picture.name: window.evaluate(_COLORFUL, b64encode(picture.read_bytes()).decode())
        for picture in galleries
    }
    window.close()
    assert {name: share for name, share in shares.items() if share < 0.2} == {}, AGAIN


#: The share of a picture's pixels that are not nearly gray; a page without NFTs has next to none.
_COLORFUL = """async (content) => {
  const image = new Image();
  image.src = `data:image/png;base64,${content}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
  canvas.drawImage(image, 0, 0);
  const {data} = canvas.getImageData(0, 0, image.width, image.height);
  let colorful = 0;
  for (let at = 0; at < data.length; at += 4) {
    const channels = data.subarray(at, at + 3);
    if (Math.max(...channels) - Math.min(...channels) > 40) colorful += 1;
  }
  return 4 * colorful / data.length;
}"""
