"""Valuation of holdings with the user's own prices."""

from __future__ import annotations

import os
import warnings
from datetime import date
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from nftsync.columnar.filters import Moment, shown
from nftsync.columnar.inputs import exact_amounts, require_columns
from nftsync.errors import InputError, NftsyncWarning
from nftsync.store.contracts import contract_key
from nftsync.text import counted
from nftsync.times import now, parse_time

#: A table of prices, or the path of a CSV file with one.
Prices: TypeAlias = "pd.DataFrame | str | os.PathLike[str]"

_NEEDED: Final = ("date", "price", "currency")
_KEYS: Final = ("token_id", "contract")
#: Digits of an exact product: an amount has at most 100 digits, a price far fewer.
_DIGITS = 400


def value(holdings: pd.DataFrame, prices: Prices, at: Moment | None = None) -> pd.DataFrame:
    """Return holdings with the price of each one at a date, and its value, in exact decimals.

    The price of a holding is the latest price up to the date: of its token, or otherwise of its
    contract. Holdings without a price stay, and a warning gives their number. To sum values of
    different currencies, use `groupby("currency")`.

    Args:
        holdings: rows of `frames.holdings`.
        prices: a frame or the path of a CSV file, with the columns `date` (such as `2026-10-31`),
            `price` (a decimal number, for an amount of 1), `currency`, and `token_id` or `contract`
            (an address; if a row has both, the token counts); `source` is optional.
        at: the date of the prices, in UTC; None is today. Give the `as_of` of the holdings.

    Returns:
        The rows and columns of `holdings`, and `price` and `value` (`price` times `amount`), both
        `Decimal`, `currency`, `price_date` and `price_source`. They are missing (None) without a
        price. `value` is also missing if the amount is unusable.

    Raises:
        InputError: a column is missing, a price is unusable or contradicts another, or `at` is
            not a date.
    """
    require_columns(holdings, (*_KEYS, "amount"))
    day = _day(now() if at is None else at)
    table = _price_table(prices)
    latest = table[table["price_date"] <= day].sort_values("price_date", kind="stable")
    latest = latest.drop_duplicates("key", keep="last").set_index("key")
    tokens, contracts = (holdings[name].astype(object) for name in _KEYS)
    keys = tokens.where(tokens.isin(latest.index), contracts)
    if unpriced := int((~keys.isin(latest.index)).sum()):
        warnings.warn(
            f"{counted(unpriced, 'holding')} of {len(keys):,} without a price at {day}",
            NftsyncWarning,
            stacklevel=2,
        )
    priced = latest.reindex(keys).set_index(holdings.index)
    priced = priced.astype(object).where(priced.notna(), None)
    with localcontext(prec=_DIGITS):
        pairs = zip(priced["price"], exact_amounts(holdings), strict=True)
        values = [
            None if price is None or amount is None else price * amount for price, amount in pairs
        ]
    priced["value"] = pd.Series(values, holdings.index, object)
    return holdings.assign(**{name: priced[name] for name in priced})


def _price_table(prices: Prices) -> pd.DataFrame:
    if isinstance(prices, pd.DataFrame):
        frame, first = prices.reset_index(drop=True), 0
    else:
        path, first = os.fspath(prices), 2  # line 1 has the names of the columns
        try:
            frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot read the prices in {path}: {reason}") from None
    missing = [name for name in _NEEDED if name not in frame]
    if "contract" not in frame and "contract_address" in frame:
        frame = frame.rename(columns={"contract_address": "contract"})
    if missing or not frame.columns.intersection(_KEYS).size:
        needs = ", ".join(missing) or "token_id or contract"
        raise InputError(f"the prices have no column {needs}; add what is missing")
    frame = frame.reindex(columns=[*_KEYS, *_NEEDED, "source"]).astype(object)
    frame = frame.where(frame.notna() & (frame != ""), None)
    rows = [
        _price(row, f"row {number} of the prices")
        for number, row in enumerate(frame.to_dict("records"), first)
    ]
    table = pd.DataFrame(
        rows, columns=["key", "price", "currency", "price_date", "price_source"], dtype=object
    ).drop_duplicates()
    twice = table.duplicated(["key", "price_date"])
    if twice.any():
        row = table[twice].iloc[0]
        raise InputError(f"the prices of {row['key']} at {row['price_date']} differ; keep one")
    return table


def _price(row: dict[Any, Any], place: str) -> tuple[str, Decimal, str, date, str | None]:
    token, contract = row["token_id"], row["contract"]
    key = contract_key(str(contract)) if token is None and contract is not None else token
    if key is None:
        raise InputError(f"{place} has neither token_id nor contract")
    try:
        price = Decimal(str(row["price"]).strip())
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price < 0:
        raise InputError(f"{place}: {shown(row['price'])} is not a price; write 1234.56")
    if row["currency"] is None:
        raise InputError(f"{place} has no currency")
    try:
        day = _day(row["date"])
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    source = row["source"] if row["source"] is None else str(row["source"])
    return str(key).lower() if token else key, price, str(row["currency"]), day, source


def _day(moment: Any) -> date:
    if isinstance(moment, np.datetime64):
        moment = pd.Timestamp(moment)
    if not isinstance(moment, str | date) or moment is pd.NaT:
        raise InputError(f"{shown(moment)} is not a date; write 2026-10-31")
    return date.fromisoformat(parse_time(moment, "end")[:10])
