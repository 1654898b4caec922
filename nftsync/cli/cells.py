"""Cells of tables in a terminal."""

from __future__ import annotations

import os
import sys
import unicodedata

import click

from nftsync.text import MISSING

#: The left-to-right mark keeps the order where a terminal drops an isolate at the start of a line.
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069\u200e"
_JOINER = "\u200d"
#: Bidirectional classes of characters that are written from right to left.
_RIGHT_TO_LEFT = {"R", "AL"}
#: Colors of states, of kinds of transfers, and of certainties.
_COLORS = {
    **dict.fromkeys(("ok", "done", "received", "mint", "bracketed"), "green"),
    **dict.fromkeys(("failed", "FAILED", "dead", "sent", "burn", "exit"), "red"),
    **dict.fromkeys(("incomplete", "partial", "quarantined", "unrouted", "gap"), "yellow"),
    **dict.fromkeys(("warning", "interrupted", "pending", "running", "never", "open"), "yellow"),
}


def length(text: str) -> int:
    """Return a text's number of terminal cells."""
    if text.replace("…", "").replace(MISSING, "").isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut_middle(text: str, width: int) -> str:
    """Cut a text in its middle to `width` cells; a number at its end stays whole."""
    from rich.cells import set_cell_size

    if length(text) <= width:
        return text
    last = text.rpartition(" ")[2]
    number = length(last) if any(character.isdigit() for character in last) else 0
    tail = _end(text, min(max(2 * (width - 1) // 5, number), width - 4))
    head = set_cell_size(text, width - 1 - length(tail)).rstrip(f" {_JOINER}")
    return f"{head}…{tail}"


def _end(text: str, width: int) -> str:
    # Without spaces before it, or a mark whose letter is cut off.
    end = text[-4 * width :]
    while end and (
        length(end) > width
        or unicodedata.category(end[0])[0] == "M"
        or end[0] == _JOINER
        or end[0].isspace()
    ):
        end = end[1:]
    return end


def wrapped_lines(text: str, width: int) -> list[str]:
    """Wrap a text to `width` cells."""
    from rich.console import Console
    from rich.text import Text

    return [str(line).rstrip() for line in Text(text).wrap(Console(), width)]


def isolated(text: str) -> str:
    """Isolate a right-to-left text, so that the cells beside it keep their order."""
    if text.isascii() or _RIGHT_TO_LEFT.isdisjoint(map(unicodedata.bidirectional, text)):
        return text
    return f"{_ISOLATE}{text}{_END_OF_ISOLATE}"


def colored(state: str) -> str:
    """Color a state on a terminal that shows colors."""
    color = _COLORS.get(state)
    if color is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return state
    return state if os.environ.get("TERM") == "dumb" else click.style(state, fg=color)
