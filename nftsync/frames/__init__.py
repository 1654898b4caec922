"""The mirrored data as pandas DataFrames, and analyses of it.

`explain` describes each column of a frame, as does the end of a function's help. `brief` shortens a
frame for display. `save` and `load` keep frames in files. `concentration`, `editions`, `overlap`
and `value` take a frame or a database, and other analyses a database.

Shared parameters:

- `db`: a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, None for the configured
  database, or several databases (see below). Each call reads one snapshot and never writes, creates
  or migrates the database. For a database of an earlier version, nftsync upgrades a temporary copy,
  reads it, and warns once (`nftsync.NftsyncWarning`).
- `holdings`: a frame from `frames.holdings`, or a database as for `db`.
- `wallet`: one wallet or several, by id or label. An unknown id matches no rows.
- `group`: one group or several, by name.
- `contract`: an address, or a name that only one collection has. The case of an address matters,
  unless it is `0x` and hex digits. The token's contract today counts, or with `as_of` or `at`, its
  contract at that time.
- `exclude`: one wallet or several to leave out, by id or label, such as burn addresses.
- `hidden`: include hidden tokens. By default they are left out, by their current contract or id,
  and `frame.attrs["hidden"]` is the number of rows or holdings left out, if any.
- `since`, `until`, `start`, `end`: the first and last time, both included.
- `as_of`, `at`: a past time; the function returns the state known then. None is now.
- `amounts`: the type of amount columns. By default, they are `Int64` if the sum of all their values
  fits 63 bits, and otherwise object columns of Python integers. `"exact"` always gives object
  columns; `"int64"` gives `Int64`, or an error if the sum does not fit.

Several databases are a list, or a mapping from names: `{"acme": "acme.db", "beta": "beta.db"}`. The
frame has the rows of each database, one below the other, and the first column `database` has its
name: the mapping's key; in a list, the file's name without suffix, or its path if other files have
that name. Each database is read for itself, in its own snapshot: measures are per database, and a
transfer to a wallet of another database is sent in one and received in the other. Errors and
warnings begin with the database's name. Only `compare` takes one database at a time.

A row must match every filter. `wallet`, `group` and `contract` filter a database; from a frame,
select the rows yourself.

A time is a date, a datetime or text: ISO 8601 (UTC if it has no offset), `today`, `yesterday`, or
`7d` for 7 days ago. A date means the start of that day in `start` and `since`, and the end of that
day elsewhere, including both times of `diff` and `statement`.

Shared columns:

- Times are datetimes in UTC (missing: NaT), text is pandas' `str` (missing: NaN), and optional
  integers are `Int64`.
- `contract` is one spelling of `contract_address`, to group by. `collection`, `wallet` and `nft`
  are names to show; only an unknown side of a transfer has no `wallet`.
- Amounts are exact. They are missing unless the provider's text is 1 to 100 ASCII digits; `…_text`
  columns have that text. A holding is an amount above zero, or an unknown amount.

Errors:

- `StoreError`: the database is missing, unreadable, or not nftsync's.
- `InputError`: an argument is unusable. Examples are an unknown label, group or contract, a time in
  the future, a start after the end, a frame without a required column, or a wallet that two of
  several databases have.
"""

from __future__ import annotations

from nftsync.export.frame_files import load, save
from nftsync.frames._brief import brief
from nftsync.frames._compare import compare
from nftsync.frames._diff import diff
from nftsync.frames._editions import editions
from nftsync.frames._explain import add_columns, explain
from nftsync.frames._find import find
from nftsync.frames._holders import concentration, overlap
from nftsync.frames._holding_ages import holding_ages
from nftsync.frames._over_time import holdings_over_time
from nftsync.frames._quality import quality
from nftsync.frames._several import per_database
from nftsync.frames._statement import statement
from nftsync.frames._tables import (
    changes,
    collections,
    freshness,
    holdings,
    messages,
    runs,
    token_changes,
    tokens,
    wallet_states,
    wallets,
    webhooks,
)
from nftsync.frames._traits import traits
from nftsync.frames._transfers import transfers
from nftsync.frames._value import value

__all__ = [
    "brief",
    "changes",
    "collections",
    "compare",
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
    "messages",
    "overlap",
    "quality",
    "runs",
    "save",
    "statement",
    "token_changes",
    "tokens",
    "traits",
    "transfers",
    "value",
    "wallet_states",
    "wallets",
    "webhooks",
]

for _name in sorted({*__all__} - {"brief", "compare", "explain", "load", "save"}):
    globals()[_name] = per_database(globals()[_name])
add_columns(globals())
