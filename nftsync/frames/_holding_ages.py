"""Ages of holdings, with minimum ages for initial holdings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nftsync.columnar.amounts import AmountKind, Amounts, amount_columns
from nftsync.columnar.balances import BalanceColumns, change_span, read_balances
from nftsync.columnar.columns import INTEGER, TEXT, ages, frame_of, times
from nftsync.columnar.filters import Moment, filters_of, state_time
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.source import Source, Store, reading
from nftsync.columnar.tokens import NAMING, read_tokens, wallet_columns
from nftsync.store.wallets import GroupNames, WalletIds
from nftsync.times import now

#: The upper limits of the buckets in days, youngest first; the last bucket has none.
_UNDER_DAYS = {
    "under a day": 1,
    "under a week": 7,
    "under a month": 30,
    "under 3 months": 91,
    "under a year": 365,
}


def holding_ages(
    db: Store = None,
    *,
    at: Moment | None = None,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the age of each holding.

    Shared parameters: see `nftsync.frames`. The age counts from the start of the current period of
    amounts above zero. If a wallet sells a token and receives it again, the age starts again; other
    changes of the amount do not matter.

    Returns:
        A row per wallet and token that it holds; columns: `frames.explain("holding_ages")`.
        `bucket` is an ordered category.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract, exclude=exclude)
        moment = None if at is None else state_time(source, at)
        balances = read_balances(source, filters, moment)
        selected = balances.amounts.nonzero()
        tokens = read_tokens(source, NAMING, wanted=np.unique(balances.tokens), as_of=moment)
        selected &= tokens.in_contract(filters.contract, balances.tokens)
        left_out = selected & hidden_rows(source, balances.tokens, include=hidden)
        balances = balances.rows(selected & ~left_out)
        censored = _censored(source, balances, moment)
        wallet_names = wallet_columns(source, balances.wallets)
    age = ages(balances.held_since, now() if moment is None else moment)
    frame = frame_of(
        {
            **wallet_names,
            **tokens.named(balances.tokens),
            **amount_columns({"amount": balances.amounts.exact()}, amounts),
            "held_since": times(balances.held_since),
            "age": age,
            "bucket": _buckets(age),
            "censored": censored,
        }
    )
    return marked(frame, left_out)


def _censored(source: Source, balances: BalanceColumns, at: str | None) -> npt.NDArray[np.bool_]:
    wallet, token, old, new = source.columns(
        "SELECT wallet_no, token_no, old_amount, new_amount FROM balance_change_rows"
        " WHERE NOT baseline AND change_id <= ?",
        [INTEGER, INTEGER, TEXT, TEXT],
        change_span(source, None, at)[1:],
    )
    begins = Amounts(new).nonzero() & ~Amounts(old).nonzero()
    wallets, tokens = wallet.to_numpy()[begins], token.to_numpy()[begins]
    width = max(tokens.max(initial=0), balances.tokens.max(initial=0)) + 1
    return ~np.isin(balances.wallets * width + balances.tokens, wallets * width + tokens)


def _buckets(age: Any) -> Any:
    edges = np.array([*_UNDER_DAYS.values()], dtype="m8[D]").astype("m8[us]")
    codes = np.searchsorted(edges, np.asarray(age), side="right")
    return pd.Categorical.from_codes(
        codes, categories=[*_UNDER_DAYS, "a year or more"], ordered=True
    )
