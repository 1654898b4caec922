"""The shipped notebooks and their pages, and runs of them on several databases."""

import json
import re
import shutil
import sqlite3
import tomllib
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nftsync import frames
from tests.notebooks.worlds import NOTEBOOKS, PAGES, ROOT, Run, columns_of, count, read, text_of

#: The message of some failures.
AGAIN = "python docs/use/notebooks/make_pages.py"
README_IMAGES = ROOT / "docs" / "images"
#: Texts that the notebooks show for the demo, by notebook and cell.
SHOWN = {
    ("1-first-look", "figures"): ["NFTs", "41"],
    ("1-first-look", "gallery"): ["Freshly Minted"],
    ("1-first-look", "holdings"): ["Treasury"],
    ("1-first-look", "sync"): ["41"],
    ("2-what-changed", "figures"): ["transfers", "received", "sent"],
    ("2-what-changed", "gallery"): ["Freshly Minted"],
    ("2-what-changed", "moves"): ["transfer", "received", "Freshly Minted"],
    ("2-what-changed", "log"): ["Treasury", "Freshly Minted"],
    ("2-what-changed", "as-of"): ["bracketed", "gap"],
    ("2-what-changed", "ages"): ["under a year"],
    ("3-collections-and-holders", "concentration"): ["nakamoto"],
    ("3-collections-and-holders", "quality"): ["missing"],
    ("4-webhooks-and-freshness", "figures"): ["done"],
    ("4-webhooks-and-freshness", "stuck"): ["No webhook is stuck."],
    ("4-webhooks-and-freshness", "runs"): ["ok"],
    ("4-webhooks-and-freshness", "by-webhook"): ["a webhook", "a sync"],
    ("5-report", "open"): ["Wallets: 41."],
    ("5-report", "headline"): ["797", "collections", "total amount"],
    ("5-report", "statement"): ["customers", "house", "total"],
    ("5-report", "collections"): ["797 NFTs are Tidal Almanac", "share"],
    ("5-report", "pictures"): ["Freshly Minted"],
    ("5-report", "transfers"): ["between two wallets", "Freshly Minted"],
    ("5-report", "concentration"): ["largest holder share"],
    ("5-report", "quality"): ["All wallets were read without errors", "missing"],
    ("5-report", "sources"): ["last sync", "confirmed by reads before and after", "Written at "],
}


def test_all_notebooks_run_on_the_demo_with_all_some_and_no_labels_and_on_an_empty_database(
    copied, running_provider, empty, tmp_path, monkeypatch
):
    (tmp_path / "data").symlink_to(copied.parent)
    some, nameless = (shutil.copytree(copied.parent, tmp_path / name) for name in ("some", "none"))
    some, nameless = some / copied.name, nameless / copied.name
    for database, without in ((some, "label LIKE 'Customer%'"), (nameless, "true")):
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(f"UPDATE wallets SET label = NULL WHERE {without}")
    syncs = count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'")
    monkeypatch.setenv("NFTSYNC_BASE_URL", running_provider)
    runs = Run.on_each(
        [copied, some, nameless, empty], monkeypatch, ("read_now = False", "read_now = True")
    )
    for run in runs:
        run.assert_quiet()
        assert run.without_a_value() == []
    assert count(copied, "SELECT count(*) FROM sync_runs WHERE kind = 'sync'") == syncs + 1
    see_the_demo(runs[0])
    see_names_or_ids(runs[1], some)
    see_names_or_ids(runs[2], nameless)
    see_an_empty_database(runs[3])


def see_the_demo(run: Run) -> None:
    """All charts are drawn, and a cell read the wallets again."""
    run.assert_draws(marked=True)
    for (name, ident), words in SHOWN.items():
        assert [word for word in words if word not in run.shown(name, ident)] == [], ident
    for name, idents in (
        ("1-first-look", ["holdings", "freshness", "wallets"]),
        ("2-what-changed", ["moves", "log", "token", "as-of-rows"]),
        ("4-webhooks-and-freshness", ["trace", "runs", "freshness"]),
    ):
        # Times have neither microseconds nor an offset.
        for ident in idents:
            assert not re.search(r"\d:\d\d\.\d|\+00:00", run.shown(name, ident)), ident
    assert "application/vnd.jupyter.widget-view+json" in run.outputs["1-first-look-sync"][0].data
    gaps = columns_of(run.shown("5-report", "quality"))
    assert gaps == columns_of(run.shown("3-collections-and-holders", "quality"))
    heading, pairs, sides = map(text_of, run.outputs["5-report-transfers"])
    counts = re.search(r"(\d+) between two wallets, (\d+) received, (\d+) sent", heading)
    assert counts is not None
    paired, received, sent = map(int, counts.groups())
    assert f"{paired - 15:,} more rows" in pairs
    assert f"{received + sent - 10:,} more rows" in sides


def see_an_empty_database(run: Run) -> None:
    for name in ("1-first-look", "3-collections-and-holders"):
        assert "No data yet: no read has been stored;" in run.shown(name, "open")
    run.assert_draws(marked=False)
    assert "There are no transfers." in run.shown("2-what-changed", "moves")


def see_names_or_ids(run: Run, database: Path) -> None:
    """Each wallet has its label or short id, also on both sides of a transfer."""
    wallets = set(frames.wallets(database)["wallet"])
    for name, ident in (
        *(("1-first-look", ident) for ident in ("holdings", "wallets")),
        *(("2-what-changed", ident) for ident in ("as-of-rows", "log")),
        ("4-webhooks-and-freshness", "trace"),
    ):
        shown = set(columns_of(run.shown(name, ident))["wallet"])
        assert shown, ident
        assert shown <= wallets, ident
    columns = columns_of(run.shown("2-what-changed", "moves"))
    sides = [*zip(columns["from"], columns["to"], columns["kind"], strict=True)]
    assert sum(kind == "transfer" for *_, kind in sides) > 5
    for sender, receiver, kind in sides:
        assert sender in wallets or kind == "received"
        assert receiver in wallets or kind == "sent"
    _, pairs, one_sided = map(text_of, run.outputs["5-report-transfers"])
    columns = columns_of(pairs)
    assert {*columns["from"], *columns["to"], *columns_of(one_sided)["wallet"]} <= wallets


# As stored ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_notebook_is_stored_without_outputs(notebook):
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


def test_the_wheel_and_the_source_archive_have_the_notebooks():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    targets, shipped = build["targets"], "nftsync/notebooks/shipped"
    expected = {f"notebooks/{path.name}": f"{shipped}/{path.name}" for path in NOTEBOOKS}
    assert targets["wheel"]["force-include"] == expected
    assert "notebooks" in targets["sdist"]["include"]


# Pages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_has_code_texts_and_outputs_but_no_paths(notebook):
    cells = read(notebook).cells
    page = (PAGES / f"{notebook.stem}.md").read_text(encoding="utf-8")
    assert re.findall(r"^```python\n(.*?)\n```$", page, re.DOTALL | re.M) == [
        c.source for c in cells if c.cell_type == "code"
    ], AGAIN
    assert [cell.source for cell in cells if cell.source not in page] == [], AGAIN
    assert not re.search(r"Traceback|/tmp/|/home/|/root/|(?<![\w.])/[a-z]+/\w", page)
    assert re.search(r"^\|(---\|)+$", page, re.M)
    assert re.search(r"^!\[[^\]]+\]\([^)]+\.png\)$", page, re.M)


def test_each_picture_is_shown_and_small_and_each_link_leads_somewhere():
    linked = set()
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            assert (PAGES / target.partition("#")[0]).exists(), f"{page.name}: {target}"
            linked.add(target)
    pictures = {path.name for path in PAGES.glob("*.png")}
    assert pictures == {target for target in linked if target.endswith(".png")}
    readme = [README_IMAGES / name for name in ("gallery.png", "chart.png")]
    for picture in [*PAGES.glob("*.png"), *readme]:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 150_000, picture.name


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


#: The share of a picture's pixels with a color; a page without NFTs has almost none.
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
