"""One line of the report: what was measured, what came out, and whether that is enough."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Figure"]


class Figure(NamedTuple):
    """A line of `docs/develop/performance.md`.

    Attributes:
        what: what was measured ("first sync, 5,000 wallets x 20").
        figure: what came out, with its unit ("1,900 wallets/s").
        ratio: what it is compared with, and how it compares ("5.3 times dlt"); empty: nothing.
        target: what it should be ("at least 5"); empty: told for information.
        met: whether it is; None where there is no target.
    """

    what: str
    figure: str
    ratio: str = ""
    target: str = ""
    met: bool | None = None
