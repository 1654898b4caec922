"""Editions of numbered NFTs held, by series."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.amounts import AmountKind, Exact, amount_columns, sums_by_group
from nftsync.columnar.columns import (
    TEXT,
    coded,
    distinct_by_group,
    first_rows,
    flags,
    frame_of,
    numbered_together,
    run_starts,
    taken,
    text,
)
from nftsync.columnar.hidden import HIDDEN, marked
from nftsync.columnar.inputs import (
    FrameOrDb,
    contract_names,
    integer_column,
    load_holdings,
    text_column,
)
from nftsync.columnar.source import Numbers
from nftsync.columnar.tokens import contract_groups
from nftsync.store.contracts import BETWEEN, NUMBER
from nftsync.store.wallets import GroupNames, WalletIds


def series_names(
    names: pa.Array, edition: Numbers, unnumbered: npt.NDArray[np.bool_], among: Numbers
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return the series of each token: its name without its own edition number at the end.

    A name that several numbers share stays as it is. Only tokens with the same number in `among`
    can be of one series. The result is codes (-1: no name), and their distinct names.
    """
    codes, distinct = coded(names)
    if not len(distinct):
        return codes, distinct
    number = pc.struct_field(pc.extract_regex(distinct, NUMBER), "number")
    numbered = flags(pc.equal(taken(number, codes), pa.array(edition).cast(TEXT))) & ~unnumbered
    # Most names differ only in their number.
    base, bases = coded(pc.replace_substring_regex(distinct, NUMBER, r"\1"))
    series = pc.struct_field(pc.extract_regex(bases, BETWEEN), "series")
    series = series.cast(TEXT).take(pa.array(base))
    numbered &= flags(pc.is_valid(series))[codes]
    named = numbered_together(among, codes)
    _, first = np.unique(numbered_together(named, numbered_together(edition)), return_index=True)
    numbered &= np.bincount(named[first])[named] == 1
    # Codes of names without their number follow the codes of full names.
    chosen = np.where(numbered, codes + len(distinct), codes)
    return coded(taken(pa.concat_arrays([distinct, series]), chosen))


_NEEDS = ("wallet_id", "contract_address", "amount", "name", "edition_id", "total_edition")
_LONGEST_TEXT = 200
_GREATEST = 2**63 - 1


def editions(
    holdings: FrameOrDb = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return which editions of each series are held, and the gaps between them.

    Shared parameters: see `nftsync.frames`. A series is the tokens of one contract with the same
    total of editions and the same name. Differences in the token's own edition number at the end of
    the name (`#12`, `12/100`, `(12 of 100)`, `No. 12`, `12`) do not count. If tokens with several
    numbers share a name, the name counts as it is. Tokens with a number and tokens with only a
    total form separate series; tokens with neither are left out.

    Returns:
        A row per contract and series, by name, missing names last; columns:
        `frames.explain("editions")`. Without numbers, `lowest` to `beyond_total` are missing.
        `share` is missing if the total is missing or below 1, or if no amount is known, `gaps`
        above 2**63 - 1, and `beyond_total` without a total. The provider's document does not
        specify the first number, so `beyond_total` counts from 0 or from 1, whichever gives fewer.
    """
    filters: Any = {"wallet": wallet, "group": group, "contract": contract, "hidden": hidden}
    frame = load_holdings(holdings, exclude, needs=_NEEDS, wants=("collection",), **filters)
    of_series = frame[frame[["edition_id", "total_edition"]].notna().any(axis=1)]
    return marked(_frame(of_series, amounts), frame.attrs.get(HIDDEN, 0))


def _frame(rows: pd.DataFrame, amounts: AmountKind) -> pd.DataFrame:
    edition, unnumbered = integer_column(rows, "edition_id")
    total, no_total = integer_column(rows, "total_edition")
    contract, spellings = contract_groups(text_column(rows, "contract_address"))
    among = numbered_together(
        contract, numbered_together(total), no_total.view(np.int8), unnumbered.view(np.int8)
    )
    codes, names = series_names(text_column(rows, "name"), edition, unnumbered, among)
    series = numbered_together(among, codes)
    first = first_rows(series)
    count, total, no_total = len(first), total[first], no_total[first]
    addresses = spellings.take(pa.array(contract[first]))
    contracts = {"contract_address": addresses, **contract_names(rows, first, addresses)}
    keys = {
        "contract_address": addresses,
        "series": taken(names, codes[first]),
        "total": pa.array(total, mask=no_total),
        "numbered": pa.array(~unnumbered[first]),
    }
    by_number = np.lexsort((edition, series))
    by_number = by_number[~unnumbered[by_number]]
    by_number = by_number[run_starts(series[by_number], edition[by_number])]
    amount = rows["amount"].to_numpy()
    copies = sums_by_group(series[unnumbered], amount[unnumbered], count)
    # A series has either numbers or copies.
    total_held = np.bincount(series[by_number], minlength=count).astype(object) + copies
    valid = (total > 0) & (total_held > 0)
    share = np.full(count, np.nan)
    share[valid] = total_held[valid] / total[valid].astype(object)
    frame = frame_of(
        {
            **{name: text(column) for name, column in contracts.items()},
            "series": text(keys["series"]),
            "numbered": ~unnumbered[first],
            "total": pd.arrays.IntegerArray(total, no_total),
            **amount_columns({"held": Exact.of(total_held)}, amounts),
            "share": share,
            **_number_columns(series[by_number], edition[by_number], total, no_total),
            "holders": distinct_by_group(series, coded(text_column(rows, "wallet_id"))[0], count),
            "unknown_amounts": np.bincount(series[pd.isna(amount)], minlength=count),
        }
    )
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
    return frame.take(order.to_numpy()).reset_index(drop=True)


def _number_columns(
    series: Numbers, edition: Numbers, total: Numbers, no_total: npt.NDArray[np.bool_]
) -> dict[str, Any]:
    present, starts, counts = np.unique(series, return_index=True, return_counts=True)
    lowest, highest = edition[starts], edition[starts + counts - 1]
    # Unsigned, because the difference of two int64 values can exceed int64.
    gaps = highest.view(np.uint64) - lowest.view(np.uint64) - (counts - 1).astype(np.uint64)
    totals = total[series]
    beyond = [
        np.bincount(series[(edition < least) | (edition - least >= totals)], minlength=len(total))
        for least in (0, 1)
    ]

    def column(values: Numbers, missing: npt.NDArray[np.bool_] | bool = False) -> Any:
        data, mask = np.zeros(len(total), dtype=np.int64), np.ones(len(total), dtype=np.bool_)
        data[present], mask[present] = values, missing
        return pd.arrays.IntegerArray(data, mask)

    return {
        "lowest": column(lowest),
        "highest": column(highest),
        "gaps": column(gaps.astype(np.int64), gaps > _GREATEST),
        "gap_ranges": text(_gap_ranges(series, edition, len(total))),
        "beyond_total": column(np.minimum(*beyond)[present], no_total[present]),
    }


def _gap_ranges(series: Numbers, edition: Numbers, count: int) -> pa.Array:
    ranges = np.full(count, None, dtype=object)
    ranges[series] = ""
    apart = edition[1:].view(np.uint64) - edition[:-1].view(np.uint64)
    gaps = np.flatnonzero((series[1:] == series[:-1]) & (apart > 1))
    present, starts, sizes = np.unique(series[gaps], return_index=True, return_counts=True)
    for number, start, size in zip(present.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        # Enough to fill the text, because each range takes at least 3 characters.
        shown = gaps[start : start + min(size, _LONGEST_TEXT // 3)]
        bounds = zip(edition[shown].tolist(), edition[shown + 1].tolist(), strict=True)
        joined = ", ".join(str(a + 1) if a + 2 == b else f"{a + 1}-{b - 1}" for a, b in bounds)
        if len(joined) > _LONGEST_TEXT:
            joined = joined[: joined.rindex(", ", 0, _LONGEST_TEXT - 1) + 2] + "…"
        ranges[number] = joined
    return pa.array(ranges, TEXT)
