"""Columns of amounts."""

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


#: Type of a frame's exact columns: Python integers, or `Int64`. None: `Int64` if the sum fits.
AmountKind: TypeAlias = "Literal['exact', 'int64'] | None"
_GREATEST = 2**63 - 1


@dataclass(frozen=True)
class Exact:
    """Column of exact integers from 0 up that stores each distinct value once.

    The last of `values` is None, so that code -1 is missing.
    """

    codes: npt.NDArray[np.integer]
    values: npt.NDArray[np.object_]

    @classmethod
    def of(cls, values: npt.NDArray[np.object_]) -> Exact:
        """Wrap Python integers and None."""
        return cls(np.arange(len(values)), np.append(values, [None]))

    def total(self) -> int:
        rows = np.bincount(self.codes % len(self.values), minlength=len(self.values))
        pairs = zip(rows.tolist(), self.values.tolist(), strict=True)
        return sum(count * value for count, value in pairs if value is not None)

    def objects(self) -> npt.NDArray[np.object_]:
        """Return Python integers and None."""
        column: npt.NDArray[np.object_] = self.values[self.codes]
        return column

    def integers(self) -> Any:
        """Return an `Int64` column; its values must fit 64 bits."""
        values = self.values.tolist()
        fitting = [-1 if value is None or value > _GREATEST else value for value in values]
        numbers = np.array(fitting, dtype=np.int64)[self.codes]
        return pd.arrays.IntegerArray(np.maximum(numbers, 0), numbers < 0)


def amount_columns(columns: Mapping[str, Exact], kind: AmountKind) -> dict[str, Any]:
    """Return exact columns of one type: by default `Int64` if no sum of all can overflow."""
    if kind not in ("exact", "int64", None):
        raise InputError(f"amounts={shown(kind)} is unknown; use 'exact', 'int64' or None")
    total = 0 if kind == "exact" else sum(column.total() for column in columns.values())
    if kind == "int64" and total > _GREATEST:
        raise InputError(
            f"amounts='int64': the sum of {' and '.join(columns)} is {total:,}, above the 64-bit"
            f" limit of {_GREATEST:,}. Read fewer rows, or omit amounts= to get Python integers"
        )
    if kind == "exact" or total > _GREATEST:
        return {name: column.objects() for name, column in columns.items()}
    return {name: column.integers() for name, column in columns.items()}


def amounts_as_sent(
    columns: Mapping[str, Amounts], kind: AmountKind, *, zeros: bool = True
) -> dict[str, Any]:
    exact = {name: column.exact(zeros=zeros) for name, column in columns.items()}
    texts = {f"{name}_text": column.text() for name, column in columns.items()}
    both = {**amount_columns(exact, kind), **texts}
    return {name: both[name] for column in columns for name in (column, f"{column}_text")}


class Amounts:
    """Column of amounts as text that parses each distinct text once."""

    def __init__(
        self, column: pa.Array, parts: tuple[npt.NDArray[np.int32], pa.Array] | None = None
    ) -> None:
        self._column = column
        self.codes, self._distinct = parts or coded(column)
        self._texts: list[str] = self._distinct.to_pylist()

    @classmethod
    def pair(cls, one: pa.Array, other: pa.Array) -> tuple[Amounts, Amounts]:
        """Return two columns whose codes refer to the same distinct texts."""
        both = cls(pa.concat_arrays([one, other]))
        first, second = np.split(np.arange(2 * len(one)), 2)
        return both[first], both[second]

    def __getitem__(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Amounts:
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return Amounts(self._column.take(pa.array(rows)), (self.codes[rows], self._distinct))

    def values(self) -> npt.NDArray[np.object_]:
        """Return amounts by code: 0 if not a holding, None if not a whole number.

        The last value is 0, so that code -1 is not a holding.
        """
        sizes = [0 if is_zero(amount) else exact(amount) for amount in self._texts]
        return np.array([*sizes, 0], dtype=object)

    def value_codes(self) -> Numbers:
        """Number equal amounts equally; 0: not a holding."""
        code_of: dict[int | str, int] = {0: 0}
        codes = [
            code_of.setdefault(amount if size is None else size, len(code_of))
            for amount, size in zip([*self._texts, ""], self.values(), strict=True)
        ]
        return np.array(codes)[self.codes]

    def exact(self, *, zeros: bool = True) -> Exact:
        """Return exact integers; without `zeros`, a zero is missing."""
        values = [exact(sent) if zeros or not is_zero(sent) else None for sent in self._texts]
        return Exact(self.codes, np.array([*values, None], dtype=object))

    def approximate(self) -> npt.NDArray[np.float64]:
        """Return floats; NaN unless the text is a plain decimal number within a float's range."""
        texts = [*self._texts, ""]
        values = np.array([float(x) if _DECIMAL.fullmatch(x) else math.nan for x in texts])
        values[np.isinf(values)] = math.nan
        return values[self.codes]

    def nonzero(self) -> npt.NDArray[np.bool_]:
        values = [*(not is_zero(amount) for amount in self._texts), False]
        return np.array(values)[self.codes]

    def text(self) -> Any:
        return text(self._column)


def sums_by_group(
    group: Numbers, amounts: npt.NDArray[np.object_], count: int
) -> npt.NDArray[np.object_]:
    rows = np.flatnonzero(pd.notna(amounts))
    rows = rows[np.argsort(group[rows], kind="stable")]
    sums = np.zeros(count, dtype=object)
    if len(rows):
        group = group[rows]
        starts = run_starts(group)
        sums[group[starts]] = np.add.reduceat(amounts[rows], starts)
    return sums
