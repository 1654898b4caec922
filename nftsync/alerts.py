"""Destinations, watch rules and forwards of `nftsync.toml`."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

#: Kinds of changes and states to report.
ChangeKind: TypeAlias = Literal["transfer", "received", "sent", "amount", "metadata"]
StateKind: TypeAlias = Literal[
    "wallet_stale",
    "wallet_failed",
    "sync_failed",
    "removals_held",
    "webhook_dead",
    "webhook_quarantined",
    "new_field",
    "replay_paused",
    "disk_low",
    "clock_ahead",
]
CHANGES: tuple[ChangeKind, ...] = get_args(ChangeKind)
STATE_KINDS: tuple[StateKind, ...] = get_args(StateKind)

DestinationKind: TypeAlias = Literal["webhook", "slack", "email", "command"]

_MINUTE = timedelta(minutes=1)
_TEXTS = Meta(min_length=1, description="a list of strings")
_Texts: TypeAlias = Annotated[list[Annotated[str, Meta(min_length=1)]], _TEXTS]
_Words: TypeAlias = Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], _TEXTS]


class DestinationTable(msgspec.Struct, frozen=True, kw_only=True):
    """A `[destinations.NAME]` table; its repr shows no secret, such as the URL of Slack."""

    name: str
    kind: DestinationKind
    url: str | None = None
    url_file: Path | None = None
    secret_file: tuple[Path, ...] = ()
    allow_http: bool = False
    allow_private: bool = False
    command: _Words = ()
    server: str | None = None
    port: Annotated[int, Meta(ge=1, le=65535, description="a port number")] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: str | None = msgspec.field(name="from", default=None)
    recipients: _Words = ()
    username: str | None = None
    password_file: Path | None = None

    def __repr__(self) -> str:
        return f"Destination(name={self.name!r}, kind={self.kind!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("kind", self.kind)]

    @property
    def shown(self) -> str:
        """Kind and receiver, without secrets."""
        if self.kind == "webhook":
            return f"webhook to {urlsplit(self.url or '').hostname}"
        if self.kind == "email":
            return f"email to {', '.join(self.recipients)} through {self.server}"
        return f"command {self.command[0]}" if self.command else self.kind


class Destination(DestinationTable, frozen=True, kw_only=True):
    """A receiver of messages; each of its secrets signs every message."""

    secrets: tuple[str, ...] = ()
    password: str | None = None


class Quiet(msgspec.Struct, frozen=True):
    """Daily quiet hours in a time zone."""

    start: time
    end: time
    zone: str

    def until(self, moment: datetime) -> datetime | None:
        """Return the end of current quiet hours, or None."""
        local = moment.astimezone(ZoneInfo(self.zone))
        if not self._contain(local):
            return None
        day = local.date() + timedelta(days=self.start > self.end and local.time() >= self.start)
        # When summer time ends, one hour occurs twice; `fold` distinguishes them.
        end = datetime.combine(day, self.end, local.tzinfo).replace(fold=local.fold).astimezone(UTC)
        # When it begins, one hour is left out; hours that would end in it end as it begins.
        while not self._contain((end - _MINUTE).astimezone(local.tzinfo)):
            end -= _MINUTE
        return end

    def _contain(self, local: datetime) -> bool:
        after, before = local.time() >= self.start, local.time() < self.end
        return after or before if self.start > self.end else after and before


class WatchRule(msgspec.Struct, frozen=True, kw_only=True):
    """A `[watch.NAME]` table: what to report. Wallets must match both `wallets` and `groups`."""

    name: str
    on: list[str]
    to: _Texts
    wallets: _Texts = []
    groups: _Texts = []
    collections: _Texts = []
    contracts: _Texts = []
    min_amount: int = 0
    digest: timedelta = timedelta(0)
    quiet: Quiet | None = None
    repeat: timedelta | None = None
    max_age: timedelta = timedelta(hours=24)
    baseline: bool = False
    hidden: bool = False


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """A `[forward.NAME]` table: webhooks to forward, by resource types in any case."""

    name: str
    to: _Texts
    types: _Texts = []
    original_signature: bool = False
