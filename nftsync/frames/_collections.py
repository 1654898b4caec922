"""A row per contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.frames._amounts import Amounts
from nftsync.frames._columns import TEXT, Times, frame_of, moments, text, times
from nftsync.frames._contracts import contract_groups
from nftsync.frames._grouping import distinct_in_each, sums_in_each
from nftsync.frames._source import Numbers, Store, need_database, positions, reading
from nftsync.frames._stretches import Table

__all__ = ["collections"]


def collections(db: Store = None) -> pd.DataFrame:
    """A row per contract, the one with the most holders first.

    Addresses of `0x` and 40 hex digits are one contract whatever their case, and show as first
    spelled; tokens without a contract have a row of their own, whose address is missing.

    Args:
        db: a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for the configured
            database.

    Returns:
        `contract_address`, `tokens` (known ones), `held` (tokens of which a wallet holds more
        than zero), `holders` (wallets that hold one), `amount` (exact sum in an object column;
        amounts that are not 1 to 100 ASCII digits are left out), `first_seen_at` (of its first
        token), `updated_at` (the latest change of a token's metadata).

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.collections counts all tokens of a database, held or not")
    with reading(db) as source:
        numbers, (addresses, first_seen, updated) = source.numbered(
            "tokens",
            "token_no",
            [("contract_address", TEXT), ("first_seen_at", TEXT), ("updated_at", TEXT)],
        )
        wallet_no, token_no, amount = source.table(
            Table("balance_rows", ("wallet_no", "token_no"), [("amount", TEXT)])
        )
    groups, contracts = contract_groups(addresses)
    spellings = contracts.to_pylist()
    count = len(spellings)
    place = positions(numbers, token_no.to_numpy())
    known = Amounts(amount)
    held = known.nonzero() & (place >= 0)
    place, wallets = place[held], wallet_no.to_numpy()[held]
    group = groups[place]
    columns: dict[str, npt.NDArray[Any]] = {
        "tokens": np.bincount(groups, minlength=count),
        "held": distinct_in_each(group, place, count),
        "holders": distinct_in_each(group, wallets, count),
        "amount": sums_in_each(group, known.exact()[held], count),
        "first_seen_at": _extreme(np.minimum, groups, moments(first_seen), count),
        "updated_at": _extreme(np.maximum, groups, moments(updated), count),
    }
    order = _order(spellings, columns["holders"], columns["tokens"])
    addresses = pa.array([spellings[row] for row in order], TEXT)
    return frame_of(
        {
            "contract_address": text(addresses),
            **{
                name: times(values[order]) if values.dtype.kind == "M" else values[order]
                for name, values in columns.items()
            },
        }
    )


def _extreme(which: np.ufunc, groups: Numbers, values: Times, count: int) -> Times:
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(count))
    found = np.full(count, np.datetime64("NaT", "us"))
    some = np.flatnonzero(np.bincount(groups, minlength=count))
    if len(some):
        found[some] = which.reduceat(values[order], starts[some])
    return found


def _order(
    spellings: list[str | None], holders: npt.NDArray[Any], tokens: npt.NDArray[Any]
) -> list[int]:
    def rank(row: int) -> tuple[int, bool, str]:
        address = spellings[row]
        return -int(holders[row]), address is None, address or ""

    return sorted(np.flatnonzero(tokens).tolist(), key=rank)
