"""Readable texts of messages: one safe line per event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from nftsync.records import NewField
from nftsync.text import counted, cut_line, short_id

_LONGEST = 200
_UNKNOWN = "an unknown wallet"
_STATES = {
    "sync.failed": "The last full sync failed: nftsync status",
    "removals.held": "Removals are held for review: nftsync removals",
    "webhook.dead": "Webhooks are dead: nftsync inbox --state dead",
    "webhook.quarantined": "Webhooks are quarantined: nftsync inbox --state quarantined",
    "replay.paused": "Replay is paused: webhooks have been pending for 10 minutes",
    "disk.low": "The database's disk has less than 1 GB left",
    "clock.ahead": "Stored times are ahead of the clock: nftsync status",
    "destination.down": "An alert destination is unreachable: nftsync outbox",
    "destination.stopped": "An alert destination answered 410 and is stopped: nftsync watch send",
    "destination.failed": "Messages to a destination are dead: nftsync outbox --state dead",
    "rule.paused": "A rule is paused; nftsync reports its changes once its names are known again",
    "test": "Test message from nftsync: this destination receives alerts",
}


class Outgoing(NamedTuple):
    """A message; `subject` is one safe line, `text` several."""

    message_id: str
    body: bytes
    subject: str
    text: str
    headers: Mapping[str, str] = {}


def outgoing(message_id: str, body: bytes, headers: Mapping[str, str]) -> Outgoing:
    """Return a message with its texts; any webhook may be its body."""
    lines = _lines(body)
    return Outgoing(message_id, body, lines[0], "\n".join(lines), headers)


def text_of(body: bytes | None) -> str:
    return "" if body is None else _lines(body)[0]


def _lines(body: bytes) -> list[str]:
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        content = None
    return lines_of(content) if isinstance(content, dict) else ["A webhook without a JSON object"]


def lines_of(body: Mapping[str, Any]) -> list[str]:
    if "resourceType" in body:
        parts = (str(body.get(name, "")) for name in ("resourceType", "action", "resourceId"))
        return [cut_line(f"Webhook: {' '.join(parts)}", _LONGEST)]
    if body["type"] != "digest":
        return [_line(body["type"], body["data"])]
    counts = ", ".join(f"{count:,} {kind}" for kind, count in body["counts"].items())
    lines = [
        f"{counted(body['total'], 'event')}: {counts}",
        *(_line(one["type"], one) for one in body["data"]),
    ]
    if body["total"] > len(body["data"]):
        lines.append(f"and {body['total'] - len(body['data']):,} more")
    return [*lines, f"Show all: {body['command']}"]


def _line(kind: str, data: Mapping[str, Any]) -> str:
    text = _STATES.get(kind) or _movement(kind, data)
    if kind in _STATES and "reason" in data:
        text += f" ({data.get('destination') or data['rule']}: {data['reason']})"
    if data.get("state") == "lasts":
        text += f" (since {data['since'][:16]}Z)"
    elif data.get("state") == "ended":
        text = f"Ended: {text}"
    return cut_line(text, _LONGEST)


def _movement(kind: str, data: Mapping[str, Any]) -> str:
    token = data.get("nft") or data.get("name") or short_id(data.get("token_id") or "")
    amount = data.get("amount")
    copies = f"{amount} of " if amount not in {None, "1", 1} else ""
    # Messages of earlier versions have labels and ids only.
    sender, receiver, wallet = (
        data.get(f"{side}wallet")
        or data.get(f"{side or 'wallet_'}label")
        or short_id(data.get(f"{side}wallet_id") or "")
        or _UNKNOWN
        for side in ("from_", "to_", "")
    )
    if kind == "holding.amount":
        return f"{wallet}: amount of {token}: {data['old_amount']} to {data['new_amount']}"
    if kind == "token.metadata":
        return f"Metadata of {token} changed: {', '.join(data['after'])}"
    if kind == "new.field":
        return f"New field: {msgspec.convert(data, NewField).news}"
    if kind == "wallet.stale":
        return f"Wallet {wallet} is stale, last read: {data['synced_at'] or 'never'}"
    if kind == "wallet.failed":
        return f"Wallet {wallet} cannot be read: {data['error']}"
    if kind == "holding.received" and "wallet_id" in data:
        return f"{wallet} holds {token} (initial holding)"
    if kind == "holding.received":
        return f"{receiver} received {copies}{token} from {_UNKNOWN}"
    return f"{sender} sent {copies}{token} to {receiver}"
