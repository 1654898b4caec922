"""Contracts of tokens: one spelling to group by, and what they are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.amounts import AmountKind, Exact, amount_columns
from nftsync.columnar.columns import TEXT, coded, text
from nftsync.columnar.source import Numbers, Source
from nftsync.store.contracts import HEX_ADDRESS, contract_key, short_address
from nftsync.store.filters import has_names

#: The columns that a frame has beside `contract_address`.
CONTRACT_COLUMNS = ("contract", "collection")


def contract_keys(addresses: pa.Array) -> pa.Array:
    """Each address as `contract_key` has it, a million of them at once."""
    is_hex = pc.match_substring_regex(addresses, f"^{HEX_ADDRESS}$")
    return pc.if_else(is_hex, pc.ascii_lower(addresses), addresses)


def names_contract(addresses: pa.Array, contract: str) -> npt.NDArray[np.bool_]:
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
    called = collections_of(keys, _known(source, "name", keys))
    rows = pa.array(codes, mask=codes < 0)
    return {"contract": keys.take(rows), "collection": called.take(rows)}


def name_sources(source: Source, contracts: pa.Array) -> pa.Array:
    """Where the names of contracts are from; null of those without one."""
    return _known(source, "name_source", contracts)


def _known(source: Source, column: str, contracts: pa.Array) -> pa.Array:
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
    columns = {
        "contract_address": contracts,
        **called,
        "name_source": name_sources(source, called["contract"]),
    }
    return {name: text(column) for name, column in columns.items()}


def most_held(frame: pd.DataFrame, amounts: AmountKind) -> pd.DataFrame:
    """Finish what `collections` returns: its `amount` of exact integers, and the order of rows.

    Raises:
        InputError: the amounts do not fit the `amounts` that was asked for.
    """
    exact = Exact.of(frame["amount"].to_numpy(dtype=object))
    return frame.assign(**amount_columns({"amount": exact}, amounts)).sort_values(
        ["holders", "contract_address"], ascending=[False, True], ignore_index=True
    )
