"""Text made safe for terminals, URLs and headers; also quoting, units and short ids."""

from __future__ import annotations

import codecs
import json
import os
import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from urllib.parse import SplitResult


#: Placeholder for a missing or blank value.
MISSING = "–"

#: Characters that are unsafe on a screen: controls (a terminal obeys them), line and paragraph
#: separators, marks that change the text's direction, characters without width, and surrogates.
#: Joiners and tags are safe: emoji and several scripts need them.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffc]"
)


#: Texts that are one safe line.
_PLAIN = re.compile("[!-~…]+(?: [!-~…]+)*")
#: A character that a reader sees: no white space, joiner, variation selector, filler or tag.
_SEEN = re.compile(
    r"[^\s\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\U000e0000-\U000e0fff]"
)


def shown_with(problem: str, value: object) -> str:
    """Return a problem with its value in one short line."""
    if isinstance(value, dict | list):
        shown = "a table" if isinstance(value, dict) else "a list"
    elif isinstance(value, bool):
        shown = str(value).lower()
    else:
        shown = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return f"{problem}, not {shown if len(shown) <= 80 else shown[:77] + '...'}"


def counted(number: int, one: str) -> str:
    """Return a number with its noun: `1 wallet`, `2 wallets`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


#: Longest quotation of the user's text in an error.
_QUOTED = 60


def quoted(text: str) -> str:
    """Return the user's text for an error, shortened."""
    return repr(text) if len(text) <= _QUOTED else f"{text[:_QUOTED]!r}..."


def matching(name: str, names: Iterable[str]) -> set[str]:
    """Return the names that equal `name`, in any case if none does."""
    names = {*names}
    return names & {name} or {other for other in names if other.casefold() == name.casefold()}


#: Units of time, the longest first: seconds, word, symbol.
_UNITS = ((86_400, "day", "d"), (3_600, "hour", "h"), (60, "minute", "min"), (1, "second", "s"))


def lasting(seconds: float, *, symbols: bool = False) -> str:
    """Return a duration in its largest whole unit: `3 minutes` or `3 min`."""
    for size_of_one, word, symbol in _UNITS:
        if seconds >= size_of_one:
            number = int(seconds // size_of_one)
            return f"{number} {symbol}" if symbols else counted(number, word)
    return "less than 1 s" if symbols else "less than a second"


def visible(text: str) -> str:
    """Show unsafe characters as escapes."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def escaped_json(encoded: bytes) -> bytes:
    r"""Show unsafe characters in one-line JSON as `\uXXXX`, with the same value."""
    if encoded.isascii() and b"\x7f" not in encoded:  # JSON escapes the other ASCII controls
        return encoded
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", encoded.decode()).encode()


def decoded(content: bytes, errors: str = "strict") -> str:
    """Decode and strip a file's or program's text, also with a byte order mark."""
    # PowerShell writes UTF-16 with its mark.
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig", errors).strip()


def without_controls(text: str, instead: str = "") -> str:
    return " ".join(_UNSAFE.sub(instead, " ".join(text.split())).split())


def cut_line(text: str, longest: int) -> str:
    # Cut first: the text may be very long.
    line = without_controls(text[: 16 * longest], " ")
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


#: Longest error of another server.
_LONGEST_ERROR = 300


def error_text(text: str, secret: str) -> str:
    """Return an error of another server as one safe line, without words of a secret."""
    safe = re.sub(r"[\w-]{4,}", lambda word: "…" if word[0] in secret else word[0], text)
    return cut_line(safe, _LONGEST_ERROR)


def seen_line(text: str | None, longest: int) -> str:
    """Return `cut_line`, or nothing if a reader sees nothing of it."""
    if not text:
        return ""
    if len(text) <= longest and _PLAIN.fullmatch(text):  # nearly always
        return text
    line = cut_line(text, longest)
    return line if _SEEN.search(line) else ""


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_string(text: str) -> str:
    return escaped_json(json.dumps(text, ensure_ascii=False).encode()).decode()


def toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_string(name)


_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+")


def http_url(url: str) -> SplitResult | None:
    """Return the parts of a usable http or https URL, or None."""
    from urllib.parse import urlsplit  # not at import: every error of nftsync imports this module

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
    """Return the part of a header that HTTP cannot carry."""
    if _HEADER_NAME.fullmatch(name) is None:
        return "name"
    return "value" if _HEADER_VALUE.fullmatch(value) is None else None


#: Deepest JSON to accept from outside; later readers may have less stack to spare.
DEEPEST_JSON = 200
# The closing quote is optional: otherwise an unterminated string would be searched again from each
# of its quotes, in quadratic time.
_BRACKET = re.compile(r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*"?|[\[\]{}]')


def nests_too_deeply(document: str) -> bool:
    return cut_deep(document, DEEPEST_JSON, "") != document


def cut_deep(document: str, deepest: int, instead: str = "[]") -> str:
    """Replace arrays and objects deeper than `deepest` levels.

    Spaces follow `instead` up to the length of the replaced text.
    """
    if document.count("{") + document.count("[") <= deepest:
        return document
    depth = end = 0
    parts: list[str] = []
    for match in _BRACKET.finditer(document):
        if match[0] in {"[", "{"}:
            depth += 1
            if depth == deepest + 1:
                parts.append(document[end : match.start()])
                end = match.start()
        elif match[0] in {"]", "}"}:
            if depth == deepest + 1:
                parts.append(instead.ljust(match.end() - end))
                end = match.end()
            depth -= 1
    if depth <= deepest:  # otherwise the document is cut short
        parts.append(document[end:])
    return "".join(parts)


#: An address, a UUID, a digest, or the id of a quarantined webhook.
ID = re.compile(
    "0x[0-9a-f]{40}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:q-)?[0-9a-f]{64}", re.IGNORECASE
)


def id_key(text: str) -> str:
    """Return an id in one spelling, and other text as it is."""
    return text.lower() if ID.fullmatch(text) else text


def short_id(text: str, more: int = 0, *, head: int | None = None) -> str:
    """Return the two ends of a long id (`8d1cc10a…66aa`, `0x8f4f…8e63`), or a short id whole.

    Each step of `more` lengthens both ends by four characters.
    """
    head, tail = (head or (6 if text.startswith("0x") else 8)) + 4 * more, 4 + 4 * more
    return text if len(text) <= max(20, head + tail) else f"{text[:head]}…{text[-tail:]}"
