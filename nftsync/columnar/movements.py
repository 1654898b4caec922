"""Movements of NFTs, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.amounts import AmountKind, Amounts, Exact, amount_columns
from nftsync.columnar.balances import CHANGE_TYPES
from nftsync.columnar.columns import (
    INTEGER,
    TEXT,
    Times,
    frame_of,
    moments,
    records_of,
    run_starts,
    text,
    times,
)
from nftsync.columnar.source import Numbers, Source
from nftsync.columnar.tokens import NAMING, Tokens, read_tokens, wallet_columns
from nftsync.movements import Movement, pairs

Flags = npt.NDArray[np.bool_]

_NO_TIME = np.datetime64("NaT", "us")


@dataclass(frozen=True)
class Movements:
    """Balance changes that are movements, in the order of the change feed.

    `sizes` are differences (None: unknown, maybe neither gain nor loss). `after` is the start of
    the last complete read before (NaT: unknown), and `partners` the transfer's other side (-1:
    unknown).
    """

    changes: Numbers
    wallets: Numbers
    tokens: Numbers
    sizes: npt.NDArray[np.object_]
    gains: Flags
    losses: Flags
    after: Times
    at: Times
    webhooks: pa.Array
    partners: Numbers


_COLUMNS = [name for name in CHANGE_TYPES if name not in {"baseline", "run_id"}]


def read_movements(source: Source, tokens: Numbers | None) -> Movements:
    which, parameters = source.restriction("token", tokens)
    change, wallet, token, old, new, observed, webhook = source.columns(
        f"SELECT {', '.join(_COLUMNS)} FROM balance_change_rows"
        f" WHERE {which} AND baseline = 0 ORDER BY change_id",
        [CHANGE_TYPES[name] for name in _COLUMNS],
        parameters,
    )
    before, now = Amounts.pair(old, new)
    rows = np.flatnonzero(before.value_codes() != now.value_codes())
    before, now = before[rows], now[rows]
    old_sizes, new_sizes = (side.values()[side.codes] for side in (before, now))
    usable = pd.notna(old_sizes) & pd.notna(new_sizes)
    sizes = np.full(len(rows), None, dtype=object)
    sizes[usable] = new_sizes[usable] - old_sizes[usable]
    gains, losses = ~before.nonzero(), ~now.nonzero()
    gains[usable] = sizes[usable] > 0
    losses[usable] = sizes[usable] < 0
    wallets, at = wallet.to_numpy()[rows], moments(observed)[rows]
    after, read_before = _last_reads(source, wallets, at)
    movements = Movements(
        changes=change.to_numpy()[rows],
        wallets=wallets,
        tokens=token.to_numpy()[rows],
        sizes=sizes,
        gains=gains,
        losses=losses,
        after=after,
        at=at,
        webhooks=webhook.take(pa.array(rows)),
        partners=np.full(len(rows), -1),
    )
    # If all earlier reads were incomplete, a new balance may be an old holding.
    _pair(movements, read_before | (before.codes >= 0))
    return movements


def _last_reads(source: Source, wallets: Numbers, at: Times) -> tuple[Times, Flags]:
    """Return the last complete read before each change of a wallet, and whether there was one.

    A changed balance ends a state, so the read is the end of the last earlier state. Its start may
    be NaT: unknown.
    """
    distinct = np.flatnonzero(np.bincount(wallets))  # faster than np.unique
    which, parameters = source.restriction("wallet", distinct)
    numbers, read, stored = source.columns(
        "SELECT wallet_no, last_read_at, observed_at"
        f" FROM wallet_state_rows WHERE {which} ORDER BY state_id",
        [INTEGER, TEXT, TEXT],
        parameters,
    )
    states, ends, begun = numbers.to_numpy(), moments(read), moments(stored)
    ranks = np.sort(np.concatenate([begun, at]))
    width = len(ranks) + 1
    keys = states * width + np.searchsorted(ranks, begun)
    order = np.argsort(keys, kind="stable")
    last = np.searchsorted(keys[order], wallets * width + np.searchsorted(ranks, at)) - 1
    state = np.append(order, -1)[last]
    has_read = (last >= 0) & (np.append(states, -1)[state] == wallets)
    after = np.where(has_read, np.append(ends, _NO_TIME)[state], _NO_TIME)
    # If the clock was set back, the order of the times is unknown.
    return np.where(after < at, after, _NO_TIME), has_read


def _pair(movements: Movements, counted: Flags) -> None:
    rows = np.flatnonzero(counted)
    order = rows[np.argsort(movements.tokens[rows], kind="stable")]
    starts = run_starts(movements.tokens[order])
    if not len(starts):
        return
    both_sides = np.logical_or.reduceat(movements.gains[order], starts) & np.logical_or.reduceat(
        movements.losses[order], starts
    )
    ends = np.append(starts[1:], len(order))
    ticks = movements.after[order].view(np.int64).astype(object)
    ticks[np.isnat(movements.after[order])] = None
    fields = (
        movements.wallets[order].tolist(),
        movements.sizes[order].tolist(),
        ticks.tolist(),
        movements.at[order].view(np.int64).tolist(),
    )
    losses: list[int] = []
    gains: list[int] = []
    for start, end in zip(starts[both_sides].tolist(), ends[both_sides].tolist(), strict=True):
        of_token = map(Movement, *(field[start:end] for field in fields))
        for loss, gain in pairs(list(of_token)):
            losses.append(start + loss)
            gains.append(start + gain)
    movements.partners[order[losses]] = order[gains]
    movements.partners[order[gains]] = order[losses]


@dataclass(frozen=True)
class Sides:
    """Wallets on both sides of movements (-1: unknown), and the later read before them."""

    senders: Numbers
    receivers: Numbers
    after: Times
    webhooks: pa.Array

    @classmethod
    def of(cls, movements: Movements, rows: Numbers) -> Sides:
        partners = movements.partners[rows]
        paired = partners >= 0
        own, other = movements.wallets[rows], np.where(paired, movements.wallets[partners], -1)
        gains, losses = movements.gains[rows], movements.losses[rows]
        after, other_after = movements.after[rows], movements.after[partners]
        return cls(
            senders=np.where(losses, own, np.where(gains, other, -1)),
            receivers=np.where(gains, own, np.where(losses, other, -1)),
            after=np.where(paired, np.fmax(after, other_after), after),
            webhooks=pc.coalesce(
                movements.webhooks.take(pa.array(rows)),
                movements.webhooks.take(pa.array(partners, mask=~paired)),
            ),
        )

    def any_of(self, wallets: Numbers) -> Flags:
        return np.isin(self.senders, wallets) | np.isin(self.receivers, wallets)

    def kinds(self) -> pa.Array:
        sides = [(self.senders >= 0) & (self.receivers >= 0), self.receivers >= 0]
        return pa.array(np.select(sides, ["transfer", "received"], "sent"), TEXT)


def transfer_frame(
    source: Source,
    movements: Movements,
    rows: Numbers,
    tokens: Tokens | None = None,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    if tokens is None:
        tokens = read_tokens(source, NAMING, wanted=np.unique(movements.tokens[rows]))
    sides = Sides.of(movements, rows)
    sizes = movements.sizes[rows]
    usable = pd.notna(sizes)
    sizes[usable] = np.abs(sizes[usable])
    return frame_of(
        {
            "observed_at": times(movements.at[rows]),
            "observed_after": times(sides.after),
            **tokens.named(movements.tokens[rows]),
            **amount_columns({"amount": Exact.of(sizes)}, amounts),
            **wallet_columns(source, sides.senders, "from"),
            **wallet_columns(source, sides.receivers, "to"),
            "kind": text(sides.kinds()),
            "webhook_id": text(sides.webhooks),
        }
    )


def transfer_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return transfers for JSON, with amounts as text."""
    amounts = frame["amount"].astype(object).map(str, na_action="ignore")
    return records_of(frame.assign(amount_text=amounts), list(frame))
