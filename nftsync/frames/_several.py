"""Frames of several databases, one below the other."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, Exact, amount_columns
from nftsync.columnar.columns import TEXT, text
from nftsync.columnar.hidden import HIDDEN, marked
from nftsync.columnar.holdings import DATABASE
from nftsync.columnar.source import named_databases, reading
from nftsync.errors import InputError, NftsyncError, NftsyncWarning
from nftsync.frames._explain import FRAMES
from nftsync.text import short_id

#: A function whose first parameter is a database.
_Function: TypeAlias = Callable[..., pd.DataFrame]
#: Types of one database or a frame; a set has no order.
_SINGLE = (str, bytes, set, os.PathLike, pd.DataFrame)
_TWICE = "its rows would count twice, so leave out one of the two databases"


def per_database(function: _Function) -> _Function:
    """Let a function of one database also take several, and add the column `database`."""
    parameter = next(iter(inspect.signature(function).parameters))
    columns = FRAMES.get(function.__name__, FRAMES["holdings"])
    amounts = [name for name, column in columns.items() if column.kind == "amount"]

    @wraps(function)
    def call(*args: Any, **named: Any) -> pd.DataFrame:
        db = args[0] if args else named.get(parameter)
        if not isinstance(db, Iterable) or isinstance(db, _SINGLE):
            return function(*args, **named)
        options = {name: named[name] for name in named if args or name != parameter}
        parts, databases_of = [], dict[str, str]()
        for name, database in named_databases(db).items():
            with warnings.catch_warnings(record=True) as notes:
                warnings.simplefilter("always", NftsyncWarning)
                try:
                    with reading(database) as source:
                        wallets = dict(source.rows("SELECT wallet_id, label FROM wallets"))
                        part = function(source, *args[1:], **options)
                except NftsyncError as error:
                    raise type(error)(f"{name}: {error}") from error
            for note in notes:
                warnings.warn(f"{name}: {note.message}", note.category, stacklevel=2)
            for wallet_id, label in wallets.items():
                if (other := databases_of.setdefault(wallet_id, name)) != name:
                    wallet = " ".join(filter(None, (label, short_id(wallet_id))))
                    raise InputError(f"wallet {wallet} is in {other} and in {name}; {_TWICE}")
            part.insert(0, DATABASE, text(pa.repeat(pa.scalar(name, TEXT), len(part))))
            parts.append(part)
        return _joined(parts, amounts, options.get("amounts"))

    call.__module__ = "nftsync.frames"  # where pickle finds it
    return call


def _joined(parts: list[pd.DataFrame], amounts: list[str], kind: AmountKind) -> pd.DataFrame:
    """Return frames one below the other, with amounts of one type."""
    frame = pd.concat(parts, ignore_index=True)
    columns = {name: Exact.of(frame[name].to_numpy(object, na_value=None)) for name in amounts}
    frame = frame.assign(**amount_columns(columns, kind))
    frame.attrs = dict(set.intersection(*(set(part.attrs.items()) for part in parts)))
    return marked(frame, sum(part.attrs.get(HIDDEN, 0) for part in parts))
