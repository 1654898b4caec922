"""Concentration, overlap and collections of a lake's holdings, computed per bucket on Dask.

Each returns a small pandas DataFrame, equal to the result of the same function in `nftsync.frames`,
with the same parameters and errors. The first parameter is a lake or, except for `collections`, a
Dask DataFrame with the needed columns of `holdings`. Dask uses the connected cluster, or this
machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.delayed import delayed

from nftsync import frames
from nftsync.columnar.amounts import AmountKind
from nftsync.columnar.columns import TEXT, coded, text
from nftsync.columnar.holders import Overlap, check_grouping, overlap_frame, overlap_of, sort_groups
from nftsync.columnar.inputs import ADDRESSES, labeled_wallets, load_holdings, text_column
from nftsync.columnar.source import reading
from nftsync.columnar.tokens import contract_groups, contract_keys, named_contracts
from nftsync.errors import InputError
from nftsync.lake.frames import LakeAddress, holdings, pinned, tokens
from nftsync.store.wallets import WalletIds, given_wallets, ids_named

if TYPE_CHECKING:
    import dask.dataframe as dd


#: A lake, or a Dask DataFrame of holdings.
Source: TypeAlias = "LakeAddress | dd.DataFrame"

#: A row's place among all rows: partition number and position.
_PLACE = "nftsync_place"
_PARTITION = 1 << 40
#: Equal for all rows that must be in one partition.
_GROUP = "nftsync_group"
#: Results that one task merges.
_AT_ONCE = 8


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
    wants = ("amount_text", *(("collection",) if by in ADDRESSES else ()))
    frame, left_out = _given(source, exclude, ("wallet_id", "token_id", "amount", by), wants)
    slim = _slimmed(frame, left_out, by)
    groups = slim.shuffle(_GROUP).map_partitions(_measured, by, meta=_measured(slim._meta, by))
    return sort_groups(groups.compute(), by, amounts)


def overlap(source: Source, exclude: WalletIds = ()) -> pd.DataFrame:
    """Count the common holders of each pair of contracts, most first.

    In a lake, each wallet is in one bucket; rows of a Dask DataFrame are shuffled by wallet first.
    """
    needs = ("wallet_id", "contract_address", "amount")
    frame, left_out = _given(source, exclude, needs, ("collection", "amount_text"))
    slim = _slimmed(frame, left_out, "wallet_id")
    if not isinstance(source, str | os.PathLike):
        slim = slim.shuffle(_GROUP)
    return overlap_frame(_shared_of(_folded(slim, _pairs, ["a", "b"], {"wallets": "sum"})))


def collections(
    lake: LakeAddress, run: int | None = None, amounts: AmountKind = None
) -> pd.DataFrame:
    """Return one row per contract, most holders first."""
    pin = pinned(lake, run)
    sums = {"tokens": "sum", "first_seen_at": "min", "updated_at": "max"}
    columns = ["contract_address", "first_seen_at", "updated_at"]
    contracts = _folded(tokens(lake, run=pin.run.run_id)[columns], _contracts, ["contract"], sums)
    with pin.mirror(0, ("contracts",)) as mirror, reading(mirror.connection) as source:
        named = named_contracts(source, text_column(contracts, "contract_address"))
    measured = concentration(holdings(lake, run=pin.run.run_id), amounts="exact")
    zeros = pd.DataFrame({"tokens": [0], "holders": [0], "amount": pd.Series([0], dtype=object)})
    holders = pd.concat([measured[list(zeros)], zeros], ignore_index=True)
    # A contract without holders gets place -1, the last row.
    place = pd.Index(measured["contract"]).get_indexer(pd.Index(contracts["contract"]))
    held_tokens, holder_counts, amount = (holders[name].to_numpy()[place] for name in zeros)
    frame = pd.DataFrame(
        {
            **named,
            "tokens": contracts["tokens"].to_numpy(),
            "held": held_tokens,
            "holders": holder_counts,
            "amount": amount,
            "first_seen_at": contracts["first_seen_at"].array,
            "updated_at": contracts["updated_at"].array,
        }
    )
    return sort_groups(frame, "contract_address", amounts)


# Input --------------------------------------------------------------------------------------------


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


# Shuffle between workers --------------------------------------------------------------------------


def _slimmed(frame: dd.DataFrame, left_out: list[str], by: str) -> dd.DataFrame:
    import dask.dataframe as dd

    numbers = dd.from_map(_number, range(frame.npartitions), meta=_number(0))
    meta = _slim(frame._meta, _number(0), left_out, by)
    slim: dd.DataFrame = frame.map_partitions(_slim, numbers, left_out, by, meta=meta)
    return slim


def _number(number: int) -> pd.DataFrame:
    return pd.DataFrame({"number": np.array([number], dtype=np.int64)})


def _slim(part: pd.DataFrame, number: pd.DataFrame, left_out: list[str], by: str) -> pd.DataFrame:
    """Return a partition's holdings with amounts as text, as Arrow's integers are too short."""
    needs = [name for name in part.columns if name not in {"amount_text", "collection"}]
    part = load_holdings(part, left_out, needs=needs)
    codes, distinct = pd.factorize(part["amount"])
    amounts = pa.array([*map(str, distinct.tolist()), None], TEXT)
    together = part[by]
    if by in ADDRESSES:
        together = pd.Series(text(contract_keys(text_column(part, by))))
    first = int(number["number"].iloc[0]) * _PARTITION
    return part.drop(columns=["amount_text"], errors="ignore").assign(
        **{
            "amount": text(amounts.take(pa.array(np.where(codes < 0, len(distinct), codes)))),
            _GROUP: pd.util.hash_pandas_object(together, index=False).to_numpy().view(np.int64),
            _PLACE: first + np.arange(len(part)),
        }
    )


def _measured(slim: pd.DataFrame, by: str) -> pd.DataFrame:
    slim = slim.sort_values(_PLACE, ignore_index=True)
    codes, distinct = coded(text_column(slim, "amount"))
    values = np.array([*map(int, distinct.to_pylist()), None], dtype=object)
    part = slim.assign(amount=pd.Series(values[codes], dtype=object))
    return frames.concentration(part.drop(columns=[_GROUP, _PLACE]), by, amounts="exact")


# Merged results of partitions ---------------------------------------------------------------------


def _folded(
    frame: dd.DataFrame,
    of_part: Callable[[pd.DataFrame, int], pd.DataFrame],
    keys: list[str],
    sums: dict[str, str],
) -> pd.DataFrame:
    """Compute all partitions, and merge the results a few at a time.

    `of_part` takes a partition and the place of its first row, and returns rows with `keys`, summed
    columns and `_PLACE`. Other columns come from the row with the first place.
    """
    one, merge = delayed(of_part), delayed(_together)
    tasks = [one(part, n * _PARTITION) for n, part in enumerate(frame.to_delayed())]
    while True:
        tasks = [merge(tasks[n : n + _AT_ONCE], keys, sums) for n in range(0, len(tasks), _AT_ONCE)]
        if len(tasks) == 1:
            whole: pd.DataFrame = tasks[0].compute()
            return whole


def _together(parts: list[pd.DataFrame], keys: list[str], sums: dict[str, str]) -> pd.DataFrame:
    rows = pd.concat(parts).sort_values(_PLACE, kind="stable", ignore_index=True)
    first = rows.drop_duplicates(keys, ignore_index=True)
    summed = rows.groupby(keys, sort=False, dropna=False, as_index=False).agg(sums)
    return first.assign(**{name: summed[name].array for name in sums})


def _pairs(slim: pd.DataFrame, first: int) -> pd.DataFrame:
    del first  # each row contains its place
    slim = slim.sort_values(_PLACE, ignore_index=True)
    pairs = overlap_of(slim)
    keys, count = pairs.contracts, len(pairs.both)
    contracts = {
        "a": text(keys),
        "b": text(keys),
        "wallets": pairs.wallets,
        _PLACE: slim[_PLACE].to_numpy()[pairs.rows],
        "called": text(pairs.names),
    }
    couples = {
        "a": text(keys.take(pa.array(pairs.first))),
        "b": text(keys.take(pa.array(pairs.second))),
        "wallets": pairs.both,
        _PLACE: np.zeros(count, dtype=np.int64),
        "called": text(pa.nulls(count, TEXT)),
    }
    return pd.concat([pd.DataFrame(contracts), pd.DataFrame(couples)], ignore_index=True)


def _shared_of(merged: pd.DataFrame) -> Overlap:
    alone = merged["a"] == merged["b"]
    contracts = merged[alone].sort_values("a", ignore_index=True)
    number, pairs = pd.Index(contracts["a"]), merged[~alone]
    ends = np.stack([number.get_indexer(pd.Index(pairs[name])) for name in ("a", "b")])
    order = np.lexsort((ends[1], ends[0]))
    return Overlap(
        contracts=text_column(contracts, "a"),
        names=text_column(contracts, "called"),
        rows=contracts[_PLACE].to_numpy(),
        wallets=contracts["wallets"].to_numpy(),
        first=ends[0][order],
        second=ends[1][order],
        both=pairs["wallets"].to_numpy()[order],
    )


def _contracts(part: pd.DataFrame, first: int) -> pd.DataFrame:
    group, addresses = contract_groups(text_column(part, "contract_address"))
    addresses = addresses.take(pa.array(np.unique(group)))  # the last address may have no row
    times = part.groupby(group)[["first_seen_at", "updated_at"]]
    rows = np.unique(group, return_index=True)[1]
    return pd.DataFrame(
        {
            "contract": text(contract_keys(addresses)),
            _PLACE: first + rows,
            "contract_address": text(addresses),
            "tokens": np.unique(group, return_counts=True)[1],
            "first_seen_at": times.min()["first_seen_at"].array,
            "updated_at": times.max()["updated_at"].array,
        }
    )
