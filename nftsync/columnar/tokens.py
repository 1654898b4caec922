"""Tokens, contracts, and the names of wallets, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.columns import (
    INTEGER,
    TEXT,
    Times,
    coded,
    flags,
    frame_columns,
    frame_of,
    integers,
    moments,
    taken,
    text,
    times,
)
from nftsync.columnar.filters import Moment, filters_of, state_time
from nftsync.columnar.source import Numbers, Source, Store, positions, reading
from nftsync.errors import StoreError
from nftsync.records import CONTENT_COLUMNS, INTEGER_COLUMNS
from nftsync.store.contracts import contract_key, nft_name, short_address
from nftsync.store.history import first_row
from nftsync.store.names import Names
from nftsync.store.wallets import wallet_names

#: Columns of tokens that no table has, and the content from which `read_tokens` makes them.
_MADE_FROM = {
    "contract": ("contract_address",),
    "collection": ("contract_address",),
    "nft": ("contract_address", "name", "blockchain_token_id"),
}
MADE_COLUMNS = tuple(_MADE_FROM)


def contract_keys(addresses: pa.Array) -> pa.Array:
    """Return each address in one spelling, as `contract_key` does."""
    codes, distinct = coded(addresses)
    return taken(pa.array(map(contract_key, distinct.to_pylist()), TEXT), codes)


def matches_contract(addresses: pa.Array, contract: str) -> npt.NDArray[np.bool_]:
    codes, distinct = coded(addresses)
    same = pc.equal(contract_keys(distinct), contract_key(contract))
    return np.append(flags(same), False)[codes]


def contract_groups(addresses: pa.Array) -> tuple[Numbers, pa.Array]:
    """Number the contracts of a column of addresses, in order of appearance.

    Also return each contract's first spelling. The last number is for rows without a contract.
    """
    codes, distinct = coded(addresses)
    number_of, keys = coded(contract_keys(distinct))
    first = np.searchsorted(np.maximum.accumulate(number_of), np.arange(len(keys)))
    numbers = np.append(number_of, len(keys)).astype(np.int64)[codes]
    return numbers, pa.concat_arrays([distinct.take(pa.array(first)), pa.nulls(1, distinct.type)])


def collections_of(contracts: pa.Array, names: pa.Array) -> pa.Array:
    pairs = zip(contracts.to_pylist(), names.to_pylist(), strict=True)
    collections = (
        short_address(contract) if name is None and contract is not None else name
        for contract, name in pairs
    )
    return pa.array(collections, TEXT)


def contract_columns(source: Source, addresses: pa.Array) -> dict[str, pa.Array]:
    codes, distinct = coded(addresses)
    keys = contract_keys(distinct)
    collections = collections_of(keys, _contract_values(source, "name", keys))
    return {"contract": taken(keys, codes), "collection": taken(collections, codes)}


def _contract_values(source: Source, column: str, contracts: pa.Array) -> pa.Array:
    keys, values = source.columns(
        f"SELECT contract, {column} FROM contracts WHERE {column} IS NOT NULL", [TEXT, TEXT]
    )
    return values.take(pc.index_in(contracts, keys))


def named_contracts(source: Source, contracts: pa.Array) -> dict[str, Any]:
    columns_of_contract = contract_columns(source, contracts)
    origins = _contract_values(source, "name_source", columns_of_contract["contract"])
    columns = {"contract_address": contracts, **columns_of_contract, "name_source": origins}
    return {name: text(column) for name, column in columns.items()}


def wallet_columns(source: Source, wallets: Numbers, side: str = "") -> dict[str, Any]:
    """Return a frame's columns that identify wallets by number; missing for unknown numbers.

    `side` is the columns' prefix, for rows with several wallets.
    """
    columns = ("wallet_id", "label", "wallet_group")
    numbers, (ids, labels, groups) = source.numbered("wallet", columns, np.unique(wallets))
    place = positions(numbers, wallets)
    prefix = f"{side}_" if side else ""
    return {
        f"{prefix}wallet_id": text(taken(ids, place)),
        f"{side or 'wallet'}_label": text(taken(labels, place)),
        f"{side or 'wallet'}_group": text(taken(groups, place)),
        f"{prefix}wallet": text(taken(names_of_wallets(source, ids), place)),
    }


def names_of_wallets(source: Source, ids: pa.Array, labels: pa.Array | None = None) -> pa.Array:
    """Return the names of wallets by id; `labels` of all wallets save time."""
    if labels is not None:
        return pa.array(wallet_names(zip(ids.to_pylist(), labels.to_pylist(), strict=True)), TEXT)
    return pa.array(Names(source.cursor).of_wallets(ids.to_pylist()).values(), TEXT)


#: Columns that identify a token to people.
NAMING = ("contract_address", "contract", "collection", "name", "nft")
#: Columns of the frame between `token_id` and the times.
_COLUMNS = [x for x in frame_columns("tokens") if x in {*CONTENT_COLUMNS, *MADE_COLUMNS}]
_CHANGED = msgspec.json.Decoder(dict[str, str | int | None])


@dataclass(frozen=True)
class Tokens:
    """Tokens as columns, by ascending number; the content is as stored."""

    numbers: Numbers
    token_ids: pa.Array
    content: dict[str, pa.Array]
    updated_at: Times

    def in_contract(self, contract: str | None, tokens: Numbers) -> npt.NDArray[np.bool_]:
        if contract is None:
            return np.ones(len(tokens), dtype=np.bool_)
        same = np.append(matches_contract(self.content["contract_address"], contract), False)
        return same[positions(self.numbers, tokens)]

    def named(self, tokens: Numbers) -> dict[str, Any]:
        place = positions(self.numbers, tokens)
        columns = {"token_id": self.token_ids, **{name: self.content[name] for name in NAMING}}
        return {name: text(taken(column, place)) for name, column in columns.items()}


def finished(name: str, column: pa.Array) -> Any:
    """Convert a column of token content to a frame's column."""
    return integers(column) if name in INTEGER_COLUMNS else text(column)


def read_tokens(
    source: Source, names: Sequence[str], *, wanted: Numbers | None = None, as_of: str | None = None
) -> Tokens:
    """Read tokens with columns of content or of `MADE_COLUMNS`, and the time of the last change.

    The result has all `wanted` tokens (distinct), and may have others. `as_of` restores the content
    at a time, but not the names of contracts.
    """
    # A token without a change by then counts as changed at its first read.
    updated_column = "updated_at" if as_of is None else "first_seen_at"
    sources = (one for name in names for one in _MADE_FROM.get(name, (name,)))
    stored = list(dict.fromkeys(sources))
    numbers, (token_ids, updated, *columns) = source.numbered(
        "token", ["token_id", updated_column, *stored], wanted
    )
    content = dict(zip(stored, columns, strict=True))
    tokens = Tokens(numbers, token_ids, content, moments(updated))
    if as_of is not None:
        tokens = _restored(source, tokens, as_of, wanted)
    if not _MADE_FROM.keys().isdisjoint(names):
        content |= contract_columns(source, content["contract_address"])
    if "nft" in names:
        naming = [content[name] for name in ("name", "collection", "blockchain_token_id")]
        values = (column.to_pylist() for column in (*naming, token_ids))
        content["nft"] = pa.array(map(nft_name, *values), TEXT)
    return tokens


def _restored(source: Source, tokens: Tokens, as_of: str, wanted: Numbers | None) -> Tokens:
    bound = first_row(source.cursor, "token_change_rows", as_of, later=True)
    which, parameters = source.restriction("token", wanted)
    restored: dict[str, dict[int, str | int | None]] = {name: {} for name in tokens.content}
    for change, number, before in source.rows(
        "SELECT change_id, token_no, before FROM token_change_rows"
        f" WHERE {which} AND change_id >= ? ORDER BY change_id DESC",
        (*parameters, bound),
    ):
        for name in restored.keys() & (undone := _decoded(change, before)).keys():
            restored[name][number] = undone[name]
    for name, values in restored.items():
        column = tokens.content[name]
        places = positions(tokens.numbers, np.array(list(values), dtype=np.int64))
        present = places >= 0
        if present.any():
            take = np.arange(len(column))
            take[places[present]] = len(column) + np.flatnonzero(present)
            replaced = pa.array(list(values.values()), column.type)
            tokens.content[name] = pa.concat_arrays([column, replaced]).take(pa.array(take))
    changed, observed = source.columns(
        "SELECT token_no, observed_at FROM token_change_rows"
        f" WHERE {which} AND change_id < ? ORDER BY change_id",
        [INTEGER, TEXT],
        (*parameters, bound),
    )
    updated_at = np.append(tokens.updated_at, np.datetime64("NaT", "us"))
    # The last change of a token wins. Unknown tokens go to the spare last element.
    updated_at[positions(tokens.numbers, changed.to_numpy())] = moments(observed)
    return replace(tokens, updated_at=updated_at[:-1])


def _decoded(change: int, before: str) -> dict[str, str | int | None]:
    try:
        return _CHANGED.decode(before)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"cannot undo token change {change}, which nftsync did not write ({error});"
            " restore a backup"
        ) from None


def read_token_frame(
    db: Store | Source, as_of: Moment | None = None, *, contract: str | None = None
) -> pd.DataFrame:
    with reading(db) as source:
        address = filters_of(source, contract=contract).contract
        moment = None if as_of is None else state_time(source, as_of)
        names = (*_COLUMNS, "first_seen_at")
        tokens = read_tokens(source, names, as_of=moment)
    first_seen_at = moments(tokens.content["first_seen_at"])
    frame = frame_of(
        {
            "token_id": text(tokens.token_ids),
            **{name: finished(name, tokens.content[name]) for name in _COLUMNS},
            "first_seen_at": times(first_seen_at),
            "updated_at": times(tokens.updated_at),
        }
    )
    rows = tokens.in_contract(address, tokens.numbers)
    if moment is not None:
        rows &= first_seen_at <= moments(pa.array([moment]))[0]
    return frame if rows.all() else frame[rows].reset_index(drop=True)
