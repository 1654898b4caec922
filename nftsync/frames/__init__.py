"""The mirror as pandas DataFrames, and measures of them.

What reads a database takes a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for
the configured one; reads it at one moment, whatever is written beside; and never writes, creates or
migrates it. Measures of holdings take a frame as well; `explain` tells what each column means,
`brief` makes a frame easy to look at, and `save` and `load` keep frames in files. Text columns are
pandas' `str` (missing: NaN), times are datetimes in UTC (missing: NaT), and integers that may be
missing are `Int64`.

Times are asked for as text (ISO 8601, without an offset UTC; `today`, `yesterday`; `7d`, which is
so long ago), dates or datetimes. A day is its start where something begins (`start`, `since`), its
end where something ends (`end`, `as_of`, `at`). A time in the future is an InputError.

Amounts are exact, and missing where the text is not 1 to 100 ASCII digits. A frame's columns of
them are `Int64` where the sum of them all fits 63 bits, so that no sum of some can wrap; else they
are Python integers in object columns (missing: None). With `amounts="exact"` they always are; with
`amounts="int64"` never, and where the sum does not fit that is an InputError.
"""

from __future__ import annotations

from nftsync.frames._balances import changes
from nftsync.frames._brief import brief
from nftsync.frames._concentration import concentration, overlap
from nftsync.frames._diff import diff
from nftsync.frames._editions import editions
from nftsync.frames._explain import explain
from nftsync.frames._files import load, save
from nftsync.frames._find import find
from nftsync.frames._freshness import freshness
from nftsync.frames._holding_ages import holding_ages
from nftsync.frames._holdings import holdings
from nftsync.frames._over_time import holdings_over_time
from nftsync.frames._quality import quality
from nftsync.frames._tables import (
    collections,
    runs,
    token_changes,
    wallet_states,
    wallets,
    webhooks,
)
from nftsync.frames._tokens import tokens

__all__ = [
    "brief",
    "changes",
    "collections",
    "concentration",
    "diff",
    "editions",
    "explain",
    "find",
    "freshness",
    "holding_ages",
    "holdings",
    "holdings_over_time",
    "load",
    "overlap",
    "quality",
    "runs",
    "save",
    "token_changes",
    "tokens",
    "wallet_states",
    "wallets",
    "webhooks",
]
