"""Text from outside, made to act on nothing where it is printed."""

from __future__ import annotations

import re

__all__ = ["visible"]

#: C0 and C1 controls (a terminal obeys them), line and paragraph separators, and the marks that
#: turn the direction of what follows.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Show control and direction characters as escapes, so that they act on nothing."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
