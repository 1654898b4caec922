"""Groups of rows, by number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nftsync.frames._source import Numbers

__all__ = ["distinct_in_each", "first_of_each", "numbered_together", "sums_in_each"]


def numbered_together(*columns: npt.NDArray[np.integer]) -> Numbers:
    """Give the same number, from 0 in the order they come, to rows that agree in some columns.

    Args:
        columns: numbers; from -1 up in all columns but the first.
    """
    first, *rest = columns
    numbers: Numbers = pd.factorize(first)[0]
    for column in rest:
        width = int(column.max(initial=-1)) + 2
        numbers, _ = pd.factorize(numbers * width + column + 1)
    return numbers


def first_of_each(group: Numbers) -> Numbers:
    """The first row of each group, of groups that are numbered from 0 without a gap."""
    first = np.zeros(group.max(initial=-1) + 1, dtype=np.int64)
    # Of several rows the last that is written stays: the first of the column.
    first[group[::-1]] = np.arange(len(group))[::-1]
    return first


def distinct_in_each(group: Numbers, number: npt.NDArray[np.integer], count: int) -> Numbers:
    """Count the distinct numbers, from 0 up, of each of `count` groups."""
    width = int(number.max(initial=0)) + 1
    # Sorted by hand, as np.unique hashes, which takes five times as long here.
    key = np.sort(group * width + number)
    first = np.append(True, key[1:] != key[:-1])[: len(key)]
    return np.bincount(key[first] // width, minlength=count)


def sums_in_each(
    group: Numbers, amounts: npt.NDArray[np.object_], count: int
) -> npt.NDArray[np.object_]:
    """Sum the known amounts of each of `count` groups, exactly; 0 where none is known."""
    known = np.flatnonzero(pd.notna(amounts))
    known = known[np.argsort(group[known], kind="stable")]
    sums = np.zeros(count, dtype=object)
    if len(known):
        group = group[known]
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        sums[group[starts]] = np.add.reduceat(amounts[known], starts)
    return sums
