"""Differences between the states at two times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, Amounts, amounts_as_sent
from nftsync.columnar.balances import STEPS, change_log, change_span
from nftsync.columnar.columns import TEXT, Rows, Times, frame_of, moments, text, times
from nftsync.columnar.filters import Moment, filters_of, wallet_numbers, whole_states
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.movements import read_movements
from nftsync.columnar.source import Numbers, Source, Store, positions, reading
from nftsync.columnar.tokens import NAMING, read_tokens, wallet_columns
from nftsync.errors import InputError
from nftsync.store.history import from_history
from nftsync.store.wallets import GroupNames, WalletIds


@dataclass(frozen=True)
class Window(Rows):
    """Wallets and tokens whose amount, in codes of the same texts, differs between two times."""

    wallets: Numbers
    tokens: Numbers
    before: Amounts
    after: Amounts
    by_first_read: npt.NDArray[np.bool_]
    changed_at: Times


def _read_window(source: Source, changes: tuple[int, int]) -> Window:
    wallet, token, old, new, observed, baseline = change_log(
        source, STEPS, first=changes[0], last=changes[1]
    )
    wallets, tokens = wallet.to_numpy(), token.to_numpy()
    first, last = _ends(wallets, tokens)
    before, after = Amounts.pair(old.take(pa.array(first)), new.take(pa.array(last)))
    is_holding = Amounts(new.take(pa.array(first))).nonzero()
    window = Window(
        wallets=wallets[first],
        tokens=tokens[first],
        before=before,
        after=after,
        by_first_read=(baseline.to_numpy()[first] != 0) & is_holding,
        changed_at=moments(observed.take(pa.array(last))),
    )
    return window.rows(before.value_codes() != after.value_codes())


def _ends(wallets: Numbers, tokens: Numbers) -> tuple[Numbers, Numbers]:
    pairs = wallets * (tokens.max(initial=0) + 1) + tokens
    order = np.argsort(pairs, kind="stable")
    differs = np.diff(pairs[order]) != 0
    edge = np.ones(min(len(order), 1), dtype=bool)
    return order[np.concatenate([edge, differs])], order[np.concatenate([differs, edge])]


def _counterparties(source: Source, window: Window, changes: tuple[int, int]) -> Numbers:
    """Return the other wallet of each row (-1: unknown), if a single transfer explains the row.

    That transfer is the wallet's only movement of the token between the two times.
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
    before, after = (side.values()[side.codes[rows]] for side in (window.before, window.after))
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
    hidden: bool = False,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Compare the states at two times: a row per wallet and token whose amount differs.

    Shared parameters: see `nftsync.frames`. `diff(db, "2026-01-31", "2026-02-28")` compares two
    month ends; `end=None` is now. `contract` selects tokens of that contract at `end`.

    The rows are exactly the differences between `holdings(as_of=start)` and `holdings(as_of=end)`.
    A balance of 0 equals a missing balance. Unusable amounts differ if their texts differ. So
    movements that cancel out between the two times are in no row, and several changes of one
    holding are one row; `statement` and `transfers` count each.

    Returns:
        A row per difference, by time of change, wallet and token, with tokens as of `end` and
        today's names of collections; columns: `frames.explain("diff")`.

    Warns:
        NftsyncWarning: `start` is before the history; earlier holdings are unknown.

    Raises:
        InputError: `start` is missing.
    """
    if start is None:
        raise InputError("diff() needs the earlier time: diff(db, start)")
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract, exclude=exclude)
        # Both times mean states, so a date is the end of its day.
        earlier, later = whole_states(source, start, end)
        from_history(source.cursor, earlier)
        changes = change_span(source, earlier, later, after=True)
        window = _read_window(source, changes)
        held_before, held_after = window.before.nonzero(), window.after.nonzero()
        kind = np.select(
            [held_before & held_after, held_before, window.by_first_read],
            ["changed", "left", "first_seen"],
            "arrived",
        )
        counterparty = _counterparties(source, window, changes)
        selected = np.ones(len(window.wallets), dtype=np.bool_)
        if filters.wallet_ids is not None:
            selected = np.isin(window.wallets, wallet_numbers(source, filters.wallet_ids))
        wanted = np.unique(window.tokens[selected])
        tokens = read_tokens(source, NAMING, wanted=wanted, as_of=later)
        selected &= tokens.in_contract(filters.contract, window.tokens)
        left_out = selected & hidden_rows(source, window.tokens, include=hidden)
        selected &= ~left_out
        rows = np.lexsort((window.tokens, window.wallets, window.changed_at))
        rows = rows[selected[rows]]
        window = window.rows(rows)
        wallet_names = wallet_columns(source, window.wallets)
        counterparties = wallet_columns(source, counterparty[rows], "counterparty")
    sides = {"before": window.before, "after": window.after}
    frame = frame_of(
        {
            **wallet_names,
            **tokens.named(window.tokens),
            **amounts_as_sent(sides, amounts, zeros=False),
            "kind": text(pa.array(kind[rows], TEXT)),
            **counterparties,
            "changed_at": times(window.changed_at),
        }
    )
    frame.attrs |= {"start": earlier, "end": later}
    return marked(frame, left_out)
