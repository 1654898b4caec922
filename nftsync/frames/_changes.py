"""The changes of balances."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import numpy as np
import pandas as pd

from nftsync.columnar.amounts import AmountKind, Amounts, amount_columns
from nftsync.columnar.balances import GREATEST, change_log, change_span
from nftsync.columnar.columns import frame_of, integers, text
from nftsync.columnar.filters import filters_of
from nftsync.columnar.source import Store, reading
from nftsync.columnar.times import Moment, moments, times
from nftsync.columnar.tokens import NAMING, read_tokens
from nftsync.columnar.wallets import wallet_names
from nftsync.errors import InputError
from nftsync.store.wallets import GroupNames, WalletIds


def changes(
    db: Store = None,
    since: Moment | None = None,
    after: SupportsIndex | None = None,
    *,
    until: Moment | None = None,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the changes of balances, the oldest first.

    Args:
        db: what to read, as `nftsync.frames` tells.
        since: only changes observed at this time or later.
        after: only changes with a greater `change_id`, to go on where the last call ended.
        until: only changes observed at this time or earlier.
        wallet: only changes of these wallets.
        group: only changes of wallets of these groups.
        contract: only changes of tokens that are of this contract today.
        amounts: what `old_amount` and `new_amount` are to be, as `nftsync.frames` tells.

    Returns:
        `change_id`, `wallet_id`, `wallet_label`, `token_id`, its `contract_address`, `contract`,
        `collection` and `name` (as they are today), `old_amount` and `new_amount` (exact; missing
        where the text is not 1 to 100 ASCII digits), each followed by its text as sent
        (`old_amount_text`, missing: was not listed; `new_amount_text`, missing: no longer listed),
        `observed_at`, `baseline` (bool: by the wallet's first read), `run_id` (`Int64`),
        `webhook_id`.

    Raises:
        InputError: there is no such time, wallet label, group or contract; `after` is no integer;
            `since` is after `until`; the amounts do not fit the `amounts` that was asked for; or
            `db` is neither a path nor a connection.
    """
    following = 0 if after is None else _following(after)
    with reading(db) as source:
        filters = filters_of(
            source, wallet=wallet, group=group, contract=contract, since=since, until=until
        )
        first, last = change_span(source, filters.since, filters.until)
        change, wallet_no, token_no, old, new, observed, baseline, run, webhook = change_log(
            source,
            "change_id",
            "wallet_no",
            "token_no",
            "old_amount",
            "new_amount",
            "observed_at",
            "baseline",
            "run_id",
            "webhook_id",
            first=max(first, following),
            last=last,
            filters=filters,
        )
        wallets, token_numbers = wallet_no.to_numpy(), token_no.to_numpy()
        names = wallet_names(source, wallets)
        tokens = read_tokens(source, NAMING, wanted=np.unique(token_numbers))
    old_amounts, new_amounts = Amounts(old), Amounts(new)
    exact = amount_columns(
        {"old_amount": old_amounts.exact(), "new_amount": new_amounts.exact()}, amounts
    )
    return frame_of(
        {
            "change_id": change.to_numpy().copy(),
            **names.named(wallets),
            **tokens.named(token_numbers),
            "old_amount": exact["old_amount"],
            "old_amount_text": old_amounts.text(),
            "new_amount": exact["new_amount"],
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
