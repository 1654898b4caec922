"""Transfers between wallets, inferred from the change feed with `movements`."""

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
from nftsync.columnar.source import Numbers, Source, Store, reading
from nftsync.columnar.tokens import NAMING, read_tokens, wallet_columns
from nftsync.errors import NftsyncWarning
from nftsync.movements import Movement, pairs
from nftsync.store.wallets import GroupNames, WalletIds
from nftsync.text import counted

Flags = npt.NDArray[np.bool_]

_NO_TIME = np.datetime64("NaT", "us")


@dataclass(frozen=True)
class Movements:
    """Changes of balances that are movements, in the order of the change feed.

    Attributes:
        changes: the number of the change.
        wallets: the wallet's number.
        tokens: the token's number.
        sizes: by how much the balance changed, Python integers; None: an amount is not usable.
        gains: whether the wallet held nothing before, or less.
        losses: whether the wallet holds nothing now, or less. A movement of unknown size may be
            neither.
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

    def observed_at(self) -> Times:
        """The first observation of each movement: its own, or that of its other side."""
        return np.where(self.partners < 0, self.at, np.minimum(self.at, self.at[self.partners]))


_COLUMNS = [name for name in CHANGE_TYPES if name not in {"baseline", "run_id"}]


def read_movements(source: Source, tokens: Numbers | None) -> Movements:
    """Read the movements of some tokens, and find the transfers among them.

    Args:
        source: where to read.
        tokens: the distinct numbers of the tokens; None is all. All movements of a token are
            needed, because each of them may be the other side of another.
    """
    which, parameters = source.restriction("token", tokens)
    change, wallet, token, old, new, observed, webhook = source.columns(
        f"SELECT {', '.join(_COLUMNS)} FROM balance_change_rows"
        f" WHERE {which} AND baseline = 0 ORDER BY change_id",
        [CHANGE_TYPES[name] for name in _COLUMNS],
        parameters,
    )
    before, now = Amounts.pair(old, new)
    rows = np.flatnonzero(before.meanings() != now.meanings())
    before, now = before[rows], now[rows]
    old_sizes, new_sizes = (each.sizes()[each.codes] for each in (before, now))
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
    # A list that follows incomplete ones alone may show what the wallet has always held.
    _pair(movements, read_before | (before.codes >= 0))
    return movements


def _last_reads(source: Source, wallets: Numbers, at: Times) -> tuple[Times, Flags]:
    """Find the last complete read of each wallet before a change of that wallet was stored.

    Each complete read begins or extends a state, and each state ends where a balance changes. So
    this is the end of the last state that was stored earlier.

    Args:
        source: where to read.
        wallets: the wallets' numbers.
        at: when the changes were stored.

    Returns:
        The start of that read by change (NaT: unknown), and whether there was one.
    """
    wanted = np.flatnonzero(np.bincount(wallets))  # np.unique hashes, which is slower
    which, parameters = source.restriction("wallet", wanted)
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
    found = (last >= 0) & (np.append(states, -1)[state] == wallets)
    after = np.where(found, np.append(ends, _NO_TIME)[state], _NO_TIME)
    # Where the clock was set back, the order of the two times says nothing.
    return np.where(after < at, after, _NO_TIME), found


def _pair(movements: Movements, counted: Flags) -> None:
    """Set the partners of movements that are transfers.

    Args:
        movements: the changes of all relevant tokens.
        counted: the changes that take part. The others may not be movements.
    """
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
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the movements of NFTs, one row each, with the wallets that they went from and to.

    The provider names no transfers, so nftsync infers them from the change feed, change by change.
    The loss of one wallet and the gain of another are one row of kind `transfer` if both amounts
    are equal, both were observed within overlapping times, and no other explanation accounts for as
    many movements of that token (see `nftsync.movements`). All other movements are `received` or
    `sent`: their other side is unknown, or has more than one candidate.

    A change happened between the wallet's last complete read before it and the time when it was
    stored. A transfer happened within the times of both its sides, so its `observed_after` is the
    later of the two reads, and its `observed_at` the earlier of the two observations. It belongs to
    the span that contains its `observed_at`. So spans that follow each other never list a transfer
    twice. The other side may have been observed outside the span. All changes of a token decide who
    the other side is, including changes outside the span and changes of excluded wallets.

    Holdings in a wallet's first read are not movements. Neither are changes between two amounts if
    one of them is unusable (a warning gives their number; `changes` shows them).

    Args:
        db: what to read, as `nftsync.frames` tells.
        start: the earliest `observed_at`; a day from its start. None is the first change.
        end: the latest `observed_at`; a day until its end. None is now.
        wallet: only rows from or to these wallets.
        group: only rows from or to wallets of these groups.
        contract: only tokens that are of this contract today.
        exclude: one wallet or several, by id or label; rows from or to them are left out.
        amounts: what `amount` is to be, as `nftsync.frames` tells.

    Returns:
        By `observed_at`: `observed_at`, `observed_after` (missing: no complete read before it),
        `token_id`, `contract_address`, `contract`, `collection` and `name` (as they are today),
        `amount` (exact; missing: not usable), `from_wallet_id`, `from_label`, `to_wallet_id`,
        `to_label`, `kind` and `webhook_id` (a webhook that led to the observation; missing: a
        sync made it).

    Raises:
        InputError: `start` is after `end`; a time is in the future; there is no such time, wallet
            label, group or contract; the amounts do not fit the `amounts` that you asked for; or
            `db` is neither a path nor a connection.

    Warns:
        NftsyncWarning: changes are left out because an amount is unusable.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        movements, rows = _within(source, start, end)
        sides = _Sides.of(movements, rows)
        kept = ~sides.any_of(wallet_numbers(source, exclude))
        if filters.wallet_ids is not None:
            kept &= sides.any_of(wallet_numbers(source, filters.wallet_ids))
        token_numbers = movements.tokens[rows]
        tokens = read_tokens(source, NAMING, wanted=np.unique(token_numbers[kept]))
        kept &= tokens.are_of(filters.contract, token_numbers)
        unclear = kept & (sides.givers < 0) & (sides.takers < 0)
        if unclear.any():
            left_out = counted(int(np.count_nonzero(unclear)), "change")
            warnings.warn(
                f"{left_out} left out, from or to amounts that are not whole numbers;"
                " frames.changes shows them",
                NftsyncWarning,
                stacklevel=2,
            )
        kept &= ~unclear
        rows = rows[kept]
        sides = _Sides.of(movements, rows)
        givers = wallet_columns(source, sides.givers, "from")
        takers = wallet_columns(source, sides.takers, "to")
    sizes = movements.sizes[rows]
    known = pd.notna(sizes)
    sizes[known] = np.abs(sizes[known])
    return frame_of(
        {
            "observed_at": times(movements.at[rows]),
            "observed_after": times(sides.after),
            **tokens.named(movements.tokens[rows]),
            **amount_columns({"amount": Exact.of(sizes)}, amounts),
            **givers,
            **takers,
            "kind": text(sides.kinds()),
            "webhook_id": text(sides.webhooks),
        }
    )


def _within(source: Source, start: Moment | None, end: Moment | None) -> tuple[Movements, Numbers]:
    """Read the movements that matter for a span, and which of them are its rows, in order.

    Of the two sides of a transfer, the one that was observed first is its row.
    """
    first, last = stored_span(source, start, end)
    movements = read_movements(source, _changed_tokens(source, first, last))
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


def _changed_tokens(source: Source, first: str | None, last: str | None) -> Numbers | None:
    """The numbers of the tokens with a change in a span; None: of all."""
    if first is None and last is None:
        return None
    (tokens,) = source.columns(
        "SELECT DISTINCT token_no FROM balance_change_rows"
        " WHERE change_id BETWEEN ? AND ? AND baseline = 0",
        [INTEGER],
        change_span(source, first, last),
    )
    return np.asarray(tokens.to_numpy())


@dataclass(frozen=True)
class _Sides:
    """What rows say of both sides of a movement.

    Attributes:
        givers: number of the wallet that it went from; -1: unknown.
        takers: number of the wallet that it went to; -1: unknown.
        after: the later of the reads before it.
        webhooks: a webhook that led to the observation.
    """

    givers: Numbers
    takers: Numbers
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
            givers=np.where(losses, own, np.where(gains, other, -1)),
            takers=np.where(gains, own, np.where(losses, other, -1)),
            after=np.where(paired, np.fmax(after, other_after), after),
            webhooks=pc.coalesce(
                movements.webhooks.take(pa.array(rows)),
                movements.webhooks.take(pa.array(partners, mask=~paired)),
            ),
        )

    def any_of(self, wallets: Numbers) -> Flags:
        """Whether one of the sides is one of some wallets."""
        return np.isin(self.givers, wallets) | np.isin(self.takers, wallets)

    def kinds(self) -> pa.Array:
        """`transfer`, `received` or `sent`."""
        known = [(self.givers >= 0) & (self.takers >= 0), self.takers >= 0]
        return pa.array(np.select(known, ["transfer", "received"], "sent"), TEXT)
