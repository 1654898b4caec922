"""Columns of amounts: exact, approximate, and by group."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import coded, run_starts, text
from nftsync.columnar.filters import shown
from nftsync.columnar.source import Numbers
from nftsync.errors import InputError
from nftsync.exact_sum import exact, is_zero

_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?", re.ASCII)


def approximate(amount: str) -> float:
    """The nearest float of a plain decimal number; NaN of any other text, or past the range."""
    if _DECIMAL.fullmatch(amount) is None:
        return math.nan
    value = float(amount)
    return value if math.isfinite(value) else math.nan


#: What a frame's exact columns are to be: always Python integers, or never. None: as they fit.
AmountKind: TypeAlias = "Literal['exact', 'int64'] | None"
_GREATEST = 2**63 - 1


@dataclass(frozen=True)
class Exact:
    """A column of exact integers from 0 up, of which each distinct one stands there once.

    Attributes:
        codes: by row, where its value stands.
        values: Python integers, or None: missing. The last one, which code -1 finds, is None.
    """

    codes: npt.NDArray[np.integer]
    values: npt.NDArray[np.object_]

    @classmethod
    def of(cls, values: npt.NDArray[np.object_]) -> Exact:
        """A column of Python integers as they are; None: missing."""
        return cls(np.arange(len(values)), np.append(values, [None]))

    def total(self) -> int:
        """The sum of what is not missing."""
        rows = np.bincount(self.codes % len(self.values), minlength=len(self.values))
        pairs = zip(rows.tolist(), self.values.tolist(), strict=True)
        return sum(count * value for count, value in pairs if value is not None)

    def objects(self) -> npt.NDArray[np.object_]:
        """Python integers; None where missing."""
        found: npt.NDArray[np.object_] = self.values[self.codes]
        return found

    def integers(self) -> Any:
        """An `Int64` column, of values that fit; a value that no row has need not."""
        values = self.values.tolist()
        fitting = [-1 if one is None or one > _GREATEST else one for one in values]
        numbers = np.array(fitting, dtype=np.int64)[self.codes]
        return pd.arrays.IntegerArray(np.maximum(numbers, 0), numbers < 0)


def amount_columns(columns: Mapping[str, Exact], kind: AmountKind) -> dict[str, Any]:
    """Make a frame's columns of exact amounts: all `Int64`, or all Python integers.

    They are `Int64` where their sum fits 63 bits, so that no sum of some of them can wrap.

    Args:
        columns: all such columns of the frame, by name.
        kind: what the caller asked for.

    Raises:
        InputError: `kind` is none, or is "int64" and the sum does not fit.
    """
    if kind not in ("exact", "int64", None):
        raise InputError(f"amounts={shown(kind)} is unknown; give 'exact', 'int64' or None")
    total = 0 if kind == "exact" else sum(column.total() for column in columns.values())
    if kind == "int64" and total > _GREATEST:
        raise InputError(
            f"amounts='int64': the sum of {' and '.join(columns)} is {total:,}, more than 64-bit"
            f" integers can hold ({_GREATEST:,}); read fewer rows, or leave it out for exact"
            " Python integers"
        )
    if kind == "exact" or total > _GREATEST:
        return {name: column.objects() for name, column in columns.items()}
    return {name: column.integers() for name, column in columns.items()}


class Amounts:
    """A column of amounts, of which each distinct text is looked at once."""

    def __init__(
        self, column: pa.Array, parts: tuple[npt.NDArray[np.int32], pa.Array] | None = None
    ) -> None:
        self._column = column
        self.codes, self._distinct = parts or coded(column)
        self._texts: list[str] = self._distinct.to_pylist()

    @classmethod
    def pair(cls, one: pa.Array, other: pa.Array) -> tuple[Amounts, Amounts]:
        """Two columns as long as each other, whose codes are of the same distinct texts."""
        both = cls(pa.concat_arrays([one, other]))
        first, second = np.split(np.arange(2 * len(one)), 2)
        return both[first], both[second]

    def __getitem__(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Amounts:
        """The amounts of some rows, given by position or by a mask."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return Amounts(self._column.take(pa.array(rows)), (self.codes[rows], self._distinct))

    def values(self) -> npt.NDArray[np.object_]:
        """By code: 0 where it is no holding, None where it is no whole number, else how much.

        Code -1, of what is missing, finds the 0 that stands last.
        """
        sizes = np.empty(len(self._texts) + 1, dtype=object)
        sizes[:-1] = [0 if is_zero(amount) else exact(amount) for amount in self._texts]
        sizes[-1] = 0
        return sizes

    def value_codes(self) -> Numbers:
        """A number per row that is equal where amounts mean the same; 0 is no holding."""
        numbers: dict[int | str, int] = {0: 0}
        meant = [
            numbers.setdefault(amount if size is None else size, len(numbers))
            for amount, size in zip([*self._texts, ""], self.values(), strict=True)
        ]
        return np.array(meant)[self.codes]

    def exact(self, *, zeros: bool = True) -> Exact:
        """Exact integers; missing where the text is missing or not 1 to 100 ASCII digits.

        Args:
            zeros: whether a zero stays 0; False makes it missing.
        """
        values = np.empty(len(self._texts) + 1, dtype=object)
        values[:-1] = [exact(one) if zeros or not is_zero(one) else None for one in self._texts]
        return Exact(self.codes, values)

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


def sums_by_group(
    group: Numbers, amounts: npt.NDArray[np.object_], count: int
) -> npt.NDArray[np.object_]:
    """Sum the known amounts of each of `count` groups, exactly; 0 where none is known."""
    known = np.flatnonzero(pd.notna(amounts))
    known = known[np.argsort(group[known], kind="stable")]
    sums = np.zeros(count, dtype=object)
    if len(known):
        group = group[known]
        starts = run_starts(group)
        sums[group[starts]] = np.add.reduceat(amounts[known], starts)
    return sums
