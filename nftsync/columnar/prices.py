"""Prices from a file or a frame, checked row by row."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from nftsync.columnar.filters import shown
from nftsync.errors import InputError
from nftsync.records import is_uuid
from nftsync.store.contracts import contract_key, is_hex_address
from nftsync.text import quoted
from nftsync.times import parse_time

#: A table of prices, or the path of a CSV file with one.
Prices: TypeAlias = "pd.DataFrame | str | os.PathLike[str]"

#: Each price is for a token or a contract, named in one of these columns.
KEYS: Final = ("token_id", "contract")
_NEEDED: Final = ("date", "price", "currency")
#: Addresses that an error lists.
_LISTED: Final = 5


def read_prices(prices: Prices) -> pd.DataFrame:
    """Return prices with exact decimals and dates.

    Args:
        prices: a frame or the path of a CSV file, as for `frames.value`.

    Returns:
        A row per price: `key` (a token's id or a contract's key), `price` (`Decimal`), `currency`,
        `price_date` and `price_source` (None: not given). No key has two prices at a date.

    Raises:
        InputError: the file cannot be read, a column is missing, or a row is unusable; the text
            names the row (in a file, its line) and the column.
    """
    name, first = "the prices", 0
    if isinstance(prices, pd.DataFrame):
        frame = prices.reset_index(drop=True)
    else:
        path, first = os.fspath(prices), 2  # line 1 has the names of the columns
        name = f"the prices in {path}"
        try:
            frame = pd.read_csv(
                path,
                dtype=str,
                index_col=False,
                keep_default_na=False,
                encoding="utf-8-sig",
                skip_blank_lines=False,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error).strip()
            raise InputError(f"cannot read {name}: {reason}") from None
    missing = [name for name in _NEEDED if name not in frame]
    if "contract" not in frame and "contract_address" in frame:
        frame = frame.rename(columns={"contract_address": "contract"})
    if missing or not frame.columns.intersection(KEYS).size:
        needs = " and no column ".join(missing) or "token_id or contract"
        raise InputError(f"{name} have no column {needs}")
    frame = frame.reindex(columns=[*KEYS, *_NEEDED, "source"]).astype(object)
    frame = frame.where(frame.notna() & (frame != ""), None)
    rows = [
        _price(row, f"row {number} of {name}")
        for number, row in enumerate(frame.to_dict("records"), first)
        if not all(value is None for value in row.values())
    ]
    columns = ["key", "price", "currency", "price_date", "price_source"]
    return _single(pd.DataFrame(rows, columns=columns, dtype=object), name)


def _single(table: pd.DataFrame, name: str) -> pd.DataFrame:
    table = table.drop_duplicates()
    twice = table.duplicated(["key", "price_date"])
    if twice.any():
        row = table[twice].iloc[0]
        raise InputError(f"{name} give {row['key']} two prices at {row['price_date']}; keep one")
    return table


def with_contracts(table: pd.DataFrame, names: Iterable[tuple[Any, Any]]) -> pd.DataFrame:
    """Return prices with each collection's name replaced by its contract.

    A name never stands for an address or a token's id, because anyone can choose a name.

    Args:
        table: rows of `read_prices`.
        names: the contract and the name (or none) of each known collection.

    Raises:
        InputError: several collections have the name, or a collection has two prices at a date.
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
    """Return the latest price of each row up to a date; a token's own price precedes.

    Args:
        rows: rows with `token_id` and `contract`.
        table: rows of `with_contracts`.
        day: the last date that counts.

    Returns:
        The columns of `read_prices` without `key`; None for a row without a price.
    """
    latest = table[table["price_date"] <= day].sort_values("price_date", kind="stable")
    latest = latest.drop_duplicates("key", keep="last").set_index("key")
    tokens, contracts = (rows[name].astype(object) for name in KEYS)
    keys = tokens.where(tokens.isin(latest.index), contracts)
    priced = latest.reindex(keys).set_index(rows.index)
    return priced.astype(object).where(priced.notna(), None)


def _price(row: dict[Any, Any], place: str) -> tuple[str, Decimal, str, date, str | None]:
    token, contract = row["token_id"], row["contract"]
    key = contract_key(str(contract)) if token is None and contract is not None else token
    if key is None:
        raise InputError(f"{place} has neither token_id nor contract; fill in one of them")
    try:
        price = Decimal(str(row["price"]).strip())
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price < 0:
        raise InputError(
            f"{place}, column price: {shown(row['price'])} is not a price; write 1234.56"
        )
    if row["currency"] is None:
        raise InputError(f"{place}, column currency: empty; write a code such as EUR")
    try:
        day = day_of(row["date"])
    except InputError as error:
        raise InputError(f"{place}, column date: {error}") from None
    source = row["source"] if row["source"] is None else str(row["source"])
    return str(key).lower() if token else key, price, str(row["currency"]), day, source


def day_of(moment: Any) -> date:
    """Return the day of a time, in UTC.

    Raises:
        InputError: `moment` is not a time.
    """
    if isinstance(moment, np.datetime64):
        moment = pd.Timestamp(moment)
    if not isinstance(moment, str | date) or moment is pd.NaT:
        raise InputError(f"{shown(moment)} is not a date; write 2026-10-31")
    return date.fromisoformat(parse_time(moment, "end")[:10])
