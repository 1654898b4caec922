"""Analyses of a lake's holdings, computed per bucket and never on one machine.

They equal what `nftsync.frames` makes of the same rows. What they return is small, a row per group,
contract or pair, and is a pandas DataFrame. Dask computes it where its other work is done: on the
cluster that is connected, else on this machine.
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
from nftsync.columnar.tokens import contract_groups, contract_keys, named_contracts, sort_contracts
from nftsync.errors import InputError
from nftsync.lake.frames import LakeAddress, holdings, pinned, tokens
from nftsync.store.wallets import WalletIds, given_wallets, ids_named

if TYPE_CHECKING:
    import dask.dataframe as dd


#: What a measure takes: a lake, or a Dask DataFrame of holdings.
Held: TypeAlias = "LakeAddress | dd.DataFrame"

#: Where a row stood among all: the number of its partition, and its place there.
_PLACE = "nftsync_place"
_PARTITION = 1 << 40
#: A number that is the same for all rows that are brought together.
_GROUP = "nftsync_group"
#: Parts that one task puts together.
_AT_ONCE = 8


def concentration(
    held: Held, by: str = "contract_address", exclude: WalletIds = (), amounts: AmountKind = None
) -> pd.DataFrame:
    """How unevenly each group's amount is spread over its holders, the most held group first.

    The rows of a group are brought together on one worker, with just the columns that are needed:
    so the largest group must fit into the memory of a worker.

    Args:
        held: a lake, or a Dask DataFrame with the columns of `holdings` that are needed.
        by: as for `frames.concentration`.
        exclude: as for `frames.concentration`.
        amounts: as for `frames.concentration`.

    Returns:
        What `frames.concentration` does of the same rows in the same order.

    Raises:
        InputError: as `frames.concentration`; or no run is kept.
        StoreError: there is no lake, or it cannot be read.
    """
    check_grouping(by)
    wants = ("amount_text", *(("collection",) if by in ADDRESSES else ()))
    frame, left_out = _given(held, exclude, ("wallet_id", "token_id", "amount", by), wants)
    slim = _slimmed(frame, left_out, by)
    found = slim.shuffle(_GROUP).map_partitions(_measured, by, meta=_measured(slim._meta, by))
    return sort_groups(found.compute(), by, amounts)


def overlap(held: Held, exclude: WalletIds = ()) -> pd.DataFrame:
    """How many holders each two contracts have in common, the most first.

    Args:
        held: a lake, each of whose wallets is in one bucket; or a Dask DataFrame with the columns
            of `holdings` that are needed, of which the rows of a wallet are brought together.
        exclude: as for `frames.overlap`.

    Returns:
        What `frames.overlap` does of the same rows in the same order.

    Raises:
        InputError: as `frames.overlap`; or no run is kept.
        StoreError: there is no lake, or it cannot be read.
    """
    needs = ("wallet_id", "contract_address", "amount")
    frame, left_out = _given(held, exclude, needs, ("collection", "amount_text"))
    slim = _slimmed(frame, left_out, "wallet_id")
    if not isinstance(held, str | os.PathLike):
        slim = slim.shuffle(_GROUP)
    return overlap_frame(_shared_of(_folded(slim, _pairs, ["a", "b"], {"wallets": "sum"})))


def collections(
    lake: LakeAddress, run: int | None = None, amounts: AmountKind = None
) -> pd.DataFrame:
    """A row per contract, the one with the most holders first.

    Args:
        lake: a folder, or an address that Delta knows.
        run: read what this run pinned; None: the last one that finished.
        amounts: as for `frames.collections`.

    Returns:
        What `frames.collections` does of the same rows in the same order.

    Raises:
        InputError: there is no such run, it is not kept, or the amounts do not fit the `amounts`
            that was asked for.
        StoreError: there is no lake, or it cannot be read.
    """
    what = pinned(lake, run)
    sums = {"tokens": "sum", "first_seen_at": "min", "updated_at": "max"}
    columns = ["contract_address", "first_seen_at", "updated_at"]
    known = _folded(tokens(lake, run=what.run_id)[columns], _contracts, ["contract"], sums)
    with what.mirror(0, ("contracts",)) as mirror, reading(mirror.connection) as source:
        named = named_contracts(source, text_column(known, "contract_address"))
    measured = concentration(holdings(lake, run=what.run_id), amounts="exact")
    held = measured[["tokens", "holders", "amount"]]
    nobody = pd.DataFrame({"tokens": [0], "holders": [0], "amount": pd.Series([0], dtype=object)})
    # Where a contract is held by nobody its place is -1, the last.
    place = pd.Index(measured["contract"]).get_indexer(pd.Index(known["contract"]))
    held = pd.concat([held, nobody], ignore_index=True).iloc[place]
    frame = pd.DataFrame(
        {
            **named,
            "tokens": known["tokens"].to_numpy(),
            "held": held["tokens"].to_numpy(),
            "holders": held["holders"].to_numpy(),
            "amount": held["amount"].to_numpy(),
            "first_seen_at": known["first_seen_at"].array,
            "updated_at": known["updated_at"].array,
        }
    )
    return sort_contracts(frame, amounts)


# What is given -----------------------------------------------------------------------------------


def _given(
    held: Held, exclude: WalletIds, needs: Sequence[str], wants: Sequence[str]
) -> tuple[dd.DataFrame, list[str]]:
    """The columns of holdings that are needed or wanted, and the ids of wallets to leave out."""
    frame: Any = holdings(held) if isinstance(held, str | os.PathLike) else held
    if not hasattr(frame, "map_partitions"):
        raise InputError(
            f"cannot read holdings from a {type(held).__name__}; give a lake, or what"
            " nftsync.lake.holdings returns"
        )
    load_holdings(frame._meta, needs=needs)
    left_out = ids_named(given_wallets(exclude), lambda: labeled_wallets(frame))
    columns = dict.fromkeys((*needs, *(name for name in wants if name in frame.columns)))
    return frame[list(columns)], left_out


# How rows are sent from worker to worker ----------------------------------------------------------


def _slimmed(frame: dd.DataFrame, left_out: list[str], by: str) -> dd.DataFrame:
    """The holdings of a frame that count, as `_slim` has them."""
    import dask.dataframe as dd

    numbers = dd.from_map(_number, range(frame.npartitions), meta=_number(0))
    meta = _slim(frame._meta, _number(0), left_out, by)
    slim: dd.DataFrame = frame.map_partitions(_slim, numbers, left_out, by, meta=meta)
    return slim


def _number(number: int) -> pd.DataFrame:
    return pd.DataFrame({"number": np.array([number], dtype=np.int64)})


def _slim(part: pd.DataFrame, number: pd.DataFrame, left_out: list[str], by: str) -> pd.DataFrame:
    """The holdings of a part that count, with amounts as text: Arrow has no such integers.

    Args:
        part: of a frame of holdings.
        number: has the part's number.
        left_out: ids of wallets.
        by: the column whose rows are brought together.
    """
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
    """The concentration of groups of which all rows are here."""
    slim = slim.sort_values(_PLACE, ignore_index=True)
    codes, distinct = coded(text_column(slim, "amount"))
    values = np.array([*map(int, distinct.to_pylist()), None], dtype=object)
    part = slim.assign(amount=pd.Series(values[codes], dtype=object))
    return frames.concentration(part.drop(columns=[_GROUP, _PLACE]), by, amounts="exact")


# What parts come to, put together -----------------------------------------------------------------


def _folded(
    frame: dd.DataFrame,
    of_part: Callable[[pd.DataFrame, int], pd.DataFrame],
    keys: list[str],
    sums: dict[str, str],
) -> pd.DataFrame:
    """What all parts come to, put together a few at a time.

    Args:
        frame: the parts.
        of_part: what a part comes to: rows with the keys, what is summed, the place (`_PLACE`) and
            what is told of the row whose place is first. It is given the place of its first row.
        keys: what tells rows apart.
        sums: how other columns are put together.
    """
    one, several = delayed(of_part), delayed(_together)
    found = [one(part, n * _PARTITION) for n, part in enumerate(frame.to_delayed())]
    while True:
        found = [
            several(found[n : n + _AT_ONCE], keys, sums) for n in range(0, len(found), _AT_ONCE)
        ]
        if len(found) == 1:
            whole: pd.DataFrame = found[0].compute()
            return whole


def _together(parts: list[pd.DataFrame], keys: list[str], sums: dict[str, str]) -> pd.DataFrame:
    rows = pd.concat(parts).sort_values(_PLACE, kind="stable", ignore_index=True)
    told = rows.drop_duplicates(keys, ignore_index=True)
    summed = rows.groupby(keys, sort=False, dropna=False, as_index=False).agg(sums)
    return told.assign(**{name: summed[name].array for name in sums})


def _pairs(slim: pd.DataFrame, first: int) -> pd.DataFrame:
    """The wallets that hold two contracts, and those that hold one as of a pair with itself."""
    del first  # each row knows its place
    slim = slim.sort_values(_PLACE, ignore_index=True)
    found = overlap_of(slim)
    keys = found.contracts
    one, other = (text(keys.take(pa.array(each))) for each in (found.first, found.second))
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "a": text(keys),
                    "b": text(keys),
                    "wallets": found.wallets,
                    _PLACE: slim[_PLACE].to_numpy()[found.rows],
                    "called": text(found.names),
                }
            ),
            pd.DataFrame(
                {
                    "a": one,
                    "b": other,
                    "wallets": found.both,
                    _PLACE: np.zeros(len(found.both), dtype=np.int64),
                    "called": text(pa.nulls(len(found.both), TEXT)),
                }
            ),
        ],
        ignore_index=True,
    )


def _shared_of(found: pd.DataFrame) -> Overlap:
    """What was put together, as `frames` counts it."""
    alone = found["a"] == found["b"]
    contracts = found[alone].sort_values("a", ignore_index=True)
    number, pairs = pd.Index(contracts["a"]), found[~alone]
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
    """The contracts of a part's tokens: how many tokens each has, and their times."""
    group, addresses = contract_groups(text_column(part, "contract_address"))
    addresses = addresses.take(pa.array(np.unique(group)))  # the last may be of no row
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
