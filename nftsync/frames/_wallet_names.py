"""Wallets by number: the numbers that ids have, and what the wallets of numbers are called."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from nftsync.frames._columns import INTEGER, TEXT, text
from nftsync.frames._source import IN_JSON, Numbers, Source, positions

__all__ = ["WalletNames", "wallet_names", "wallet_numbers"]


@dataclass(frozen=True)
class WalletNames:
    """Ids and labels of wallets, in the order of their numbers."""

    numbers: Numbers
    ids: pa.Array
    labels: pa.Array

    def id_column(self, wallets: Numbers) -> Any:
        """A frame's column of ids; missing where a number is no wallet's."""
        return self._column(self.ids, wallets)

    def label_column(self, wallets: Numbers) -> Any:
        """A frame's column of labels; missing where a wallet has none."""
        return self._column(self.labels, wallets)

    def _column(self, values: pa.Array, wallets: Numbers) -> Any:
        place = positions(self.numbers, wallets)
        return text(values.take(pa.array(place, mask=place < 0)))


def wallet_names(source: Source, wanted: Numbers) -> WalletNames:
    """Read what wallets are called.

    Args:
        source: where to read.
        wanted: numbers of wallets, in any order and as often as they come.
    """
    columns = [("wallet_id", TEXT), ("label", TEXT)]
    numbers, (ids, labels) = source.numbered("wallets", "wallet_no", columns, np.unique(wanted))
    return WalletNames(numbers, ids, labels)


def wallet_numbers(source: Source, ids: list[str]) -> Numbers:
    """Look up the numbers of wallets; ids that are not known have none."""
    if not ids:
        return np.empty(0, dtype=np.int64)
    (numbers,) = source.columns(
        f"SELECT wallet_no FROM wallets WHERE wallet_id {IN_JSON}",  # noqa: S608
        [INTEGER],
        (json.dumps(ids),),
    )
    return np.asarray(numbers.to_numpy())
