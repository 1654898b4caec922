"""Events that a rule reports, and their messages."""

from __future__ import annotations

import hashlib
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nftsync.store.outbox import ANY_KEY, Message
from nftsync.text import cut_line

#: More than `SINGLE` events become one digest, which shows at most `SHOWN`.
SINGLE, SHOWN = 5, 10
#: A digest with more keys is in order with all messages of its destination.
_MOST_KEYS = 1_000
#: Limits of a body, in bytes (Standard Webhooks 1.0), and of its texts, in characters.
_LARGEST_BODY, _LONGEST_TEXT = 20_000, 120

Body: TypeAlias = dict[str, Any]


class Event(NamedTuple):
    """A change, or the start or end of a state.

    Attributes:
        identity: distinguishes it from all others in this database.
        keys: messages with a common key are sent in order.
        listed_at: the time at which the digest's command lists it, if earlier.
    """

    type: str
    at: str
    identity: str
    keys: tuple[str, ...]
    data: Body
    listed_at: str | None = None

    def body(self) -> Body:
        return {"type": self.type, "timestamp": self.at, "data": _bounded(self.data)}


class Events:
    """Number of events by type, and the `most` oldest ones."""

    def __init__(self, most: int = SHOWN) -> None:
        self.most = most
        self.counts: Counter[str] = Counter()
        self.first: list[Event] = []
        self._last: Event | None = None
        self._since = "9"  # later than any time
        self._keys: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            self.counts[event.type] += 1
            self._since = min(self._since, event.listed_at or event.at)
            if len(self._keys) <= _MOST_KEYS:
                self._keys.update(event.keys)
            if self._last is None or event.at >= self._last.at:
                self._last = event
            if len(self.first) < self.most or event.at < self.first[-1].at:
                insort(self.first, event, key=lambda one: one.at)
                del self.first[self.most :]

    def messages(self, single: int = SINGLE) -> Iterator[tuple[str, bytes, list[str]]]:
        """Yield identities, bodies and keys; more than `single` events become one digest."""
        total = self.counts.total()
        if total <= single:
            for event in self.first:
                yield event.identity, msgspec.json.encode(event.body()), list(event.keys)
        elif self._last is not None:
            first, last = self.first[0], self._last
            body: Body = {
                "type": "digest",
                "timestamp": last.at,
                "data": [{"type": event.type} | event.body()["data"] for event in self.first],
                "total": total,
                "counts": dict(self.counts),
                "command": _command(first, self._since, last.at),
            }
            while len(encoded := msgspec.json.encode(body)) > _LARGEST_BODY:
                body["data"].pop()
            keys = sorted(self._keys) if len(self._keys) <= _MOST_KEYS else [ANY_KEY]
            yield f"{first.identity} to {last.identity}, {total}", encoded, keys


def message_id(database_id: str, rule: str, destination: str, identity: str) -> str:
    """Return an id that is the same in all copies of the database."""
    parts = msgspec.json.encode([database_id, rule, destination, identity])
    return f"msg_{hashlib.sha256(parts).hexdigest()[:32]}"


def messages_of(
    database_id: str,
    rule: str,
    destinations: Sequence[str],
    contents: Iterable[tuple[str, bytes, list[str]]],
) -> list[Message]:
    return [
        Message(message_id(database_id, rule, to, identity), rule, to, body, keys)
        for identity, body, keys in contents
        for to in destinations
    ]


def _bounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bounded(part) for name, part in value.items()}
    return cut_line(value, _LONGEST_TEXT) if isinstance(value, str) else value


def _command(first: Event, since: str, until: str) -> str:
    span = f"--since {since} --until {until}"
    if first.type.startswith("holding."):
        return f"nftsync {'changes' if first.type == 'holding.amount' else 'transfers'} {span}"
    if first.type == "token.metadata":
        return f"frames.token_changes(since='{since}')"
    return "nftsync status"
