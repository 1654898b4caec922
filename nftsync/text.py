"""Text from outside, made to act on nothing where it is printed."""

from __future__ import annotations

import re
import string

__all__ = ["neutralized", "visible"]


#: C0 and C1 controls (a terminal obeys them), line and paragraph separators, and the marks that
#: turn the direction of what follows.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Show control and direction characters as escapes, so that they act on nothing."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


#: What spreadsheets may skip before a formula: white space, controls, characters without width.
#: Tabs and line breaks are not among them here, as they are places where a cell could begin.
_SKIPPED = (
    "[\x00-\x08\x0b\x0c\x0e-\x20\x7f-\xa0\xad"
    "\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2069\u3000\ufeff]*"
)
#: What begins a formula, in its full-width and small forms too. A quote before it is one that this
#: module may have put there.
_FORMULA = f"'*{_SKIPPED}[=+\\-@＝＋－＠﹦﹢﹣﹫]"
_AT_START = re.compile(f"{_FORMULA}|'*[\t\r\n]")
#: A spreadsheet where a semicolon separates cells, as in much of Europe, splits the file there
#: whatever stands in quotes; a tab or a line break can begin a cell anew, too.
_SEPARATOR = re.compile("[;\t\r\n]")
_WITHIN = re.compile(f"{_SEPARATOR.pattern}(?={_FORMULA})")

#: What most cells begin with; a formula never does. Looked up before the slower expression.
_HARMLESS = frozenset(f"{string.ascii_letters}{string.digits}{{[") | {""}


def neutralized(cell: str) -> str:
    """Put a quote before each place where a spreadsheet could begin to run a formula.

    That is where the cell begins, and after a semicolon, a tab or a line break within it. What
    is quoted already is quoted again, so that taking one quote off each such place gives back what
    was there.
    """
    if _SEPARATOR.search(cell):
        cell = _WITHIN.sub(r"\g<0>'", cell)
    return f"'{cell}" if cell[:1] not in _HARMLESS and _AT_START.match(cell) else cell
