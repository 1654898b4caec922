"""Changes that a rule reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from nftsync.alerts import WatchRule
from nftsync.columnar.columns import INTEGER, time_texts
from nftsync.columnar.movements import (
    Movements,
    Sides,
    read_movements,
    transfer_frame,
    transfer_records,
)
from nftsync.columnar.source import IN_JSON, Numbers, Source
from nftsync.exact_sum import exact
from nftsync.store.contracts import contract_key
from nftsync.store.database import as_json
from nftsync.store.filters import contract_named, find_filters
from nftsync.store.hidden import HIDDEN_TOKENS
from nftsync.store.names import Names
from nftsync.watch.events import SHOWN, Event, Events


class Scope(NamedTuple):
    """Wallet numbers and contracts of a rule; None: all."""

    wallets: list[int] | None
    contracts: list[str] | None

    @classmethod
    def of(cls, rule: WatchRule, source: Source) -> Scope:
        """Resolve a rule's names; InputError if one is unknown or ambiguous."""
        cursor = source.cursor
        filters = find_filters(cursor, wallet=rule.wallets or None, group=rule.groups or None)
        wallets = None
        if filters.wallet_ids is not None:
            condition, values = filters.where()
            rows = source.rows(f"SELECT wallet_no FROM wallets WHERE {condition}", values)
            wallets = [number for (number,) in rows]
        names = (*rule.collections, *rule.contracts)
        contracts = [contract_key(contract_named(cursor, name)) for name in names]
        return cls(wallets, contracts or None)

    def condition(self, rule: WatchRule, wallets: str | None) -> tuple[str, tuple[str, ...]]:
        """Return conditions on a row `c`, with `wallets` on its wallet."""
        # Tokens are found by number, because `contract` has no index.
        conditions, values = ["true"], []
        if self.contracts is not None:
            token = f"t.token_no = c.token_no AND t.contract {IN_JSON}"
            conditions.append(f"EXISTS (SELECT 1 FROM tokens t WHERE {token})")
            values.append(as_json(self.contracts))
        if not rule.hidden:
            token = f"SELECT 1 FROM {HIDDEN_TOKENS} t WHERE t.token_no = c.token_no"
            conditions.append(f"NOT EXISTS ({token})")
        if self.wallets is not None and wallets is not None:
            conditions.append(wallets)
            values.append(as_json(self.wallets))
        return " AND ".join(conditions), tuple(values)


class Span(NamedTuple):
    """Changes to report; `together`: see `_wanted`."""

    after: int
    until: int
    together: bool = True


class Position(NamedTuple):
    """The last change, token change and webhook processed."""

    change_id: int
    token_change_id: int
    webhook_no: int


def changes_of(
    source: Source,
    rule: WatchRule,
    scope: Scope,
    start: Position,
    end: Position,
    shown: int = SHOWN,
    *,
    together: bool = True,
) -> tuple[Events, Position]:
    """Return the events after `start`, the first `shown` ones whole, and their end.

    With `together`, the end may be before a transfer that continues after `end`.
    """
    balances = Span(start.change_id, end.change_id, together)
    metadata = Span(start.token_change_id, end.token_change_id)
    events = Events(shown)
    reported: set[int] = set()
    if {"transfer", "sent", "received"}.intersection(rule.on):
        until = _add_movements(events, source, rule, scope, balances, reported)
        balances = Span(start.change_id, until)
    if "amount" in rule.on:
        events.add(_amounts(source, rule, scope, balances, reported))
    if rule.baseline and "received" in rule.on:
        events.add(_initial(source, rule, scope, balances))
    if "metadata" in rule.on:
        events.add(_metadata(source, rule, scope, metadata))
    # Movements have their names.
    Names(source.cursor).add_to([x.data for x in events.first if "change_id" in x.data])
    return events, end._replace(change_id=balances.until)


_WALLETS = f"wallet_no {IN_JSON}"
_SPAN = "change_id > ? AND change_id <= ?"


def _add_movements(
    events: Events, source: Source, rule: WatchRule, scope: Scope, span: Span, reported: set[int]
) -> int:
    condition, values = scope.condition(rule, None if "transfer" in rule.on else _WALLETS)
    query = f"SELECT DISTINCT token_no FROM balance_change_rows c WHERE {_SPAN} AND baseline = 0"
    (tokens,) = source.columns(f"{query} AND {condition}", [INTEGER], (*span[:2], *values))
    if not len(tokens):
        return span.until
    movements = read_movements(source, tokens.to_numpy())
    rows, until = _wanted(movements, rule, scope, span, tokens.to_numpy())
    rows = rows[np.argsort(movements.at[rows], kind="stable")]  # the clock may have gone back
    partners = movements.partners[rows]
    reported.update(movements.changes[rows].tolist())
    reported.update(movements.changes[partners[partners >= 0]].tolist())
    # A transfer's row is the side observed first, as in `frames.transfers`.
    first = np.where(partners < 0, rows, np.minimum(rows, partners))
    kinds = Sides.of(movements, rows).kinds().to_pylist()
    at, listed_at = time_texts(movements.at[rows]), time_texts(movements.at[first])
    records = transfer_records(transfer_frame(source, movements, first[: events.most]))
    records += [{}] * (len(rows) - len(records))  # messages show only the first
    parts = [movements.changes, movements.wallets, movements.tokens, movements.at.view(np.int64)]
    columns = [part.tolist() for part in parts]  # faster than reading single values of arrays

    def event(
        row: int, kind: str, moment: str | None, listed_at: str | None, data: dict[str, Any]
    ) -> Event:
        # A transfer has one identity, whichever side is processed first.
        sides = sorted({row, int(movements.partners[row])} - {-1})
        identity = " ".join(str(column[side]) for side in sides for column in columns)
        keys = tuple(f"wallet {columns[1][side]}" for side in sides)
        return Event(f"holding.{kind}", moment or "", identity, keys, data, listed_at)

    events.add(map(event, rows.tolist(), kinds, at, listed_at, records))
    return until


def _wanted(
    movements: Movements, rule: WatchRule, scope: Scope, span: Span, tokens: Numbers
) -> tuple[Numbers, int]:
    """Return the movements to report, each transfer once, and the last change.

    With `together`, a transfer whose other side is after the span ends it, because two digests
    would count it twice.
    """
    paired = movements.partners >= 0
    ours = np.ones(len(paired), dtype=np.bool_)
    if scope.wallets is not None:
        ours = np.isin(movements.wallets, scope.wallets)
    wanted = np.zeros(len(paired), dtype=np.bool_)
    for kind, mask in {
        "sent": ours & movements.losses,
        "received": ours & movements.gains,
        "transfer": paired & (ours | ours[movements.partners]),
    }.items():
        if kind in rule.on:
            wanted |= mask
    wanted &= movements.gains | movements.losses
    wanted &= np.isin(movements.tokens, tokens)  # the source may have read other tokens, too
    changes, until = movements.changes, span.until
    wanted &= changes > span.after
    others = np.where(paired & wanted[movements.partners], changes[movements.partners], 0)
    while span.together and (split := wanted & (changes <= until) & (others > until)).any():
        until = int(changes[split].min()) - 1
    wanted &= changes <= until
    rows = np.flatnonzero(wanted)
    wanted[rows] = [_is_large(size, rule) for size in movements.sizes[rows]]
    is_second = paired & wanted[movements.partners] & (movements.partners < np.arange(len(paired)))
    return np.flatnonzero(wanted & ~is_second), until


def _is_large(size: int | None, rule: WatchRule) -> bool:
    return not rule.min_amount or (size is not None and abs(size) >= rule.min_amount)


_IS_HELD = "trim(coalesce({}, '0'), '0') <> ''"
_CHANGES = f"""
    SELECT change_id, wallet_no, token_no, observed_at, wallet_id, label, token_id, name,
        old_amount, new_amount, webhook_id
    FROM balance_change_rows c CROSS JOIN wallets USING (wallet_no)
        CROSS JOIN tokens USING (token_no)
    WHERE {_SPAN} AND {_IS_HELD.format("new_amount")} AND """


def _change_events(
    source: Source, rule: WatchRule, scope: Scope, span: Span, kind: str, which: str
) -> Iterator[Event]:
    condition, values = scope.condition(rule, _WALLETS)
    for change, wallet, token, at, *columns in source.rows(
        f"{_CHANGES} {which} AND {condition} ORDER BY change_id", (*span[:2], *values)
    ):
        names = ("wallet_id", "wallet_label", "token_id", "name", "old_amount", "new_amount")
        data = {"change_id": change, **dict(zip((*names, "webhook_id"), columns, strict=True))}
        identity = f"{change} {wallet} {token} {at}"
        yield Event(kind, at, identity, (f"wallet {wallet}",), data | {"observed_at": at})


def _amounts(
    source: Source, rule: WatchRule, scope: Scope, span: Span, reported: set[int]
) -> Iterator[Event]:
    which = f"baseline = 0 AND {_IS_HELD.format('old_amount')}"
    for event in _change_events(source, rule, scope, span, "holding.amount", which):
        before, after = exact(event.data["old_amount"]), exact(event.data["new_amount"])
        size = None if before is None or after is None else after - before
        if size != 0 and event.data["change_id"] not in reported and _is_large(size, rule):
            yield event


def _initial(source: Source, rule: WatchRule, scope: Scope, span: Span) -> Iterator[Event]:
    for event in _change_events(source, rule, scope, span, "holding.received", "baseline = 1"):
        if _is_large(exact(event.data["new_amount"]), rule):
            yield event


def _metadata(source: Source, rule: WatchRule, scope: Scope, span: Span) -> Iterator[Event]:
    of_wallets = f"SELECT 1 FROM balance_rows b WHERE b.token_no = c.token_no AND {_WALLETS}"
    condition, values = scope.condition(rule, f"EXISTS ({of_wallets})")
    for change, token, at, token_id, name, before, after, webhook in source.rows(
        "SELECT change_id, token_no, c.observed_at, token_id, name, before, after, webhook_id"
        " FROM token_change_rows c JOIN tokens USING (token_no)"
        f" WHERE {_SPAN} AND {condition} ORDER BY change_id",
        (*span[:2], *values),
    ):
        data = {"change_id": change, "token_id": token_id, "name": name}
        data |= {"before": msgspec.json.decode(before), "after": msgspec.json.decode(after)}
        data |= {"observed_at": at, "webhook_id": webhook}
        yield Event("token.metadata", at, f"metadata {change} {token} {at}", (token_id,), data)
