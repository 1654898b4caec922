"""How unevenly holdings are spread over their holders.

Source: provider's document, sections NFT token balance and Token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.frames._amounts import AmountKind, Exact, amount_columns
from nftsync.frames._columns import (
    coded,
    distinct_in_each,
    first_of_each,
    frame_of,
    run_starts,
    text,
)
from nftsync.frames._given import (
    ADDRESSES,
    Given,
    contract_names,
    given_holdings,
    groups_of,
    text_column,
)
from nftsync.frames._source import Numbers
from nftsync.store.wallets import GroupNames, WalletIds

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


def concentration(
    holdings: Given = None,
    by: str = "contract_address",
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """How unevenly each group's amount is spread over its holders, the most held group first.

    A holder is a wallet with more than zero of a token of the group; who owns several wallets looks
    like several holders. Holder i of a group's n holders has x_i: the exact sum of what it holds of
    the group's tokens; S is the sum of all x_i. Every measure is worked out in integers and divided
    once, so each is the nearest float.

    A holding whose amount is unknown (the provider's text is not 1 to 100 ASCII digits) counts in
    `tokens`, `holders` and `unknown_amounts`, but not in the amounts: x_i is then what is known of
    the holder, and a holder of whom nothing is known is not one of the n. If nothing is known of a
    group, its shares, `hhi` and `gini` are NaN and its `nakamoto` is missing.

    Args:
        holdings: a frame as `frames.holdings` returns it, or what to read it from.
        by: the column that names the groups, any of the frame; rows where it is missing are a
            group of their own. A `contract_address` of `0x` and 40 hex digits is one group
            whatever its case, and shows as first spelled.
        wallet: of a database, only what these wallets hold.
        group: of a database, only what wallets of these groups hold.
        contract: of a database, only tokens of this contract.
        exclude: wallets to leave out, such as burn addresses and treasuries; one or several,
            by id or label.
        amounts: what `amount` is to be, as `nftsync.frames` tells.

    Returns:
        A row per group, by holders and then by name:

        - the column that `by` names; with `contract_address` or `contract` also `contract` (the
          address in one spelling) and `collection` (what it is called)
        - `tokens`, `holders`: distinct tokens that are held, and wallets that hold one
        - `amount`: S, exact
        - `top1_share`, `top10_share`: the sum of the greatest x_i, or the ten greatest, over S;
          0 to 1
        - `hhi`: the Herfindahl-Hirschman index, the sum of (x_i / S)²; from 1/n (all hold the
          same) to 1 (one holds all)
        - `gini`: the Gini coefficient over the n holders, with x ascending and i from 1:
          2 Σ i·x_i / (n S) - (n + 1) / n; 0 (all hold the same) to 1 - 1/n
        - `nakamoto`: the Nakamoto coefficient, the fewest holders who together have more than half
          of S; `Int64`
        - `unknown_amounts`: holdings (rows) whose amount is unknown

    Raises:
        InputError: the frame has no such column or an unusable one, `by` is the name of a column
            that is returned, the amounts do not fit the `amounts` that was asked for, an excluded
            wallet is none, or a filter is, or is one of a frame.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    check_grouping(by)
    needs = ("wallet_id", "token_id", "amount", by)
    frame = given_holdings(
        holdings,
        exclude,
        wallet=wallet,
        group=group,
        contract=contract,
        needs=needs,
        wants=("collection",),
    )
    group_of, names = groups_of(frame, by)
    count = len(names)
    groups: dict[str, Any] = {by: names}
    if by in ADDRESSES:
        addresses = text_column(frame, by).take(pa.array(first_of_each(group_of)))
        called = contract_names(frame, first_of_each(group_of), addresses)
        groups |= {name: text(column) for name, column in called.items()}
    held = frame["amount"].to_numpy()
    known = pd.notna(held)
    holder, _ = coded(text_column(frame, "wallet_id"))
    token, _ = coded(text_column(frame, "token_id"))
    columns: dict[str, Any] = {
        "tokens": distinct_in_each(group_of, token, count),
        "holders": distinct_in_each(group_of, holder, count),
        **_measures(*_totals(group_of[known], holder[known], held[known]), count),
        "unknown_amounts": np.bincount(group_of[~known], minlength=count),
    }
    return ranked(frame_of({**groups, **columns}), by, amounts)


def ranked(found: pd.DataFrame, by: str, amounts: AmountKind) -> pd.DataFrame:
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
