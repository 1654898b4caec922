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

    def named(self, wallets: Numbers, side: str = "") -> dict[str, Any]:
        """A frame's columns that tell which wallet it is; missing where a number is no wallet's.

        Args:
            wallets: numbers of wallets.
            side: of several wallets in a row, which; the names of the columns begin with it.
        """
        place = positions(self.numbers, wallets)
        rows = pa.array(place, mask=place < 0)
        id_name, label_name = ("wallet_id", "wallet_label")
        if side:
            id_name, label_name = f"{side}_wallet_id", f"{side}_label"
        return {id_name: text(self.ids.take(rows)), label_name: text(self.labels.take(rows))}


def wallet_names(source: Source, wanted: Numbers) -> WalletNames:
    """Read what wallets are called.

    Args:
        source: where to read.
        wanted: numbers of wallets, in any order and as often as they come.
    """
    columns = [("wallet_id", TEXT), ("label", TEXT)]
    numbers, (ids, labels) = source.numbered("wallets", "wallet_no", columns, np.unique(wanted))
    return WalletNames(numbers, ids, labels)
