"""Tokens as they are, or as they were known at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import INTEGER, TEXT, frame_of, integers, text
from nftsync.columnar.contracts import CONTRACT_COLUMNS, contract_columns, names_contract
from nftsync.columnar.filters import filters_of
from nftsync.columnar.source import Numbers, Parameters, Source, Store, positions, reading
from nftsync.columnar.times import Moment, Times, moments, stored_time, times
from nftsync.errors import StoreError
from nftsync.records import CONTENT_COLUMNS

#: What tells people which token it is, beside its id.
NAMING = ("contract_address", *CONTRACT_COLUMNS, "name")
_INTEGERS = frozenset({"edition_id", "total_edition"})
_PLACE = CONTENT_COLUMNS.index("contract_address") + 1
_COLUMNS = (*CONTENT_COLUMNS[:_PLACE], *CONTRACT_COLUMNS, *CONTENT_COLUMNS[_PLACE:])
_CHANGED = msgspec.json.Decoder(dict[str, str | int | None])


@dataclass(frozen=True)
class Tokens:
    """Columns of tokens, in the order of their numbers.

    Attributes:
        numbers: each token's number, ascending.
        token_ids: their ids.
        content: the columns that were asked for, as they are stored.
        updated_at: when its content last changed.
    """

    numbers: Numbers
    token_ids: pa.Array
    content: dict[str, pa.Array]
    updated_at: Times

    def of_contract(self, contract: str) -> npt.NDArray[np.bool_]:
        """Tell which are of a contract, and False after the last, for a position of -1."""
        return np.append(names_contract(self.content["contract_address"], contract), False)

    def named(self, tokens: Numbers) -> dict[str, Any]:
        """A frame's columns that tell which token it is, by number; missing where it is none."""
        place = positions(self.numbers, tokens)
        rows = pa.array(place, mask=place < 0)
        columns = {"token_id": self.token_ids, **{name: self.content[name] for name in NAMING}}
        return {name: text(column.take(rows)) for name, column in columns.items()}


def finished(name: str, column: pa.Array) -> Any:
    """Make a frame's column of a content column."""
    return integers(column) if name in _INTEGERS else text(column)


def read_tokens(
    source: Source,
    names: Sequence[str],
    *,
    wanted: Numbers | None = None,
    as_of: str | None = None,
) -> Tokens:
    """Read tokens.

    Args:
        source: where to read.
        names: the columns that are needed beside the id and the time of the last change; those of
            the contract are today's names.
        wanted: the distinct numbers of the tokens that are needed; None is all. More may come.
        as_of: a time in the stored form: the content as it was known then.
    """
    # At a time, a token that had not changed yet was last changed when it was first seen.
    updated_column = "updated_at" if as_of is None else "first_seen_at"
    naming = not set(CONTRACT_COLUMNS).isdisjoint(names)
    stored = dict.fromkeys(("contract_address", *names) if naming else names)
    types = [
        (name, INTEGER if name in _INTEGERS else TEXT)
        for name in stored
        if name not in CONTRACT_COLUMNS
    ]
    numbers, (token_ids, updated, *columns) = source.numbered(
        "tokens", "token_no", [("token_id", TEXT), (updated_column, TEXT), *types], wanted
    )
    content = dict(zip((name for name, _ in types), columns, strict=True))
    updated_at = moments(updated)
    if as_of is not None:
        updated_at = _taken_back(source, numbers, content, updated_at, as_of, wanted)
    if naming:
        content |= contract_columns(source, content["contract_address"])
    return Tokens(numbers, token_ids, content, updated_at)


def _taken_back(
    source: Source,
    numbers: Numbers,
    content: dict[str, pa.Array],
    first_seen_at: Times,
    as_of: str,
    wanted: Numbers | None,
) -> Times:
    """Bring content back to what was known at a time; return when it had last changed by then."""
    bound = source.first_change("token_change_rows", as_of, later=True)
    where, parameters = source.restriction("tokens", "token_no", wanted)
    _undo(
        source,
        numbers,
        content,
        f"{where or ' WHERE true'} AND change_id >= ?",
        (*parameters, bound),
    )
    last_changed = _last_changes(
        source, numbers, f"{where or ' WHERE true'} AND change_id < ?", (*parameters, bound)
    )
    return np.where(np.isnat(last_changed), first_seen_at, last_changed)


def _undo(
    source: Source,
    numbers: Numbers,
    content: dict[str, pa.Array],
    where: str,
    parameters: Parameters,
) -> None:
    """Put back what later changes replaced, the newest first."""
    restored: dict[str, dict[int, str | int | None]] = {name: {} for name in content}
    for change, number, before in source.rows(
        f"SELECT change_id, token_no, before FROM token_change_rows{where} ORDER BY change_id DESC",
        parameters,
    ):
        for name, value in _decoded(change, before).items():
            if name in restored:
                restored[name][number] = value
    for name, values in restored.items():
        places = positions(numbers, np.array(list(values), dtype=np.int64))
        known = places >= 0
        if known.any():
            column = content[name]
            take = np.arange(len(column))
            take[places[known]] = len(column) + np.flatnonzero(known)
            replaced = pa.array(list(values.values()), column.type)
            content[name] = pa.concat_arrays([column, replaced]).take(pa.array(take))


def _decoded(change: int, before: str) -> dict[str, str | int | None]:
    try:
        return _CHANGED.decode(before)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"token change {change} cannot be undone, nftsync did not write it so: {error}"
        ) from None


def _last_changes(source: Source, numbers: Numbers, where: str, parameters: Parameters) -> Times:
    changed, observed = source.columns(
        f"SELECT token_no, observed_at FROM token_change_rows{where} ORDER BY change_id",
        [INTEGER, TEXT],
        parameters,
    )
    latest = np.full(len(numbers) + 1, np.datetime64("NaT", "us"))
    # Of several for one place the last stays; those of unknown tokens go to the spare end.
    latest[positions(numbers, changed.to_numpy())] = moments(observed)
    return latest[:-1]


def read_token_frame(
    db: Store | Source, as_of: Moment | None = None, *, contract: str | None = None
) -> pd.DataFrame:
    """Read the frame that `frames.tokens` returns, for the same arguments."""
    with reading(db) as source:
        chosen = filters_of(source, contract=contract).contract
        moment = None if as_of is None else stored_time(source, as_of, "end")
        names = (*_COLUMNS, "first_seen_at")
        found = read_tokens(source, names, as_of=moment)
    first_seen_at = moments(found.content["first_seen_at"])
    frame = frame_of(
        {
            "token_id": text(found.token_ids),
            **{name: finished(name, found.content[name]) for name in _COLUMNS},
            "first_seen_at": times(first_seen_at),
            "updated_at": times(found.updated_at),
        }
    )
    rows = np.ones(len(frame), dtype=np.bool_)
    if moment is not None:
        rows &= first_seen_at <= moments(pa.array([moment]))[0]
    if chosen is not None:
        rows &= found.of_contract(chosen)[:-1]
    return frame if rows.all() else frame[rows].reset_index(drop=True)
