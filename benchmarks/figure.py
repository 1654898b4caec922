"""Rows of the table in `docs/develop/performance.md`."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A measurement.

    Attributes:
        ratio: in comparison with another measurement.
        met: whether it meets the target; None without a target.
        listed: whether users wait for it, so that the document has its row.
    """

    what: str
    figure: str
    ratio: str = ""
    target: str = ""
    met: bool | None = None
    listed: bool = True
