"""The logs of what changed."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.frames._balances import GREATEST, change_log
from nftsync.frames._columns import (
    TEXT,
    Amounts,
    Kind,
    Moment,
    frame_of,
    integers,
    moments,
    read_frame,
    stored_time,
    text,
    times,
)
from nftsync.frames._source import Numbers, Source, Store, need_database, positions, reading

__all__ = ["changes", "token_changes"]

_TOKEN_CHANGES: dict[str, Kind] = {
    "change_id": "count",
    "token_id": "text",
    "before": "text",
    "after": "text",
    "observed_at": "time",
    "run_id": "integer",
    "webhook_id": "text",
}


def changes(
    db: Store = None, since: Moment | None = None, after: SupportsIndex | None = None
) -> pd.DataFrame:
    """The log of balances, the oldest change first.

    Args:
        db: what to read, as `nftsync.frames` tells.
        since: only changes observed at this time or later. Text, a date (its end) or a datetime.
        after: only changes with a greater `change_id`, to go on where the last call ended.

    Returns:
        `change_id`, `wallet_id`, `token_id`, `old_amount` and `new_amount` (exact Python
        integers in object columns; None where the text is not 1 to 100 ASCII digits), each
        followed by its text as sent (`old_amount_text`, missing: was not listed;
        `new_amount_text`, missing: no longer listed), `observed_at`, `baseline` (bool: by the
        wallet's first read), `run_id` (`Int64`), `webhook_id`.

    Raises:
        InputError: `since` is no time, `after` is no integer, or `db` is neither a path nor a
            connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.changes reads a database's log of changes")
    moment = None if since is None else stored_time(since)
    first = 0 if after is None else _following(after)
    with reading(db) as source:
        if moment is not None:
            first = max(first, source.first_change("balance_change_rows", moment, later=False))
        change, wallet_no, token_no, old, new, observed, baseline, run, webhook = change_log(
            source,
            *("change_id", "wallet_no", "token_no", "old_amount", "new_amount"),
            *("observed_at", "baseline", "run_id", "webhook_id"),
            first=first,
        )
        wallets = _ids(source, "wallets", "wallet", wallet_no.to_numpy())
        tokens = _ids(source, "tokens", "token", token_no.to_numpy())
    old_amounts, new_amounts = Amounts(old), Amounts(new)
    return frame_of(
        {
            "change_id": change.to_numpy().copy(),
            "wallet_id": wallets,
            "token_id": tokens,
            "old_amount": old_amounts.exact(),
            "old_amount_text": old_amounts.text(),
            "new_amount": new_amounts.exact(),
            "new_amount_text": new_amounts.text(),
            "observed_at": times(moments(observed)),
            "baseline": baseline.to_numpy() != 0,
            "run_id": integers(run),
            "webhook_id": text(webhook),
        }
    )


def _following(after: SupportsIndex) -> int:
    try:
        number = operator.index(after)
    except TypeError as error:
        raise InputError(f"{after!r} is not a change_id; give an integer") from error
    return max(min(number, GREATEST - 1), -1) + 1


def _ids(source: Source, table: str, what: str, numbers: Numbers) -> object:
    known, (ids,) = source.numbered(table, f"{what}_no", [(f"{what}_id", TEXT)], np.unique(numbers))
    place = positions(known, numbers)
    return text(ids.take(pa.array(place, mask=place < 0)))


def token_changes(db: Store = None) -> pd.DataFrame:
    """The log of token metadata, the oldest change first; a token's first sight is no change.

    Args:
        db: what to read, as `nftsync.frames` tells.

    Returns:
        `change_id`, `token_id`, `before` and `after` (JSON text: objects of just the changed
        columns), `observed_at`, `run_id` (`Int64`), `webhook_id`.

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.token_changes reads a database's log of changes")
    with reading(db) as source:
        return read_frame(source, _TOKEN_CHANGES, "token_changes ORDER BY change_id")
