"""Where one wallet's loss is just another's gain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nftsync.frames._source import Numbers
from nftsync.frames._window import Window

__all__ = ["counterparties"]


def counterparties(window: Window) -> Numbers:
    """Find the other side of each loss and gain.

    For a token and an amount, exactly one wallet lost it and exactly one gained it.

    Args:
        window: a row per wallet and token; amounts that are no whole numbers take no part.

    Returns:
        By row, the number of the other wallet; -1: there is none, or more than one.
    """
    moved, gained = _movements(window)
    found = np.full(len(moved), -1)
    known = np.flatnonzero(moved >= 0)
    if not len(known):
        return found
    wallets, gains = window.wallets[known], gained[known]
    keys = window.tokens[known] * (moved.max() + 1) + moved[known]
    _, group = np.unique(keys, return_inverse=True)
    gainer, loser = _the_only(group, gains, wallets), _the_only(group, ~gains, wallets)
    both = (gainer >= 0) & (loser >= 0)
    found[known] = np.where(both[group], np.where(gains, loser[group], gainer[group]), -1)
    return found


def _the_only(group: Numbers, rows: npt.NDArray[np.bool_], wallets: Numbers) -> Numbers:
    """By group, the wallet of its one row among some; -1 where there is none or more."""
    count = int(group.max()) + 1
    only = np.full(count, -1)
    only[group[rows]] = wallets[rows]
    only[np.bincount(group[rows], minlength=count) != 1] = -1
    return only


def _movements(window: Window) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """By row, a number that stands for how much moved (-1: unknown), and whether it was a gain.

    Each distinct pair of amounts is subtracted once: they are integers of any size.
    """
    sizes = window.before.meanings.sizes
    pairs = window.before.codes.astype(np.int64) * len(sizes) + window.after.codes
    distinct, first, row = np.unique(pairs, return_index=True, return_inverse=True)
    numbers: dict[int, int] = {}
    moved = np.full(len(distinct), -1)
    gained = np.zeros(len(distinct), dtype=bool)
    before, after = sizes[window.before.codes[first]], sizes[window.after.codes[first]]
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old is not None and new is not None:
            moved[place] = numbers.setdefault(abs(new - old), len(numbers))
            gained[place] = new > old
    return moved[row], gained[row]
