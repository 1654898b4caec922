"""Text of strangers, made fit to be shown: one line, bounded, and without marks that mislead."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["clean"]

#: Controls, marks that turn the direction of what follows, and characters without width. The two
#: joiners stay: emoji and several scripts are written with them.
_DROPPED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_JOINERS = "\u200c\u200d"


def clean(value: Any, most: int) -> str | None:
    """Make a cell's text one line of at most `most` characters; None if nothing can be seen of it.

    Args:
        value: text, an integer, or whatever a frame's cell holds.
        most: characters; what is longer is cut and ends in `…`.
    """
    # Far more than is kept is never looked at, so that long texts cost nothing.
    text = str(value)[: most * 4 + 1000]
    text = _SURROGATE.sub("\ufffd", _DROPPED.sub("", text))
    text = " ".join(text.split())
    if not text.strip(_JOINERS):
        return None
    return text if len(text) <= most else f"{text[: most - 1]}…"
