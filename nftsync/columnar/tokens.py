"""Tokens now or at a time, their contracts, and the names of wallets, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.amounts import AmountKind, Exact, amount_columns
from nftsync.columnar.columns import (
    INTEGER,
    TEXT,
    Times,
    coded,
    frame_of,
    integers,
    moments,
    text,
    times,
)
from nftsync.columnar.filters import Moment, filters_of, stored_time
from nftsync.columnar.source import EDITIONS, Numbers, Parameters, Source, Store, positions, reading
from nftsync.errors import StoreError
from nftsync.records import CONTENT_COLUMNS
from nftsync.store.contracts import HEX_ADDRESS, contract_key, short_address
from nftsync.store.filters import has_names

#: The columns that a frame has beside `contract_address`.
CONTRACT_COLUMNS = ("contract", "collection")


def contract_keys(addresses: pa.Array) -> pa.Array:
    """Each address as `contract_key` has it, a million of them at once."""
    is_hex = pc.match_substring_regex(addresses, f"^{HEX_ADDRESS}$")
    return pc.if_else(is_hex, pc.ascii_lower(addresses), addresses)


def matches_contract(addresses: pa.Array, contract: str) -> npt.NDArray[np.bool_]:
    """Tell which addresses of a column name the given contract."""
    codes, distinct = coded(addresses)
    same = pc.equal(contract_keys(distinct), contract_key(contract))
    return np.append(same.to_numpy(zero_copy_only=False), False)[codes]


def contract_groups(addresses: pa.Array) -> tuple[Numbers, pa.Array]:
    """Number the contracts that a column of addresses names, in the order they come.

    Addresses of `0x` and 40 hex digits are one contract whatever their case.

    Args:
        addresses: text, null where a token has no contract.

    Returns:
        The number of each row's contract, and by number how each was spelled first. The last
        number, spelled null, is that of the rows without a contract, even if there are none.
    """
    codes, distinct = coded(addresses)
    number_of, keys = coded(contract_keys(distinct))
    first = np.searchsorted(np.maximum.accumulate(number_of), np.arange(len(keys)))
    numbers = np.append(number_of, len(keys)).astype(np.int64)[codes]
    return numbers, pa.concat_arrays([distinct.take(pa.array(first)), pa.nulls(1, distinct.type)])


def collections_of(contracts: pa.Array, names: pa.Array) -> pa.Array:
    """What contracts are called: their names, and the short addresses of those without one.

    Args:
        contracts: in the one spelling; null where there is none.
        names: theirs, null where they have none.
    """
    both = zip(contracts.to_pylist(), names.to_pylist(), strict=True)
    called = (
        short_address(contract) if name is None and contract is not None else name
        for contract, name in both
    )
    return pa.array(called, TEXT)


def contract_columns(source: Source, addresses: pa.Array) -> dict[str, pa.Array]:
    """Look up the contracts that a column of addresses names.

    Args:
        source: where their names are.
        addresses: of tokens, null where one has no contract.

    Returns:
        The columns `contract` and `collection`.
    """
    codes, distinct = coded(addresses)
    keys = contract_keys(distinct)
    called = collections_of(keys, _contract_values(source, "name", keys))
    rows = pa.array(codes, mask=codes < 0)
    return {"contract": keys.take(rows), "collection": called.take(rows)}


def _contract_values(source: Source, column: str, contracts: pa.Array) -> pa.Array:
    """Look up a column of the table of contracts."""
    if not has_names(source.cursor):
        return pa.nulls(len(contracts), TEXT)
    known, values = source.columns(
        f"SELECT contract, {column} FROM contracts WHERE {column} IS NOT NULL",
        [TEXT, TEXT],
    )
    return values.take(pc.index_in(contracts, known))


def named_contracts(source: Source, contracts: pa.Array) -> dict[str, Any]:
    """The columns of `collections` that tell which contract a row is of, by its address."""
    called = contract_columns(source, contracts)
    origins = _contract_values(source, "name_source", called["contract"])
    columns = {"contract_address": contracts, **called, "name_source": origins}
    return {name: text(column) for name, column in columns.items()}


def sort_contracts(frame: pd.DataFrame, amounts: AmountKind) -> pd.DataFrame:
    """Finish what `collections` returns: its `amount` of exact integers, and the order of rows.

    Raises:
        InputError: the amounts do not fit the `amounts` that was asked for.
    """
    exact = Exact.of(frame["amount"].to_numpy(dtype=object))
    return frame.assign(**amount_columns({"amount": exact}, amounts)).sort_values(
        ["holders", "contract_address"], ascending=[False, True], ignore_index=True
    )


def wallet_columns(source: Source, wallets: Numbers, side: str = "") -> dict[str, Any]:
    """A frame's columns that tell which wallet it is; missing where a number is no wallet's.

    Args:
        source: where their ids and labels are.
        wallets: numbers of wallets, in any order and as often as they come.
        side: of several wallets in a row, which; the names of the columns begin with it.
    """
    numbers, (ids, labels) = source.numbered("wallet", ["wallet_id", "label"], np.unique(wallets))
    place = positions(numbers, wallets)
    rows = pa.array(place, mask=place < 0)
    id_name = f"{side}_wallet_id" if side else "wallet_id"
    return {
        id_name: text(ids.take(rows)),
        f"{side or 'wallet'}_label": text(labels.take(rows)),
    }


#: What tells people which token it is, beside its id.
NAMING = ("contract_address", *CONTRACT_COLUMNS, "name")
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

    def in_contract(self, contract: str | None, tokens: Numbers) -> npt.NDArray[np.bool_]:
        """Tell which tokens, by number, are of a contract; None: all are."""
        if contract is None:
            return np.ones(len(tokens), dtype=np.bool_)
        same = np.append(matches_contract(self.content["contract_address"], contract), False)
        return same[positions(self.numbers, tokens)]

    def named(self, tokens: Numbers) -> dict[str, Any]:
        """A frame's columns that tell which token it is, by number; missing where it is none."""
        place = positions(self.numbers, tokens)
        rows = pa.array(place, mask=place < 0)
        columns = {"token_id": self.token_ids, **{name: self.content[name] for name in NAMING}}
        return {name: text(column.take(rows)) for name, column in columns.items()}


def finished(name: str, column: pa.Array) -> Any:
    """Make a frame's column of a content column."""
    return integers(column) if name in EDITIONS else text(column)


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
    stored = list(dict.fromkeys(("contract_address", *names) if naming else names))
    stored = [name for name in stored if name not in CONTRACT_COLUMNS]
    numbers, (token_ids, updated, *columns) = source.numbered(
        "token", ["token_id", updated_column, *stored], wanted
    )
    content = dict(zip(stored, columns, strict=True))
    updated_at = moments(updated)
    if as_of is not None:
        updated_at = _restore_content(source, numbers, content, updated_at, as_of, wanted)
    if naming:
        content |= contract_columns(source, content["contract_address"])
    return Tokens(numbers, token_ids, content, updated_at)


def _restore_content(
    source: Source,
    numbers: Numbers,
    content: dict[str, pa.Array],
    first_seen_at: Times,
    as_of: str,
    wanted: Numbers | None,
) -> Times:
    """Bring content back to what was known at a time; return when it had last changed by then."""
    bound = source.first_change("token_change_rows", as_of, later=True)
    which, parameters = source.restriction("token", wanted)
    span = (*parameters, bound)
    _undo(source, numbers, content, f"{which} AND change_id >= ?", span)
    last_changed = _last_changes(source, numbers, f"{which} AND change_id < ?", span)
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
        f"SELECT change_id, token_no, before FROM token_change_rows WHERE {where}"
        " ORDER BY change_id DESC",
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
        f"SELECT token_no, observed_at FROM token_change_rows WHERE {where} ORDER BY change_id",
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
    rows = found.in_contract(chosen, found.numbers)
    if moment is not None:
        rows &= first_seen_at <= moments(pa.array([moment]))[0]
    return frame if rows.all() else frame[rows].reset_index(drop=True)
