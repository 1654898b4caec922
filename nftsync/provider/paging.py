"""Headers that indicate more pages of a list; the provider's document shows no paging."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

_NEXT_LINK = re.compile(r';\s*rel\s*=\s*(?:"[^"]*)?(?<![\w-])next(?![\w-])', re.IGNORECASE)
_RANGE = re.compile(r"\s*[\w-]+ ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})\s*")
_DIGITS = re.compile(r"[0-9]{1,18}")


class PagePosition(NamedTuple):
    """A page's number, and the entries before it and up to its end."""

    page: int
    before: int
    until: int


def _content_range(value: str, position: PagePosition) -> bool:
    match = _RANGE.fullmatch(value)
    return match is None or int(match[1]) > position.before or int(match[2]) + 1 < int(match[3])


def _count(value: str) -> int:
    return int(value) if _DIGITS.fullmatch(value) else 0


#: Paging headers, and whether a value indicates more: RFC 8288, RFC 9110 (14.4), and custom ones.
PAGING_HEADERS: dict[str, Callable[[str, PagePosition], bool]] = {
    "link": lambda value, _: _NEXT_LINK.search(value) is not None,
    "content-range": _content_range,
    "x-total-count": lambda value, position: _count(value) > position.until,
    "x-total-pages": lambda value, position: _count(value) > position.page,
    "x-next-page": lambda value, _: value.strip() != "",
    "x-has-more": lambda value, _: value.strip().lower() not in {"", "false", "no", "0"},
}


def continuation_header(
    headers: Mapping[str, str], ignored: Collection[str], position: PagePosition
) -> str | None:
    for name, indicates_more in PAGING_HEADERS.items():
        value = None if name in ignored else headers.get(name)
        if value is not None and indicates_more(value, position):
            return f"the header {name.title()}: {value[:80]!r}"
    return None
