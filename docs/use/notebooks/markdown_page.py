"""A notebook that was run, as a page of Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from pictures import Pictures

GALLERY = "nftsync-gallery-"
PLOTLY = "application/vnd.plotly.v1+json"

_MARKDOWN = re.compile(r"([\\`*_\[\]|<>])")


def page_of(run: Any, stem: str, pictures: Pictures) -> str:
    """Write a page.

    Args:
        run: the notebook with its outputs.
        stem: the name of its file, without the ending.
        pictures: draws what is a picture.
    """
    origin = f"notebooks/{stem}.ipynb, run on the demo"
    parts = [f"<!-- Made by docs/use/notebooks/make_pages.py: {origin}. -->"]
    for cell in run.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for number, output in enumerate(cell.outputs):
            name = f"{stem}.{cell.id}{f'-{number}' if number else ''}.png"
            parts.append(_shown(output, name, pictures))
    return "\n\n".join(part for part in parts if part) + "\n"


def _shown(output: Any, name: str, pictures: Pictures) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    if output.output_type == "error":
        raise RuntimeError(f"{name}: {output.evalue}")
    data = output.data
    if PLOTLY in data:
        pictures.chart(data[PLOTLY], pictures.folder / name)
        return f"![{_title(data[PLOTLY])}]({name})"
    html = data.get("text/html", "")
    if GALLERY in html:
        pictures.gallery(html, pictures.folder / name)
        return f"![The gallery: a card for each NFT, with its picture]({name})"
    if html.startswith("<script>"):
        return ""
    if "<img" in html:
        pictures.row(html, pictures.folder / name)
        return f"![Pictures of NFTs, each with its name]({name})"
    if "<table" in html:
        return _table(html)
    if html:
        return str(html)
    return f"```text\n{data['text/plain']}\n```"


def _title(figure: Any) -> str:
    title = figure["layout"].get("title", {}).get("text", "A chart")
    return re.sub(r"<[^>]*>|[\[\]]", " ", title.partition("<br>")[0]).strip()


class _Cells(HTMLParser):
    """The rows of an HTML table, and the text of its paragraphs."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.notes: list[str] = []
        self._into: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self._into = self.rows[-1]
            self._into.append("")
        elif tag == "p":
            self._into = self.notes
            self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th", "p"}:
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data


def _table(html: str) -> str:
    cells = _Cells()
    cells.feed(html)
    head, *rows = cells.rows
    # The index of a frame says nothing here, unless it has a name.
    plain = "<th></th>" in html.partition("</thead>")[0] and all(row[0].isdigit() for row in rows)
    shown = [row[1:] if plain else row for row in (head, *rows)]
    lines = [f"| {' | '.join(_plain(cell) for cell in row)} |" for row in shown]
    lines.insert(1, f"|{'---|' * len(shown[0])}")
    notes = [note for note in cells.notes if note]
    return "\n".join(lines) + "".join(f"\n\n{note}" for note in notes)


def _plain(cell: str) -> str:
    """Text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", cell)
