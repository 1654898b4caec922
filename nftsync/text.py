"""Text for people: unsafe characters escaped, quoting, counts, short ids."""

from __future__ import annotations

import os
import re
import string
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from urllib.parse import SplitResult


#: What stands where a value is missing or blank, in what is shown.
MISSING = "–"

#: What must not reach a screen: controls (a terminal obeys them), line and paragraph separators,
#: marks that turn the direction of what follows, characters without width, and surrogates.
#: Joiners and tags are not among them: emoji and several scripts are written with them.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffc]"
)


def shown_with(problem: str, value: object) -> str:
    """Return a problem and the value that has it, in one short line."""
    if isinstance(value, dict | list):
        shown = "a table" if isinstance(value, dict) else "a list"
    elif isinstance(value, bool):
        shown = str(value).lower()
    else:
        shown = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return f"{problem}, not {shown if len(shown) <= 80 else shown[:77] + '...'}"


def counted(number: int, one: str) -> str:
    """A whole number and what it counts: `1 wallet`, `2 wallets`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


#: Characters of a person's text that an error repeats.
_QUOTED = 60


def quoted(text: str) -> str:
    """Return a text that a person gave as an error repeats it: in quotes, and cut short."""
    return repr(text) if len(text) <= _QUOTED else f"{text[:_QUOTED]!r}..."


def size(number: int) -> str:
    """A number of bytes as it is read: `17 bytes`, `1.2 GB`."""
    shown = float(number)
    for unit in ("", "kB", "MB", "GB"):
        if shown < 999.95:
            return f"{shown:.1f} {unit}" if unit else counted(number, "byte")
        shown /= 1000
    return f"{shown:,.1f} TB"


#: Units of time, the longest first: seconds, word, symbol.
_UNITS = ((86_400, "day", "d"), (3_600, "hour", "h"), (60, "minute", "min"), (1, "second", "s"))


def lasting(seconds: float, *, symbols: bool = False) -> str:
    """A length of time in its largest whole unit: `3 minutes`, or `3 min` with symbols."""
    for size_of_one, word, symbol in _UNITS:
        if seconds >= size_of_one:
            number = int(seconds // size_of_one)
            return f"{number} {symbol}" if symbols else counted(number, word)
    return "less than 1 s" if symbols else "less than a second"


def visible(text: str) -> str:
    """Show what must not reach a screen as escapes, so that it acts on nothing."""
    return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def escaped_json(encoded: bytes) -> bytes:
    r"""Escape what must not reach a screen as `\uXXXX` in JSON on one line; the value stays."""
    if encoded.isascii() and b"\x7f" not in encoded:  # JSON escapes the other ASCII controls
        return encoded
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode()).encode()


def without_controls(text: str, instead: str = "") -> str:
    """Text as one line, without what must not reach a screen.

    Args:
        text: anything; line breaks and other white space become single spaces.
        instead: what takes the place of each character that goes.
    """
    return " ".join(_UNSAFE.sub(instead, " ".join(text.split())).split())


def cut_line(text: str, longest: int) -> str:
    """Text as one line of at most so many characters; what is longer ends in `…`."""
    # Cut first: what cannot be shown may be very long.
    line = without_controls(text[: 16 * longest], " ")
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_string(text: str) -> str:
    """A text as a TOML basic string on one line."""
    return '"' + _UNSAFE.sub(_toml_escape, re.sub(r'["\\]', r"\\\g<0>", text)) + '"'


def _toml_escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\u{number:04X}" if number < 0x10000 else f"\\U{number:08X}"


def toml_key(name: str) -> str:
    """A name as TOML wants it in a table's heading."""
    return name if _BARE_KEY.fullmatch(name) else toml_string(name)


_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+")


def http_url(url: str) -> SplitResult | None:
    """The parts of an http or https URL that one can connect to; None: it is no such URL."""
    from urllib.parse import urlsplit  # not at import: all that nftsync raises needs this module

    try:
        parts = urlsplit(url)
        usable = parts.port != 0 and _HOST.fullmatch(parts.hostname or "") is not None
    except ValueError:
        return None
    usable = usable and url.isprintable() and re.search(r"[\s\\]", url) is None
    return parts if usable and parts.scheme in {"http", "https"} else None


_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")


def header_problem(name: str, value: str) -> Literal["name", "value"] | None:
    """Which part of a header HTTP cannot carry; None: it carries both."""
    if _HEADER_NAME.fullmatch(name) is None:
        return "name"
    return "value" if _HEADER_VALUE.fullmatch(value) is None else None


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


#: How deep JSON from outside may nest; what reads it again may have less stack to spare.
DEEPEST_JSON = 200
# A text without an end goes to the document's end: searched for anew from each of its quotes, that
# end would take time with the square of the size.
_NO_BRACKET = re.compile(rb'(?s)"(?:[^"\\]++|\\.)*+"?|[^\[\]{}]')


def nests_too_deeply(document: bytes) -> bool:
    """Whether JSON, or what may be none, nests over `DEEPEST_JSON` levels deep."""
    if document.count(b"{") + document.count(b"[") <= DEEPEST_JSON:
        return False
    depth = deepest = 0
    for byte in _NO_BRACKET.sub(b"", document):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest > DEEPEST_JSON


def repeated_key(pairs: list[tuple[str, Any]]) -> str | None:
    """The first key of a JSON object that stands in it twice; None: each stands once."""
    if len(dict(pairs)) == len(pairs):
        return None
    counts = Counter(name for name, _ in pairs)
    return next(name for name, count in counts.items() if count > 1)


def short_id(text: str, more: int = 0) -> str:
    """An id or an address by its two ends: `8d1cc10a…66aa`, `0x8f4f…8e63`; whole where it is short.

    Args:
        text: what may be shown.
        more: how many times four characters more of each end are wanted.
    """
    head, tail = (6, 4) if text.startswith("0x") else (8, 4)
    head, tail = head + 4 * more, tail + 4 * more
    return text if len(text) <= max(20, head + tail) else f"{text[:head]}…{text[-tail:]}"
