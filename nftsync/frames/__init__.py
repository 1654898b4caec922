"""The mirror as pandas DataFrames.

Every function takes a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for the
configured database; reads it at one moment, whatever is written beside; and never writes, creates
or migrates. Text columns are pandas' `str` (missing: NaN), times are datetimes in UTC (missing:
NaT), integers that may be missing are `Int64`, and amounts are exact Python integers in object
columns (missing, or not 1 to 100 ASCII digits: None).
"""

from __future__ import annotations

from nftsync.frames._changes import changes, token_changes
from nftsync.frames._collections import collections
from nftsync.frames._holdings import holdings
from nftsync.frames._tables import runs, wallet_states, wallets, webhooks
from nftsync.frames._tokens import tokens

__all__ = [
    "changes",
    "collections",
    "holdings",
    "runs",
    "token_changes",
    "tokens",
    "wallet_states",
    "wallets",
    "webhooks",
]
