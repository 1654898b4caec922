"""Differences between the states at two times, computed from the changes between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, Amounts, amount_columns
from nftsync.columnar.balances import STEPS, change_log, change_span
from nftsync.columnar.columns import TEXT, Rows, Times, frame_of, moments, text, times
from nftsync.columnar.filters import Moment, filters_of, stored_span, wallet_numbers
from nftsync.columnar.source import Numbers, Source, Store, positions, reading
from nftsync.columnar.tokens import NAMING, read_tokens, wallet_columns
from nftsync.errors import InputError
from nftsync.frames._transfers import read_movements
from nftsync.store.wallets import GroupNames, WalletIds


@dataclass(frozen=True)
class Window(Rows):
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

    def in_order(self, kept: npt.NDArray[np.bool_]) -> Numbers:
        """The positions of the rows that are kept, by time of change, wallet and token."""
        order: Numbers = np.lexsort((self.tokens, self.wallets, self.changed_at))
        return order[kept[order]]


def _read_window(source: Source, changes: tuple[int, int]) -> Window:
    """Compare two times by the first and the last change between them."""
    wallet, token, old, new, observed, baseline = change_log(
        source, STEPS, first=changes[0], last=changes[1]
    )
    wallets, tokens = wallet.to_numpy(), token.to_numpy()
    first, last = _ends(wallets, tokens)
    before, after = Amounts.pair(old.take(pa.array(first)), new.take(pa.array(last)))
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


def _counterparties(source: Source, window: Window, changes: tuple[int, int]) -> Numbers:
    """Find the other wallet of each row that a single transfer explains.

    The wallet's only movement of the token between the two times is then that transfer, of just the
    amount that differs, and `frames.transfers` lists it between the two times.

    Args:
        source: where to read.
        window: the rows.
        changes: numbers of the first and the last change between the two times.

    Returns:
        By row, the number of the other wallet; -1: unknown.
    """
    movements = read_movements(source, np.unique(window.tokens))
    first, last = changes
    between = np.flatnonzero((movements.changes >= first) & (movements.changes <= last))
    width = max(movements.tokens.max(initial=0), window.tokens.max(initial=0)) + 1
    keys = movements.wallets * width + movements.tokens
    _, place, count = np.unique(keys[between], return_index=True, return_counts=True)
    only = between[place[count == 1]]
    partners = movements.partners[only]
    only = only[(partners >= 0) & (movements.changes[partners] >= first)]
    own = positions(keys[only], window.wallets * width + window.tokens)
    rows = np.flatnonzero(own >= 0)
    movement = only[own[rows]]
    before, after = (each.sizes()[each.codes[rows]] for each in (window.before, window.after))
    explained = np.array(after - before == movements.sizes[movement], dtype=bool)
    counterparties = np.full(len(window.wallets), -1)
    counterparties[rows[explained]] = movements.wallets[movements.partners[movement[explained]]]
    return counterparties


def diff(
    db: Store = None,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Compare the states at two times: one row per wallet and token whose amount differs.

    These are exactly the differences of `holdings(as_of=start)` and `holdings(as_of=end)`, read
    from the changes between them. A balance of 0 is not a holding. Unusable amounts differ if their
    texts do.

    Args:
        db: what to read, as `nftsync.frames` tells.
        start: the earlier time. Text, a date or a datetime. Both times mean states, so a day is its
            end: `diff(db, "2026-01-31", "2026-02-28")` compares the ends of two months.
        end: the later time; None is now.
        wallet: only rows of these wallets.
        group: only rows of wallets of these groups.
        contract: only tokens of this contract at `end`.
        exclude: one wallet or several, by id or label, whose rows are left out.
        amounts: what `before` and `after` are to be, as `nftsync.frames` tells.

    Returns:
        By time of change, then wallet and token: `wallet_id`, `wallet_label`, `token_id`,
        `contract_address`, `contract`, `collection` and `name` (as known at `end`; the collection
        as it is called today), `before` and `after` (exact; missing: not held, or not usable), each
        with its text as sent (`before_text`, `after_text`; missing: not listed), `kind`,
        `counterparty_wallet_id` and `counterparty_label`, `changed_at` (the last change until
        `end`). `kind` is `arrived` (not held at `start`), `first_seen` (the same, shown by the
        wallet's first read, so the start date is unknown), `left` (not held at `end`) or `changed`.

        `counterparty_wallet_id` is the other wallet if a single transfer of `transfers` explains
        the row: the wallet's only movement of the token between the two times.
        `counterparty_label` is its label (missing: none).

    Raises:
        InputError: `start` is missing, after `end` or in the future; there is no such time, wallet
            label, group or contract; the amounts do not fit the `amounts` that you asked for; or
            `db` is neither a path nor a connection.
    """
    if start is None:
        raise InputError("diff needs the time to compare with: diff(db, start)")
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        # A day is its end, as both times mean states.
        earlier, later = stored_span(source, start, end, "end")
        changes = change_span(source, earlier, later, after=True)
        window = _read_window(source, changes)
        kind = _kinds(window)
        counterparty = _counterparties(source, window, changes)
        kept = ~np.isin(window.wallets, wallet_numbers(source, exclude))
        if filters.wallet_ids is not None:
            kept &= np.isin(window.wallets, wallet_numbers(source, filters.wallet_ids))
        wanted = np.unique(window.tokens[kept])
        tokens = read_tokens(source, NAMING, wanted=wanted, as_of=later)
        rows = window.in_order(kept & tokens.are_of(filters.contract, window.tokens))
        window = window.rows(rows)
        whose = wallet_columns(source, window.wallets)
        others = wallet_columns(source, counterparty[rows], "counterparty")
    held = {"before": window.before.exact(held=True), "after": window.after.exact(held=True)}
    exact = amount_columns(held, amounts)
    return frame_of(
        {
            **whose,
            **tokens.named(window.tokens),
            "before": exact["before"],
            "before_text": window.before.text(),
            "after": exact["after"],
            "after_text": window.after.text(),
            "kind": text(pa.array(kind[rows], TEXT)),
            **others,
            "changed_at": times(window.changed_at),
        }
    )


def _kinds(window: Window) -> npt.NDArray[np.str_]:
    """Name what became of each wallet and token that differs."""
    held_before, held_after = window.before.nonzero(), window.after.nonzero()
    return np.select(
        [held_before & held_after, held_before, window.by_first_read],
        ["changed", "left", "first_seen"],
        "arrived",
    )
