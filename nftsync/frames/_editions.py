"""Editions of numbered NFTs held, by series (tokens that differ only in their edition number)."""

from __future__ import annotations

from dataclasses import dataclass
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
    frame_of,
    numbered_together,
    run_starts,
    text,
)
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
    can be of one series; `edition` does not count for `unnumbered` tokens. The result is codes (-1:
    no name), and the distinct names of the codes.
    """
    codes, distinct = coded(names)
    if not len(distinct):
        return codes, distinct
    number = pc.struct_field(pc.extract_regex(distinct, NUMBER), "number")
    own = pc.equal(number.take(_rows(codes)), pa.array(edition).cast(TEXT))
    numbered = pc.fill_null(own, False).to_numpy(zero_copy_only=False) & ~unnumbered
    # Most names differ only in their number.
    base, bases = coded(pc.replace_substring_regex(distinct, NUMBER, r"\1"))
    series = pc.struct_field(pc.extract_regex(bases, BETWEEN), "series")
    series = series.cast(TEXT).take(pa.array(base))
    numbered &= pc.is_valid(series).to_numpy(zero_copy_only=False)[codes]
    numbered &= _of_one_number(numbered_together(among, codes), edition)
    # Codes of names without their number follow the codes of full names.
    chosen = np.where(numbered, codes + len(distinct), codes)
    return coded(pa.concat_arrays([distinct, series]).take(_rows(chosen)))


def _of_one_number(named: Numbers, edition: Numbers) -> npt.NDArray[np.bool_]:
    pairs = numbered_together(named, numbered_together(edition))
    _, first = np.unique(pairs, return_index=True)
    alone: npt.NDArray[np.bool_] = np.bincount(named[first])[named] == 1
    return alone


def _rows(codes: npt.NDArray[np.int32]) -> pa.Array:
    return pa.array(codes, mask=codes < 0)


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
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the editions of each series that are held, and the gaps between them.

    Shared parameters: see `nftsync.frames`. A series is the tokens of one contract with the same
    total of editions and the same name. Differences in the token's own edition number at the end of
    the name (`#12`, `12/100`, `(12 of 100)`, `No. 12`, `12`) do not count. If tokens with several
    numbers share a name, the name counts as it is. Tokens with a number and tokens with only a
    total form separate series; tokens with neither are left out.

    Returns:
        A row per contract and series, by name, missing names last:

        - `contract_address`, `contract`, `collection`: the contract
        - `series`: the common name
        - `numbered`: whether the tokens have edition numbers; 0 is a number
        - `total`: the total of editions as the provider sent it, even if implausible
        - `held`: distinct numbers held; in a series without numbers, the sum of the known amounts
        - `share`: `held` over `total`; NaN if the total is missing or below 1, or if all amounts
          needed are unknown
        - `lowest`, `highest`: the lowest and highest number held
        - `gaps`: numbers between these two that are not held; missing above 2**63 - 1
        - `gap_ranges`: those numbers, such as `3-5, 9`; cut off with `…` before 200 characters
        - `beyond_total`: held numbers outside 0 to total - 1, or outside 1 to total, whichever are
          fewer; missing without a total
        - `holders`, `unknown_amounts`: distinct wallets that hold one; rows with an unknown amount

        Without numbers, `lowest` to `beyond_total` are missing.

        Source: `name`, `editionId` and `totalEdition` of the provider's document, section
        "TokenMetadata", which does not specify the first number.
    """
    filters: Any = {"wallet": wallet, "group": group, "contract": contract}
    rows = load_holdings(holdings, exclude, needs=_NEEDS, wants=("collection",), **filters)
    return _frame(_read(rows), amounts)


def _frame(rows: _Rows, amounts: AmountKind) -> pd.DataFrame:
    count = len(rows.first)
    total, no_total = rows.total[rows.first], rows.no_total[rows.first]
    series, edition = _distinct_numbers(rows)
    amount_held, share = _held_and_share(rows, series)
    frame = frame_of(
        {
            **{name: text(column) for name, column in rows.contracts.items()},
            "series": text(rows.names),
            "numbered": ~rows.unnumbered[rows.first],
            "total": pd.arrays.IntegerArray(total, no_total),
            **amount_columns({"held": Exact.of(amount_held)}, amounts),
            "share": share,
            **_number_columns(series, edition, total, no_total),
            "holders": distinct_by_group(rows.series, rows.wallet, count),
            "unknown_amounts": np.bincount(rows.series[pd.isna(rows.amount)], minlength=count),
        }
    )
    keys = {
        "contract_address": rows.contracts["contract_address"],
        "series": rows.names,
        "total": pa.array(total, mask=no_total),
        "numbered": pa.array(~rows.unnumbered[rows.first]),
    }
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
    return frame.take(order.to_numpy()).reset_index(drop=True)


@dataclass(frozen=True)
class _Rows:
    """Holdings that belong to a series, and the series.

    A missing `edition` or `total` is 0, and marked in `unnumbered` or `no_total`. `first` is the
    first row of each series; `contracts` and `names` have an element per series.
    """

    series: Numbers
    edition: Numbers
    unnumbered: npt.NDArray[np.bool_]
    total: Numbers
    no_total: npt.NDArray[np.bool_]
    wallet: npt.NDArray[np.int32]
    amount: npt.NDArray[np.object_]
    first: Numbers
    contracts: dict[str, pa.Array]
    names: pa.Array


def _read(frame: pd.DataFrame) -> _Rows:
    edition, unnumbered = integer_column(frame, "edition_id")
    total, no_total = integer_column(frame, "total_edition")
    chosen = ~(unnumbered & no_total)
    frame, edition, unnumbered = frame[chosen], edition[chosen], unnumbered[chosen]
    total, no_total = total[chosen], no_total[chosen]
    contract, spellings = contract_groups(text_column(frame, "contract_address"))
    among = numbered_together(
        contract, numbered_together(total), no_total.view(np.int8), unnumbered.view(np.int8)
    )
    codes, names = series_names(text_column(frame, "name"), edition, unnumbered, among)
    series = numbered_together(among, codes)
    first = first_rows(series)
    addresses = spellings.take(pa.array(contract[first]))
    return _Rows(
        series=series,
        edition=edition,
        unnumbered=unnumbered,
        total=total,
        no_total=no_total,
        wallet=coded(text_column(frame, "wallet_id"))[0],
        amount=frame["amount"].to_numpy(),
        first=first,
        contracts={"contract_address": addresses, **contract_names(frame, first, addresses)},
        names=names.take(pa.array(codes[first], mask=codes[first] < 0)),
    )


def _distinct_numbers(rows: _Rows) -> tuple[Numbers, Numbers]:
    """Return series and number of each edition held, ascending."""
    series, edition = rows.series[~rows.unnumbered], rows.edition[~rows.unnumbered]
    order = np.lexsort((edition, series))
    series, edition = series[order], edition[order]
    first = run_starts(series, edition)
    return series[first], edition[first]


def _held_and_share(
    rows: _Rows, numbered: Numbers
) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.float64]]:
    count = len(rows.first)
    copies = sums_by_group(rows.series[rows.unnumbered], rows.amount[rows.unnumbered], count)
    # A series has either numbers or copies.
    amounts = np.bincount(numbered, minlength=count).astype(object) + copies
    total = rows.total[rows.first]
    valid = (total > 0) & (amounts > 0)
    share = np.full(count, np.nan)
    share[valid] = amounts[valid] / total[valid].astype(object)
    return amounts, share


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
