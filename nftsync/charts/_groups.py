"""Rows of holdings in groups, of which the largest are shown and the rest together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nftsync.errors import InputError
from nftsync.frames._columns import coded
from nftsync.frames._contracts import contract_groups
from nftsync.frames._given import need_columns, text_column
from nftsync.frames._source import Numbers

__all__ = ["Groups", "Held", "codes_of", "folded", "grouped", "largest"]


@dataclass(frozen=True)
class Groups:
    """Which group each row is of.

    Attributes:
        codes: the number of each row's group.
        values: by number, what the group has in common; None where it is missing.
    """

    codes: Numbers
    values: list[Any]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Held:
    """Holdings, whose ids are numbered once, as that takes long.

    Attributes:
        frame: a row per wallet and token.
        wallets: the number of each row's wallet.
        tokens: the number of each row's token.
    """

    frame: pd.DataFrame
    wallets: Numbers
    tokens: Numbers

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Held:
        """Number the ids of a frame."""
        return cls(frame, codes_of(frame, "wallet_id"), codes_of(frame, "token_id"))

    def pairs(self) -> Numbers:
        """A number for each wallet and token, which a caller's frame may name twice."""
        return self.wallets * (int(self.tokens.max(initial=0)) + 1) + self.tokens


def grouped(frame: pd.DataFrame, by: str) -> Groups:
    """Group rows by a column; contract addresses whatever the case of their hex digits.

    Raises:
        InputError: there is no such column, or what it holds cannot be grouped.
    """
    need_columns(frame, [by])
    if by == "contract_address":
        codes, spellings = contract_groups(text_column(frame, by))
        return Groups(codes, spellings.to_pylist())
    try:
        codes, distinct = pd.factorize(frame[by])
    except TypeError as error:
        raise InputError(f"cannot group by {by!r}: {error}") from None
    values = [*distinct.tolist(), None]
    return Groups(np.where(codes < 0, len(values) - 1, codes).astype(np.int64), values)


def largest(sizes: Sequence[npt.NDArray[np.int64]], names: Sequence[Any], top: int) -> Numbers:
    """Number the groups that are shown, the largest first; groups without a row are left out.

    Args:
        sizes: by group; the first decides, the others where it is the same.
        names: by group; they decide in the end.
        top: how many may be shown.
    """
    first = sizes[0]
    least = max(1, int(np.sort(first)[-top:].min(initial=1)))

    def rank(group: int) -> tuple[list[int], str]:
        return [-int(size[group]) for size in sizes], str(names[group])

    return np.array(nsmallest(top, np.flatnonzero(first >= least).tolist(), rank), dtype=np.int64)


def folded(codes: Numbers, shown: Numbers, count: int) -> Numbers:
    """Number each row's group by its place among those that are shown; all others come after."""
    place = np.full(count, len(shown), dtype=np.int64)
    place[shown] = np.arange(len(shown))
    return place[codes]


def codes_of(frame: pd.DataFrame, name: str) -> Numbers:
    """Number the distinct texts of a column, such as ids."""
    codes, _ = coded(text_column(frame, name))
    return codes.astype(np.int64)
