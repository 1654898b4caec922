"""The pages of the documentation, taken apart."""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("*/*.md")),
]

_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.M
)
_CELL = re.compile(r"(?<!\\)\|")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the comment that stands before it."""

    page: str
    line: int
    language: str
    text: str
    mark: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return not self.mark.startswith("not run: ")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    text = read(page)
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        found.append(Block(page.name, line, match["language"], match["text"], match["mark"] or ""))
    return found


def prose(page: Path) -> str:
    return _FENCE.sub("", read(page))


def tables(text: str) -> list[list[list[str]]]:
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in _CELL.split(line)[1:-1]]
            if not all(cell and set(cell) <= set("-:") for cell in cells):
                found[-1].append(cells)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def sections(text: str, level: str) -> dict[str, str]:
    """What stands below each heading of a level, up to the next heading of it."""
    parts = re.split(rf"^{level} (.+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@cache
def links_and_anchors(page: Path) -> tuple[list[str], set[str]]:
    """The targets of links and pictures, and the anchors that GitHub gives headings."""
    targets: list[str] = []
    counts: Counter[str] = Counter()
    found = set()
    tokens = MarkdownIt("commonmark").enable("table").parse(read(page))
    for opened, token in zip([None, *tokens], tokens, strict=False):
        inner = token.children or []
        targets += [
            str(one.attrs[name]) for one in inner for name in one.attrs if name in {"href", "src"}
        ]
        targets += re.findall(
            r'(?:href|src)="([^"]+)"', token.content if "html" in token.type else ""
        )
        if opened is not None and opened.type == "heading_open":
            heading = "".join(one.content for one in inner if one.type in {"text", "code_inline"})
            anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            found.add(f"{anchor}-{counts[anchor]}" if counts[anchor] else anchor)
            counts[anchor] += 1
    return targets, found
