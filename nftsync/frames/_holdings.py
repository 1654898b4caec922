"""Who holds what, now or at a time."""

from __future__ import annotations

import warnings

import pandas as pd

from nftsync.columnar.amounts import AmountKind
from nftsync.columnar.filters import filters_of
from nftsync.columnar.holdings import read_holdings, why_nothing
from nftsync.columnar.source import Store, reading
from nftsync.columnar.times import Moment
from nftsync.errors import NftsyncWarning
from nftsync.store.wallets import GroupNames, WalletIds


def holdings(
    db: Store = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    as_of: Moment | None = None,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return who holds what: a row per wallet and token that is listed, amounts of 0 included.

    Args:
        db: what to read, as `nftsync.frames` tells.
        wallet: only what these wallets hold.
        group: only what wallets of these groups hold.
        contract: only tokens of this contract.
        as_of: the balances and metadata that were known at this time; labels, groups and status
            of wallets and names of collections are today's. Text, a date (its end) or a
            datetime.
        amounts: what `amount` is to be, as `nftsync.frames` tells.

    Returns:
        `wallet_id`, `wallet_label`, `wallet_group`, `token_id`, `contract_address` (as sent),
        `contract` (the same in one spelling, to group by), `collection` (what the contract is
        called, else its short address), `blockchain_token_id`, `amount` (exact; missing where the
        text is not 1 to 100 ASCII digits), `amount_text` (as sent), `amount_float` (an
        approximation for plots; NaN of what is no plain decimal number), the token's `name` to
        `creator_external_page_url`, `held_since` (start of the present stretch of non-zero
        amounts; NaT when it is zero), `balance_updated_at`, `token_updated_at`,
        `wallet_synced_at`, `wallet_status`. With `as_of` also `confirmed_before` and
        `confirmed_after`, the reads around that time, and `certainty`: `bracketed` (the same
        state was read before and after), `gap` (it changed in between) or `open` (no read
        since); `wallet_synced_at` is then `confirmed_before`.

    Warns:
        NftsyncWarning: there are no rows because the wallet or the contract is not known, or was
            not read by then: nobody knows whether something was held.

    Raises:
        InputError: there is no such wallet label, group, contract or time; the amounts do not fit
            the `amounts` that was asked for; or `db` is neither a path nor a connection.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        found = read_holdings(source, filters, as_of=as_of, amounts=amounts)
        unknown = why_nothing(source, filters, as_of) if found.empty else None
    if unknown is not None:
        warnings.warn(unknown, NftsyncWarning, stacklevel=2)
    return found
