"""Transfers between wallets, inferred from the change feed."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from nftsync.columnar.amounts import AmountKind
from nftsync.columnar.balances import change_span
from nftsync.columnar.columns import INTEGER
from nftsync.columnar.filters import Moment, filters_of, only_one, stored_span, wallet_numbers
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.movements import Movements, Sides, read_movements, transfer_frame
from nftsync.columnar.source import Numbers, Source, Store, reading
from nftsync.columnar.tokens import NAMING, read_tokens
from nftsync.errors import NftsyncWarning
from nftsync.store.history import from_history
from nftsync.store.wallets import GroupNames, WalletIds
from nftsync.text import counted


def transfers(
    db: Store = None,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the movements of NFTs, with the wallets on both sides.

    Shared parameters: see `nftsync.frames`. `start` and `end`, or `since` and `until` as in
    `changes`, bound `observed_at`. `wallet`, `group` and `exclude` match either side.

    The provider names no transfers, so nftsync infers them from the change feed. The decrease of
    one wallet and the increase of another form a row of kind `transfer` under three conditions:

    - Both amounts are equal.
    - Both were observed within overlapping times.
    - No other explanation accounts for as many movements of that token (see `nftsync.movements`).

    All other movements are `received` or `sent`: their other side is unknown, or has several
    candidates. Initial holdings are not movements.

    A movement happened between `observed_after` and `observed_at`. It belongs to the span that
    contains its `observed_at`, so adjacent spans never list it twice. Changes outside the span and
    changes of excluded wallets still help to find the other side.

    Returns:
        A row per movement, by `observed_at`, with tokens as of today; columns:
        `frames.explain("transfers")`.

    Warns:
        NftsyncWarning: changes are left out because an amount is unusable (`changes` lists them),
            or `start` is before the history, whose movements are unknown.
    """
    start, end = only_one(start=start, since=since), only_one(end=end, until=until)
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        movements, rows = _within(source, start, end)
        sides = Sides.of(movements, rows)
        selected = ~sides.any_of(wallet_numbers(source, exclude))
        if filters.wallet_ids is not None:
            selected &= sides.any_of(wallet_numbers(source, filters.wallet_ids))
        token_numbers = movements.tokens[rows]
        tokens = read_tokens(source, NAMING, wanted=np.unique(token_numbers[selected]))
        selected &= tokens.in_contract(filters.contract, token_numbers)
        is_hidden = hidden_rows(source, token_numbers, include=hidden)
        usable = (sides.senders >= 0) | (sides.receivers >= 0)
        if unusable := int(np.count_nonzero(selected & ~is_hidden & ~usable)):
            warnings.warn(
                f"{counted(unusable, 'change')} excluded: an amount is not a whole number;"
                " frames.changes lists them",
                NftsyncWarning,
                stacklevel=3,
            )
        selected &= usable
        left_out = selected & is_hidden
        selected &= ~is_hidden
        frame = transfer_frame(source, movements, rows[selected], tokens, amounts)
    return marked(frame, left_out)


def _within(source: Source, start: Moment | None, end: Moment | None) -> tuple[Movements, Numbers]:
    """Return movements in a span, and its rows; a transfer's row is the side observed first."""
    first, last = stored_span(source, start, end)
    if first is not None:
        from_history(source.cursor, first)
    low, high = change_span(source, first, last)
    tokens = None
    if first is not None or last is not None:
        (changed,) = source.columns(
            "SELECT DISTINCT token_no FROM balance_change_rows"
            " WHERE change_id BETWEEN ? AND ? AND baseline = 0",
            [INTEGER],
            (low, high),
        )
        tokens = np.asarray(changed.to_numpy())
    movements = read_movements(source, tokens)
    changes = movements.changes
    is_second = (movements.partners >= 0) & (changes[movements.partners] < changes)
    return movements, np.flatnonzero(~is_second & (changes >= low) & (changes <= high))
