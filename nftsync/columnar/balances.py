"""Balances and the change feed, as columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import Amounts
from nftsync.columnar.columns import (
    INTEGER,
    TEXT,
    Rows,
    Times,
    coded,
    frame_of,
    moments,
    text,
    times,
)
from nftsync.columnar.source import IN_JSON, Numbers, Source, Store, positions, reading
from nftsync.store.database import as_json
from nftsync.store.filters import Filters
from nftsync.store.history import first_row

#: The range of change numbers in SQLite.
_LEAST, GREATEST = -(2**63), 2**63 - 1
#: Columns of the change feed.
CHANGE_TYPES = {
    "change_id": INTEGER,
    "wallet_no": INTEGER,
    "token_no": INTEGER,
    "old_amount": TEXT,
    "new_amount": TEXT,
    "observed_at": TEXT,
    "baseline": INTEGER,
    "run_id": INTEGER,
    "webhook_id": TEXT,
}
#: Columns of a change's content and time.
STEPS = ("wallet_no", "token_no", "old_amount", "new_amount", "observed_at", "baseline")


def change_log(
    source: Source,
    names: Collection[str] = CHANGE_TYPES,
    *,
    first: int = _LEAST,
    last: int,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
) -> list[pa.Array]:
    condition, parameters = filters.where(key="no")
    return source.columns(
        f"SELECT {', '.join(names)} FROM balance_change_rows"
        f" WHERE change_id BETWEEN ? AND ? AND {condition} ORDER BY change_id",
        [CHANGE_TYPES[name] for name in names],
        (first, last, *parameters),
    )


def change_span(
    source: Source, since: str | None, until: str | None, *, after: bool = False
) -> tuple[int, int]:
    """Return the first and the last change number in a span; `after` excludes `since` itself."""
    log = source.cursor, "balance_change_rows"
    first = _LEAST if since is None else first_row(*log, since, later=after)
    last = GREATEST if until is None else first_row(*log, until, later=True) - 1
    return first, last


@dataclass(frozen=True)
class BalanceColumns(Rows):
    """Balances as columns; `listed_since` is the latest addition to the list (NaT: current)."""

    wallets: Numbers
    tokens: Numbers
    amounts: Amounts
    held_since: Times
    updated_at: Times
    listed_since: Times


#: One value for both times, which are nearly always equal, so that less is fetched. A valid time
#: contains no bar.
_BOTH_TIMES = (
    "iif(held_since IS updated_at, updated_at, updated_at || '|' || ifnull(held_since, ''))"
)


def read_balances(source: Source, filters: Filters, as_of: str | None = None) -> BalanceColumns:
    """Read the balances now or at a time, by wallet and token number.

    At a time, the contract of the filters does not apply, because the change feed lacks it.
    """
    if as_of is not None:
        return _balances_at(source, as_of, filters)
    condition, parameters = filters.where(key="no")
    wallet, token, amount, both = source.columns(
        f"SELECT wallet_no, token_no, amount, {_BOTH_TIMES}"
        f" FROM balance_rows WHERE {condition} ORDER BY wallet_no, token_no",
        [INTEGER, INTEGER, TEXT, TEXT],
        parameters,
    )
    since, updated = _two_times(both)
    missing = np.full(len(updated), np.datetime64("NaT", "us"))
    numbers = wallet.to_numpy(), token.to_numpy()
    return BalanceColumns(*numbers, Amounts(amount), since, updated, missing)


def _two_times(both: pa.Array) -> tuple[Times, Times]:
    codes, distinct = coded(both)
    pairs = [text.partition("|") for text in distinct.to_pylist()]
    since = [since or None if bar else updated for updated, bar, since in pairs]
    updated = [updated for updated, _, _ in pairs]
    return moments(pa.array(since, TEXT))[codes], moments(pa.array(updated, TEXT))[codes]


def _balances_at(source: Source, moment: str, filters: Filters) -> BalanceColumns:
    wallet, token, amount, observed = change_log(
        source,
        ("wallet_no", "token_no", "new_amount", "observed_at"),
        last=change_span(source, None, moment)[1],
        filters=Filters(wallet_ids=filters.wallet_ids),
    )
    return _replay(wallet.to_numpy(), token.to_numpy(), Amounts(amount), moments(observed))


def _replay(wallet: Numbers, token: Numbers, amounts: Amounts, observed: Times) -> BalanceColumns:
    if not len(wallet):
        return BalanceColumns(wallet, token, amounts, observed, observed, observed)
    order = np.argsort(wallet * (token.max() + 1) + token, kind="stable")
    wallet, token = wallet[order], token[order]
    nonzero, listed = amounts.nonzero()[order], amounts.codes[order] >= 0
    next_differs = (wallet[1:] != wallet[:-1]) | (token[1:] != token[:-1])
    last = np.append(next_differs, True) & listed
    rows = order[last]

    def since(state: npt.NDArray[np.bool_]) -> Times:
        starts = state.copy()
        starts[1:] &= next_differs | ~state[:-1]
        latest_start = np.maximum.accumulate(np.where(starts, np.arange(len(state)), 0))
        return observed[order[latest_start[last]]]

    held_since = np.where(nonzero[last], since(nonzero), np.datetime64("NaT", "us"))
    latest = amounts[rows]
    return BalanceColumns(
        wallet[last], token[last], latest, held_since, observed[rows], since(listed)
    )


def read_balance_frame(db: Store | Source, as_of: str) -> pd.DataFrame:
    """Read the table of balances as of a time; amounts are text."""
    ids = {}
    with reading(db) as source:
        balances = read_balances(source, Filters(), as_of)
        for kind, rows in (("wallet", balances.wallets), ("token", balances.tokens)):
            numbers, (names,) = source.numbered(kind, [f"{kind}_id"])
            ids[f"{kind}_id"] = text(names.take(pa.array(positions(numbers, rows))))
    return frame_of(
        {
            **ids,
            "amount_text": balances.amounts.text(),
            "first_seen_at": times(balances.listed_since),
            "updated_at": times(balances.updated_at),
        }
    )


@dataclass(frozen=True)
class Confirmations:
    """Reads around a time: of the state by then, and of the same or the next state after it."""

    before: Times
    after: Times
    certainty: pa.Array


#: S is the last state before the bound, n the wallet's next state.
_AROUND = """
    SELECT w.wallet_no, s.first_read_at, s.last_read_at, (
        SELECT n.first_read_at FROM wallet_state_rows n
        WHERE n.wallet_no = w.wallet_no AND n.state_id >= ?
        ORDER BY n.state_id LIMIT 1)
    FROM wallets w LEFT JOIN wallet_state_rows s ON s.state_id = (
        SELECT max(state_id) FROM wallet_state_rows
        WHERE wallet_no = w.wallet_no AND state_id < ?)
"""


def read_confirmations(
    source: Source, moment: str, wallets: Numbers, *, everything: bool
) -> Confirmations:
    """Return the reads around a time of wallets, ascending; `everything`: all wallets."""
    bound = first_row(source.cursor, "wallet_state_rows", moment, later=True, key="state_id")
    some = () if everything else (as_json(wallets.tolist()),)
    where = "" if everything else f"WHERE w.wallet_no {IN_JSON}"
    numbers, first, last, following = source.columns(
        f"{_AROUND} {where} ORDER BY w.wallet_no",
        [INTEGER, TEXT, TEXT, TEXT],
        (bound, bound, *some),
    )
    place = positions(numbers.to_numpy(), wallets)
    then = moments(pa.array([moment]))[0]
    first_at, last_at, next_at = (moments(column)[place] for column in (first, last, following))
    bracketed = last_at >= then
    return Confirmations(
        before=np.where(bracketed, first_at, last_at),
        after=np.where(bracketed, last_at, next_at),
        certainty=pa.array(
            np.select([bracketed, ~np.isnat(next_at)], ["bracketed", "gap"], "open"), TEXT
        ),
    )
