"""Write llms.txt: the pages for agents, each with its first sentence, in the form of llmstxt.org.

python docs/site/make_llms.py            # or: make reference
python docs/site/make_llms.py --check    # fail if it is out of date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pages
from markdown_it import MarkdownIt
from markdown_it.token import Token

_FILE = pages.ROOT / "llms.txt"
#: The first sentences: as many as say something.
_SENTENCE = re.compile(r".{40,}?[.!?](?=\s|$)", re.DOTALL)
_PARSER = MarkdownIt("commonmark").enable("table")


def llms() -> str:
    """Return the text of the file."""
    title, summary = _start(pages.README)
    parts = [f"# {title}\n", f"> {summary}"]
    heading = section = ""
    for depth, page in pages.walk():
        if depth == 0 and page.name == "README.md":
            section = _start(page)[0]
        elif depth == 0:
            section = "Start" if page.parent == pages.DOCS else "Project"
        if section != heading:
            heading = section
            parts.append(f"\n## {heading}\n")
        title, sentence = _start(page)
        parts.append(f"- [{title}]({page.relative_to(pages.ROOT).as_posix()}): {sentence}")
    return "\n".join([*parts, ""])


def _start(page: Path) -> tuple[str, str]:
    """Return a page's title and its first sentence; a page that lists others has their titles."""
    title = ""
    for kind, text in _blocks(_PARSER.parse(page.read_text("utf-8"))):
        if kind == "h1":
            title = text
        elif title and kind == "p":
            sentence = _SENTENCE.match(text)
            return title, sentence[0] if sentence else f"{text.rstrip(':.')}."
        elif title:
            break
    return title, f"{', '.join(_start(one)[0] for one in pages.below(page)) or title}."


def _blocks(tokens: list[Token]) -> Iterator[tuple[str, str]]:
    """Yield the tag and the text of each top block that is not a comment or a picture."""
    for opened, inner in pairwise(tokens):
        if opened.level or opened.nesting != 1:
            continue
        text = "".join(_text(one) for one in inner.children or ())
        if text or inner.type != "inline":
            yield opened.tag, text


def _text(token: Token) -> str:
    if token.type == "softbreak":
        return " "
    if token.type == "code_inline":
        return f"`{token.content}`"
    return token.content if token.type == "text" else ""


def main() -> int:
    """Write the file, or with --check compare it."""
    text = llms()
    if "--check" in sys.argv[1:]:
        if is_old := not _FILE.exists() or _FILE.read_text("utf-8") != text:
            print("llms.txt is out of date: make reference")
        return int(is_old)
    _FILE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
