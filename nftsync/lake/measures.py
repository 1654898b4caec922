"""Concentration, overlap and collections of a lake's holdings, computed per bucket on Dask.

Each returns a small pandas DataFrame, equal to the result of the same function in `nftsync.frames`,
with the same parameters and errors; of a contract's spellings, it has the one of the least wallet
id, or in `collections` the lake's. The first parameter is a lake or, except for `collections`, a
Dask DataFrame with the needed columns of `holdings`. Dask uses the connected cluster, or this
machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync import frames
from nftsync.columnar.amounts import AmountKind
from nftsync.columnar.columns import TEXT, text
from nftsync.columnar.holders import Overlap, check_grouping, overlap_frame, overlap_of, sort_groups
from nftsync.columnar.inputs import ADDRESSES, labeled_wallets, load_holdings, text_column
from nftsync.columnar.source import reading
from nftsync.columnar.tokens import contract_keys, named_contracts
from nftsync.errors import InputError
from nftsync.lake.frames import holdings, tokens
from nftsync.lake.names import put_all_names
from nftsync.lake.pinned import LakeAddress, new_database, pinned
from nftsync.store.wallets import WalletIds, given_wallets, ids_named

if TYPE_CHECKING:
    import dask.dataframe as dd


#: A lake, or a Dask DataFrame of holdings.
Source: TypeAlias = "LakeAddress | dd.DataFrame"

#: Equal for all rows that must be in one partition.
_GROUP = "nftsync_group"


def concentration(
    source: Source,
    by: str = "contract_address",
    exclude: WalletIds = (),
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Measure how unevenly each group's amount is spread over its holders.

    One worker computes a group, so the largest group must fit into its memory.
    """
    check_grouping(by)
    columns = ["wallet_id", "token_id", "amount", by]
    frame, left_out = _given(source, exclude, columns, ("amount_text", "collection"))
    if by in ADDRESSES and "collection" in frame.columns:
        columns.append("collection")
    meta = _slim(frame._meta, left_out, columns, by)
    slim = frame.map_partitions(_slim, left_out, columns, by, meta=meta).shuffle(_GROUP)
    groups = slim.map_partitions(_measured, by, meta=_measured(meta, by))
    return sort_groups(groups.compute(), by, amounts)


def overlap(source: Source, exclude: WalletIds = ()) -> pd.DataFrame:
    """Count the common holders of each pair of contracts, most first.

    In a lake, each wallet is in one bucket; rows of a Dask DataFrame are shuffled by wallet first.
    """
    needs = ("wallet_id", "contract_address", "amount")
    frame, left_out = _given(source, exclude, needs, ("collection", "amount_text"))
    holders = frame.map_partitions(_holders, left_out, meta=_holders(frame._meta, left_out))
    if not isinstance(source, str | os.PathLike):
        holders = holders.shuffle("wallet_id")
    shared = holders.map_partitions(_shared, meta=_shared(holders._meta)).groupby(["a", "b"])
    pairs = shared.agg({"wallets": "sum", "name": "first"}).compute().reset_index()
    pairs = pairs.sort_values(["a", "b"])
    alone = pairs["a"] == pairs["b"]
    contracts, pairs = pairs[alone], pairs[~alone]
    number = pd.Index(contracts["a"])
    found = Overlap(
        contracts=text_column(contracts, "a"),
        names=text_column(contracts, "name"),
        rows=np.arange(len(contracts)),
        wallets=contracts["wallets"].to_numpy(),
        first=number.get_indexer(pd.Index(pairs["a"])),
        second=number.get_indexer(pd.Index(pairs["b"])),
        both=pairs["wallets"].to_numpy(),
    )
    return overlap_frame(found)


def collections(
    lake: LakeAddress, run: int | None = None, amounts: AmountKind = None
) -> pd.DataFrame:
    """Return one row per contract, most holders first."""
    pin = pinned(lake, run)
    of_contract = tokens(lake, run=pin.run.run_id).groupby("contract", dropna=False)
    found = of_contract.agg({"token_id": "count", "first_seen_at": "min", "updated_at": "max"})
    contracts = found.compute()
    names = pin.manifest.names
    addresses = [names[x].address if x in names else None for x in contracts.index]
    with new_database(pin) as connection:
        put_all_names(connection, names)
        with reading(connection) as source:
            named = named_contracts(source, pa.array(addresses, TEXT))
    measured = concentration(holdings(lake, run=pin.run.run_id), amounts="exact")
    held = measured.set_index("contract")[["tokens", "holders", "amount"]]
    held = held.reindex(contracts.index, fill_value=0)
    frame = pd.DataFrame(
        {
            **named,
            "tokens": contracts["token_id"].to_numpy(),
            "held": held["tokens"].to_numpy(),
            "holders": held["holders"].to_numpy(),
            "amount": held["amount"].to_numpy(dtype=object),
            "first_seen_at": contracts["first_seen_at"].array,
            "updated_at": contracts["updated_at"].array,
        }
    )
    return sort_groups(frame, "contract_address", amounts)


def _given(
    source: Source, exclude: WalletIds, needs: Sequence[str], wants: Sequence[str]
) -> tuple[dd.DataFrame, list[str]]:
    frame: Any = holdings(source) if isinstance(source, str | os.PathLike) else source
    if not hasattr(frame, "map_partitions"):
        kind = type(source).__name__
        raise InputError(
            f"cannot use a {kind}: pass a lake, or the result of nftsync.lake.holdings"
        )
    load_holdings(frame._meta, needs=needs)
    left_out = ids_named(given_wallets(exclude), lambda: labeled_wallets(frame))
    columns = dict.fromkeys((*needs, *(name for name in wants if name in frame.columns)))
    return frame[list(columns)], left_out


# What workers do ----------------------------------------------------------------------------------


def _slim(part: pd.DataFrame, left_out: list[str], columns: list[str], by: str) -> pd.DataFrame:
    """Return a partition's holdings with amounts as text, as Arrow's integers are too short."""
    part = load_holdings(part, left_out, needs=columns)[list(dict.fromkeys(columns))]
    amounts = [None if amount is None else str(amount) for amount in part["amount"]]
    together = part[by]
    if by in ADDRESSES:
        together = pd.Series(text(contract_keys(text_column(part, by))))
    hashes = pd.util.hash_pandas_object(together, index=False).to_numpy().view(np.int64)
    return part.assign(amount=text(pa.array(amounts, TEXT)), **{_GROUP: hashes})


def _measured(slim: pd.DataFrame, by: str) -> pd.DataFrame:
    # The first row decides on the spelling of a contract.
    part = slim.sort_values(["wallet_id", "token_id"], ignore_index=True).drop(columns=_GROUP)
    amounts = [amount and int(amount) for amount in text_column(part, "amount").to_pylist()]
    part = part.assign(amount=pd.Series(amounts, dtype=object))
    return frames.concentration(part, by, amounts="exact")


def _holders(part: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    columns = part.columns.difference(["amount", "amount_text"], sort=False)
    return load_holdings(part, left_out, needs=list(columns))[columns]


def _shared(holders: pd.DataFrame) -> pd.DataFrame:
    """Count the wallets of each pair of contracts, also of each with itself."""
    found = overlap_of(holders)
    numbers = np.arange(len(found.contracts))
    first, second = np.append(numbers, found.first), np.append(numbers, found.second)
    keys = text(found.contracts)
    return pd.DataFrame(
        {
            "a": keys.take(first),
            "b": keys.take(second),
            "wallets": np.append(found.wallets, found.both),
            "name": text(found.names).take(first),
        }
    )
