"""Prices from a file or a frame."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pandas as pd

from nftsync.columnar.filters import shown
from nftsync.columnar.inputs import Table, rows_of_table
from nftsync.errors import InputError
from nftsync.records import is_uuid, normalize_uuid
from nftsync.store.contracts import contract_key, is_hex_address
from nftsync.text import quoted
from nftsync.times import parse_time

#: Each price is for a token or a contract, named in one of these columns.
KEYS: Final = ("token_id", "contract")
_NEEDED: Final = ("date", "price", "currency")
#: The columns with their other names; others are ignored.
_COLUMNS: Final = {"token_id": (), "contract": ("contract_address",)} | dict.fromkeys(
    (*_NEEDED, "source"), ()
)
_PRICE: Final = re.compile(r"\+?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
#: The most digits of a price on each side of its point; products with amounts stay exact.
_MOST_DIGITS: Final = 60
#: Addresses that an error lists.
_LISTED: Final = 5


def read_prices(prices: Table) -> pd.DataFrame:
    """Return prices with exact decimals and dates; an InputError names an unusable row.

    `key` is a token's id or a contract's key. No key has two prices at a date.
    """
    name, place, rows = rows_of_table(prices, "prices", _COLUMNS, keys=len(KEYS), needs=_NEEDED)
    table = [_price(row, f"{place} {number}") for number, row in rows]
    columns = ["key", "price", "currency", "price_date", "price_source"]
    return _single(pd.DataFrame(table, columns=columns, dtype=object), name)


def _single(table: pd.DataFrame, name: str) -> pd.DataFrame:
    table = table.drop_duplicates()
    twice = table.duplicated(["key", "price_date"])
    if twice.any():
        row = table[twice].iloc[0]
        raise InputError(f"{name} give {row['key']} two prices at {row['price_date']}; keep one")
    return table


def with_contracts(table: pd.DataFrame, names: Iterable[tuple[Any, Any]]) -> pd.DataFrame:
    """Return prices with the contract instead of each collection's name, given by `names`.

    A name never stands for an address or a token's id, because anyone can choose a name.
    """
    pairs = {pair for pair in names if isinstance(pair[0], str)}
    addresses = {contract for contract, _ in pairs}
    named = [(str(name).casefold(), contract) for contract, name in pairs if name]

    def key_of(key: str) -> str:
        if key in addresses or is_hex_address(key) or is_uuid(key):
            return key
        matches = sorted(contract for name, contract in named if name == key.casefold())
        if len(matches) > 1:
            raise InputError(
                f"the prices name {quoted(key)}, but {len(matches)} collections have this name;"
                f" give the address instead: {', '.join(matches[:_LISTED])}"
            )
        return matches[0] if matches else key

    keys = {key: key_of(key) for key in table["key"].unique()}
    return _single(table.assign(key=table["key"].map(keys)), "the prices")


def latest_prices(rows: pd.DataFrame, table: pd.DataFrame, day: date) -> pd.DataFrame:
    """Return the latest price of each row up to a date; a token's own price precedes."""
    latest = table[table["price_date"] <= day].sort_values("price_date", kind="stable")
    latest = latest.drop_duplicates("key", keep="last").set_index("key")
    tokens, contracts = (rows[name].astype(object) for name in KEYS)
    keys = tokens.where(tokens.isin(latest.index), contracts)
    priced = latest.reindex(keys).set_index(rows.index)
    return priced.astype(object).where(priced.notna(), None)


def _price(row: Mapping[str, Any], place: str) -> tuple[str, Decimal, str, date, str | None]:
    if not row.keys() & KEYS:
        raise InputError(f"{place} has neither token_id nor contract; fill in one of them")
    column = "token_id"
    try:
        token = normalize_uuid(str(row[column]), "token id") if column in row else None
        column = "price"
        price = _decimal(row.get(column, ""))
        column = "currency"
        currency = _currency(row.get(column, ""))
        column = "date"
        day = day_of(row.get(column, ""))
    except InputError as error:
        raise InputError(f"{place}, column {column}: {error}") from None
    source = row.get("source")
    key = token or contract_key(str(row["contract"]))
    return key, price, currency, day, None if source is None else str(source)


def _decimal(value: Any) -> Decimal:
    """Return a price; refuse signs and separators, whose meaning differs between countries."""
    if _PRICE.fullmatch(str(value)):
        price = Decimal(str(value))
        if price.adjusted() < _MOST_DIGITS >= -int(price.as_tuple().exponent):
            return price
    raise InputError(
        f"{shown(value)} is not a price; write 1234.56, with up to {_MOST_DIGITS} digits before and"
        " after the point"
    )


def _currency(value: Any) -> str:
    """Return a currency in one spelling; it needs a letter, so that no part of a price passes."""
    code = str(value).upper()
    if not any(map(str.isalpha, code)) or not code.isprintable():
        raise InputError(f"{shown(value) if code else 'empty'}; write a code such as EUR")
    return code


def day_of(moment: Any) -> date:
    """Return the day of a time, in UTC."""
    if isinstance(moment, np.datetime64):
        moment = pd.Timestamp(moment)
    if not isinstance(moment, str | date) or moment is pd.NaT:
        raise InputError(f"{shown(moment)} is not a date; write 2026-10-31")
    return date.fromisoformat(parse_time(moment, "end")[:10])
