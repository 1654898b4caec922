"""Checks of messages: changes that rules must report, and requests to destinations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.serve_process import query


class Message(NamedTuple):
    """A row of the table `messages`."""

    number: int
    message_id: str
    rule: str
    destination: str
    body: bytes
    state: str
    keys: str


class Change(NamedTuple):
    """A change of a balance in the change feed, after the initial holdings."""

    change_id: int
    wallet: str
    token: str
    at: str
    old: int
    new: int


def messages_of(database: Path) -> list[Message]:
    rows = query(
        database,
        "SELECT message_no, message_id, rule, destination, body, state, keys FROM messages"
        " ORDER BY message_no",
    )
    return [Message(*row) for row in rows]


def changes_of(database: Path) -> list[Change]:
    """Return the changed amounts; `0` counts as no holding."""
    rows = query(
        database,
        "SELECT change_id, wallet_id, token_id, observed_at, old_amount, new_amount"
        " FROM balance_changes WHERE NOT baseline ORDER BY change_id",
    )
    changes = [Change(*row[:-2], *(int(amount or 0) for amount in row[-2:])) for row in rows]
    return [change for change in changes if change.old != change.new]


def check_received(messages: Sequence[Message], arrived: Sequence[tuple[str, bytes]]) -> None:
    """Check that each message was received, with one body, and first in the order of its keys."""
    bodies = {message.message_id: message.body for message in messages}
    missing = bodies.keys() - {name for name, _ in arrived}
    assert not missing, f"never received: {missing}"
    for name, body in arrived:
        assert body == bodies[name], f"{name} has another body"
    place = {name: place for place, (name, _) in reversed([*enumerate(arrived)])}
    last: dict[str, Message] = {}
    for message in messages:
        for key in json.loads(message.keys):
            if key in last:
                earlier = place[last[key].message_id]
                assert earlier < place[message.message_id], f"{message} before {last[key]}"
            last[key] = message


def events_of(messages: Iterable[Message]) -> tuple[list[dict[str, Any]], int]:
    """Return the events in messages, and the number of events that digests omit."""
    events, hidden = [], 0
    for message in messages:
        body = json.loads(message.body)
        shown = body["data"]
        if body["type"] == "digest":
            hidden += body["total"] - len(shown)
            events += shown
        else:
            events.append(shown)
    return events, hidden


def check_once(
    expected: Iterable[Any],
    events: Iterable[dict[str, Any]],
    key: Callable[[dict[str, Any]], Any],
    hidden: int,
) -> None:
    """Check that each change was reported once."""
    wanted, told = Counter(expected), Counter(map(key, events))
    assert told <= wanted, f"reported again, or without a change: {told - wanted}"
    assert (wanted - told).total() == hidden, f"not reported: {wanted - told}"


def check_moves(changes: list[Change], events: list[dict[str, Any]], hidden: int) -> None:
    """Check that each change was reported as an event of its own, or as a side of a transfer.

    A loss can be reported alone, and again when the other side is read.
    """
    wanted = Counter((one.wallet, one.token, one.new > one.old) for one in changes)
    alone, in_transfers = Counter[Any](), Counter[Any]()
    for event in events:
        sides = (event["from_wallet_id"], False), (event["to_wallet_id"], True)
        told = [(wallet, event["token_id"], gains) for wallet, gains in sides if wallet]
        (alone if len(told) == 1 else in_transfers).update(told)
    for reported in (alone, in_transfers):
        assert reported <= wanted, f"reported again, or without a change: {reported - wanted}"
    left = wanted - alone - in_transfers
    assert left.total() <= 2 * hidden, f"not reported: {left}"
