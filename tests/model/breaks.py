"""The breaks of `breaks.txt`: each replaces code that occurs once in the package.

A block has a description, the code (`-`), its replacement (`+`), and for a break that changes no
behavior the reason (`=`). White space and the place of the code do not count.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Break(NamedTuple):
    """A replacement of code."""

    what: str
    old: str
    new: str
    reason: str

    def apply(self) -> tuple[str, str]:
        """Return the file, from the root, and its broken text; LookupError unless there is one."""
        old, new = self.old.split(), self.new.split()
        start = min(_common(old, new), len(old) - 1)
        end = min(_common(old[:start:-1], new[start:][::-1]), len(new) - start)
        before, middle, after = old[:start], old[start : len(old) - end], old[len(old) - end :]
        patterns = [r"\s+".join(map(re.escape, part)) for part in (before, middle, after)]
        code = re.compile(r"\s+".join(filter(None, [patterns[0], f"({patterns[1]})", patterns[2]])))
        places = [(file, match) for file, text in _package() for match in code.finditer(text)]
        if len(places) != 1:
            raise LookupError(f"{self.what}: the code occurs {len(places)} times: {self.old}")
        file, match = places[0]
        text = match.string
        replacement = " ".join(new[start : len(new) - end])
        return file, text[: match.start(1)] + replacement + text[match.end(1) :]


def _common(words: list[str], others: list[str]) -> int:
    """Return the number of equal words at the start."""
    pairs = zip(words, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@cache
def _package() -> list[tuple[str, str]]:
    files = sorted((ROOT / "nftsync").rglob("*.py"))
    return [(str(file.relative_to(ROOT)), file.read_text()) for file in files]


def read_breaks() -> list[Break]:
    blocks = Path(__file__).with_suffix(".txt").read_text().strip().split("\n\n")
    breaks = []
    for what, *lines in (block.splitlines() for block in blocks):
        parts = dict.fromkeys("-+=", "")
        for line in lines:
            parts[line[0]] = line[2:]
        breaks.append(Break(what, *parts.values()))
    return breaks
