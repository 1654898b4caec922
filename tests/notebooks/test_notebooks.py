"""The shipped notebooks and their pages, and runs of them on several databases."""

import json
import re
import shutil
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import nbformat
import numpy as np
import pytest
from nbformat import v4
from PIL import Image

from nftsync import frames
from nftsync.notebooks.jupyter import notebook_environment
from tests.kit.serve_process import query
from tests.notebooks.worlds import NOTEBOOKS, PLOTLY, ROOT, columns_of, execute, texts_of

#: The outputs of the cells of all notebooks on a database, by notebook and id.
Outputs: TypeAlias = dict[str, list[Any]]

PAGES = ROOT / "docs" / "use" / "notebooks"
#: The message of some failures.
AGAIN = "python docs/use/notebooks/make_pages.py"
README_IMAGES = ROOT / "docs" / "images"
#: Texts that the notebooks show for the demo, by notebook and cell.
SHOWN = {
    "1-first-look-figures": ["NFTs", "41"],
    "1-first-look-gallery": ["Freshly Minted"],
    "1-first-look-holdings": ["Treasury"],
    "1-first-look-sync": ["41"],
    "2-what-changed-figures": ["transfers", "received", "sent"],
    "2-what-changed-gallery": ["Freshly Minted"],
    "2-what-changed-moves": ["transfer", "received", "Freshly Minted"],
    "2-what-changed-log": ["Treasury", "Freshly Minted"],
    "2-what-changed-as-of": ["bracketed", "gap"],
    "2-what-changed-ages": ["under a year"],
    "3-collections-and-holders-concentration": ["nakamoto"],
    "3-collections-and-holders-quality": ["missing"],
    "4-webhooks-and-freshness-figures": ["done"],
    "4-webhooks-and-freshness-stuck": ["No webhook is stuck."],
    "4-webhooks-and-freshness-runs": ["ok"],
    "4-webhooks-and-freshness-by-webhook": ["a webhook", "a sync"],
}


def run_on_each(databases: list[Path], patch: pytest.MonkeyPatch) -> list[Outputs]:
    """Run all notebooks on each database, in one kernel that forgets all names between runs.

    The first database is found by default and has the environment's provider, from which a cell
    reads; others have none. The last one is empty and has no report.
    """
    cells = []
    for place, database in enumerate(databases):
        if place:
            other = f"import os\nos.environ['NFTSYNC_DATABASE'] = {str(database)!r}\n"
            cells.append(v4.new_code_cell(f"{other}os.environ.pop('NFTSYNC_BASE_URL', None)"))
        for path in NOTEBOOKS[:-1] if database == databases[-1] else NOTEBOOKS:
            cells.append(v4.new_code_cell("%reset -f"))
            for cell in nbformat.read(path, as_version=4).cells:
                cell.id = f"{place}-{path.stem}-{cell.id}"
                if not place:
                    cell.source = cell.source.replace("read_now = False", "read_now = True")
                cells.append(cell)
    outputs: list[Outputs] = [{} for _ in databases]
    for cell in execute(cells, patch).cells:
        place, ours, ident = cell.id.partition("-")
        if ours and cell.cell_type == "code":
            outputs[int(place)][ident] = cell.outputs
    return outputs


def text_of(output: Any) -> str:
    """Return an output as text: its printed text, or its HTML without scripts."""
    if output.output_type == "stream":
        return str(output.text)
    shown = str(output.data.get("text/html", output.data.get("text/plain", "")))
    return re.sub(r"<script\b.*?</script>", "", shown, flags=re.DOTALL)  # plotly's has megabytes


def shown(run: Outputs, ident: str) -> str:
    return "\n".join(map(text_of, run[ident]))


def test_all_notebooks_run_on_the_demo_with_and_without_labels_and_on_an_empty_database(
    copied, empty, tmp_path, monkeypatch
):
    (tmp_path / "data").symlink_to(copied.parent)
    nameless = shutil.copytree(copied.parent, tmp_path / "nameless") / copied.name
    query(nameless, "UPDATE wallets SET label = NULL")
    syncs = "SELECT count(*) FROM sync_runs WHERE kind = 'sync'"
    [(before,)] = query(copied, syncs)
    with notebook_environment(copied, None, lambda _: None) as environment:
        monkeypatch.setenv("NFTSYNC_BASE_URL", environment["NFTSYNC_BASE_URL"])
        runs = run_on_each([copied, nameless, empty], monkeypatch)
    assert query(copied, syncs) == [(before + 1,)]
    for run in runs:
        outputs = [*chain(*run.values())]
        assert [one for one in outputs if one.output_type == "error"] == []
        assert [one.text for one in outputs if one.get("name") == "stderr"] == []
        assert without_a_value(run) == []
        is_empty = run is runs[-1]
        figures = [one.data[PLOTLY] for one in outputs if PLOTLY in one.get("data", {})]
        assert len(figures) == (10 if is_empty else 11)
        for figure in figures:
            marks = [trace for trace in figure["data"] if trace.keys() & {"x", "y", "z"}]
            title = figure["layout"]["title"]["text"]
            assert (bool(marks), bool(title)) == (not is_empty, True), title
    see_the_demo(runs[0])
    see_names_or_ids(runs[0], copied)
    see_names_or_ids(runs[1], nameless)
    for name in ("1-first-look", "3-collections-and-holders"):
        assert "No data yet: no read has been stored;" in shown(runs[2], f"{name}-open")
    assert "There are no transfers." in shown(runs[2], "2-what-changed-moves")


def without_a_value(run: Outputs) -> list[tuple[str, str]]:
    """Return texts for missing values other than a dash, and dashes instead of an id."""
    # Units and editions may be missing, and a corner of pandas is blank.
    pages = [
        (ident, text_of(output))
        for ident, outputs in run.items()
        if not ident.endswith(("-explain", "-gallery", "-all-columns"))
        for output in outputs
    ]
    missing = re.compile(r"^$|\b(?:NaN|nan|None|NaT)\b(?!\.)|<NA>")
    found = [(one, text) for one, page in pages for text in texts_of(page) if missing.search(text)]
    return found + [
        (ident, head)
        for ident, page in pages
        for head, column in columns_of(page).items()
        if head in {"NFT", "wallet", "series", "collection"} and {"", "–"}.intersection(column)
    ]


def see_the_demo(run: Outputs) -> None:
    for ident, words in SHOWN.items():
        assert [word for word in words if word not in shown(run, ident)] == [], ident
    for ident in run.keys() - {"2-what-changed-all-columns"}:
        # Times have neither microseconds nor an offset.
        assert not re.search(r"\d:\d\d\.\d|\+00:00", shown(run, ident)), ident
    assert "application/vnd.jupyter.widget-view+json" in run["1-first-look-sync"][0].data
    gaps = columns_of(shown(run, "5-report-quality"))
    assert gaps == columns_of(shown(run, "3-collections-and-holders-quality"))


def see_names_or_ids(run: Outputs, database: Path) -> None:
    """Each wallet has its label or short id, also on both sides of a transfer."""
    wallets = set(frames.wallets(database)["wallet"])
    for ident in (
        *("1-first-look-holdings", "1-first-look-wallets", "2-what-changed-as-of-rows"),
        *("2-what-changed-log", "4-webhooks-and-freshness-trace"),
    ):
        assert set() < set(columns_of(shown(run, ident))["wallet"]) <= wallets, ident
    columns = columns_of(shown(run, "2-what-changed-moves"))
    sides = [*zip(columns["from"], columns["to"], columns["kind"], strict=True)]
    assert sum(kind == "transfer" for *_, kind in sides) > 5
    for sender, receiver, kind in sides:
        assert sender in wallets or kind == "received"
        assert receiver in wallets or kind == "sent"
    _, pairs, one_sided = map(text_of, run["5-report-transfers"])
    columns = columns_of(pairs)
    assert {*columns["from"], *columns["to"], *columns_of(one_sided)["wallet"]} <= wallets


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_notebook_is_stored_without_outputs(notebook):
    text = notebook.read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)
    nbformat.validate(kept)
    assert (kept["nbformat"], kept["nbformat_minor"]) == (4, 5)
    assert kept["metadata"].pop("kernelspec")["name"] == "python3"
    assert kept["metadata"] == {"language_info": {"name": "python"}}
    assert text.endswith("}\n")
    idents = [cell["id"] for cell in kept["cells"]]
    assert ("parameters" in idents) == (notebook.stem == "5-report")
    assert len(set(idents)) == len(idents)
    for cell in kept["cells"]:
        assert re.fullmatch(r"[a-z][a-z-]*[a-z]", cell["id"]), "an id that a person can name"
        assert cell["metadata"] == ({"tags": [cell["id"]]} if cell["id"] == "parameters" else {})
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_has_code_texts_and_outputs_but_no_paths(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    page = (PAGES / f"{notebook.stem}.md").read_text(encoding="utf-8")
    assert re.findall(r"^```python\n(.*?)\n```$", page, re.DOTALL | re.M) == [
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
    ], AGAIN
    assert [cell for cell in cells if "".join(cell["source"]) not in page] == [], AGAIN
    assert not re.search(r"Traceback|/tmp/|/home/|/root/|(?<![\w.])/[a-z]+/\w", page)
    assert re.search(r"^\|(---\|)+$", page, re.M)
    assert re.search(r"^!\[[^\]]+\]\([^)]+\.png\)$", page, re.M)


def test_each_picture_is_shown_and_small_and_galleries_had_loaded_their_images():
    """A gallery without NFTs has almost no pixels with a color."""
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    pictures = {*PAGES.glob("*.png")}
    assert {path.name for path in pictures} == {*re.findall(r"\]\(([^)\s]+\.png)\)", pages)}
    galleries = {README_IMAGES / "gallery.png", *PAGES.glob("*.gallery.png")}
    galleries.update(PAGES.glob("*.pictures-*.png"))
    assert len(galleries) == 4
    for picture in pictures | galleries | {README_IMAGES / "chart.png"}:
        assert picture.stat().st_size < 150_000, picture.name
        channels = np.asarray(Image.open(picture, formats=["PNG"]).convert("RGB"), dtype=int)
        colored = (np.ptp(channels, axis=2) > 40).mean()
        assert colored > 0.2 or picture not in galleries, f"{picture.name}: {AGAIN}"
