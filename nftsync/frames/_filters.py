"""Filters that frames take, looked up in the database that a frame is read from."""

from __future__ import annotations

from nftsync.frames._columns import Moment, stored_time
from nftsync.frames._source import Source
from nftsync.store.filters import Filters, find_filters
from nftsync.store.wallets import GroupNames, WalletIds


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
