"""The pages of the documentation in reading order: each README lists the pages beside it.

A folder's README is the first page of its section. The pages below it come in the order of the
README's links, so no other file lists them.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
#: Captions of the navigation, and what is below each: folders and pages.
PARTS: dict[str, tuple[Path, ...]] = {
    "": (DOCS, DOCS / "use", DOCS / "operate", DOCS / "reference"),
    "Contribute": (DOCS / "develop", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"),
}

_LINK = re.compile(r"\]\(([^)\s#]+)")
_LEFT_OUT = re.compile(r"^(```|~~~).*?^\1$|<!--.*?-->|!\[[^\]]*\]\([^)]*\)", re.DOTALL | re.M)


def parts() -> dict[str, list[Path]]:
    """Return the pages of each part of the navigation; a folder is there with its README."""
    return {
        caption: [
            page
            for place in places
            for page in ([place] if place.suffix else _top(place))
            if page.exists()
        ]
        for caption, places in PARTS.items()
    }


def _top(folder: Path) -> list[Path]:
    return [readme] if (readme := folder / "README.md").exists() else _ordered(folder, README)


def below(page: Path) -> list[Path]:
    """Return the pages of a folder, in the order of its README, which `page` is."""
    return _ordered(page.parent, page) if page.name == "README.md" and page != README else []


def _ordered(folder: Path, index: Path) -> list[Path]:
    """Return a folder's pages and the READMEs of its folders: first those that the index links."""
    found = [page for page in folder.glob("*.md") if page.name != "README.md"]
    if folder != DOCS:
        found += folder.glob("*/README.md")
    order = list(dict.fromkeys(linked(index)))
    return sorted(found, key=lambda page: (page not in order or order.index(page), str(page)))


def linked(page: Path) -> list[Path]:
    """Return the files that a page links, in order; of a folder, its README."""
    found = (page.parent / target for target in targets(page))
    return [(one / "README.md" if one.is_dir() else one).resolve() for one in found]


def targets(page: Path) -> list[str]:
    """Return the targets of a page's links to files, without anchors."""
    return [target for target in _LINK.findall(prose(page)) if ":" not in target]


def prose(page: Path) -> str:
    """Return a page without code blocks, comments and pictures."""
    return _LEFT_OUT.sub("", page.read_text("utf-8"))


def walk() -> list[tuple[int, Path]]:
    """Return each page below the README with its depth, from 0, in reading order."""
    found: list[tuple[int, Path]] = []

    def visit(page: Path, depth: int) -> None:
        found.append((depth, page))
        for one in below(page):
            visit(one, depth + 1)

    for pages in parts().values():
        for page in pages:
            visit(page, 0)
    return found
