"""The change log between two times: what each wallet and token had before, and what after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nftsync.frames._amounts import Amounts, exact, is_zero
from nftsync.frames._change_log import GREATEST, change_log
from nftsync.frames._columns import Times, coded, moments, text
from nftsync.frames._source import Numbers, Source

__all__ = ["Meanings", "Side", "Window", "read_window"]


class Meanings:
    """What the distinct texts of a column of amounts mean.

    Attributes:
        sizes: by code, the amount as an exact integer, 0 where it is no holding, None where it is
            no whole number. Code -1 (not listed) finds the 0 that stands last.
        same: by code, a number that all texts of one meaning share; 0: no holding.
    """

    def __init__(self, distinct: list[str]) -> None:
        sizes = [*(0 if is_zero(amount) else exact(amount) for amount in distinct), 0]
        self.sizes = np.empty(len(sizes), dtype=object)
        self.sizes[:] = sizes
        numbers: dict[int | str, int] = {0: 0}
        self.same = np.array(
            [
                numbers.setdefault(amount if size is None else size, len(numbers))
                for amount, size in zip([*distinct, ""], sizes, strict=True)
            ]
        )


@dataclass(frozen=True)
class Side:
    """The amounts at one end of a window.

    Attributes:
        texts: as sent; null where the token was not listed.
        codes: which of the distinct texts each is; -1: not listed.
        meanings: what those mean, shared by both sides.
    """

    texts: pa.Array
    codes: npt.NDArray[np.int32]
    meanings: Meanings

    def same(self) -> Numbers:
        """A number per row that is equal where the amounts mean the same."""
        return self.meanings.same[self.codes]

    def held(self) -> npt.NDArray[np.bool_]:
        """Whether it is a holding."""
        return np.asarray(self.same() != 0)

    def exact(self) -> npt.NDArray[np.object_]:
        """Python integers; None where it is no holding, or no whole number."""
        sizes = self.meanings.sizes.copy()
        sizes[self.meanings.same == 0] = None
        return np.asarray(sizes[self.codes])

    def text(self) -> Any:
        """The column of a frame that shows them as they were sent."""
        return text(self.texts)

    def rows(self, which: npt.NDArray[np.bool_] | Numbers) -> Side:
        """Some rows, by mask or position."""
        return Side(self.texts.take(_places(which)), self.codes[which], self.meanings)


@dataclass(frozen=True)
class Window:
    """A row per wallet and token whose amount is not the same before and after.

    Attributes:
        wallets: the wallet's number.
        tokens: the token's number.
        before: the amounts when the window begins.
        after: the amounts when it ends.
        by_first_read: whether the first change was of the wallet's first read, and showed a
            holding.
        changed_at: when the last change was stored.
    """

    wallets: Numbers
    tokens: Numbers
    before: Side
    after: Side
    by_first_read: npt.NDArray[np.bool_]
    changed_at: Times

    def rows(self, which: npt.NDArray[np.bool_] | Numbers) -> Window:
        """Some rows, by mask or position."""
        return Window(
            self.wallets[which],
            self.tokens[which],
            self.before.rows(which),
            self.after.rows(which),
            self.by_first_read[which],
            self.changed_at[which],
        )


def read_window(source: Source, start: str, end: str | None) -> Window:
    """Compare two times by the changes in between.

    Args:
        source: where to read.
        start: the time before, in the stored form; changes of that time are not in between.
        end: the time after; changes of that time are in between. None is now.
    """
    log = "balance_change_rows"
    first_change = source.first_change(log, start, later=True)
    last_change = GREATEST
    if end is not None:
        last_change = source.first_change(log, end, later=True) - 1
    _, wallet, token, old, new, observed, baseline = source.table(
        change_log(
            *("wallet_no", "token_no", "old_amount", "new_amount", "observed_at", "baseline"),
            first=first_change,
            last=last_change,
        )
    )
    wallets, tokens = wallet.to_numpy(), token.to_numpy()
    first, last = _ends(wallets, tokens)
    before, after = _sides(old.take(pa.array(first)), new.take(pa.array(last)))
    shown = Amounts(new.take(pa.array(first))).nonzero()
    whole = Window(
        wallets=wallets[first],
        tokens=tokens[first],
        before=before,
        after=after,
        by_first_read=(baseline.to_numpy()[first] != 0) & shown,
        changed_at=moments(observed.take(pa.array(last))),
    )
    return whole.rows(before.same() != after.same())


def _ends(wallets: Numbers, tokens: Numbers) -> tuple[Numbers, Numbers]:
    """Where the first and the last change of each wallet and token stand, which come in order."""
    pairs = wallets * (tokens.max(initial=0) + 1) + tokens
    order = np.argsort(pairs, kind="stable")
    differs = np.diff(pairs[order]) != 0
    edge = np.ones(min(len(order), 1), dtype=bool)
    return order[np.concatenate([edge, differs])], order[np.concatenate([differs, edge])]


def _sides(before: pa.Array, after: pa.Array) -> tuple[Side, Side]:
    codes, distinct = coded(pa.concat_arrays([before, after]))
    meanings = Meanings(distinct.to_pylist())
    return (
        Side(before, codes[: len(before)], meanings),
        Side(after, codes[len(before) :], meanings),
    )


def _places(which: npt.NDArray[np.bool_] | Numbers) -> pa.Array:
    return pa.array(np.flatnonzero(which) if which.dtype == np.bool_ else which)
