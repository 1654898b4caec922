"""The frame-or-database argument of analyses, as typed columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import TEXT, coded, first_rows
from nftsync.columnar.filters import filters_of
from nftsync.columnar.holdings import read_holdings
from nftsync.columnar.source import Numbers, Store, reading
from nftsync.columnar.tokens import collections_of, contract_groups, contract_keys
from nftsync.errors import InputError
from nftsync.exact_sum import is_zero
from nftsync.store.wallets import Labelled, WalletIds, given_wallets, ids_in, ids_named

#: What an analysis takes: a frame of holdings, or what `frames.holdings` reads one from.
FrameOrDb: TypeAlias = "pd.DataFrame | Store"
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_IDS = ("wallet_id", "token_id")
#: Columns whose text is an address of a contract.
ADDRESSES = ("contract_address", "contract")
_PAST_DIGITS = 10**100
_WHOLE = "amounts must be whole numbers from 0 up, as frames.holdings gives them"


def load_holdings(
    holdings: FrameOrDb,
    exclude: WalletIds = (),
    *,
    needs: Sequence[str] = ("wallet_id", "token_id", "amount"),
    wants: Sequence[str] = (),
    **filters: Any,
) -> pd.DataFrame:
    """Take the holdings that count: without balances of zero and without some wallets.

    A balance is zero where `amount` is 0, or where it is missing and `amount_text`, if the frame
    has one, is nothing but zeros. Any other missing amount is a holding whose amount is unknown.

    Args:
        holdings: a frame with the columns of `frames.holdings` that are needed, any rows of it in
            any order; or a path, a connection, a `sqlite_utils.Database`, or None for the
            configured database.
        exclude: one wallet or several, whose rows are left out: each by its id or its label, which
            a frame has in `wallet_label`.
        needs: names of the columns that are needed; `wallet_id` and `amount` always are.
        wants: names of columns that are of use where the frame has them.
        filters: `wallet`, `group` and `contract`, of a database, as `filters_of` takes them.

    Returns:
        The rows that count, with all columns of the frame (from a database at least those that
        are needed or wanted), `amount` as exact Python integers (None: unknown) and a new index.
        What was given is not changed.

    Raises:
        InputError: a column is missing or stands twice, an id is missing, an amount is no whole
            number, an excluded wallet is none, a filter names nothing that the database has, or a
            filter was given for a frame.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    needs = list(dict.fromkeys((*needs, "wallet_id", "amount")))
    if isinstance(holdings, pd.DataFrame):
        frame = holdings
        for name, value in filters.items():
            if value is not None:
                raise InputError(
                    f"{name}= filters what is read from a database; of a frame, select the rows:"
                    " holdings[holdings[...] == ...]"
                )
        left_out = set(ids_named(given_wallets(exclude), lambda: labeled_wallets(frame)))
    else:
        with reading(holdings) as source:
            left_out = set(ids_in(source.cursor, exclude))
            columns = {*needs, *wants, "amount_text"}
            some = filters_of(source, **filters)
            frame = read_holdings(source, some, needs=columns, amounts="exact")
    require_columns(frame, needs)
    for name in {"wallet_id", *needs}.intersection(_IDS):
        if frame[name].isna().any():
            raise InputError(f"a row of the given frame has no {name}; leave such rows out")
    amounts = exact_amounts(frame)
    kept = _nonzero(frame, amounts)
    if left_out:
        codes, distinct = coded(text_column(frame, "wallet_id"))
        stays = [wallet.lower() not in left_out for wallet in distinct.to_pylist()]
        kept &= np.array(stays, dtype=bool)[codes]
    if not kept.all():
        frame, amounts = frame[kept], amounts[kept]
    # Neither line copies a column: pandas copies on write.
    frame = frame.reset_index(drop=True)
    frame["amount"] = pd.Series(amounts, dtype=object, copy=False)
    return frame


def labeled_wallets(frame: Any) -> Labelled:
    """The wallets of a frame, of pandas or of Dask, that have labels."""
    if "wallet_label" not in frame.columns:
        raise InputError(
            "the given frame has no 'wallet_label': name wallets by their ids, which are UUIDs"
        )
    require_columns(frame, ("wallet_id", "wallet_label"))
    pairs = frame[["wallet_id", "wallet_label"]].dropna().drop_duplicates()
    if not isinstance(pairs, pd.DataFrame):
        pairs = pairs.compute()
    return zip(pairs["wallet_id"], pairs["wallet_label"], strict=True)


def require_columns(
    frame: pd.DataFrame, names: Iterable[str], wanted: str = "frames.holdings"
) -> None:
    """Make sure that a frame has some columns, each of them once.

    Args:
        frame: what was given.
        names: the columns that are needed.
        wanted: the function that returns such a frame.

    Raises:
        InputError: one is missing or stands twice.
    """
    for name in names:
        count = int((frame.columns == name).sum())
        if count > 1:
            raise InputError(f"the given frame has {count} columns named {name!r}; keep one")
        if not count:
            known = [column for column in frame.columns if isinstance(column, str)]
            near = get_close_matches(name, known, n=3, cutoff=0.5)
            instead = f"; near ones it has: {', '.join(near)}" if near else ""
            raise InputError(
                f"the given frame of {len(known)} columns has no {name!r}{instead};"
                f" give what {wanted} returns, or a database"
            )


def exact_amounts(frame: pd.DataFrame) -> npt.NDArray[np.object_]:
    """The amounts of a frame as Python integers, None where one is missing.

    Integers of any kind are taken as they are. Floats, decimals, text and booleans are
    refused, as they may have been something else before.

    Raises:
        InputError: one is no whole number of 1 to 100 digits.
    """
    column = frame["amount"]
    values: npt.NDArray[np.object_] = column.to_numpy(dtype=object, na_value=None, copy=True)
    kind = str(column.dtype)
    if kind == "object":
        kind = pd.api.types.infer_dtype(values, skipna=True)
    whole = kind in ("integer", "empty") or pd.api.types.is_integer_dtype(column.dtype)
    if len(values) and not whole:
        raise InputError(f"the given frame's column 'amount' is {kind}; {_WHOLE}")
    known = np.flatnonzero(pd.notna(values))
    # NumPy's integers would wrap in a sum.
    values[known] = [int(value) for value in values[known]]
    if ((values[known] < 0) | (values[known] >= _PAST_DIGITS)).any():
        raise InputError(
            "the given frame's column 'amount' has a number that is negative or of more than 100"
            f" digits; {_WHOLE}"
        )
    return values


def _nonzero(frame: pd.DataFrame, amounts: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    kept: npt.NDArray[np.bool_] = amounts != 0
    if "amount_text" not in frame.columns:
        return kept
    require_columns(frame, ["amount_text"])
    unknown = np.flatnonzero(pd.isna(amounts))
    sent = frame["amount_text"].iloc[unknown]
    kept[unknown] = [not (isinstance(one, str) and is_zero(one)) for one in sent]
    return kept


def text_column(frame: pd.DataFrame, name: str) -> pa.Array:
    """A column of text as an Arrow array; what is missing is null.

    Raises:
        InputError: it holds something else than text.
    """
    try:
        column = pa.array(frame[name], from_pandas=True)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        if column.null_count == len(column):
            return pa.nulls(len(column), TEXT)
        if any(is_text(column.type) for is_text in _TEXTS):
            return column.cast(TEXT)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pass
    raise InputError(
        f"the given frame's column {name!r} holds something else than text;"
        " give it as frames.holdings does"
    )


def groups_of(frame: pd.DataFrame, by: str) -> tuple[Numbers, pd.Series]:
    """Number each row's group, and give each group's name as its first row has it.

    Contracts are grouped whatever the case of their hex digits; rows without a value are a group.

    Raises:
        InputError: what the column holds cannot be grouped.
    """
    column = frame[by]
    if by in ADDRESSES:
        numbers, _ = contract_groups(text_column(frame, by))
    else:
        try:
            numbers, distinct = pd.factorize(column)
        except TypeError as error:
            raise InputError(f"cannot group holdings by {by!r}: {error}") from None
        numbers[numbers < 0] = len(distinct)
    return numbers, column.take(first_rows(numbers))


def contract_names(frame: pd.DataFrame, rows: Numbers, addresses: pa.Array) -> dict[str, pa.Array]:
    """The contract columns of groups that are of one contract each: `contract` and `collection`.

    Args:
        frame: has a column `collection`, or not: then contracts are called by their addresses.
        rows: a row of each group.
        addresses: by group, the address of its contract; null where it has none.
    """
    contracts = contract_keys(addresses)
    names = pa.nulls(len(contracts), TEXT)
    if "collection" in frame.columns:
        require_columns(frame, ["collection"])
        names = text_column(frame, "collection").take(pa.array(rows))
    return {"contract": contracts, "collection": collections_of(contracts, names)}


def integer_column(
    frame: pd.DataFrame, name: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """A column of integers that may be missing, as values (0 where missing) and a mask of those.

    Floats that are whole are taken, as pandas makes them of integers beside missing ones.

    Raises:
        InputError: it holds something else, or an integer beyond 64 bits.
    """
    column = frame[name]
    kinds = {"integer", "floating", "mixed-integer-float", "empty"}
    if not len(column) or pd.api.types.infer_dtype(column, skipna=True) in kinds:
        try:
            values: Any = pd.array(column, dtype="Int64")
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            return values.to_numpy(dtype=np.int64, na_value=0), np.asarray(values.isna())
    raise InputError(
        f"the given frame's column {name!r} holds something else than 64-bit integers;"
        " give it as frames.holdings does"
    )
