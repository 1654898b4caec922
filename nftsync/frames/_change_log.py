"""The log of balances, as frames read it."""

from __future__ import annotations

from nftsync.frames._columns import INTEGER, TEXT
from nftsync.frames._stretches import Table

__all__ = ["GREATEST", "change_log"]

#: The least and the greatest number that SQLite can give a change.
_LEAST, GREATEST = -(2**63), 2**63 - 1

_TYPES = {
    "wallet_no": INTEGER,
    "token_no": INTEGER,
    "old_amount": TEXT,
    "new_amount": TEXT,
    "observed_at": TEXT,
    "baseline": INTEGER,
    "run_id": INTEGER,
    "webhook_id": TEXT,
}


def change_log(*names: str, first: int = _LEAST, last: int = GREATEST) -> Table:
    """Some columns of the log in its order; the number of each change comes before them.

    Args:
        names: the columns.
        first: the number of the first change that is needed.
        last: the number of the last.
    """
    columns = [(name, _TYPES[name]) for name in names]
    return Table("balance_change_rows", ("change_id",), columns, first, last)
