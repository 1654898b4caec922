"""Holdings over time, from the change log."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, Amounts, Exact, amount_columns
from nftsync.columnar.balances import STEPS, change_log, change_span
from nftsync.columnar.columns import TEXT, Rows, coded, frame_of, moments, run_starts, text, times
from nftsync.columnar.filters import (
    Moment,
    filters_of,
    floored,
    microseconds_of,
    one_of,
    stored_span,
    ticks_of,
    wallet_numbers,
)
from nftsync.columnar.given import ADDRESSES
from nftsync.columnar.source import Numbers, Source, Store, positions, reading
from nftsync.columnar.tokens import contract_columns, contract_groups
from nftsync.errors import InputError
from nftsync.store.filters import Filters
from nftsync.store.wallets import GroupNames, WalletIds
from nftsync.text import counted

#: By the column that names groups: the table that has it, and what it is called there.
BY = {
    **dict.fromkeys((*ADDRESSES, "collection"), ("token", "contract_address")),
    "creator_name": ("token", "creator_name"),
    "wallet_id": ("wallet", "wallet_id"),
    "wallet_label": ("wallet", "label"),
    "wallet_group": ("wallet", "wallet_group"),
}
#: Rows that a grid of groups and periods may have.
_MOST_ROWS = 10_000_000


@dataclass(frozen=True)
class Steps(Rows):
    """What changed of groups, in the order of groups and times within each.

    Attributes:
        group: the group's number.
        at: when, in microseconds since 1970.
        held: by how much the number of holdings changed.
        arrived: holdings that began, those of first reads not among them.
        left: holdings that ended.
        first_seen: holdings that first reads of wallets showed.
        amount: by how much the sum of the known amounts changed, exactly.
        unknown: by how much the number of holdings changed whose amount is unknown.
    """

    group: Numbers
    at: Numbers
    held: Numbers
    arrived: Numbers
    left: Numbers
    first_seen: Numbers
    amount: npt.NDArray[np.object_]
    unknown: Numbers

    def values(self) -> list[npt.NDArray[Any]]:
        """What changed, a column each."""
        return [getattr(self, field.name) for field in fields(self)[2:]]

    def summed(self) -> Steps:
        """One row for all of a group and a time, where that comes to anything."""
        steps = self.rows(np.lexsort((self.at, self.group)))
        starts = run_starts(steps.group, steps.at)
        if not len(starts):
            return steps
        sums = (np.add.reduceat(each, starts) for each in steps.values())
        summed = Steps(steps.group[starts], steps.at[starts], *sums)
        return summed.rows(np.logical_or.reduce([each != 0 for each in summed.values()]))

    def standing(self, steps: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What steps have come to by each row within its group, of which rows are in order."""
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
    every: str | timedelta | None = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return how many holdings were known at each time, and their amount, from the change log.

    A holding is a wallet with more than zero of a token. It counts from when a read found it, maybe
    long after it began. First reads of wallets are no growth: what they show was held before,
    nobody knows since when, and stands in `first_seen`, not in `arrived`.

    Args:
        db: what to read, as `nftsync.frames` tells.
        by: None for all holdings together; or the column that names groups: `contract_address`
            (whatever its case, as first spelled), `contract`, `collection`, `creator_name`,
            `wallet_id`, `wallet_label` or `wallet_group`, as they are today.
        start: the time to begin with; what stood then is in the first rows. None is the first
            change. Text, a date or a datetime.
        end: the last time; None, or one later than that, is the last read.
        every: a row per group for the end of each period in UTC, such as `1h`, `1d`, `7d` (from
            Monday) or a timedelta. None: only where something changed.
        wallet: only what these wallets held.
        group: only what wallets of these groups held.
        contract: only tokens that are of this contract today.
        exclude: wallets to leave out; one or several, by id or label.
        amounts: what `amount` is to be, as `nftsync.frames` tells.

    Returns:
        By time, then group in the order in which they were first seen: `at`, the column that `by`
        names (of a contract also its name, of a wallet its label), `holdings` and `amount` (the
        exact sum of the known amounts) at that time, and since the group's row before: `arrived`,
        `left`, `first_seen` (holdings). `holdings` is that of the row before, and `arrived`,
        `first_seen`, less `left`. `unknown_amounts` of the holdings have an amount that is no whole
        number.

    Raises:
        InputError: a time, `by`, `every`, a wallet label, group or contract is none, `start` is
            after `end`, the periods and groups are too many, the amounts do not fit the `amounts`
            that was asked for, or `db` is neither a path nor a connection.
    """
    if by is not None:
        one_of(by, "by", BY)
    period = None if every is None else microseconds_of(every)
    with reading(db) as source:
        begins, until = stored_span(source, start, end)
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        left_out = wallet_numbers(source, exclude)
        wallets, tokens, steps = _read_steps(source, until, filters, left_out)
        ends = _last_read(source, until)
        names: dict[str, pa.Array] = {}
        if by is not None:
            steps.group[:], names = _groups(source, by, {"wallet": wallets, "token": tokens})
    if not len(steps.at):
        return _frame(steps, names, amounts)
    first = int(steps.at.min()) if begins is None else ticks_of(begins)
    if first > ends:
        return _frame(steps.rows(np.arange(0)), names, amounts)
    steps = _begun(steps, first)
    if period is None:
        steps = steps.summed()
    else:
        steps = _at_ends(steps, period, floored(first, period), ends)
    return _frame(steps, names, amounts)


def _read_steps(
    source: Source, until: str | None, filters: Filters, left_out: Numbers
) -> tuple[Numbers, Numbers, Steps]:
    """The wallet, the token and what came of each change, all of one group."""
    wallet, token, old, new, observed, baseline = change_log(
        source, STEPS, last=change_span(source, None, until)[1], filters=filters
    )
    both = Amounts(pa.concat_arrays([old, new]))
    before, after = np.split(both.codes, 2)
    sizes = both.sizes()
    held = np.array([size != 0 for size in sizes], dtype=np.int64)
    unknown = np.array([size is None for size in sizes], dtype=np.int64)
    known = np.where(unknown, 0, sizes)
    step, first = held[after] - held[before], baseline.to_numpy() != 0
    steps = Steps(
        group=np.zeros(len(step), dtype=np.int64),
        at=moments(observed).view(np.int64),
        held=step,
        arrived=((step > 0) & ~first).astype(np.int64),
        left=(step < 0).astype(np.int64),
        first_seen=((step > 0) & first).astype(np.int64),
        amount=known[after] - known[before],
        unknown=unknown[after] - unknown[before],
    )
    wallets, tokens = wallet.to_numpy(), token.to_numpy()
    kept = (before != after) & ~np.isin(wallets, left_out)
    return wallets[kept], tokens[kept], steps.rows(kept)


_LAST_READ = """
    SELECT (SELECT observed_at FROM balance_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT max(synced_at) FROM wallets)
"""


def _last_read(source: Source, until: str | None) -> int:
    """The last time of which anything is known, at the latest `until`; 0 if there is none."""
    known = max((time for time in next(source.rows(_LAST_READ)) if time is not None), default=None)
    if known is None:
        return 0
    return ticks_of(known if until is None else min(known, until))


def _groups(source: Source, by: str, of: dict[str, Numbers]) -> tuple[Numbers, dict[str, pa.Array]]:
    """The group of each row by what is known of its wallet or token today, and groups' columns.

    The last group is of what has no name.
    """
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
    some, distinct = coded(values)
    group = np.append(some, -1)[place]
    nameless = pa.nulls(1, TEXT)
    columns = {by: pa.concat_arrays([distinct, nameless])}
    if labels:  # of ids none is of two wallets, so they are numbered as they come
        columns["wallet_label"] = pa.concat_arrays([*labels, nameless])
    return np.where(group < 0, len(distinct), group), columns


def _begun(steps: Steps, first: int) -> Steps:
    """Put what came before a time to that time; it neither arrives nor leaves then."""
    counts = steps.at >= first
    return replace(
        steps,
        at=np.maximum(steps.at, first),
        arrived=steps.arrived * counts,
        left=steps.left * counts,
        first_seen=steps.first_seen * counts,
    )


def _at_ends(steps: Steps, period: int, begin: int, ends: int) -> Steps:
    """A row for each group and the end of each period, the last at the latest when all ends."""
    groups, group = np.unique(steps.group, return_inverse=True)
    count = (ends - begin) // period + 1
    if len(groups) * count > _MOST_ROWS:
        raise InputError(
            f"{count:,} periods of {counted(len(groups), 'group')} are more than"
            f" {_MOST_ROWS:,} rows; give a longer every=, or start="
        )
    summed = replace(steps, group=group, at=(steps.at - begin) // period).summed()
    columns = []
    for values in summed.values():
        grid = np.zeros(len(groups) * count, dtype=values.dtype)
        grid[summed.group * count + summed.at] = values
        columns.append(grid)
    at = np.minimum(begin + np.arange(1, count + 1) * period - 1, ends)
    return Steps(np.repeat(groups, count), np.tile(at, len(groups)), *columns)


def _frame(steps: Steps, names: dict[str, pa.Array], amounts: AmountKind) -> pd.DataFrame:
    holdings, amount, unknown = map(steps.standing, (steps.held, steps.amount, steps.unknown))
    order = np.lexsort((steps.group, steps.at))
    group = pa.array(steps.group[order])
    groups = {name: text(column.take(group)) for name, column in names.items()}
    return frame_of(
        {
            "at": times(steps.at[order].view("M8[us]")),
            **groups,
            "holdings": holdings[order],
            **amount_columns({"amount": Exact.of(amount[order])}, amounts),
            "arrived": steps.arrived[order],
            "left": steps.left[order],
            "first_seen": steps.first_seen[order],
            "unknown_amounts": unknown[order],
        }
    )
