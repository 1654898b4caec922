"""What differs between two times, from the changes in between alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.frames._amounts import AmountKind, Amounts, amount_columns
from nftsync.frames._balances import GREATEST, change_log
from nftsync.frames._columns import (
    TEXT,
    Moment,
    Times,
    frame_of,
    moments,
    numbered_together,
    stored_time,
    text,
    times,
)
from nftsync.frames._contracts import chosen_contract, names_contract
from nftsync.frames._source import Numbers, Source, Store, positions, reading
from nftsync.frames._tables import WalletIds, WalletNames, wallet_names, wallet_numbers
from nftsync.frames._tokens import NAMING, Tokens, read_tokens

__all__ = ["counterparties", "diff"]


@dataclass(frozen=True)
class Window:
    """A row per wallet and token whose amount is not the same before and after.

    Attributes:
        wallets: the wallet's number.
        tokens: the token's number.
        before: the amounts when the window begins.
        after: the amounts when it ends, with codes of the same distinct texts.
        by_first_read: whether the first change was of the wallet's first read, and showed a
            holding.
        changed_at: when the last change was stored.
    """

    wallets: Numbers
    tokens: Numbers
    before: Amounts
    after: Amounts
    by_first_read: npt.NDArray[np.bool_]
    changed_at: Times

    def rows(self, which: npt.NDArray[np.bool_] | Numbers) -> Window:
        """Some rows, by mask or position."""
        return Window(
            self.wallets[which],
            self.tokens[which],
            self.before.chosen(which),
            self.after.chosen(which),
            self.by_first_read[which],
            self.changed_at[which],
        )

    def in_order(self, kept: npt.NDArray[np.bool_]) -> Numbers:
        """The positions of the rows that are kept, by time of change, wallet and token."""
        order: Numbers = np.lexsort((self.tokens, self.wallets, self.changed_at))
        return order[kept[order]]


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
    both = Amounts(pa.concat_arrays([old.take(pa.array(first)), new.take(pa.array(last))]))
    before, after = (both.chosen(half) for half in np.split(np.arange(len(both)), 2))
    shown = Amounts(new.take(pa.array(first))).nonzero()
    whole = Window(
        wallets=wallets[first],
        tokens=tokens[first],
        before=before,
        after=after,
        by_first_read=(baseline.to_numpy()[first] != 0) & shown,
        changed_at=moments(observed.take(pa.array(last))),
    )
    return whole.rows(before.meanings() != after.meanings())


def _ends(wallets: Numbers, tokens: Numbers) -> tuple[Numbers, Numbers]:
    """Where the first and the last change of each wallet and token stand, which come in order."""
    pairs = wallets * (tokens.max(initial=0) + 1) + tokens
    order = np.argsort(pairs, kind="stable")
    differs = np.diff(pairs[order]) != 0
    edge = np.ones(min(len(order), 1), dtype=bool)
    return order[np.concatenate([edge, differs])], order[np.concatenate([differs, edge])]


def counterparties(window: Window) -> Numbers:
    """Find the other side of each loss and gain.

    For a token and an amount, exactly one wallet lost it and exactly one gained it.

    Args:
        window: a row per wallet and token; amounts that are no whole numbers take no part.

    Returns:
        By row, the number of the other wallet; -1: there is none, or more than one.
    """
    before, after = (each.sizes()[each.codes] for each in (window.before, window.after))
    found = np.full(len(before), -1)
    known = np.flatnonzero(pd.notna(before) & pd.notna(after))
    moved, wallets = after[known] - before[known], window.wallets[known]
    gains = np.array(moved > 0, dtype=bool)
    group = numbered_together(window.tokens[known], pd.factorize(np.abs(moved))[0])
    gainer, loser = _the_only(group, gains, wallets), _the_only(group, ~gains, wallets)
    both = (gainer >= 0) & (loser >= 0)
    found[known] = np.where(both[group], np.where(gains, loser[group], gainer[group]), -1)
    return found


def _the_only(group: Numbers, rows: npt.NDArray[np.bool_], wallets: Numbers) -> Numbers:
    """By group, the wallet of its one row among some; -1 where there is none or more."""
    count = int(group.max(initial=-1)) + 1
    only = np.full(count, -1)
    only[group[rows]] = wallets[rows]
    only[np.bincount(group[rows], minlength=count) != 1] = -1
    return only


def diff(
    db: Store = None,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    wallet: WalletIds | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """What differs between two times: a row per wallet and token whose amount is not the same.

    It is what comparing `holdings` at `start` and at `end` shows, read from the changes in between.
    A balance of 0 is no holding. Amounts that are no whole numbers differ where their texts do.

    Args:
        db: what to read, as `nftsync.frames` tells.
        start: the earlier time, of a day its start. Text, a date or a datetime.
        end: the later time, of a day its end; None is now.
        wallet: only rows of this wallet, or these; by id or label.
        contract: only tokens of this contract, as in `holdings`.
        exclude: one wallet or several, by id or label, whose rows are left out.
        amounts: what `before` and `after` are to be, as `nftsync.frames` tells.

    Returns:
        By time of change, then wallet and token: `wallet_id`, `wallet_label`, `token_id`,
        `contract_address`, `contract`, `collection` and `name` (as known at `end`; the collection
        as it is called today), `before` and `after` (exact; missing: not held, or no whole number),
        each with its text as sent (`before_text`, `after_text`; missing: not listed), `kind`,
        `counterparty_wallet_id` and `counterparty_label`, `changed_at` (the last change until
        `end`). `kind` is `arrived` (not held at `start`), `first_seen` (the same, shown by the
        wallet's first read, so nobody knows since when), `left` (not held at `end`) or `changed`.

        `counterparty_wallet_id` is inferred: of all wallets, exactly one lost this amount of the
        token and exactly one gained it. It names the other of the two, and `counterparty_label`
        what that is called (missing: nothing). What was first seen is neither a loss nor a gain.

    Raises:
        InputError: `start` is missing, after `end` or in the future; a time,
            wallet or contract is none, the amounts do not fit the `amounts` that was asked for,
            or `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    if start is None:
        raise InputError("diff needs the time to compare with: diff(db, start)")
    with reading(db) as source:
        contract = chosen_contract(source, contract)
        after, until = _times(source, start, end)
        window = read_window(source, after, until)
        kind, counterparty = _kinds(window)
        kept = ~np.isin(window.wallets, wallet_numbers(source, exclude))
        if wallet is not None:
            kept &= np.isin(window.wallets, wallet_numbers(source, wallet))
        wanted = np.unique(window.tokens[kept])
        tokens = read_tokens(source, NAMING, wanted=wanted, as_of=until)
        if contract is not None:
            same = names_contract(tokens.content["contract_address"], contract)
            kept &= np.append(same, False)[positions(tokens.numbers, window.tokens)]
        rows = window.in_order(kept)
        names = wallet_names(source, np.append(window.wallets[rows], counterparty[rows]))
    return _frame(window.rows(rows), kind[rows], counterparty[rows], tokens, names, amounts)


def _times(source: Source, start: Moment, end: Moment | None) -> tuple[str, str | None]:
    after = stored_time(source, start, "start")
    until = None if end is None else stored_time(source, end, "end")
    if until is not None and after > until:
        raise InputError(f"start ({after}) is after end ({until}); give the earlier time first")
    return after, until


def _kinds(window: Window) -> tuple[npt.NDArray[np.str_], Numbers]:
    """What became of each pair that differs, and the number of the other wallet or -1."""
    held_before, held_after = window.before.nonzero(), window.after.nonzero()
    kind = np.select(
        [held_before & held_after, held_before, window.by_first_read],
        ["changed", "left", "first_seen"],
        "arrived",
    )
    known = kind != "first_seen"
    counterparty = np.full(len(kind), -1)
    counterparty[known] = counterparties(window.rows(known))
    return kind, counterparty


def _frame(
    window: Window,
    kind: npt.NDArray[np.str_],
    counterparty: Numbers,
    tokens: Tokens,
    names: WalletNames,
    amounts: AmountKind,
) -> pd.DataFrame:
    held = {"before": window.before.exact(held=True), "after": window.after.exact(held=True)}
    exact = amount_columns(held, amounts)
    return frame_of(
        {
            "wallet_id": names.id_column(window.wallets),
            "wallet_label": names.label_column(window.wallets),
            **tokens.named(pa.array(positions(tokens.numbers, window.tokens))),
            "before": exact["before"],
            "before_text": window.before.text(),
            "after": exact["after"],
            "after_text": window.after.text(),
            "kind": text(pa.array(kind, TEXT)),
            "counterparty_wallet_id": names.id_column(counterparty),
            "counterparty_label": names.label_column(counterparty),
            "changed_at": times(window.changed_at),
        }
    )
