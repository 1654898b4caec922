"""Valuation of holdings with the user's own prices."""

from __future__ import annotations

import warnings
from datetime import date
from decimal import localcontext

import pandas as pd

from nftsync.columnar.filters import Moment
from nftsync.columnar.inputs import FrameOrDb, Table, exact_amounts, require_columns
from nftsync.columnar.prices import day_of, latest_prices, read_prices, with_contracts
from nftsync.columnar.source import Source
from nftsync.errors import NftsyncWarning
from nftsync.frames._tables import holdings as read_holdings
from nftsync.records import is_uuid
from nftsync.store.contracts import is_hex_address, near_contracts
from nftsync.text import counted, quoted
from nftsync.times import now

#: Digits of an exact product: an amount has at most 100 digits, a price far fewer.
DIGITS = 400


def value(holdings: FrameOrDb, prices: Table, at: Moment | None = None) -> pd.DataFrame:
    """Return holdings with the price of each one at a date, and its value, in exact decimals.

    The price of a holding is the latest price up to the date: of its token, or otherwise of its
    contract. Holdings without a price stay, and a warning gives their number. To sum values of
    different currencies, use `groupby("currency")`.

    Args:
        holdings: rows of `frames.holdings`, or a database, whose holdings at `at` count.
        prices: a frame or the path of a CSV file, with the columns `date` (such as `2026-10-31`),
            `price` (a decimal number such as `1234.56`, for an amount of 1), `currency` (its case
            does not matter), and `token_id` or `contract` (an address, or a name that only one
            collection has; if a row has both, the token counts); `source` is optional. The file
            may have any form that spreadsheets write.
        at: the date of the prices, in UTC; None is today. Give the `as_of` of the holdings.

    Returns:
        The columns of `holdings`, and `price` and `value` (`price` times `amount`), both `Decimal`,
        `currency`, `price_date` and `price_source`, all None without a price. `value` is also None
        if the amount is unusable.
    """
    frame = holdings
    if not isinstance(frame, pd.DataFrame):
        frame = read_holdings(frame, as_of=at)
    require_columns(frame, ("token_id", "contract", "amount"))
    day = day_of(now() if at is None else at)
    names = frame["collection"] if "collection" in frame else [None] * len(frame)
    table = with_contracts(read_prices(prices), zip(frame["contract"], names, strict=True))
    priced = latest_prices(frame, table, day)
    warn_unpriced(int(priced["price"].isna().sum()), len(priced), day, stacklevel=4)
    with localcontext(prec=DIGITS):
        pairs = zip(priced["price"], exact_amounts(frame), strict=True)
        values = [
            None if price is None or amount is None else price * amount for price, amount in pairs
        ]
    priced["value"] = pd.Series(values, frame.index, object)
    return frame.assign(**{name: priced[name] for name in priced})


def warn_unpriced(unpriced: int, holdings: int, day: date, stacklevel: int) -> None:
    """Warn about the holdings without a price at a date."""
    if unpriced:
        have = "has" if unpriced == 1 else "have"
        text = f"{unpriced:,} of {counted(holdings, 'holding')} {have} no price at {day}"
        warnings.warn(text, NftsyncWarning, stacklevel=stacklevel)


#: Contracts are stored some time after their tokens.
_CONTRACTS = """
    SELECT contract, contract_address, name FROM contracts
    UNION ALL SELECT DISTINCT contract, contract_address, NULL FROM tokens
        WHERE contract IS NOT NULL AND contract NOT IN (SELECT contract FROM contracts)
"""


def price_table(source: Source, prices: Table) -> pd.DataFrame:
    """Return prices by token and contract, with the names of a database's collections resolved.

    A warning gives the first name that matches no collection, because it may be misspelled.
    """
    contracts = [*source.rows(_CONTRACTS)]
    table = with_contracts(read_prices(prices), ((one, name) for one, _, name in contracts))
    keys = set(table["key"]).difference(contract for contract, _, _ in contracts)
    for key in sorted(keys):
        if not (is_hex_address(key) or is_uuid(key)):
            text = f"the prices name {quoted(key)}, which matches no known collection"
            text += near_contracts(contracts, key)
            warnings.warn(text, NftsyncWarning, stacklevel=5)
            break
    return table
