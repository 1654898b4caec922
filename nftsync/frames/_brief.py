"""Short forms of frames for display."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd

from nftsync.columnar.columns import NAMED
from nftsync.columnar.filters import shown
from nftsync.columnar.holdings import DATABASE
from nftsync.errors import InputError
from nftsync.text import ID, MISSING, cut_line, id_key, short_id, visible

#: The number of columns, and the columns to prefer, which `nftsync holdings` shows.
_MOST_COLUMNS = 8
PREFERRED = (
    "wallet",
    "nft",
    "amount",
    "collection",
    "held_since",
    "edition_id",
    "total_edition",
    "blockchain_token_id",
)
_FIRST = (DATABASE, "wallet", "wallet_label", "label", "collection", "nft", "name")
#: A column, and the column that it may repeat.
_DUPLICATE_OF = {"contract_address": "contract"}
_SAME_AMOUNT = re.compile("((?:.+_)?amount|before|after)_(text|float)")
_ID_COLUMN = re.compile("contract(?:_.+)?|.+_id", re.DOTALL)


def brief(
    frame: pd.DataFrame,
    *,
    width: int = 48,
    all: bool = False,  # noqa: A002 - the name that users read
) -> pd.DataFrame:
    """Return a short form of a frame for display, with one line per row and at most eight columns.

    It prefers the columns of `nftsync holdings`, then other names. Wallets, collections and NFTs
    come first. Columns without any value, and columns that repeat another (`amount_text`, if every
    `amount` is known), are left out.

    Ids and addresses show their two ends (`8d1cc10a…66aa`, `0x8f4f…8e63`), or more to stay
    distinct. Times are in UTC, to the second. Missing and blank values are `–`.

    `width` is the maximum length of a text, from 8 to 1,000 characters; `all` keeps all columns.
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"brief() needs a DataFrame, not {shown(frame)}")
    if not 8 <= width <= 1_000:
        raise InputError(f"width={width!r} is out of range; give 8 to 1,000")
    names = list(frame.columns)
    columns = [_Column(frame.iloc[:, place], name) for place, name in enumerate(names)]
    index_levels = [frame.index.get_level_values(number) for number in range(frame.index.nlevels)]
    levels = [_Column(level.to_series(), level.name) for level in index_levels]
    short = _short_ids([*columns, *levels])
    for column in (*columns, *levels):
        column.cut(short, width)
    order = _order(names, columns)
    if not all and len(order) > _MOST_COLUMNS:
        order = _preferred(order, names)[:_MOST_COLUMNS]
    result = pd.DataFrame(
        {number: columns[place].finished() for number, place in enumerate(order)},
        index=range(len(frame)),
    )
    result.columns = frame.columns.take(order)
    result.index = _index(frame.index, levels)
    return result


class _Column:
    """Codes (-1: missing) and distinct displayed values of a column; `ids` are positions of ids."""

    def __init__(self, column: pd.Series, name: Hashable) -> None:
        if column.dtype.kind in "mM":
            column = _seconds(column)
        self._numbers = column if pd.api.types.is_numeric_dtype(column.dtype) else None
        values = column.astype(object).to_numpy()
        try:
            self.codes, distinct = pd.factorize(values)
        except TypeError:  # not hashable
            self.codes, distinct = np.arange(len(values)), values
        self.values = [*map(_plain, distinct), None]
        of_ids = isinstance(name, str) and _ID_COLUMN.fullmatch(name) is not None
        self.ids = {
            place
            for place, value in enumerate(self.values)
            if isinstance(value, str) and (of_ids or ID.fullmatch(value))
        }

    def cut(self, short: dict[str, str], width: int) -> None:
        for place, value in enumerate(self.values):
            if place in self.ids:
                self.values[place] = short[id_key(value)].strip() or None
            elif isinstance(value, str):
                self.values[place] = cut_line(value, width) or None

    def __len__(self) -> int:
        return len(self.codes)

    def shown(self) -> Any:
        values = np.empty(len(self.values), dtype=object)
        values[:] = self.values
        return values[self.codes]

    def missing(self) -> Any:
        return np.array([value is None for value in self.values])[self.codes]

    def finished(self) -> Any:
        missing = self.missing()
        if self._numbers is not None and not missing.any():
            return self._numbers.array
        values = self.shown()
        values[missing] = MISSING
        texts = all(isinstance(value, str | None) for value in self.values)
        return pd.array(values, dtype="str") if texts else values


def _index(index: pd.Index, levels: Sequence[_Column]) -> pd.Index:
    if isinstance(index, pd.RangeIndex):
        return index
    if isinstance(index, pd.MultiIndex):
        return pd.MultiIndex.from_arrays([level.finished() for level in levels], names=index.names)
    return pd.Index(levels[0].finished(), name=index.name)


def _seconds(column: pd.Series) -> pd.Series:
    """Return times or durations as text, to the second."""
    if column.dtype.kind == "M":
        texts = [text.replace("T", " ") for text in np.datetime_as_string(column.to_numpy("M8[s]"))]
    else:
        texts = [str(duration) for duration in column.dt.floor("s")]
    return pd.Series(texts, dtype=object).where(column.notna().to_numpy(), None)


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int):
        return value
    if not pd.api.types.is_scalar(value):
        return str(value)
    if pd.isna(value):
        return None
    if isinstance(value, datetime | timedelta):
        return _seconds(pd.Series([value]))[0]
    return value if pd.api.types.is_number(value) else str(value)


def _short_ids(columns: Iterable[_Column]) -> dict[str, str]:
    """Return the short form of each id, long enough to be distinct."""
    ids = {id_key(column.values[place]) for column in columns for place in column.ids}
    extra = dict.fromkeys(ids, 0)
    while True:
        short = {text: visible(short_id(text, extra[text])) for text in ids}
        count = Counter(short.values())
        alike = [text for text in ids if count[short[text]] > 1 and short[text] != visible(text)]
        if not alike:
            return short
        for text in alike:
            extra[text] += 1


def _order(names: Sequence[Hashable], columns: Sequence[_Column]) -> list[int]:
    place_of = {name: place for place, name in reversed([*enumerate(names)])}
    empty = {place for place, column in enumerate(columns) if column.missing().all()}
    if not columns or not len(columns[0]):
        empty = set()
    shown = [
        place
        for place, name in enumerate(names)
        if place not in empty and not _repeats(columns[place], name, place_of, columns)
    ]
    first = [place_of[name] for name in _FIRST if place_of.get(name) in shown]
    return list(dict.fromkeys([*first, *shown]))


def _preferred(order: Sequence[int], names: Sequence[Hashable]) -> list[int]:
    preferred = list(dict.fromkeys((DATABASE, *PREFERRED, *NAMED)))
    rank: dict[Hashable, int] = {name: place for place, name in enumerate(preferred)}
    others = len(rank)
    shown = {names[place] for place in order}
    for name, replaced in NAMED.items():
        rank |= dict.fromkeys(replaced, others + 1) if name in shown else {}
    return sorted(order, key=lambda place: rank.get(names[place], others))


def _repeats(
    column: _Column, name: Hashable, place_of: dict[Hashable, int], columns: Sequence[_Column]
) -> bool:
    if not isinstance(name, str) or not len(column):
        return False
    amount = _SAME_AMOUNT.fullmatch(name)
    place = place_of.get(_DUPLICATE_OF.get(name) or (amount[1] if amount else None))
    if place is None:
        return False
    other = columns[place]
    if amount:
        return amount[2] == "float" or bool((column.missing() | ~other.missing()).all())
    return bool((column.shown() == other.shown()).all())
