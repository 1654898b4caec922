"""Rows of the table in `docs/develop/performance.md`."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A measurement, for example "first sync, 5,000 wallets x 20" with the figure "3.8 s".

    `ratio` compares it ("5.3 times as fast as dlt"). `met` is None without a target.
    """

    what: str
    figure: str
    ratio: str = ""
    target: str = ""
    met: bool | None = None
