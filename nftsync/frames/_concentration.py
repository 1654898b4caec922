"""How unevenly holdings are spread over their holders, and which contracts share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.errors import InputError
from nftsync.frames._columns import (
    coded,
    contract_groups,
    distinct_in_each,
    first_of_each,
    frame_of,
    text,
)
from nftsync.frames._given import Given, given_holdings, text_column
from nftsync.frames._source import Numbers
from nftsync.frames._tables import WalletIds

__all__ = ["concentration", "overlap", "overlap_by"]

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
    holdings: Given = None, by: str = "contract_address", *, exclude: WalletIds = ()
) -> pd.DataFrame:
    """How unevenly each group's amount is spread over its holders, the most held group first.

    A holder is a wallet with more than zero of a token of the group. Holder i of a group's n
    holders has x_i: the exact sum of what it holds of the group's tokens; S is the sum of all x_i.
    Every measure is worked out in integers and divided once, so each is the nearest float, whatever
    the size of the amounts. Custody wallets are counted one by one: who owns several of them looks
    like several holders.

    A holding whose amount is unknown (the provider's text is not 1 to 100 ASCII digits) counts in
    `tokens`, `holders` and `unknown_amounts`, but not in the amounts: x_i is then what is known of
    the holder, and a holder of whom nothing is known is not one of the n. If nothing is known of a
    group, its shares, `hhi` and `gini` are NaN and its `nakamoto` is missing.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a path, a `sqlite3.Connection`, a
            `sqlite_utils.Database`, or None for the configured database.
        by: the column that names the groups, any of the frame; rows where it is missing are a
            group of their own. A `contract_address` of `0x` and 40 hex digits is one group
            whatever its case, and shows as first spelled.
        exclude: wallets to leave out, such as burn addresses and treasuries; one id or several.

    Returns:
        A row per group, by holders and then by name:

        - the column that `by` names
        - `tokens`: distinct tokens that are held
        - `holders`: distinct wallets that hold one
        - `amount`: S, exact Python integers in an object column
        - `top1_share`, `top10_share`: the sum of the greatest x_i, or the ten greatest, over S;
          0 to 1
        - `hhi`: the Herfindahl-Hirschman index, the sum of (x_i / S)²; from 1/n (all hold the
          same) to 1 (one holds all)
        - `gini`: the Gini coefficient over the n holders, with x ascending and i from 1:
          2 Σ i·x_i / (n S) - (n + 1) / n; 0 (all hold the same) to 1 - 1/n
        - `nakamoto`: the Nakamoto coefficient, the fewest holders who together have more than half
          of S; `Int64`
        - `unknown_amounts`: holdings (rows) whose amount is unknown

        The fields are `tokenId`, `amount` and `contractAddress` of the provider's document,
        sections "NFT token balance" and "Token".

    Raises:
        InputError: the frame has no such column or an unusable one, `by` is the name of a column
            that is returned, or an excluded id is no UUID.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    if not isinstance(by, str) or by in _MEASURES:
        raise InputError(
            f"cannot group holdings by {by!r}; give the name of a column of the frame other than"
            f" {', '.join(_MEASURES)}, which name what is returned"
        )
    frame = given_holdings(holdings, exclude, needs=("wallet_id", "token_id", "amount", by))
    group, names = _groups(frame, by)
    count = len(names)
    amounts = frame["amount"].to_numpy()
    known = pd.notna(amounts)
    wallet, _ = coded(text_column(frame, "wallet_id"))
    token, _ = coded(text_column(frame, "token_id"))
    holders = distinct_in_each(group, wallet, count)
    columns: dict[str, Any] = {
        "tokens": distinct_in_each(group, token, count),
        "holders": holders,
        **_measures(_totals(group[known], wallet[known], amounts[known]), count),
        "unknown_amounts": np.bincount(group[~known], minlength=count),
    }
    order = np.lexsort((_ranks(names), -holders))
    ordered = names.take(order).reset_index(drop=True)
    return frame_of({by: ordered, **{name: columns[name][order] for name in _MEASURES}})


def _groups(frame: pd.DataFrame, by: str) -> tuple[Numbers, pd.Series]:
    """Number each row's group, and give each group's name as its first row has it."""
    column = frame[by]
    if by == "contract_address":
        numbers, _ = contract_groups(text_column(frame, by))
    else:
        try:
            numbers, distinct = pd.factorize(column)
        except TypeError as error:
            raise InputError(f"cannot group holdings by {by!r}: {error}") from None
        numbers[numbers < 0] = len(distinct)
    return numbers, column.take(first_of_each(numbers))


def _ranks(names: pd.Series) -> Numbers:
    """Each name's place among them, what is missing last."""
    names = names.reset_index(drop=True)
    try:
        ordered = names.sort_values(kind="stable")
    except TypeError:
        # Names of several kinds have no order of their own.
        ordered = names.map(str, na_action="ignore").sort_values(kind="stable")
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[ordered.index] = np.arange(len(names))
    return ranks


@dataclass(frozen=True)
class _Totals:
    """What each holder has of each group.

    Attributes:
        group: the number of the group, ascending.
        amount: how much, ascending within a group.
    """

    group: Numbers
    amount: npt.NDArray[np.object_]


def _totals(
    group: Numbers, wallet: npt.NDArray[np.int32], amounts: npt.NDArray[np.object_]
) -> _Totals:
    if not len(group):
        return _Totals(group, amounts)
    width = int(wallet.max()) + 1
    key = group * width + wallet
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
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
    return _Totals(group, sums)


def _measures(totals: _Totals, count: int) -> dict[str, Any]:
    """The measures of `count` groups, of which some may have no totals."""
    found: dict[str, npt.NDArray[Any]] = {"amount": np.zeros(count, dtype=object)}
    for name in ("top1_share", "top10_share", "hhi", "gini"):
        found[name] = np.full(count, np.nan)
    found["nakamoto"] = np.zeros(count, dtype=np.int64)
    sizes = np.bincount(totals.group, minlength=count)
    # Most groups may be a token with one holder, where there is nothing to divide.
    alone = sizes[totals.group] == 1
    group = totals.group[alone]
    found["amount"][group] = totals.amount[alone]
    for name, value in _ALONE.items():
        found[name][group] = value
    if not alone.all():
        group = np.flatnonzero(sizes > 1)
        for name, values in _shared(totals.amount[~alone], sizes[group]).items():
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


#: Pairs that are looked at together, 32 MB of them.
_PAIRS_AT_ONCE = 1 << 22


def overlap(holdings: Given = None, *, exclude: WalletIds = ()) -> pd.DataFrame:
    """How many holders each two contracts have in common, the most first.

    A holder of a contract is a wallet with more than zero of one of its tokens, also where the
    amount is unknown (the provider's text is not 1 to 100 ASCII digits). Tokens without a contract
    are left out, and so are pairs without a common holder. A wallet that holds n contracts makes
    n (n - 1) / 2 pairs: leave out the wallets that hold everything, such as burn addresses.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a path, a `sqlite3.Connection`, a
            `sqlite_utils.Database`, or None for the configured database.
        exclude: wallets to leave out; one id or several.

    Returns:
        A row per pair of contracts, by `both`, then by the names:

        - `contract_a`, `contract_b`: their addresses, the lesser text first. Addresses of `0x` and
          40 hex digits are one contract whatever their case, and show as first spelled.
        - `wallets_a`, `wallets_b`: holders of each
        - `both`: wallets that hold both
        - `jaccard`: the Jaccard index, `both` over the wallets that hold at least one of the two,
          `wallets_a + wallets_b - both`; over 0, to 1 (the same wallets)

        The fields are `amount` and `contractAddress` of the provider's document, sections "NFT
        token balance" and "Token".

    Raises:
        InputError: the frame lacks a column or has an unusable one, or an excluded id is no UUID.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    return overlap_by(holdings, exclude, _PAIRS_AT_ONCE)


def overlap_by(holdings: Given, exclude: WalletIds, at_once: int) -> pd.DataFrame:
    """The same, looking at so many pairs together."""
    frame = given_holdings(holdings, exclude, needs=("wallet_id", "contract_address", "amount"))
    contract, spellings = contract_groups(text_column(frame, "contract_address"))
    wallet, _ = coded(text_column(frame, "wallet_id"))
    names, contract = _by_name(spellings, contract)
    held = _Held.of(wallet[contract < len(names)], contract[contract < len(names)], len(names))
    first, second, both = _common(held, at_once)
    order = np.argsort(-both, kind="stable")
    first, second, both = first[order], second[order], both[order]
    wallets_a, wallets_b = held.wallets[first], held.wallets[second]
    return frame_of(
        {
            "contract_a": text(names.take(pa.array(first))),
            "contract_b": text(names.take(pa.array(second))),
            "wallets_a": wallets_a,
            "wallets_b": wallets_b,
            "both": both,
            "jaccard": both / (wallets_a + wallets_b - both),
        }
    )


def _by_name(spellings: pa.Array, contract: Numbers) -> tuple[pa.Array, Numbers]:
    """Number contracts in the order of their names; the last, which has none, stays last."""
    names = spellings[:-1]
    order = pc.sort_indices(names).to_numpy()
    number = np.empty(len(spellings), dtype=np.int64)
    number[order] = np.arange(len(names))
    number[-1] = len(names)
    return names.take(pa.array(order)), number[contract]


@dataclass(frozen=True)
class _Held:
    """Which wallet holds which contracts: once each, by wallet and then by contract.

    Attributes:
        contract: the contract's number.
        later: how many contracts of the same wallet follow.
        wallets: by contract, how many wallets hold it.
    """

    contract: Numbers
    later: Numbers
    wallets: Numbers

    @classmethod
    def of(cls, wallet: npt.NDArray[np.int32], contract: Numbers, count: int) -> _Held:
        key = np.sort(wallet.astype(np.int64) * (count + 1) + contract)
        key = key[np.append(True, key[1:] != key[:-1])[: len(key)]]
        wallet_of, contract = np.divmod(key, count + 1)
        ends = np.cumsum(np.bincount(wallet_of))
        later = ends[wallet_of] - np.arange(len(key)) - 1
        return cls(contract, later, np.bincount(contract, minlength=count))


def _common(held: _Held, at_once: int) -> tuple[Numbers, Numbers, Numbers]:
    """Count common wallets by pair of contracts: the lesser, the greater, how many; in order."""
    width = len(held.wallets)
    none = np.empty(0, dtype=np.int64)
    parts = [
        (none, none),
        *(_counted(held, rows, width, at_once) for rows in _spans(held, at_once)),
    ]
    keys, both = (np.concatenate(part) for part in zip(*parts, strict=True))
    first, second = np.divmod(keys, max(width, 1))
    return first, second, both


def _spans(held: _Held, at_once: int) -> Iterator[Numbers]:
    """Cut what is held, ordered by contract, where a contract ends and enough pairs are made."""
    rows = np.argsort(held.contract, kind="stable")
    rows = rows[held.later[rows] > 0]
    contract = held.contract[rows]
    ends = np.flatnonzero(np.append(contract[1:] != contract[:-1], True)[: len(rows)]) + 1
    made = np.cumsum(held.later[rows])[ends - 1]
    start = first = 0
    while first < len(ends):
        most = at_once + (made[first - 1] if first else 0)
        # One contract at least, even if it makes more.
        first = max(first + 1, int(np.searchsorted(made, most, side="right")))
        yield rows[start : ends[first - 1]]
        start = ends[first - 1]


def _counted(held: _Held, rows: Numbers, width: int, at_once: int) -> tuple[Numbers, Numbers]:
    """Count the pairs whose lesser contract is that of one of these rows.

    Returns:
        The pairs as lesser times `width` plus greater, ascending, and how often each is made.
    """
    lowest = held.contract[rows[0]] * width
    cells = (held.contract[rows[-1]] + 1) * width - lowest
    made = np.cumsum(held.later[rows])
    if made[-1] * 2 < cells and made[-1] <= at_once:
        keys = np.sort(_pairs(held, rows, width))
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        return keys[starts], np.diff(starts, append=len(keys))
    counts = np.zeros(cells, dtype=np.int64)
    cuts = np.searchsorted(made, np.arange(at_once, made[-1], at_once))
    for part in np.split(rows, np.unique(cuts)):
        counts += np.bincount(_pairs(held, part, width) - lowest, minlength=cells)
    keys = np.flatnonzero(counts)
    return keys + lowest, counts[keys]


def _pairs(held: _Held, rows: Numbers, width: int) -> Numbers:
    """The contract of each row, paired with each that follows it in the row's wallet."""
    later = held.later[rows]
    ends = np.cumsum(later)
    follower = np.arange(later.sum()) + np.repeat(rows + 1 - (ends - later), later)
    keys: Numbers = np.repeat(held.contract[rows], later) * width + held.contract[follower]
    return keys
