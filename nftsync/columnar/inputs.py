"""Arguments of analyses as typed columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import TEXT, coded, first_rows
from nftsync.columnar.filters import filters_of
from nftsync.columnar.hidden import HIDDEN
from nftsync.columnar.holdings import read_holdings
from nftsync.columnar.source import Numbers, Store, reading
from nftsync.columnar.tokens import collections_of, contract_groups, contract_keys
from nftsync.errors import InputError
from nftsync.exact_sum import is_zero
from nftsync.list_files import Columns, named_columns, read_list_file
from nftsync.store.wallets import Labelled, WalletIds, given_wallets, ids_named

#: The input of an analysis: a frame, or a database to read it from.
FrameOrDb: TypeAlias = "pd.DataFrame | Store"
#: A table of the user's: a frame, or the path of a CSV file.
Table: TypeAlias = "pd.DataFrame | str | os.PathLike[str]"
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_IDS = ("wallet_id", "token_id")
#: Columns of contract addresses.
ADDRESSES = ("contract_address", "contract")
_PAST_DIGITS = 10**100
_WHOLE = "amounts must be whole numbers from 0 up, as in frames.holdings"


def load_holdings(
    holdings: FrameOrDb,
    exclude: WalletIds = (),
    *,
    needs: Sequence[str] = ("wallet_id", "token_id", "amount"),
    wants: Sequence[str] = (),
    hidden: bool = False,
    **filters: Any,
) -> pd.DataFrame:
    """Return holdings from a frame or a database, without zero balances and excluded wallets.

    `exclude` has wallets by id, or by label if the frame has `wallet_label`. Besides `wallet_id`
    and `amount`, the result has the columns `needs`, and `wants` if present. `hidden` and `filters`
    (`wallet`, `group`, `contract`) are for a database only.

    The frame is new, with a new index and `amount` as exact Python integers (None: unknown).
    """
    needs = list(dict.fromkeys((*needs, "wallet_id", "amount")))
    if isinstance(holdings, pd.DataFrame):
        frame = holdings
        for name, value in {**filters, HIDDEN: hidden or None}.items():
            if value is not None:
                raise InputError(
                    f"{name}= filters a database only; use it in frames.holdings, or select rows of"
                    " the frame: holdings[holdings[...] == ...]"
                )
        left_out = set(ids_named(given_wallets(exclude), lambda: labeled_wallets(frame)))
    else:
        left_out = set()
        with reading(holdings) as source:
            frame = read_holdings(
                source,
                filters_of(source, exclude=exclude, **filters),
                amounts="exact",
                needs={*needs, *wants, "amount_text"},
                hidden=hidden,
            )
    require_columns(frame, needs)
    for name in {"wallet_id", *needs}.intersection(_IDS):
        if frame[name].isna().any():
            raise InputError(f"a row of the frame has no {name}; drop such rows")
    amounts = exact_amounts(frame)
    included = _nonzero(frame, amounts)
    if left_out:
        codes, distinct = coded(text_column(frame, "wallet_id"))
        stays = [wallet.lower() not in left_out for wallet in distinct.to_pylist()]
        included &= np.array(stays, dtype=bool)[codes]
    if not included.all():
        frame, amounts = frame[included], amounts[included]
    # No column is copied: pandas copies on write.
    frame = frame.reset_index(drop=True)
    frame["amount"] = pd.Series(amounts, dtype=object, copy=False)
    return frame


def labeled_wallets(frame: Any) -> Labelled:
    if "wallet_label" not in frame.columns:
        raise InputError(
            "the frame has no column 'wallet_label'; name wallets by id, which is a UUID"
        )
    require_columns(frame, ("wallet_id", "wallet_label"))
    pairs = frame[["wallet_id", "wallet_label"]].dropna().drop_duplicates()
    if not isinstance(pairs, pd.DataFrame):
        pairs = pairs.compute()
    return zip(pairs["wallet_id"], pairs["wallet_label"], strict=True)


def require_columns(
    frame: pd.DataFrame, names: Iterable[str], function: str = "frames.holdings"
) -> None:
    """Check that a frame has each column once; `function` returns such a frame."""
    for name in names:
        count = int((frame.columns == name).sum())
        if count > 1:
            raise InputError(f"the frame has {count} columns named {name!r}; keep one")
        if not count:
            columns = [column for column in frame.columns if isinstance(column, str)]
            near = get_close_matches(name, columns, n=3, cutoff=0.5)
            similar = f" (similar: {', '.join(near)})" if near else ""
            raise InputError(
                f"none of the frame's {len(columns)} columns is named {name!r}{similar};"
                f" use a frame from {function}, or a database"
            )


def exact_amounts(frame: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return the amounts of a frame as Python integers or None.

    Other types are refused, because a conversion may have changed the amounts.
    """
    column = frame["amount"]
    values: npt.NDArray[np.object_] = column.to_numpy(dtype=object, na_value=None, copy=True)
    kind = str(column.dtype)
    if kind == "object":
        kind = pd.api.types.infer_dtype(values, skipna=True)
    whole = kind in ("integer", "empty") or pd.api.types.is_integer_dtype(column.dtype)
    if len(values) and not whole:
        raise InputError(f"the frame's column 'amount' is {kind}; {_WHOLE}")
    present = np.flatnonzero(pd.notna(values))
    # NumPy integers wrap in a sum.
    values[present] = [int(value) for value in values[present]]
    if ((values[present] < 0) | (values[present] >= _PAST_DIGITS)).any():
        raise InputError(
            "the frame's column 'amount' has a negative number, or one of more than 100 digits;"
            f" {_WHOLE}"
        )
    return values


def _nonzero(frame: pd.DataFrame, amounts: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    nonzero: npt.NDArray[np.bool_] = amounts != 0
    if "amount_text" not in frame.columns:
        return nonzero
    require_columns(frame, ["amount_text"])
    unknown = np.flatnonzero(pd.isna(amounts))
    sent = frame["amount_text"].iloc[unknown]
    nonzero[unknown] = [not (isinstance(amount, str) and is_zero(amount)) for amount in sent]
    return nonzero


def text_column(frame: pd.DataFrame, name: str) -> pa.Array:
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        column = pa.array(frame[name], from_pandas=True)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        if column.null_count == len(column):
            return pa.nulls(len(column), TEXT)
        if any(is_text(column.type) for is_text in _TEXTS):
            return column.cast(TEXT)
    raise InputError(
        f"the frame's column {name!r} has values other than text; use the types of frames.holdings"
    )


def groups_of(frame: pd.DataFrame, by: str) -> tuple[Numbers, pd.Series]:
    """Number each row's group, also of rows without a value, and return its first value."""
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
    """Return the columns `contract` and `collection` of groups with one contract each.

    `rows` has a row of each group, and `addresses` its contract address (null: none).
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
    """Return the values of an integer column (0 if missing), and a mask of the missing ones.

    Whole floats count, because pandas makes them of integers beside missing values.
    """
    column = frame[name]
    kinds = {"integer", "floating", "mixed-integer-float", "empty"}
    if not len(column) or pd.api.types.infer_dtype(column, skipna=True) in kinds:
        with suppress(TypeError, ValueError, OverflowError):
            values: Any = pd.array(column, dtype="Int64")
            return values.to_numpy(dtype=np.int64, na_value=0), np.asarray(values.isna())
    raise InputError(
        f"the frame's column {name!r} has values other than 64-bit integers;"
        " use the types of frames.holdings"
    )


def rows_of_table(
    table: Table, noun: str, columns: Columns, **rules: Any
) -> tuple[str, str, Iterator[tuple[int, Mapping[str, Any]]]]:
    """Return a table's name and a row's, for messages, and its numbered rows of filled cells.

    For `columns` and `rules`, see `named_columns`; unknown columns are ignored.
    """
    if isinstance(table, pd.DataFrame):
        name, have = f"the {noun}", "have" if noun.endswith("s") else "has"
        header = [*map(str, table.columns)]
        names = named_columns(header, columns, f"{name} {have}", others=True, **rules)
        return name, f"{name}, row", _frame_rows(table, names)
    file = read_list_file("-" if table == "-" else Path(table), f"{noun} file")
    rows = file.table(columns, others=True, **rules)
    return f"the {noun} in {file.name}", f"{file.name}, line", rows


def _frame_rows(frame: pd.DataFrame, names: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    cells = frame.astype(object).where(frame.notna(), None)
    for number, row in enumerate(cells.itertuples(index=False, name=None)):
        stripped = [cell.strip() or None if isinstance(cell, str) else cell for cell in row]
        named = zip(names, stripped, strict=True)
        if filled := {name: cell for name, cell in named if name and cell is not None}:
            yield number, filled
