"""Since when each holding has been there, as far as anybody knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.frames._balances import Balances, balances_at, read_balances
from nftsync.frames._columns import (
    INTEGER,
    TEXT,
    Amounts,
    Moment,
    Times,
    frame_of,
    moments,
    stored_time,
    times,
)
from nftsync.frames._source import (
    IN_JSON,
    Source,
    Store,
    as_json,
    positions,
    reading,
)
from nftsync.frames._tables import WalletIds, WalletNames, wallet_ids, wallet_names, wallet_numbers
from nftsync.frames._tokens import Tokens, read_tokens
from nftsync.times import now

__all__ = ["BUCKETS", "ages", "holding_ages"]


def ages(since: Times, until: str) -> Any:
    """Make a frame's column of the time that passed; 0 where the clock went back since.

    Args:
        since: times; NaT gives NaT.
        until: a time in the stored form.
    """
    passed = moments(pa.array([until]))[0] - since
    return pd.TimedeltaIndex(np.maximum(passed, np.timedelta64(0, "us"))).array


#: From the youngest to the oldest, and how many days each but the last is under.
BUCKETS = (
    "under a day",
    "under a week",
    "under a month",
    "under 3 months",
    "under a year",
    "a year or more",
)
_UNDER_DAYS = (1, 7, 30, 91, 365)

#: Of each wallet whose first read listed something: when that was stored, and its next change.
_BASELINES = """
    SELECT w.wallet_no, first.observed_at, (
        SELECT later.observed_at FROM balance_change_rows later
        WHERE later.wallet_no = w.wallet_no AND NOT later.baseline
        ORDER BY later.change_id LIMIT 1)
    FROM wallets w JOIN balance_change_rows first ON first.change_id = (
        SELECT min(change_id) FROM balance_change_rows WHERE wallet_no = w.wallet_no)
    WHERE first.baseline
    ORDER BY w.wallet_no
"""


def holding_ages(
    db: Store = None, *, at: Moment | None = None, exclude: WalletIds = ()
) -> pd.DataFrame:
    """How long each holding has been there: a row per wallet and token that it holds.

    A holding's age is that of its present stretch of amounts above zero: what was sold and came
    back begins anew, what only grew or shrank does not. A balance of 0 is no holding.

    Args:
        db: what to read, as `nftsync.frames` tells.
        at: the holdings that were known at this time, and their age then; None is now. Text, a
            date (its end) or a datetime.
        exclude: one wallet id or several, whose rows are left out.

    Returns:
        `wallet_id`, `wallet_label`, `token_id`, `contract_address`, `name`, `amount` (exact
        Python integers in an object column; None: no whole number), `held_since` (when the
        change that began the stretch was stored), `age` (a timedelta), `bucket` (an ordered
        category: `under a day`, `under a week`, `under a month` (30 days), `under 3 months`
        (91 days), `under a year` (365 days), `a year or more`) and `censored` (bool): the
        stretch began with the wallet's first read, so it has been held for `age` at least, and
        nobody knows how much longer.

    Raises:
        InputError: `at` is no time, a wallet id is none, or `db` is neither a path nor a
            connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    moment = None if at is None else stored_time(at)
    left_out = wallet_ids(exclude)
    with reading(db) as source:
        balances = (
            read_balances(source, None, None)
            if moment is None
            else balances_at(source, moment, None)
        )
        kept = balances.amounts.nonzero()
        if left_out:
            kept &= ~np.isin(balances.wallets, wallet_numbers(source, left_out))
        balances = balances.chosen(kept)
        censored = _censored(source, balances)
        tokens = read_tokens(source, ("contract_address", "name"), as_of=moment)
        names = wallet_names(source, balances.wallets)
    return _frame(balances, censored, tokens, names, now() if moment is None else moment)


def _censored(source: Source, balances: Balances) -> npt.NDArray[np.bool_]:
    """Whether the change that began each holding's stretch was of the wallet's first read.

    It was, if it is as old as that read; unless the clock stood still, so that later changes of
    the wallet bear the same time. Only then are those looked at.
    """
    numbers, first, later = source.columns(_BASELINES, [INTEGER, TEXT, TEXT])
    first_at, later_at = moments(first), moments(later)
    place = positions(numbers.to_numpy(), balances.wallets)
    censored = (place >= 0) & (balances.held_since == np.append(first_at, _NEVER)[place])
    stood_still = first_at == later_at
    doubtful = censored & np.append(stood_still, False)[place]
    if doubtful.any():
        censored[doubtful] = ~_began_later(source, balances, doubtful)
    return np.asarray(censored)


_NEVER = np.datetime64("NaT", "us")


def _began_later(
    source: Source, balances: Balances, doubtful: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Whether a change after the wallet's first read began a stretch at the time of `held_since`.

    The change of the first read comes first of a pair's, so any other one that began a stretch at
    the same time began a later one.
    """
    wallets, tokens = balances.wallets[doubtful], balances.tokens[doubtful]
    wallet, token, observed, old, new = source.columns(
        "SELECT wallet_no, token_no, observed_at, old_amount, new_amount FROM balance_change_rows"  # noqa: S608
        f" WHERE wallet_no {IN_JSON} AND NOT baseline",
        [INTEGER, INTEGER, TEXT, TEXT, TEXT],
        (as_json(np.unique(wallets)),),
    )
    begins = Amounts(new).nonzero() & ~Amounts(old).nonzero()
    began = pd.MultiIndex.from_arrays(
        [wallet.to_numpy(), token.to_numpy(), moments(observed).view(np.int64)]
    )[begins]
    wanted = pd.MultiIndex.from_arrays(
        [wallets, tokens, balances.held_since[doubtful].view(np.int64)]
    )
    return np.asarray(wanted.isin(began))


def _frame(
    balances: Balances,
    censored: npt.NDArray[np.bool_],
    tokens: Tokens,
    names: WalletNames,
    at: str,
) -> pd.DataFrame:
    token = pa.array(positions(tokens.numbers, balances.tokens))
    passed = ages(balances.held_since, at)
    return frame_of(
        {
            "wallet_id": names.id_column(balances.wallets),
            "wallet_label": names.label_column(balances.wallets),
            **tokens.named(token),
            "amount": balances.amounts.exact(),
            "held_since": times(balances.held_since),
            "age": passed,
            "bucket": _buckets(passed),
            "censored": censored,
        }
    )


def _buckets(passed: Any) -> Any:
    edges = np.array(_UNDER_DAYS, dtype="m8[D]").astype("m8[us]")
    codes = np.searchsorted(edges, np.asarray(passed), side="right")
    return pd.Categorical.from_codes(codes, categories=list(BUCKETS), ordered=True)
