"""Since when each holding has been there, as far as anybody knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.frames._balances import GREATEST, Balances, balances_at, change_log, read_balances
from nftsync.frames._columns import (
    INTEGER,
    TEXT,
    Amounts,
    Moment,
    Times,
    coded,
    exact,
    frame_of,
    is_zero,
    moments,
    stored_time,
    text,
    times,
)
from nftsync.frames._source import (
    IN_JSON,
    Numbers,
    Source,
    Store,
    as_json,
    need_database,
    positions,
    reading,
)
from nftsync.frames._tables import WalletIds, WalletNames, wallet_ids, wallet_names, wallet_numbers
from nftsync.frames._tokens import Tokens, read_tokens
from nftsync.times import now

__all__ = ["BUCKETS", "Meanings", "Side", "Window", "ages", "holding_ages", "read_window"]


class Meanings:
    """What the distinct texts of a column of amounts mean.

    Attributes:
        sizes: by code, the amount as an exact integer, 0 where it is no holding, None where it is
            no whole number. Code -1 (not listed) finds the 0 that stands last.
        same: by code, a number that all texts of one meaning share; 0: no holding.
    """

    def __init__(self, distinct: list[str]) -> None:
        sizes = [*(0 if is_zero(amount) else exact(amount) for amount in distinct), 0]
        self.sizes = np.empty(len(sizes), dtype=object)
        self.sizes[:] = sizes
        numbers: dict[int | str, int] = {0: 0}
        self.same = np.array(
            [
                numbers.setdefault(amount if size is None else size, len(numbers))
                for amount, size in zip([*distinct, ""], sizes, strict=True)
            ]
        )


@dataclass(frozen=True)
class Side:
    """The amounts at one end of a window.

    Attributes:
        texts: as sent; null where the token was not listed.
        codes: which of the distinct texts each is; -1: not listed.
        meanings: what those mean, shared by both sides.
    """

    texts: pa.Array
    codes: npt.NDArray[np.int32]
    meanings: Meanings

    def same(self) -> Numbers:
        """A number per row that is equal where the amounts mean the same."""
        return self.meanings.same[self.codes]

    def held(self) -> npt.NDArray[np.bool_]:
        """Whether it is a holding."""
        return np.asarray(self.same() != 0)

    def exact(self) -> npt.NDArray[np.object_]:
        """Python integers; None where it is no holding, or no whole number."""
        sizes = self.meanings.sizes.copy()
        sizes[self.meanings.same == 0] = None
        return np.asarray(sizes[self.codes])

    def text(self) -> Any:
        """The column of a frame that shows them as they were sent."""
        return text(self.texts)

    def rows(self, which: npt.NDArray[np.bool_] | Numbers) -> Side:
        """Some rows, by mask or position."""
        return Side(self.texts.take(_places(which)), self.codes[which], self.meanings)


@dataclass(frozen=True)
class Window:
    """A row per wallet and token whose amount is not the same before and after.

    Attributes:
        wallets: the wallet's number.
        tokens: the token's number.
        before: the amounts when the window begins.
        after: the amounts when it ends.
        by_first_read: whether the first change was of the wallet's first read, and showed a
            holding.
        changed_at: when the last change was stored.
    """

    wallets: Numbers
    tokens: Numbers
    before: Side
    after: Side
    by_first_read: npt.NDArray[np.bool_]
    changed_at: Times

    def rows(self, which: npt.NDArray[np.bool_] | Numbers) -> Window:
        """Some rows, by mask or position."""
        return Window(
            self.wallets[which],
            self.tokens[which],
            self.before.rows(which),
            self.after.rows(which),
            self.by_first_read[which],
            self.changed_at[which],
        )


def read_window(source: Source, start: str, end: str | None) -> Window:
    """Compare two times by the changes in between.

    Args:
        source: where to read.
        start: the time before, in the stored form; changes of that time are not in between.
        end: the time after; changes of that time are in between. None is now.
    """
    log = "balance_change_rows"
    first_change = source.first_change(log, start, later=True)
    last_change = GREATEST
    if end is not None:
        last_change = source.first_change(log, end, later=True) - 1
    wallet, token, old, new, observed, baseline = change_log(
        source,
        *("wallet_no", "token_no", "old_amount", "new_amount", "observed_at", "baseline"),
        first=first_change,
        last=last_change,
    )
    wallets, tokens = wallet.to_numpy(), token.to_numpy()
    first, last = _ends(wallets, tokens)
    before, after = _sides(old.take(pa.array(first)), new.take(pa.array(last)))
    shown = Amounts(new.take(pa.array(first))).nonzero()
    whole = Window(
        wallets=wallets[first],
        tokens=tokens[first],
        before=before,
        after=after,
        by_first_read=(baseline.to_numpy()[first] != 0) & shown,
        changed_at=moments(observed.take(pa.array(last))),
    )
    return whole.rows(before.same() != after.same())


def _ends(wallets: Numbers, tokens: Numbers) -> tuple[Numbers, Numbers]:
    """Where the first and the last change of each wallet and token stand, which come in order."""
    pairs = wallets * (tokens.max(initial=0) + 1) + tokens
    order = np.argsort(pairs, kind="stable")
    differs = np.diff(pairs[order]) != 0
    edge = np.ones(min(len(order), 1), dtype=bool)
    return order[np.concatenate([edge, differs])], order[np.concatenate([differs, edge])]


def _sides(before: pa.Array, after: pa.Array) -> tuple[Side, Side]:
    codes, distinct = coded(pa.concat_arrays([before, after]))
    meanings = Meanings(distinct.to_pylist())
    return (
        Side(before, codes[: len(before)], meanings),
        Side(after, codes[len(before) :], meanings),
    )


def _places(which: npt.NDArray[np.bool_] | Numbers) -> pa.Array:
    return pa.array(np.flatnonzero(which) if which.dtype == np.bool_ else which)


def ages(since: Times, until: str) -> Any:
    """Make a frame's column of the time that passed; 0 where the clock went back since.

    Args:
        since: times; NaT gives NaT.
        until: a time in the stored form.
    """
    passed = moments(pa.array([until]))[0] - since
    return pd.TimedeltaIndex(np.maximum(passed, np.timedelta64(0, "us"))).array


#: From the youngest to the oldest, and how many days each but the last is under.
BUCKETS = (
    "under a day",
    "under a week",
    "under a month",
    "under 3 months",
    "under a year",
    "a year or more",
)
_UNDER_DAYS = (1, 7, 30, 91, 365)

#: Of each wallet whose first read listed something: when that was stored, and its next change.
_BASELINES = """
    SELECT w.wallet_no, first.observed_at, (
        SELECT later.observed_at FROM balance_change_rows later
        WHERE later.wallet_no = w.wallet_no AND NOT later.baseline
        ORDER BY later.change_id LIMIT 1)
    FROM wallets w JOIN balance_change_rows first ON first.change_id = (
        SELECT min(change_id) FROM balance_change_rows WHERE wallet_no = w.wallet_no)
    WHERE first.baseline
    ORDER BY w.wallet_no
"""


def holding_ages(
    db: Store = None, *, at: Moment | None = None, exclude: WalletIds = ()
) -> pd.DataFrame:
    """How long each holding has been there: a row per wallet and token that it holds.

    A holding's age is that of its present stretch of amounts above zero: what was sold and came
    back begins anew, what only grew or shrank does not. A balance of 0 is no holding.

    Args:
        db: what to read, as `nftsync.frames` tells.
        at: the holdings that were known at this time, and their age then; None is now. Text, a
            date (its end) or a datetime.
        exclude: one wallet id or several, whose rows are left out.

    Returns:
        `wallet_id`, `wallet_label`, `token_id`, `contract_address`, `name`, `amount` (exact
        Python integers in an object column; None: no whole number), `held_since` (when the
        change that began the stretch was stored), `age` (a timedelta), `bucket` (an ordered
        category: `under a day`, `under a week`, `under a month` (30 days), `under 3 months`
        (91 days), `under a year` (365 days), `a year or more`) and `censored` (bool): the
        stretch began with the wallet's first read, so it has been held for `age` at least, and
        nobody knows how much longer.

    Raises:
        InputError: `at` is no time, a wallet id is none, or `db` is neither a path nor a
            connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.holding_ages needs a database's log of changes")
    moment = None if at is None else stored_time(at)
    left_out = wallet_ids(exclude)
    with reading(db) as source:
        balances = (
            read_balances(source, None, None)
            if moment is None
            else balances_at(source, moment, None)
        )
        kept = balances.amounts.nonzero()
        if left_out:
            kept &= ~np.isin(balances.wallets, wallet_numbers(source, left_out))
        balances = balances.chosen(kept)
        censored = _censored(source, balances)
        tokens = read_tokens(source, ("contract_address", "name"), as_of=moment)
        names = wallet_names(source, balances.wallets)
    return _frame(balances, censored, tokens, names, now() if moment is None else moment)


def _censored(source: Source, balances: Balances) -> npt.NDArray[np.bool_]:
    """Whether the change that began each holding's stretch was of the wallet's first read.

    It was, if it is as old as that read; unless the clock stood still, so that later changes of
    the wallet bear the same time. Only then are those looked at.
    """
    numbers, first, later = source.columns(_BASELINES, [INTEGER, TEXT, TEXT])
    first_at, later_at = moments(first), moments(later)
    place = positions(numbers.to_numpy(), balances.wallets)
    censored = (place >= 0) & (balances.held_since == np.append(first_at, _NEVER)[place])
    stood_still = first_at == later_at
    doubtful = censored & np.append(stood_still, False)[place]
    if doubtful.any():
        censored[doubtful] = ~_began_later(source, balances, doubtful)
    return np.asarray(censored)


_NEVER = np.datetime64("NaT", "us")


def _began_later(
    source: Source, balances: Balances, doubtful: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Whether a change after the wallet's first read began a stretch at the time of `held_since`.

    The change of the first read comes first of a pair's, so any other one that began a stretch at
    the same time began a later one.
    """
    wallets, tokens = balances.wallets[doubtful], balances.tokens[doubtful]
    wallet, token, observed = source.columns(
        "SELECT wallet_no, token_no, observed_at FROM balance_change_rows"  # noqa: S608
        f" WHERE wallet_no {IN_JSON} AND NOT baseline AND {_HOLDS.format('new_amount')}"
        f" AND NOT {_HOLDS.format('old_amount')}",
        [INTEGER, INTEGER, TEXT],
        (as_json(np.unique(wallets)),),
    )
    began = pd.MultiIndex.from_arrays(
        [wallet.to_numpy(), token.to_numpy(), moments(observed).view(np.int64)]
    )
    wanted = pd.MultiIndex.from_arrays(
        [wallets, tokens, balances.held_since[doubtful].view(np.int64)]
    )
    return np.asarray(wanted.isin(began))


#: Whether an amount is a holding, in SQL.
_HOLDS = "({0} IS NOT NULL AND ({0} = '' OR trim({0}, '0') != ''))"


def _frame(
    balances: Balances,
    censored: npt.NDArray[np.bool_],
    tokens: Tokens,
    names: WalletNames,
    at: str,
) -> pd.DataFrame:
    token = pa.array(positions(tokens.numbers, balances.tokens))
    passed = ages(balances.held_since, at)
    return frame_of(
        {
            "wallet_id": names.id_column(balances.wallets),
            "wallet_label": names.label_column(balances.wallets),
            "token_id": text(tokens.token_ids.take(token)),
            "contract_address": text(tokens.content["contract_address"].take(token)),
            "name": text(tokens.content["name"].take(token)),
            "amount": balances.amounts.exact(),
            "held_since": times(balances.held_since),
            "age": passed,
            "bucket": _buckets(passed),
            "censored": censored,
        }
    )


def _buckets(passed: Any) -> Any:
    edges = np.array(_UNDER_DAYS, dtype="m8[D]").astype("m8[us]")
    codes = np.searchsorted(edges, np.asarray(passed), side="right")
    return pd.Categorical.from_codes(codes, categories=list(BUCKETS), ordered=True)
