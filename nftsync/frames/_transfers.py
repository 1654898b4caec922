"""Transfers between wallets, inferred from the change feed with `nftsync.movements`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.amounts import AmountKind, Amounts, Exact, amount_columns
from nftsync.columnar.balances import CHANGE_TYPES, change_span
from nftsync.columnar.columns import (
    INTEGER,
    TEXT,
    Times,
    frame_of,
    moments,
    run_starts,
    text,
    times,
)
from nftsync.columnar.filters import Moment, filters_of, stored_span, wallet_numbers
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.source import Numbers, Source, Store, reading
from nftsync.columnar.tokens import NAMING, read_tokens, wallet_columns
from nftsync.errors import InputError, NftsyncWarning
from nftsync.movements import Movement, pairs
from nftsync.store.wallets import GroupNames, WalletIds
from nftsync.text import counted

Flags = npt.NDArray[np.bool_]

_NO_TIME = np.datetime64("NaT", "us")


@dataclass(frozen=True)
class Movements:
    """Changes of balances that are movements, in the order of the change feed.

    Attributes:
        sizes: differences as Python integers; None: an amount is unusable.
        gains: whether the holding began or grew.
        losses: whether the holding ended or shrank; a change of unknown size may be neither.
        after: start of the last complete read before the change; NaT: unknown.
        at: when the change was stored.
        webhooks: a webhook that caused the read.
        partners: position of the other side of the transfer; -1: unknown.
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
    """Read the movements of tokens (None: all tokens), and pair the two sides of each transfer.

    Pairing needs all movements of a token, because each may be the other side of another.
    """
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

    Each complete read begins or extends a state, and each state ends where a balance changes. So
    the read is the end of the last state stored earlier. Its start may be NaT: unknown.
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
    """Set the partners of transfers among the `counted` movements."""
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
    """Return the movements of NFTs, one row each, with the wallets on both sides.

    Shared parameters: see `nftsync.frames`. `start` and `end`, or `since` and `until` as in
    `changes`, bound `observed_at`. `wallet`, `group` and `exclude` match either side. `contract`
    selects tokens that belong to the contract today.

    The provider names no transfers, so nftsync infers them from the change feed, change by change.
    The decrease of one wallet and the increase of another form a row of kind `transfer` under three
    conditions:

    - Both amounts are equal.
    - Both were observed within overlapping times.
    - No other explanation accounts for as many movements of that token (see `nftsync.movements`).

    All other movements are `received` or `sent`: their other side is unknown, or has several
    candidates. Initial holdings are not movements.

    A movement happened between `observed_after` and `observed_at`. It belongs to the span that
    contains its `observed_at`, so adjacent spans never list it twice. Changes outside the span and
    changes of excluded wallets still help to find the other side.

    Returns:
        A row per movement, by `observed_at`:

        - `observed_at`: when the change was stored; of two sides, the earlier time
        - `observed_after`: the wallet's last complete read before the change; of two sides, the
          later time (missing: none)
        - `token_id` to `name`, as of today
        - `amount` (missing: unusable)
        - `from_wallet_id`, `from_label`, `to_wallet_id`, `to_label`
        - `kind`: `transfer`, `received` or `sent`
        - `webhook_id`: a webhook that led to the observation (missing: a sync)

    Warns:
        NftsyncWarning: changes are left out because an amount is unusable; `changes` lists them.
    """
    start, end = _one_of(start=start, since=since), _one_of(end=end, until=until)
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        movements, rows = _within(source, start, end)
        sides = _Sides.of(movements, rows)
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
                stacklevel=2,
            )
        selected &= usable
        left_out = selected & is_hidden
        selected &= ~is_hidden
        rows = rows[selected]
        sides = _Sides.of(movements, rows)
        senders = wallet_columns(source, sides.senders, "from")
        receivers = wallet_columns(source, sides.receivers, "to")
    sizes = movements.sizes[rows]
    usable = pd.notna(sizes)
    sizes[usable] = np.abs(sizes[usable])
    frame = frame_of(
        {
            "observed_at": times(movements.at[rows]),
            "observed_after": times(sides.after),
            **tokens.named(movements.tokens[rows]),
            **amount_columns({"amount": Exact.of(sizes)}, amounts),
            **senders,
            **receivers,
            "kind": text(sides.kinds()),
            "webhook_id": text(sides.webhooks),
        }
    )
    return marked(frame, left_out)


def _one_of(**names: Moment | None) -> Moment | None:
    """Return the value that was given under one of two names."""
    values = [value for value in names.values() if value is not None]
    if len(values) > 1:
        raise InputError(f"{' and '.join(names)} are aliases; give only one")
    return values[0] if values else None


def _within(source: Source, start: Moment | None, end: Moment | None) -> tuple[Movements, Numbers]:
    """Return the movements of the tokens in a span, and the positions of its rows in order.

    A transfer's row is the side observed first.
    """
    first, last = stored_span(source, start, end)
    tokens = None
    if first is not None or last is not None:
        (changed,) = source.columns(
            "SELECT DISTINCT token_no FROM balance_change_rows"
            " WHERE change_id BETWEEN ? AND ? AND baseline = 0",
            [INTEGER],
            change_span(source, first, last),
        )
        tokens = np.asarray(changed.to_numpy())
    movements = read_movements(source, tokens)
    position = np.arange(len(movements.at))
    paired = movements.partners >= 0
    partner_at = movements.at[movements.partners]
    second = paired & (
        (partner_at < movements.at)
        | ((partner_at == movements.at) & (movements.partners < position))
    )
    inside = ~second
    if first is not None:
        inside &= movements.at >= moments(pa.array([first]))[0]
    if last is not None:
        inside &= movements.at <= moments(pa.array([last]))[0]
    return movements, np.flatnonzero(inside)


@dataclass(frozen=True)
class _Sides:
    """The wallets on both sides of movements (-1: unknown), and the later read before them."""

    senders: Numbers
    receivers: Numbers
    after: Times
    webhooks: pa.Array

    @classmethod
    def of(cls, movements: Movements, rows: Numbers) -> _Sides:
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
