"""Concentration and overlap, for frames and lakes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.amounts import AmountKind, Exact, amount_columns
from nftsync.columnar.columns import (
    coded,
    distinct_by_group,
    first_rows,
    frame_of,
    run_starts,
    text,
)
from nftsync.columnar.inputs import ADDRESSES, contract_names, groups_of, text_column
from nftsync.columnar.source import Numbers
from nftsync.columnar.tokens import contract_groups
from nftsync.errors import InputError

#: Measures of amounts, and all columns of a group.
_OF_AMOUNTS = ("top1_share", "top10_share", "hhi", "gini", "nakamoto")
_MEASURES = ("tokens", "holders", "amount", *_OF_AMOUNTS, "unknown_amounts")
_TOP = 10


def concentration_frame(frame: pd.DataFrame, by: str, amounts: AmountKind) -> pd.DataFrame:
    """Return the frame of `frames.concentration`."""
    group_of, names = groups_of(frame, by)
    count = len(names)
    groups: dict[str, Any] = {by: names}
    if by in ADDRESSES:
        addresses = text_column(frame, by).take(pa.array(first_rows(group_of)))
        contracts = contract_names(frame, first_rows(group_of), addresses)
        groups |= {name: text(column) for name, column in contracts.items()}
    amount = frame["amount"].to_numpy()
    valid = pd.notna(amount)
    holder, _ = coded(text_column(frame, "wallet_id"))
    token, _ = coded(text_column(frame, "token_id"))
    columns: dict[str, Any] = {
        "tokens": distinct_by_group(group_of, token, count),
        "holders": distinct_by_group(group_of, holder, count),
        **_measures(*_totals(group_of[valid], holder[valid], amount[valid]), count),
        "unknown_amounts": np.bincount(group_of[~valid], minlength=count),
    }
    return sort_groups(frame_of({**groups, **columns}), by, amounts)


def sort_groups(groups: pd.DataFrame, by: str, amounts: AmountKind) -> pd.DataFrame:
    """Return groups in the order of `concentration`, with their final amounts."""
    exact = Exact.of(groups["amount"].to_numpy(dtype=object))
    groups = groups.assign(**amount_columns({"amount": exact}, amounts))
    try:
        groups = groups.sort_values(by, kind="stable")
    except TypeError:  # values of several types have no order
        groups = groups.sort_values(
            by, kind="stable", key=lambda names: names.map(str, na_action="ignore")
        )
    return groups.sort_values("holders", ascending=False, kind="stable", ignore_index=True)


def check_grouping(by: object) -> None:
    if not isinstance(by, str) or by in _MEASURES:
        raise InputError(
            f"cannot group holdings by {by!r}; name a column of the frame other than the"
            f" result's own columns: {', '.join(_MEASURES)}"
        )


def _totals(
    group: Numbers, wallet: npt.NDArray[np.int32], amounts: npt.NDArray[np.object_]
) -> tuple[Numbers, npt.NDArray[np.object_]]:
    if not len(group):
        return group, amounts
    width = int(wallet.max()) + 1
    key = group * width + wallet
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = run_starts(key)
    group, sums = key[starts] // width, np.add.reduceat(amounts[order], starts)
    # Floats sort fast and keep the order of the exact integers, except for ties.
    near = sums.astype(np.float64)
    order = np.lexsort((near, group))
    group, sums, near = group[order], sums[order], near[order]
    tie = (near[1:] == near[:-1]) & (group[1:] == group[:-1])
    if (tie & (sums[1:] < sums[:-1])).any():
        sums = sums[np.lexsort((sums, group))]
    return group, sums


def _measures(of: Numbers, totals: npt.NDArray[np.object_], count: int) -> dict[str, Any]:
    sizes = np.bincount(of, minlength=count)
    measures: dict[str, npt.NDArray[Any]] = {"amount": np.zeros(count, dtype=object)}
    for name in _OF_AMOUNTS:
        measures[name] = np.full(count, np.nan)
    if len(of):
        for name, values in _measures_of(totals, sizes[sizes > 0]).items():
            measures[name][sizes > 0] = values
    return {**measures, "nakamoto": pd.array(measures["nakamoto"], dtype="Int64")}


def _measures_of(x: npt.NDArray[np.object_], sizes: Numbers) -> dict[str, npt.NDArray[Any]]:
    ends = np.cumsum(sizes)
    starts = ends - sizes
    rank = np.arange(len(x)) - np.repeat(starts, sizes) + 1
    whole = np.add.reduceat(x, starts)
    # Every other span is the gap before the next group's ten largest amounts.
    spans = np.column_stack((np.maximum(ends - _TOP, starts), ends)).ravel()[:-1]
    weighted = np.add.reduceat(x * rank, starts)
    return {
        "amount": whole,
        "top1_share": x[ends - 1] / whole,
        "top10_share": np.add.reduceat(x, spans)[::2] / whole,
        "hhi": np.add.reduceat(x * x, starts) / (whole * whole),
        "gini": (2 * weighted - (sizes + 1) * whole) / (sizes * whole),
        "nakamoto": _fewest_of_half(x, starts, sizes, whole),
    }


def _fewest_of_half(
    x: npt.NDArray[np.object_], starts: Numbers, sizes: Numbers, whole: npt.NDArray[np.object_]
) -> Numbers:
    sums = np.add.accumulate(x)
    before = np.repeat(sums[starts] - x[starts], sizes)
    # The smallest amounts that sum to less than half are not needed.
    spared = (2 * (sums - before) < np.repeat(whole, sizes)).astype(np.int64)
    return sizes - np.add.reduceat(spared, starts)


#: Pairs compared at a time (32 MB).
_PAIRS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Overlap:
    """Contracts, ascending, with their first rows, and the common holders of pairs.

    `first` and `second` are the positions of a pair's contracts, in order.
    """

    contracts: pa.Array
    names: pa.Array
    rows: Numbers
    wallets: Numbers
    first: Numbers
    second: Numbers
    both: Numbers


def overlap_of(frame: pd.DataFrame) -> Overlap:
    wallet, _ = coded(text_column(frame, "wallet_id"))
    contract, keys, names, rows = _by_contract(frame)
    named = contract < len(keys)
    pairs = np.sort(wallet[named].astype(np.int64) * len(keys) + contract[named])
    holder, contract = np.divmod(pairs[run_starts(pairs)], max(len(keys), 1))
    wallets = np.bincount(contract, minlength=len(keys))
    return Overlap(keys, names, rows, wallets, *_common(holder, contract))


def overlap_frame(overlap: Overlap) -> pd.DataFrame:
    order = np.argsort(-overlap.both, kind="stable")
    first, second, both = overlap.first[order], overlap.second[order], overlap.both[order]
    wallets_a, wallets_b = overlap.wallets[first], overlap.wallets[second]
    return frame_of(
        {
            f"{name}_{side}": text(column.take(pa.array(rows)))
            for name, column in (("contract", overlap.contracts), ("collection", overlap.names))
            for side, rows in (("a", first), ("b", second))
        }
        | {
            "wallets_a": wallets_a,
            "wallets_b": wallets_b,
            "both": both,
            "jaccard": both / (wallets_a + wallets_b - both),
        }
    )


def _by_contract(frame: pd.DataFrame) -> tuple[Numbers, pa.Array, pa.Array, Numbers]:
    """Number each row's contract in address order; the last number means no contract.

    Also return, by number, the address in one spelling, the name, and the first row.
    """
    contract, spellings = contract_groups(text_column(frame, "contract_address"))
    addresses = spellings[:-1]
    rows = first_rows(contract)[: len(addresses)]
    keys, names = contract_names(frame, rows, addresses).values()
    order = pc.sort_indices(keys)
    number = np.append(np.empty(len(keys), dtype=np.int64), len(keys))
    number[order.to_numpy()] = np.arange(len(keys))
    return number[contract], keys.take(order), names.take(order), rows[order.to_numpy()]


def _common(wallet: Numbers, contract: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return pairs of contracts, in order, and the number of wallets that hold both.

    Wallets ascend, and contracts ascend within each wallet.
    """
    width = int(contract.max(initial=0)) + 1
    # Each contract forms a pair with each later contract of its wallet.
    later = np.cumsum(np.bincount(wallet))[wallet] - np.arange(len(wallet)) - 1
    rows = np.argsort(contract, kind="stable")
    starts = run_starts(contract[rows])
    # A part holds all pairs of its contracts, and about as many pairs as fit in memory.
    part = (np.cumsum(later[rows]) - later[rows])[starts] // _PAIRS_AT_ONCE
    counted = [np.empty((2, 0), dtype=np.int64)]
    for some in np.split(rows, starts[run_starts(part)][1:]):
        ends = np.cumsum(later[some])
        follower = np.arange(later[some].sum()) + np.repeat(
            some + 1 - (ends - later[some]), later[some]
        )
        keys = np.sort(np.repeat(contract[some], later[some]) * width + contract[follower])
        starts_of_pairs = run_starts(keys)
        counts = np.diff(starts_of_pairs, append=len(keys))
        counted.append(np.stack((keys[starts_of_pairs], counts)))
    keys, both = np.concatenate(counted, axis=1)
    return *np.divmod(keys, width), both
