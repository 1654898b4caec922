"""The mirror as pandas DataFrames, and analyses of them.

What reads a database takes a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for
the configured one; reads it at one moment, whatever is written beside; and never writes, creates or
migrates it. A database of an earlier version is copied to a temporary one, which is upgraded and
read; a warning (`nftsync.NftsyncWarning`) says so once. Measures of holdings take a frame as well;
`explain` tells what each column means, `brief` makes a frame easy to look at, and `save` and `load`
keep frames in files. Text columns are pandas' `str` (missing: NaN), times are datetimes in UTC
(missing: NaT), and integers that may be missing are `Int64`.

Times are asked for as text (ISO 8601, without an offset UTC; `today`, `yesterday`; `7d`, which is
so long ago), dates or datetimes. A day is its start where a span begins (`start`, `since`), its end
where a span ends (`end`, `until`) and where a time means a state (`as_of`, `at`, both times of
`diff`). A time in the future is an InputError.

Filters select rows; with several, a row has to match each:

- `wallet`: one wallet or several, by id or label. An id that the database has not has no rows.
- `group`: one group of wallets or several, by name.
- `contract`: an address (of `0x` and 40 hex digits in any case, any other exactly), or the name of
  a collection that no other has. With `as_of` or `at`, the contract that a token had then.
- `since`, `until`: the first and the last time, both included.

A database that is missing, is not nftsync's or cannot be read is a StoreError. A label, a group or
a contract that the database has not is an InputError. Measures of holdings take filters only of a
database: of a frame, select the rows.

Amounts are exact, and missing where the text is not 1 to 100 ASCII digits. A frame's columns of
them are `Int64` where the sum of them all fits 63 bits, so that no sum of some can wrap; else they
are Python integers in object columns (missing: None). With `amounts="exact"` they always are; with
`amounts="int64"` never, and where the sum does not fit that is an InputError.
"""

from __future__ import annotations

from nftsync.export.frame_files import load, save
from nftsync.frames._brief import brief
from nftsync.frames._diff import diff
from nftsync.frames._editions import editions
from nftsync.frames._explain import explain
from nftsync.frames._find import find
from nftsync.frames._holders import concentration, overlap
from nftsync.frames._holding_ages import holding_ages
from nftsync.frames._over_time import holdings_over_time
from nftsync.frames._quality import quality
from nftsync.frames._tables import (
    changes,
    collections,
    freshness,
    holdings,
    runs,
    token_changes,
    tokens,
    wallet_states,
    wallets,
    webhooks,
)
from nftsync.frames._transfers import transfers

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
    "transfers",
    "wallet_states",
    "wallets",
    "webhooks",
]
