"""Rows of the table in `docs/develop/performance.md`."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A measurement. `ratio` compares it with another one; `met` is None without a target."""

    what: str
    figure: str
    ratio: str = ""
    target: str = ""
    met: bool | None = None
