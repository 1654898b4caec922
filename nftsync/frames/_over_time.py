"""Holdings over time, from the change feed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, Amounts, Exact, amount_columns
from nftsync.columnar.balances import STEPS, change_log, change_span
from nftsync.columnar.columns import (
    TEXT,
    Rows,
    coded,
    frame_of,
    moments,
    numbered_together,
    run_starts,
    text,
    times,
)
from nftsync.columnar.filters import Moment, filters_of, one_of, stored_span, ticks_of
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.inputs import ADDRESSES
from nftsync.columnar.periods import Every, Period, period_edges, period_of
from nftsync.columnar.source import Numbers, Source, Store, positions, reading
from nftsync.columnar.tokens import contract_columns, contract_groups, names_of_wallets
from nftsync.store.filters import Filters
from nftsync.store.history import from_history, last_observed
from nftsync.store.wallets import GroupNames, WalletIds

#: The table and column of each value of `by`.
BY = {
    **dict.fromkeys((*ADDRESSES, "collection"), ("token", "contract_address")),
    "creator_name": ("token", "creator_name"),
    "wallet_id": ("wallet", "wallet_id"),
    "wallet_label": ("wallet", "label"),
    "wallet_group": ("wallet", "wallet_group"),
}
#: Short names of `by`, as in commands.
_ALIASES = {"wallet": "wallet_id", "group": "wallet_group"}
#: The columns of holdings that began or ended.
_MOVES = ("arrived", "left", "first_seen")
#: The limit on groups times periods.
_MOST_ROWS = 10_000_000


@dataclass(frozen=True)
class Steps(Rows):
    """Changes per group, sorted by group and time (microseconds since 1970).

    - `holdings`: change of the number of holdings
    - `amount`: change of the sum of the known amounts
    - `unknown`: change of the number of holdings with an unknown amount
    """

    group: Numbers
    at: Numbers
    holdings: Numbers
    arrived: Numbers
    left: Numbers
    first_seen: Numbers
    amount: npt.NDArray[np.object_]
    unknown: Numbers

    def values(self) -> list[npt.NDArray[Any]]:
        """Return the columns after `group` and `at`."""
        return [getattr(self, field.name) for field in fields(self)[2:]]

    def summed(self) -> Steps:
        """Return one row per group and time, without rows of zeros."""
        steps = self.rows(np.lexsort((self.at, self.group)))
        starts = run_starts(steps.group, steps.at)
        if not len(starts):
            return steps
        sums = (np.add.reduceat(values, starts) for values in steps.values())
        summed = Steps(steps.group[starts], steps.at[starts], *sums)
        return summed.rows(np.logical_or.reduce([values != 0 for values in summed.values()]))

    def totals(self, steps: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the running total of a column within each group."""
        starts = run_starts(self.group)
        if not len(starts):
            return steps
        sums = np.cumsum(steps)
        before = sums[starts] - steps[starts]
        return np.asarray(sums - np.repeat(before, np.diff(starts, append=len(steps))))


def holdings_over_time(
    db: Store = None,
    by: str | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    every: Every = None,
    *,
    freq: Every = None,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the number of holdings and their amount at each time, from the change feed.

    Shared parameters: see `nftsync.frames`. Groups and filters use today's labels and contracts.

    - `by` is the column to group by: `contract_address`, `contract`, `collection`, `creator_name`,
      `wallet_id` (or `wallet`), `wallet_label` or `wallet_group` (or `group`). None: all holdings
      together.
    - `start`: the first rows show the state at that time. A start before the history moves to its
      begin, with a warning. None is the first change.
    - `end`: the last time; later than the last read, it moves to that read.
    - `every` (or `freq`) is the period of the rows in UTC: `1h`, `1d`, `7d` (from Monday), a
      timedelta, or a pandas alias (`D`, `W`, `ME`, `QE`, `YE`; also `W-WED`, `QE-MAR`, `2ME`). A
      row shows the end of its period. None: a row per change.

    A holding counts from the read that first showed it, which may be long after it began. Initial
    holdings, whose start date is unknown, count in `first_seen` and not in `arrived`.

    Returns:
        A row per time and group, with groups in the order first seen; columns:
        `frames.explain("holdings_over_time")`, and after `at` the column of `by` (and a contract's
        name or a wallet's names).

    Raises:
        InputError: the period is unknown, or periods times groups exceed 10,000,000 rows.
    """
    by = None if by is None else grouping(by)
    period = period_of(every, freq)
    with reading(db) as source:
        begins, until = stored_span(source, start, end)
        begins = begins and from_history(source.cursor, begins, ", so the rows begin there")
        filters = filters_of(source, wallet=wallet, group=group, contract=contract, exclude=exclude)
        wallets, tokens, steps = read_steps(source, until, filters)
        left_out = hidden_rows(source, tokens, include=hidden)
        pairs = numbered_together(wallets[left_out], tokens[left_out])
        hidden_holdings = int(pairs.max(initial=-1)) + 1
        wallets, tokens, steps = wallets[~left_out], tokens[~left_out], steps.rows(~left_out)
        ends = _last_read(source, until)
        names: dict[str, pa.Array] = {}
        if by is not None:
            steps.group[:], names = groups_of_steps(
                source, by, {"wallet": wallets, "token": tokens}
            )
    if len(steps.at):
        first = int(steps.at.min()) if begins is None else ticks_of(begins)
        if first > ends:
            steps = steps.rows(np.arange(0))
        elif period is None:
            steps = _clipped(steps, first).summed()
        else:
            steps = _by_period(_clipped(steps, first), period, first, ends)
    return marked(_frame(steps, names, amounts), hidden_holdings)


def grouping(by: object) -> str:
    """Return the column of `BY` that a caller names."""
    name = one_of(by, "by", (*BY, *_ALIASES))
    return _ALIASES.get(name, name)


def read_steps(
    source: Source, until: str | None, filters: Filters
) -> tuple[Numbers, Numbers, Steps]:
    """Return wallet, token and step of each change, all in group 0."""
    wallet, token, old, new, observed, baseline = change_log(
        source, STEPS, last=change_span(source, None, until)[1], filters=filters
    )
    both = Amounts(pa.concat_arrays([old, new]))
    before, after = np.split(both.codes, 2)
    sizes = both.values()
    is_held = np.array([size != 0 for size in sizes], dtype=np.int64)
    unknown = np.array([size is None for size in sizes], dtype=np.int64)
    known_sizes = np.where(unknown, 0, sizes)
    at = _shown_at(source, moments(observed).view(np.int64))
    if until is None:  # now, the tables show all changes
        at = np.minimum(at, _last_read(source, None))
    step, first = is_held[after] - is_held[before], baseline.to_numpy() != 0
    steps = Steps(
        group=np.zeros(len(step), dtype=np.int64),
        at=at,
        holdings=step,
        arrived=((step > 0) & ~first).astype(np.int64),
        left=(step < 0).astype(np.int64),
        first_seen=((step > 0) & first).astype(np.int64),
        amount=known_sizes[after] - known_sizes[before],
        unknown=unknown[after] - unknown[before],
    )
    wallets, tokens = wallet.to_numpy(), token.to_numpy()
    selected = before != after
    if until is not None:
        selected &= at <= ticks_of(until)
    return wallets[selected], tokens[selected], steps.rows(selected)


def _shown_at(source: Source, at: Numbers) -> Numbers:
    """Return when each change is part of a whole state."""
    query = "SELECT began_at, ended_at FROM partial_spans ORDER BY began_at"
    columns = source.columns(query, [TEXT, TEXT])
    begins, ends = (moments(column).view(np.int64) for column in columns)
    if not len(begins):
        return at
    ends = np.maximum.accumulate(ends)
    is_last = np.append(begins[1:] > ends[:-1], True)  # of spans that overlap
    ends = ends[is_last][np.cumsum(is_last) - is_last]
    span = np.searchsorted(begins, at, side="right") - 1
    return np.where(span >= 0, np.maximum(at, ends[span]), at)


def _last_read(source: Source, until: str | None) -> int:
    (synced,) = next(source.rows("SELECT max(synced_at) FROM wallets"))
    latest = max(filter(None, (last_observed(source.cursor), synced)), default=None)
    if latest is None:
        return 0
    return ticks_of(latest if until is None else min(latest, until))


def groups_of_steps(
    source: Source, by: str, of: dict[str, Numbers]
) -> tuple[Numbers, dict[str, pa.Array]]:
    """Return the group of each row, and the columns of each group; the last group has no name."""
    kind, column = BY[by]
    wanted = [column, "label"] if by == "wallet_id" else [column]
    numbers, (values, *labels) = source.numbered(kind, wanted, np.unique(of[kind]))
    place = positions(numbers, of[kind])
    if by in ADDRESSES:
        codes, names = contract_groups(values)
        group = np.append(codes, len(names) - 1)[place]
        columns = {"contract_address": names, **contract_columns(source, names)}
        return group, {by: columns.pop(by), **columns}
    if by == "collection":
        values = contract_columns(source, values)[by]
    code, distinct = coded(values)
    group = np.append(code, -1)[place]
    nameless = pa.nulls(1, TEXT)
    columns = {by: pa.concat_arrays([distinct, nameless])}
    if labels:  # ids are unique, so their codes are positions
        named = {"wallet_label": labels[0], "wallet": names_of_wallets(source, values)}
        columns |= {name: pa.concat_arrays([x, nameless]) for name, x in named.items()}
    return np.where(group < 0, len(distinct), group), columns


def _clipped(steps: Steps, first: int) -> Steps:
    """Move changes before a time to that time, without counting them as arrived or left."""
    counts = steps.at >= first
    return replace(
        steps,
        at=np.maximum(steps.at, first),
        **{name: getattr(steps, name) * counts for name in _MOVES},
    )


def _by_period(steps: Steps, period: Period, first: int, ends: int) -> Steps:
    groups, group = np.unique(steps.group, return_inverse=True)
    edges = period_edges(period, first, ends, _MOST_ROWS // max(1, len(groups)))
    count = len(edges) - 1
    at = np.searchsorted(edges, steps.at, side="right") - 1
    summed = replace(steps, group=group, at=at).summed()
    columns = []
    for values in summed.values():
        grid = np.zeros(len(groups) * count, dtype=values.dtype)
        grid[summed.group * count + summed.at] = values
        columns.append(grid)
    at = np.minimum(edges[1:] - 1, ends)
    return Steps(np.repeat(groups, count), np.tile(at, len(groups)), *columns)


def _frame(steps: Steps, names: dict[str, pa.Array], amounts: AmountKind) -> pd.DataFrame:
    holdings, amount, unknown = map(steps.totals, (steps.holdings, steps.amount, steps.unknown))
    order = np.lexsort((steps.group, steps.at))
    group = pa.array(steps.group[order])
    groups = {name: text(column.take(group)) for name, column in names.items()}
    return frame_of(
        {
            "at": times(steps.at[order].view("M8[us]")),
            **groups,
            "holdings": holdings[order],
            **amount_columns({"amount": Exact.of(amount[order])}, amounts),
            **{name: getattr(steps, name)[order] for name in _MOVES},
            "unknown_amounts": unknown[order],
        }
    )
