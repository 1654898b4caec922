"""Wallets by number: their ids and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from nftsync.columnar.columns import TEXT, text
from nftsync.columnar.source import Numbers, Source, positions


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
