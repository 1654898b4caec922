"""Sphinx's settings for `make docs`: the pages as they are on GitHub, with search and navigation.

Pages stay plain Markdown, without Sphinx's directives. The navigation comes from `pages.py`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import pages

project = "nftsync"
html_title = "nftsync"
root_doc = "README"
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [
    f"{place.name}/**" for place in pages.ROOT.iterdir() if place.is_dir() and place != pages.DOCS
]

# The dialect of GitHub, without MyST's own marks.
myst_enable_extensions = ["alert", "gfm_autolink", "strikethrough", "tasklist"]
myst_disable_syntax = [
    "front_matter",
    "myst_block_break",
    "myst_line_comment",
    "myst_role",
    "myst_target",
]
myst_heading_anchors = 6
smartquotes = False
# A part of a file, or a file with what must be replaced, need not be valid in its language.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_theme_options = {"top_of_page_buttons": []}
html_permalinks_icon = "#"
html_copy_source = False
html_show_copyright = False
html_use_index = False
html_domain_indices = False


def _name(page: Path) -> str:
    return page.relative_to(pages.ROOT).with_suffix("").as_posix()


def _link_folders(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let a link to a folder lead to its README, as on GitHub."""
    here = pages.ROOT / f"{docname}.md"
    for target in {f"{one}" for one in pages.targets(here) if one.endswith("/")}:
        if (here.parent / target / "README.md").exists():
            for end in ")#":
                source[0] = source[0].replace(f"]({target}{end}", f"]({target}README.md{end}")


def _add_navigation(app: Sphinx, doctree: nodes.document) -> None:
    """Add the pages below a README to the navigation."""
    docname = app.env.current_document.docname
    page = pages.ROOT / f"{docname}.md"
    parts = pages.parts() if page == pages.README else {"": pages.below(page)}
    for caption, listed in parts.items():
        if not listed:
            continue
        names = [_name(one) for one in listed]
        tree = addnodes.toctree(
            entries=[(None, name) for name in names],
            includefiles=names,
            parent=docname,
            caption=caption,
            rawcaption=caption,
            rawentries=[],
            maxdepth=-1,
            glob=False,
            hidden=True,
            includehidden=False,
            numbered=0,
            titlesonly=True,
        )
        next(doctree.findall(nodes.section)).append(
            nodes.compound("", tree, classes=["toctree-wrapper"])
        )


def _open_examples(app: Sphinx, doctree: nodes.document) -> None:
    """Open the examples in the browser; other files that are no pages are downloaded."""
    for link in list(doctree.findall(addnodes.download_reference)):
        target = link["reftarget"]
        if target.endswith(".html"):
            link.replace_self(nodes.reference("", "", *link.children, refuri=target))


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Copy the examples, and let each folder open at its README."""
    if error is not None:
        return
    out = Path(app.outdir)
    for example in (pages.DOCS / "examples").glob("*.html"):
        copy = out / example.relative_to(pages.ROOT)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(example, copy)
    for readme in out.rglob("README.html"):
        readme.with_name("index.html").write_text(
            '<!DOCTYPE html><meta charset="utf-8"><title>nftsync</title>'
            '<meta http-equiv="refresh" content="0; url=README.html">'
            '<a href="README.html">nftsync</a>\n',
            "utf-8",
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the functions above."""
    app.connect("source-read", _link_folders)
    app.connect("doctree-read", _add_navigation, priority=100)
    app.connect("doctree-read", _open_examples, priority=100)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
