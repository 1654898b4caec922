"""How unevenly holdings are spread over their holders, and which contracts share them.

Source: provider's document, sections NFT token balance and Token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

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
from nftsync.frames._contracts import contract_groups
from nftsync.frames._given import (
    ADDRESSES,
    Given,
    contract_names,
    given_holdings,
    groups_of,
    text_column,
)
from nftsync.frames._source import Numbers
from nftsync.frames._tables import WalletIds

__all__ = ["Shared", "check_grouping", "compared", "concentration", "overlap", "ranked", "shared"]

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
            that is returned, the amounts do not fit the `amounts` that was asked for, or an
            excluded wallet is none.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    check_grouping(by)
    needs = ("wallet_id", "token_id", "amount", by)
    frame = given_holdings(holdings, exclude, needs=needs, wants=("collection",))
    group, names = groups_of(frame, by)
    count = len(names)
    groups: dict[str, Any] = {by: names}
    if by in ADDRESSES:
        addresses = text_column(frame, by).take(pa.array(first_of_each(group)))
        called = contract_names(frame, first_of_each(group), addresses)
        groups |= {name: text(column) for name, column in called.items()}
    held = frame["amount"].to_numpy()
    known = pd.notna(held)
    wallet, _ = coded(text_column(frame, "wallet_id"))
    token, _ = coded(text_column(frame, "token_id"))
    holders = distinct_in_each(group, wallet, count)
    columns: dict[str, Any] = {
        "tokens": distinct_in_each(group, token, count),
        "holders": holders,
        **_measures(*_totals(group[known], wallet[known], held[known]), count),
        "unknown_amounts": np.bincount(group[~known], minlength=count),
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
        exclude: wallets to leave out; one or several, by id or label.

    Returns:
        A row per pair of contracts, by `both`, then by the names:

        - `contract_a`, `contract_b`: their addresses, the lesser text first. Addresses of `0x` and
          40 hex digits are one contract whatever their case, and show as first spelled.
        - `collection_a`, `collection_b`: what they are called
        - `wallets_a`, `wallets_b`: holders of each
        - `both`: wallets that hold both
        - `jaccard`: the Jaccard index, `both` over the wallets that hold at least one of the two,
          `wallets_a + wallets_b - both`; over 0, to 1 (the same wallets)

        The fields are `amount` and `contractAddress` of the provider's document, sections "NFT
        token balance" and "Token".

    Raises:
        InputError: the frame lacks a column or has an unusable one, or an excluded wallet is none.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    needs = ("wallet_id", "contract_address", "amount")
    frame = given_holdings(holdings, exclude, needs=needs, wants=("collection",))
    return compared(shared(frame))


@dataclass(frozen=True)
class Shared:
    """Contracts, and the wallets that hold two of them.

    Attributes:
        addresses: of the contracts, ascending.
        called: what they are called.
        rows: the first row that names each.
        wallets: how many hold each.
        first: of each pair the lesser contract, by position.
        second: the greater.
        both: how many wallets hold both. Pairs are in order.
    """

    addresses: pa.Array
    called: pa.Array
    rows: Numbers
    wallets: Numbers
    first: Numbers
    second: Numbers
    both: Numbers


def shared(frame: pd.DataFrame) -> Shared:
    """Count the wallets that contracts share.

    Args:
        frame: holdings that count, as `given_holdings` gives them.

    Raises:
        InputError: it has an unusable column.
    """
    wallet, _ = coded(text_column(frame, "wallet_id"))
    contract, addresses, called, rows = _by_address(frame)
    named = contract < len(addresses)
    held = np.sort(wallet[named].astype(np.int64) * len(addresses) + contract[named])
    # Once each.
    holder, contract = np.divmod(held[run_starts(held)], max(len(addresses), 1))
    wallets = np.bincount(contract, minlength=len(addresses))
    return Shared(addresses, called, rows, wallets, *_common(holder, contract))


def compared(found: Shared) -> pd.DataFrame:
    """What `overlap` returns."""
    order = np.argsort(-found.both, kind="stable")
    first, second, both = found.first[order], found.second[order], found.both[order]
    wallets_a, wallets_b = found.wallets[first], found.wallets[second]
    return frame_of(
        {
            "contract_a": text(found.addresses.take(pa.array(first))),
            "contract_b": text(found.addresses.take(pa.array(second))),
            "collection_a": text(found.called.take(pa.array(first))),
            "collection_b": text(found.called.take(pa.array(second))),
            "wallets_a": wallets_a,
            "wallets_b": wallets_b,
            "both": both,
            "jaccard": both / (wallets_a + wallets_b - both),
        }
    )


def _by_address(frame: pd.DataFrame) -> tuple[Numbers, pa.Array, pa.Array, Numbers]:
    """Number each row's contract in the order of addresses; the last number is of those without.

    Returns:
        The numbers, and by number the address, what the contract is called and its first row.
    """
    contract, spellings = contract_groups(text_column(frame, "contract_address"))
    addresses = spellings[:-1]
    rows = first_of_each(contract)[: len(addresses)]
    called = contract_names(frame, rows, addresses)["collection"]
    order = pc.sort_indices(addresses)
    number = np.append(np.empty(len(addresses), dtype=np.int64), len(addresses))
    number[order.to_numpy()] = np.arange(len(addresses))
    return number[contract], addresses.take(order), called.take(order), rows[order.to_numpy()]


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
