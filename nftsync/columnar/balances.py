"""Balances now or at a time, and the change log, as columns."""

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
from nftsync.columnar.source import IN_JSON, Numbers, Parameters, Source, as_json, positions
from nftsync.store.filters import Filters

#: The least and the greatest number that SQLite can give a change.
_LEAST, GREATEST = -(2**63), 2**63 - 1
#: The columns of the log.
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
#: Those that say what changed, and when.
STEPS = ("wallet_no", "token_no", "old_amount", "new_amount", "observed_at", "baseline")


def change_log(
    source: Source,
    names: Collection[str] = CHANGE_TYPES,
    *,
    first: int = _LEAST,
    last: int,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
) -> list[pa.Array]:
    """Read some columns of the log in its order.

    Args:
        source: where to read.
        names: the columns, in the order in which they are returned.
        first: the number of the first change that is needed.
        last: the number of the last.
        filters: the wallets and the contract that are needed.
    """
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
    """Return the numbers of the first and the last change of a span of time.

    Args:
        source: where to read.
        since: the first time in the stored form; None is the beginning.
        until: the last time; None is now.
        after: whether changes of the first time itself are left out.
    """
    log = "balance_change_rows"
    first = _LEAST if since is None else source.first_change(log, since, later=after)
    last = GREATEST if until is None else source.first_change(log, until, later=True) - 1
    return first, last


@dataclass(frozen=True)
class BalanceColumns(Rows):
    """A row per wallet and token that it lists, by number.

    Attributes:
        wallets: the wallet's number.
        tokens: the token's number.
        amounts: how much.
        held_since: start of the present stretch of non-zero amounts; NaT where it is zero.
        updated_at: when the amount last changed.
        listed_since: when it was last put on the list, as of a time; NaT of those now.
    """

    wallets: Numbers
    tokens: Numbers
    amounts: Amounts
    held_since: Times
    updated_at: Times
    listed_since: Times


#: Both times as one value, a value less to fetch: in nearly all rows they are the same. No time
#: that can be read holds a bar.
_BOTH_TIMES = (
    "iif(held_since IS updated_at, updated_at, updated_at || '|' || ifnull(held_since, ''))"
)


def read_balances(source: Source, filters: Filters) -> BalanceColumns:
    """Read balances.

    Args:
        source: where to read.
        filters: the wallets and the contract that are needed.
    """
    condition, parameters = filters.where(key="no")
    wallet, token, amount, both = source.columns(
        f"SELECT wallet_no, token_no, amount, {_BOTH_TIMES}"
        f" FROM balance_rows WHERE {condition} ORDER BY wallet_no, token_no",
        [INTEGER, INTEGER, TEXT, TEXT],
        parameters,
    )
    since, updated = _two_times(both)
    unread = np.full(len(updated), np.datetime64("NaT", "us"))
    numbers = wallet.to_numpy(), token.to_numpy()
    return BalanceColumns(*numbers, Amounts(amount), since, updated, unread)


def _two_times(both: pa.Array) -> tuple[Times, Times]:
    codes, distinct = coded(both)
    pairs = [text.partition("|") for text in distinct.to_pylist()]
    since = [since or None if bar else updated for updated, bar, since in pairs]
    updated = [updated for updated, _, _ in pairs]
    return moments(pa.array(since, TEXT))[codes], moments(pa.array(updated, TEXT))[codes]


def balances_at(source: Source, moment: str, filters: Filters) -> BalanceColumns:
    """Replay the change log up to a time, that time included.

    Args:
        source: where to read.
        moment: the time in the stored form.
        filters: the wallets that are needed; of which contract a token was then is not known here.
    """
    wallet, token, amount, observed = change_log(
        source,
        ("wallet_no", "token_no", "new_amount", "observed_at"),
        last=change_span(source, None, moment)[1],
        filters=Filters(wallet_ids=filters.wallet_ids),
    )
    return _replay(wallet.to_numpy(), token.to_numpy(), Amounts(amount), moments(observed))


def _replay(wallet: Numbers, token: Numbers, amounts: Amounts, observed: Times) -> BalanceColumns:
    """Keep the last of the changes of each wallet and token, which come in order."""
    if not len(wallet):
        return BalanceColumns(wallet, token, amounts, observed, observed, observed)
    order = np.argsort(wallet * (token.max() + 1) + token, kind="stable")
    wallet, token = wallet[order], token[order]
    held, listed = amounts.nonzero()[order], amounts.codes[order] >= 0
    next_differs = (wallet[1:] != wallet[:-1]) | (token[1:] != token[:-1])
    last = np.append(next_differs, True) & listed
    rows = order[last]

    def since(so: npt.NDArray[np.bool_]) -> Times:
        """Since when the last of each has been so: not so, or another pair, in the row before."""
        begins = so.copy()
        begins[1:] &= next_differs | ~so[:-1]
        began = np.maximum.accumulate(np.where(begins, np.arange(len(so)), 0))
        return observed[order[began[last]]]

    held_since = np.where(held[last], since(held), np.datetime64("NaT", "us"))
    some = amounts[rows]
    return BalanceColumns(
        wallet[last], token[last], some, held_since, observed[rows], since(listed)
    )


def read_balance_frame(source: Source, as_of: str) -> pd.DataFrame:
    """Read the table of balances as of a time in the stored form; amounts are text."""
    found = balances_at(source, as_of, Filters())
    ids = []
    for kind, wanted in (("wallet", found.wallets), ("token", found.tokens)):
        numbers, (names,) = source.numbered(kind, [f"{kind}_id"])
        ids.append(text(names.take(pa.array(positions(numbers, wanted)))))
    return frame_of(
        {
            "wallet_id": ids[0],
            "token_id": ids[1],
            "amount_text": found.amounts.text(),
            "first_seen_at": times(found.listed_since),
            "updated_at": times(found.updated_at),
        }
    )


@dataclass(frozen=True)
class Confirmations:
    """The reads around a time, for wallets in the order of their numbers.

    Attributes:
        before: when the state of that time was read, at the latest by then.
        after: when it was read again, or first found changed; NaT: no read since.
        certainty: `bracketed`, `gap` or `open`.
    """

    before: Times
    after: Times
    certainty: pa.Array


#: S is the last state before the bound, N the wallet's next one.
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
    """Find how well a time lies between two reads of each wallet.

    Args:
        source: where to read.
        moment: the time in the stored form.
        wallets: the numbers of the wallets, ascending.
        everything: whether these are all wallets.
    """
    bound = source.first_change("wallet_state_rows", moment, later=True, key="state_id")
    where = ""
    parameters: Parameters = (bound, bound)
    if not everything:
        where, parameters = f"WHERE w.wallet_no {IN_JSON}", (bound, bound, as_json(wallets))
    numbers, first, last, following = source.columns(
        f"{_AROUND} {where} ORDER BY w.wallet_no", [INTEGER, TEXT, TEXT, TEXT], parameters
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
