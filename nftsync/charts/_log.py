"""The change log as arrivals and departures: which changes began or ended a holding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nftsync.charts._steps import Ticks
from nftsync.frames import changes
from nftsync.frames._amounts import Amounts
from nftsync.frames._columns import Moment, coded, stored_time
from nftsync.frames._given import text_column
from nftsync.frames._source import Store
from nftsync.frames._tables import WalletIds, wallet_ids

__all__ = ["Movements", "microseconds", "movements", "tick_of"]


@dataclass(frozen=True)
class Movements:
    """The changes that began or ended a holding, in the order they were observed.

    Attributes:
        at: when, in microseconds since 1970.
        step: 1 began one, -1 ended one.
        first_read: whether the wallet's first read showed it, so that nobody knows since when.
        wallet: index into `wallet_ids`.
        wallet_ids: ids of wallets.
        token: index into `token_ids`.
        token_ids: ids of tokens.
    """

    at: Ticks
    step: npt.NDArray[np.int64]
    first_read: npt.NDArray[np.bool_]
    wallet: npt.NDArray[np.int64]
    wallet_ids: list[str]
    token: npt.NDArray[np.int64]
    token_ids: list[str]

    def chosen(self, rows: npt.NDArray[np.bool_]) -> Movements:
        """The rows of a mask."""
        return Movements(
            self.at[rows],
            self.step[rows],
            self.first_read[rows],
            self.wallet[rows],
            self.wallet_ids,
            self.token[rows],
            self.token_ids,
        )


def movements(db: Store, exclude: WalletIds = (), since: Moment | None = None) -> Movements:
    """Read the change log, less changes from one amount above zero to another.

    Args:
        db: where to read.
        exclude: wallets to leave out.
        since: only changes observed at this time or later.

    Raises:
        InputError: `since` is no time, or an excluded id is no UUID.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    left_out = set(wallet_ids(exclude))
    log = changes(db, since=since)
    before = Amounts(text_column(log, "old_amount_text")).nonzero()
    after = Amounts(text_column(log, "new_amount_text")).nonzero()
    wallet, wallets = coded(text_column(log, "wallet_id"))
    token, tokens = coded(text_column(log, "token_id"))
    known = wallets.to_pylist()
    stays = np.array([one not in left_out for one in known] + [True])
    found = Movements(
        microseconds(log["observed_at"]),
        after.astype(np.int64) - before,
        log["baseline"].to_numpy(),
        wallet.astype(np.int64),
        known,
        token.astype(np.int64),
        tokens.to_pylist(),
    )
    return found.chosen((found.step != 0) & stays[wallet])


def microseconds(times: pd.Series) -> npt.NDArray[np.int64]:
    """A column of times as microseconds since 1970; the least integer where one is missing."""
    column: Any = times
    ticks: npt.NDArray[np.int64] = (
        column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("M8[us]").view(np.int64)
    )
    return ticks


def tick_of(moment: Moment) -> int:
    """A time that a caller gave, in microseconds since 1970.

    Raises:
        InputError: it names no time.
    """
    return int(np.datetime64(stored_time(moment)[:-1], "us").astype(np.int64))
