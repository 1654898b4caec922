"""The log of balances, balances now or at a time, and how certain they are."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.frames._amounts import AmountKind, Amounts, amount_columns
from nftsync.frames._columns import (
    INTEGER,
    TEXT,
    Moment,
    Times,
    coded,
    frame_of,
    integers,
    moments,
    text,
    times,
)
from nftsync.frames._filters import filters_of
from nftsync.frames._source import (
    IN_JSON,
    Numbers,
    Parameters,
    Source,
    Store,
    as_json,
    positions,
    reading,
)
from nftsync.frames._tables import wallet_names
from nftsync.frames._tokens import NAMING, read_tokens
from nftsync.store.filters import Filters
from nftsync.store.wallets import GroupNames, WalletIds

#: The least and the greatest number that SQLite can give a change.
_LEAST, GREATEST = -(2**63), 2**63 - 1

_TYPES = {
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


def change_log(
    source: Source,
    *names: str,
    first: int = _LEAST,
    last: int = GREATEST,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
) -> list[pa.Array]:
    """Read some columns of the log in its order.

    Args:
        source: where to read.
        names: the columns.
        first: the number of the first change that is needed.
        last: the number of the last.
        filters: the wallets and the contract that are needed.
    """
    condition, parameters = filters.where(key="no")
    return source.columns(
        f"SELECT {', '.join(names)} FROM balance_change_rows"
        f" WHERE change_id BETWEEN ? AND ? AND {condition} ORDER BY change_id",
        [_TYPES[name] for name in names],
        (first, last, *parameters),
    )


def span_of(source: Source, filters: Filters) -> tuple[int, int]:
    """Return the numbers of the first and the last change of a span of time."""
    first, last = _LEAST, GREATEST
    if filters.since is not None:
        first = source.first_change("balance_change_rows", filters.since, later=False)
    if filters.until is not None:
        last = source.first_change("balance_change_rows", filters.until, later=True) - 1
    return first, last


def changes(
    db: Store = None,
    since: Moment | None = None,
    after: SupportsIndex | None = None,
    *,
    until: Moment | None = None,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the changes of balances, the oldest first.

    Args:
        db: what to read, as `nftsync.frames` tells.
        since: only changes observed at this time or later.
        after: only changes with a greater `change_id`, to go on where the last call ended.
        until: only changes observed at this time or earlier.
        wallet: only changes of these wallets.
        group: only changes of wallets of these groups.
        contract: only changes of tokens that are of this contract today.
        amounts: what `old_amount` and `new_amount` are to be, as `nftsync.frames` tells.

    Returns:
        `change_id`, `wallet_id`, `wallet_label`, `token_id`, its `contract_address`, `contract`,
        `collection` and `name` (as they are today), `old_amount` and `new_amount` (exact; missing
        where the text is not 1 to 100 ASCII digits), each followed by its text as sent
        (`old_amount_text`, missing: was not listed; `new_amount_text`, missing: no longer listed),
        `observed_at`, `baseline` (bool: by the wallet's first read), `run_id` (`Int64`),
        `webhook_id`.

    Raises:
        InputError: there is no such time, wallet label, group or contract; `after` is no integer;
            `since` is after `until`; the amounts do not fit the `amounts` that was asked for; or
            `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    following = 0 if after is None else _following(after)
    with reading(db) as source:
        filters = filters_of(
            source, wallet=wallet, group=group, contract=contract, since=since, until=until
        )
        first, last = span_of(source, filters)
        change, wallet_no, token_no, old, new, observed, baseline, run, webhook = change_log(
            source,
            "change_id",
            "wallet_no",
            "token_no",
            "old_amount",
            "new_amount",
            "observed_at",
            "baseline",
            "run_id",
            "webhook_id",
            first=max(first, following),
            last=last,
            filters=filters,
        )
        wallets, token_numbers = wallet_no.to_numpy(), token_no.to_numpy()
        names = wallet_names(source, wallets)
        tokens = read_tokens(source, NAMING, wanted=np.unique(token_numbers))
    place = positions(tokens.numbers, token_numbers)
    old_amounts, new_amounts = Amounts(old), Amounts(new)
    exact = amount_columns(
        {"old_amount": old_amounts.exact(), "new_amount": new_amounts.exact()}, amounts
    )
    return frame_of(
        {
            "change_id": change.to_numpy().copy(),
            "wallet_id": names.id_column(wallets),
            "wallet_label": names.label_column(wallets),
            **tokens.named(pa.array(place, mask=place < 0)),
            "old_amount": exact["old_amount"],
            "old_amount_text": old_amounts.text(),
            "new_amount": exact["new_amount"],
            "new_amount_text": new_amounts.text(),
            "observed_at": times(moments(observed)),
            "baseline": baseline.to_numpy() != 0,
            "run_id": integers(run),
            "webhook_id": text(webhook),
        }
    )


def _following(after: SupportsIndex) -> int:
    try:
        number = operator.index(after)
    except TypeError as error:
        raise InputError(f"{after!r} is not a change_id; give an integer") from error
    return max(min(number, GREATEST - 1), -1) + 1


@dataclass(frozen=True)
class Balances:
    """A row per wallet and token that it lists, by number.

    Attributes:
        wallets: the wallet's number.
        tokens: the token's number.
        amounts: how much.
        held_since: start of the present stretch of non-zero amounts; NaT where it is zero.
        updated_at: when the amount last changed.
    """

    wallets: Numbers
    tokens: Numbers
    amounts: Amounts
    held_since: Times
    updated_at: Times

    def chosen(self, rows: npt.NDArray[np.bool_]) -> Balances:
        """The rows of a mask."""
        if rows.all():
            return self
        return Balances(
            self.wallets[rows],
            self.tokens[rows],
            self.amounts.chosen(rows),
            self.held_since[rows],
            self.updated_at[rows],
        )


#: Both times as one value, a value less to fetch: in nearly all rows they are the same. No time
#: that can be read holds a bar.
_BOTH_TIMES = (
    "iif(held_since IS updated_at, updated_at, updated_at || '|' || ifnull(held_since, ''))"
)


def read_balances(source: Source, filters: Filters) -> Balances:
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
    return Balances(wallet.to_numpy(), token.to_numpy(), Amounts(amount), since, updated)


def _two_times(both: pa.Array) -> tuple[Times, Times]:
    codes, distinct = coded(both)
    pairs = [text.partition("|") for text in distinct.to_pylist()]
    since = [since or None if bar else updated for updated, bar, since in pairs]
    updated = [updated for updated, _, _ in pairs]
    return moments(pa.array(since, TEXT))[codes], moments(pa.array(updated, TEXT))[codes]


def balances_at(source: Source, moment: str, filters: Filters) -> Balances:
    """Replay the change log up to a time, that time included.

    Args:
        source: where to read.
        moment: the time in the stored form.
        filters: the wallets that are needed; of which contract a token was then is not known here.
    """
    wallet, token, amount, observed = change_log(
        source,
        "wallet_no",
        "token_no",
        "new_amount",
        "observed_at",
        last=source.first_change("balance_change_rows", moment, later=True) - 1,
        filters=Filters(wallet_ids=filters.wallet_ids),
    )
    return _replay(wallet.to_numpy(), token.to_numpy(), Amounts(amount), moments(observed))


def _replay(wallet: Numbers, token: Numbers, amounts: Amounts, observed: Times) -> Balances:
    """Keep the last of the changes of each wallet and token, which come in order."""
    if not len(wallet):
        return Balances(wallet, token, amounts, observed, observed)
    order = np.argsort(wallet * (token.max() + 1) + token, kind="stable")
    wallet, token = wallet[order], token[order]
    held = amounts.nonzero()[order]
    next_differs = (wallet[1:] != wallet[:-1]) | (token[1:] != token[:-1])
    # Where a holding begins: non-zero now, and nothing, zero or another pair in the row before.
    begins = held.copy()
    begins[1:] &= next_differs | ~held[:-1]
    began = np.maximum.accumulate(np.where(begins, np.arange(len(held)), 0))
    last = np.append(next_differs, True) & (amounts.codes[order] >= 0)
    rows = order[last]
    since = np.where(held[last], observed[order[began[last]]], np.datetime64("NaT", "us"))
    return Balances(wallet[last], token[last], amounts.chosen(rows), since, observed[rows])


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
