"""Amounts: text as the provider sent it, exact integers, and an approximation for plots."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nftsync.frames._columns import coded, text

__all__ = ["Amounts", "approximate", "exact", "is_zero"]

_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?", re.ASCII)
_MOST_DIGITS = 100


def exact(amount: str) -> int | None:
    """The integer that a text of 1 to 100 ASCII digits names, else None."""
    if len(amount) <= _MOST_DIGITS and amount.isascii() and amount.isdigit():
        return int(amount)
    return None


def approximate(amount: str) -> float:
    """The nearest float of a plain decimal number; NaN of any other text, or past the range."""
    if _DECIMAL.fullmatch(amount) is None:
        return math.nan
    value = float(amount)
    return value if math.isfinite(value) else math.nan


def is_zero(amount: str) -> bool:
    """Whether a balance of this amount is no holding: one or more `0` and nothing else."""
    return amount != "" and not amount.strip("0")


class Amounts:
    """A column of amounts, of which each distinct text is looked at once."""

    def __init__(
        self, column: pa.Array, parts: tuple[npt.NDArray[np.int32], pa.Array] | None = None
    ) -> None:
        self._column = column
        self.codes, self._distinct = parts or coded(column)
        self._texts: list[str] = self._distinct.to_pylist()

    def __len__(self) -> int:
        return len(self._column)

    def chosen(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Amounts:
        """The amounts of some rows, given by position or by a mask."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return Amounts(self._column.take(pa.array(rows)), (self.codes[rows], self._distinct))

    def exact(self) -> npt.NDArray[np.object_]:
        """Python integers; None where the text is missing or not 1 to 100 ASCII digits."""
        # None stands last, where code -1 finds it.
        values = np.empty(len(self._texts) + 1, dtype=object)
        values[:-1] = [exact(amount) for amount in self._texts]
        return values[self.codes]

    def approximate(self) -> npt.NDArray[np.float64]:
        """Floats; NaN where the text is missing or no plain decimal number."""
        values = [*map(approximate, self._texts), math.nan]
        return np.array(values)[self.codes]

    def nonzero(self) -> npt.NDArray[np.bool_]:
        """Whether each is there and is a holding."""
        values = [*(not is_zero(amount) for amount in self._texts), False]
        return np.array(values)[self.codes]

    def text(self) -> Any:
        """The column of a frame that shows them as they were sent."""
        return text(self._column)
