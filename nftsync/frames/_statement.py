"""Statements of groups over a period."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, Exact, amount_columns, sums_by_group
from nftsync.columnar.columns import TEXT, frame_of, text
from nftsync.columnar.filters import (
    Moment,
    filters_of,
    only_one,
    states_between,
    stored_time,
    ticks_of,
)
from nftsync.columnar.hidden import HIDDEN_ROW, hidden_rows
from nftsync.columnar.inputs import Table
from nftsync.columnar.prices import day_of, latest_prices
from nftsync.columnar.source import Numbers, Source, Store, positions, reading
from nftsync.columnar.tokens import contract_keys
from nftsync.errors import InputError
from nftsync.frames._over_time import Steps, grouping, groups_of_steps, read_steps
from nftsync.frames._value import DIGITS, price_table, warn_unpriced
from nftsync.store.wallets import GroupNames, WalletIds
from nftsync.times import MOMENT, now, shifted

Mask: TypeAlias = "npt.NDArray[np.bool_]"
#: The name of the last row.
TOTAL = "total"
#: The columns of a statement, in holdings; the same names with `_amount` hold amounts.
ENTRIES = ("opening", "initial", "received", "sent", "closing")


def statement(
    db: Store = None,
    start: Moment | None = None,
    end: Moment | None = None,
    by: str = "wallet_group",
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
    prices: Table | None = None,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the opening balance, the movements and the closing balance of each group.

    Shared parameters: see `nftsync.frames`. A date is the end of that day, also in `start`, but the
    start of that day in `since`: `statement(db, "2026-09-30", "2026-10-31")` and
    `statement(db, since="2026-10-01", until="2026-10-31")` are the statement for October. `end` and
    `until` are the same; None is now.

    `by` is the column to group by, as in `holdings_over_time`. Groups and filters use today's
    labels and contracts.

    In each row, `opening + initial + received − sent = closing`, in holdings and in amounts. The
    rows add up to the last row, the total. `opening` and `closing` are the holdings of
    `holdings(as_of=start)` and `holdings(as_of=end)`, so a closing balance is the next period's
    opening balance. `frame.attrs` has `start` and `end`, the times of the states shown. A start
    before the history moves to its first whole state.

    The row `hidden` before the total has the hidden tokens; with `hidden=True`, they count in their
    groups.

    An NFT in two wallets counts twice. `received` and `sent` count holdings that began or ended;
    changes of an amount count in the amounts only. A transfer counts as sent and as received, also
    within a group.

    `prices` is a table or CSV file as for `frames.value`. Each balance has the latest prices up to
    its date, by today's contracts.

    Returns:
        A row per group, the largest closing balance first, and a row `total`; columns:
        `frames.explain("statement")`. The column of `by` (and a contract's name or a wallet's
        names) replaces `wallet_group`. Unknown amounts count as 0. With `prices`, also
        `opening_value_CURRENCY` and `closing_value_CURRENCY` for each currency in them (`Decimal`,
        exact), and `opening_unpriced` and `closing_unpriced`: holdings without a price.

    Warns:
        NftsyncWarning: the start is before the history, or within a sync; or a price is missing.

    Raises:
        InputError: the start is missing, the end is before the history, or a price is unusable.
        StoreError: no wallet was read yet.
    """
    by = grouping(by)
    first, end = only_one(start=start, since=since), only_one(end=end, until=until)
    if first is None:
        raise InputError("a statement needs its start: start or since (--month, --from, --since)")
    with reading(db) as source, localcontext(prec=DIGITS):
        filters = filters_of(source, wallet=wallet, group=group, contract=contract, exclude=exclude)
        if since is not None:
            first = shifted(stored_time(source, since, "start"), -MOMENT)
        opening, closing = states_between(source, first, end)
        wallets, tokens, steps = read_steps(source, closing, filters)
        numbers, names = groups_of_steps(source, by, {"wallet": wallets, "token": tokens})
        numbers[hidden_rows(source, tokens, include=hidden)] = len(names[by])
        inside = steps.at > ticks_of(opening)
        values: dict[str, npt.NDArray[Any]] = {}
        if prices is not None:
            ends = {"opening": (opening, ~inside), "closing": (closing or now(), inside | True)}
            values = _values(source, prices, tokens, steps, ends)
        frame = _frame(steps, numbers, names, inside, values, amounts)
    frame.attrs |= {"start": opening, "end": closing}
    return frame


def _values(
    source: Source, prices: Table, tokens: Numbers, steps: Steps, ends: dict[str, tuple[str, Mask]]
) -> dict[str, npt.NDArray[Any]]:
    """Return the values and unpriced holdings of each step at each end."""
    table = price_table(source, prices)
    wanted = np.unique(tokens)
    numbers, (ids, addresses) = source.numbered("token", ["token_id", "contract_address"], wanted)
    contracts = pd.DataFrame({"token_id": ids, "contract": contract_keys(addresses)})
    columns: dict[str, npt.NDArray[Any]] = {}
    for end, (time, counted) in ends.items():
        priced = latest_prices(contracts, table, day_of(time)).iloc[positions(numbers, tokens)]
        price, currency = (priced[x].to_numpy(dtype=object) for x in ("price", "currency"))
        for one in sorted(set(table["currency"])):
            rows = counted & (currency == one)
            column = columns[f"{end}_value_{one}"] = np.full(len(tokens), Decimal(0))
            column[rows] = price[rows] * steps.amount[rows]
        unpriced = columns[f"{end}_unpriced"] = steps.holdings * (counted & pd.isna(price))
        holdings = int(steps.holdings[counted].sum())
        warn_unpriced(unpriced.sum(), holdings, day_of(time), stacklevel=5)
    return columns


def _frame(
    steps: Steps,
    groups: Numbers,
    names: dict[str, pa.Array],
    inside: Mask,
    values: dict[str, npt.NDArray[Any]],
    amounts: AmountKind,
) -> pd.DataFrame:
    distinct, group = np.unique(groups, return_inverse=True)
    counts = {
        "opening": np.where(inside, 0, steps.holdings),
        "initial": np.where(inside, steps.first_seen, 0),
        "received": np.where(inside, steps.arrived, 0),
        "sent": np.where(inside, steps.left, 0),
        "closing": steps.holdings,
        "unknown_amounts": steps.unknown,
    }
    initial = inside & (steps.first_seen != 0)
    later = inside & ~initial
    exact = {
        "opening_amount": np.where(inside, 0, steps.amount),
        "initial_amount": np.where(initial, steps.amount, 0),
        "received_amount": np.where(later, np.maximum(steps.amount, 0), 0),
        "sent_amount": np.where(later, np.maximum(-steps.amount, 0), 0),
        "closing_amount": steps.amount,
        **values,
    }
    sums: dict[str, npt.NDArray[Any]] = {
        name: np.bincount(group, values, len(distinct)).astype(np.int64)
        for name, values in counts.items()
    } | {name: sums_by_group(group, values, len(distinct)) for name, values in exact.items()}
    used = np.logical_or.reduce([column != 0 for column in sums.values()])
    order = np.flatnonzero(used)
    is_hidden = distinct[order] == len(next(iter(names.values())))
    order = order[np.lexsort((distinct[order], -sums["closing"][order], is_hidden))]
    rows = {name: np.append(column[order], column.sum()) for name, column in sums.items()}
    of_amounts = {f"{name}_amount": Exact.of(rows[f"{name}_amount"]) for name in ENTRIES}
    shown = pa.array(distinct[order])
    columns: dict[str, Any] = {}
    for place, (name, column) in enumerate(names.items()):
        is_named = not place or name == "wallet"
        named = pa.concat_arrays([column, pa.array([HIDDEN_ROW if is_named else None], TEXT)])
        last = pa.array([TOTAL if is_named else None], TEXT)
        columns[name] = text(pa.concat_arrays([named.take(shown), last]))
    for name in values:
        rows[name] = np.array([*map(Decimal if "_value_" in name else int, rows[name])])
    return frame_of(
        columns
        | {name: rows[name] for name in ENTRIES}
        | amount_columns(of_amounts, amounts)
        | {name: rows[name] for name in ("unknown_amounts", *values)}
    )
