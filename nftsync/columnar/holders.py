"""Holders of groups and contracts: concentration and overlap."""

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

_MEASURES = (
    "tokens",
    "holders",
    "amount",
    "top1_share",
    "top10_share",
    "hhi",
    "gini",
    "nakamoto",
    "unknown_amounts",
)
_TOP = 10
#: Of a group with one holder.
_ALONE = {"top1_share": 1.0, "top10_share": 1.0, "hhi": 1.0, "gini": 0.0, "nakamoto": 1}


def concentration_frame(frame: pd.DataFrame, by: str, amounts: AmountKind) -> pd.DataFrame:
    """Return what `frames.concentration` does of holdings that count.

    Raises:
        InputError: a column is unusable, or the amounts do not fit the `amounts` asked for.
    """
    group_of, names = groups_of(frame, by)
    count = len(names)
    groups: dict[str, Any] = {by: names}
    if by in ADDRESSES:
        addresses = text_column(frame, by).take(pa.array(first_rows(group_of)))
        called = contract_names(frame, first_rows(group_of), addresses)
        groups |= {name: text(column) for name, column in called.items()}
    held = frame["amount"].to_numpy()
    known = pd.notna(held)
    holder, _ = coded(text_column(frame, "wallet_id"))
    token, _ = coded(text_column(frame, "token_id"))
    columns: dict[str, Any] = {
        "tokens": distinct_by_group(group_of, token, count),
        "holders": distinct_by_group(group_of, holder, count),
        **_measures(*_totals(group_of[known], holder[known], held[known]), count),
        "unknown_amounts": np.bincount(group_of[~known], minlength=count),
    }
    return sort_groups(frame_of({**groups, **columns}), by, amounts)


def sort_groups(found: pd.DataFrame, by: str, amounts: AmountKind) -> pd.DataFrame:
    """Finish what `concentration` returns: its `amount` of exact integers, and the order of rows.

    Raises:
        InputError: the amounts do not fit the `amounts` that was asked for.
    """
    exact = Exact.of(found["amount"].to_numpy(dtype=object))
    found = found.assign(**amount_columns({"amount": exact}, amounts))
    found = _in_order(found, by)
    return found.sort_values("holders", ascending=False, kind="stable", ignore_index=True)


def check_grouping(by: object) -> None:
    """Make sure that a column may name the groups.

    Raises:
        InputError: it is none, or what is returned has a column of that name.
    """
    if not isinstance(by, str) or by in _MEASURES:
        raise InputError(
            f"cannot group holdings by {by!r}; give the name of a column of the frame other than"
            f" {', '.join(_MEASURES)}, which name what is returned"
        )


def _in_order(found: pd.DataFrame, by: str) -> pd.DataFrame:
    try:
        return found.sort_values(by, kind="stable")
    except TypeError:  # names of several kinds have no order of their own
        return found.sort_values(
            by, kind="stable", key=lambda each: each.map(str, na_action="ignore")
        )


def _totals(
    group: Numbers, wallet: npt.NDArray[np.int32], amounts: npt.NDArray[np.object_]
) -> tuple[Numbers, npt.NDArray[np.object_]]:
    """What each holder has of each group: the group's number and how much, both ascending."""
    if not len(group):
        return group, amounts
    width = int(wallet.max()) + 1
    key = group * width + wallet
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = run_starts(key)
    group, sums = key[starts] // width, np.add.reduceat(amounts[order], starts)
    # Floats sort fast and never against the integers they are near, but may tie.
    near = sums.astype(np.float64)
    order = np.lexsort((near, group))
    group, sums, near = group[order], sums[order], near[order]
    tie = (near[1:] == near[:-1]) & (group[1:] == group[:-1])
    wrong = np.flatnonzero(tie & (sums[1:] < sums[:-1]))
    bounds = np.flatnonzero(np.concatenate(([True], ~tie, [True])))
    for run in np.unique(np.searchsorted(bounds, wrong, side="right")).tolist():
        span = slice(bounds[run - 1], bounds[run])
        sums[span] = sorted(sums[span])
    return group, sums


def _measures(of: Numbers, totals: npt.NDArray[np.object_], count: int) -> dict[str, Any]:
    """The measures of `count` groups from their holders' totals; some may have none."""
    found: dict[str, npt.NDArray[Any]] = {"amount": np.zeros(count, dtype=object)}
    for name in ("top1_share", "top10_share", "hhi", "gini"):
        found[name] = np.full(count, np.nan)
    found["nakamoto"] = np.zeros(count, dtype=np.int64)
    sizes = np.bincount(of, minlength=count)
    # Most groups may be a token with one holder, where there is nothing to divide.
    alone = sizes[of] == 1
    group = of[alone]
    found["amount"][group] = totals[alone]
    for name, value in _ALONE.items():
        found[name][group] = value
    if not alone.all():
        group = np.flatnonzero(sizes > 1)
        for name, values in _shared(totals[~alone], sizes[group]).items():
            found[name][group] = values
    nakamoto = found.pop("nakamoto")
    return {**found, "nakamoto": pd.arrays.IntegerArray(nakamoto, nakamoto == 0)}


def _shared(x: npt.NDArray[np.object_], sizes: Numbers) -> dict[str, npt.NDArray[Any]]:
    """The measures of groups whose amounts follow each other, ascending within each."""
    ends = np.cumsum(sizes)
    starts = ends - sizes
    rank = np.arange(len(x)) - np.repeat(starts, sizes) + 1
    whole = np.add.reduceat(x, starts)
    # Every other span is what is left between a group's ten greatest and the next group's.
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
    """How many of the greatest of each group are needed for more than half of its whole."""
    sums = np.add.accumulate(x)
    before = np.repeat(sums[starts] - x[starts], sizes)
    # The smallest that have less than half between them are all that can be spared.
    spared = (2 * (sums - before) < np.repeat(whole, sizes)).astype(np.int64)
    return sizes - np.add.reduceat(spared, starts)


#: Pairs that are compared at once (32 MB).
_PAIRS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Overlap:
    """Contracts, and the wallets that hold two of them.

    Attributes:
        contracts: their addresses in one spelling, ascending.
        called: their names.
        rows: the first row that names each.
        wallets: how many hold each.
        first: of each pair the lesser contract, by position.
        second: the greater.
        both: how many wallets hold both. Pairs are in order.
    """

    contracts: pa.Array
    called: pa.Array
    rows: Numbers
    wallets: Numbers
    first: Numbers
    second: Numbers
    both: Numbers


def overlap_of(frame: pd.DataFrame) -> Overlap:
    """Count the wallets that contracts share.

    Args:
        frame: holdings that count, as `load_holdings` gives them.

    Raises:
        InputError: it has an unusable column.
    """
    wallet, _ = coded(text_column(frame, "wallet_id"))
    contract, keys, called, rows = _by_contract(frame)
    named = contract < len(keys)
    held = np.sort(wallet[named].astype(np.int64) * len(keys) + contract[named])
    # Once each.
    holder, contract = np.divmod(held[run_starts(held)], max(len(keys), 1))
    wallets = np.bincount(contract, minlength=len(keys))
    return Overlap(keys, called, rows, wallets, *_common(holder, contract))


def overlap_frame(found: Overlap) -> pd.DataFrame:
    """What `overlap` returns."""
    order = np.argsort(-found.both, kind="stable")
    first, second, both = found.first[order], found.second[order], found.both[order]
    wallets_a, wallets_b = found.wallets[first], found.wallets[second]
    return frame_of(
        {
            "contract_a": text(found.contracts.take(pa.array(first))),
            "contract_b": text(found.contracts.take(pa.array(second))),
            "collection_a": text(found.called.take(pa.array(first))),
            "collection_b": text(found.called.take(pa.array(second))),
            "wallets_a": wallets_a,
            "wallets_b": wallets_b,
            "both": both,
            "jaccard": both / (wallets_a + wallets_b - both),
        }
    )


def _by_contract(frame: pd.DataFrame) -> tuple[Numbers, pa.Array, pa.Array, Numbers]:
    """Number each row's contract in the order of addresses; the last number is of those without.

    Returns:
        The numbers, and by number the address in one spelling, the contract's name and first row.
    """
    contract, spellings = contract_groups(text_column(frame, "contract_address"))
    addresses = spellings[:-1]
    rows = first_rows(contract)[: len(addresses)]
    keys, called = contract_names(frame, rows, addresses).values()
    order = pc.sort_indices(keys)
    number = np.append(np.empty(len(keys), dtype=np.int64), len(keys))
    number[order.to_numpy()] = np.arange(len(keys))
    return number[contract], keys.take(order), called.take(order), rows[order.to_numpy()]


def _common(wallet: Numbers, contract: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Count common wallets by pair of contracts: the lesser, the greater, how many; in order.

    Args:
        wallet: of each contract that a wallet holds, ascending.
        contract: the contract, ascending within a wallet.
    """
    width = int(contract.max(initial=0)) + 1
    # How many contracts of the same wallet follow: with each of them it makes a pair.
    later = np.cumsum(np.bincount(wallet))[wallet] - np.arange(len(wallet)) - 1
    rows = np.argsort(contract, kind="stable")
    starts = run_starts(contract[rows])
    # A contract's pairs stay together, and about as many pairs as fit the memory.
    part = (np.cumsum(later[rows]) - later[rows])[starts] // _PAIRS_AT_ONCE
    found = [np.empty((2, 0), dtype=np.int64)]
    for some in np.split(rows, starts[run_starts(part)][1:]):
        ends = np.cumsum(later[some])
        follower = np.arange(later[some].sum()) + np.repeat(
            some + 1 - (ends - later[some]), later[some]
        )
        keys = np.sort(np.repeat(contract[some], later[some]) * width + contract[follower])
        starts_of_pairs = run_starts(keys)
        counts = np.diff(starts_of_pairs, append=len(keys))
        found.append(np.stack((keys[starts_of_pairs], counts)))
    keys, both = np.concatenate(found, axis=1)
    return *np.divmod(keys, width), both
