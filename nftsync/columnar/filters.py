"""Filters that callers give, looked up in the database that is read."""

from __future__ import annotations

import json

import numpy as np

from nftsync.columnar.columns import INTEGER
from nftsync.columnar.source import IN_JSON, Numbers, Source
from nftsync.columnar.times import Moment, stored_time
from nftsync.store.filters import Filters, find_filters
from nftsync.store.wallets import GroupNames, WalletIds, ids_in


def filters_of(
    source: Source,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Filters:
    """Look up filters, as `nftsync.frames` explains them, in the database of a frame.

    Raises:
        InputError: a time, wallet, group or contract is none, or `since` is after `until`.
    """
    return find_filters(
        source.cursor,
        wallet=wallet,
        group=group,
        contract=contract,
        since=None if since is None else stored_time(source, since, "start"),
        until=None if until is None else stored_time(source, until, "end"),
    )


def wallet_numbers(source: Source, wallet: WalletIds) -> Numbers:
    """Look up the numbers of wallets that are named; ids that are not known have none.

    Raises:
        InputError: what is no id is not the label of one wallet.
    """
    if not (ids := ids_in(source.cursor, wallet)):
        return np.empty(0, dtype=np.int64)
    (numbers,) = source.columns(
        f"SELECT wallet_no FROM wallets WHERE wallet_id {IN_JSON}",
        [INTEGER],
        (json.dumps(ids),),
    )
    return np.asarray(numbers.to_numpy())
