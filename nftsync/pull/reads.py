"""One read of the provider, from its ticket to its outcome."""

from __future__ import annotations

from typing import Any, TypeAlias, overload

import msgspec

from nftsync.errors import ReadError
from nftsync.provider import Client, Tally
from nftsync.records import ObjectRead, TokenRead, WalletRead
from nftsync.store.clock import TicketClock
from nftsync.times import now

__all__ = [
    "AnyRead",
    "AnyTask",
    "ObjectTask",
    "Read",
    "Task",
    "TokenTask",
    "WalletTask",
    "read",
]


class WalletTask(msgspec.Struct, frozen=True, tag="wallet", array_like=True):
    """A wallet to read, and what the mirror knows of its last answer."""

    wallet_id: str
    etag: str | None = None
    digest: str | None = None


class TokenTask(msgspec.Struct, frozen=True, tag="token", array_like=True):
    """A token to read by its id."""

    token_id: str


class ObjectTask(msgspec.Struct, frozen=True, tag="object", array_like=True):
    """Another object to read.

    Attributes:
        resource_type: its type, as webhooks name it.
        resource_id: its id, lower case.
        path: path and query below the base address, from `routes.path_for`.
    """

    resource_type: str
    resource_id: str
    path: str


#: What a sync reads, and what comes of it.
Task: TypeAlias = WalletTask | TokenTask
Read: TypeAlias = WalletRead | TokenRead
#: What webhooks ask for, and what comes of it.
AnyTask: TypeAlias = Task | ObjectTask
AnyRead: TypeAlias = Read | ObjectRead


@overload
def read(client: Client, tickets: TicketClock, task: Task) -> Read: ...
@overload
def read(client: Client, tickets: TicketClock, task: ObjectTask) -> ObjectRead: ...
@overload
def read(client: Client, tickets: TicketClock, task: AnyTask) -> AnyRead: ...
def read(client: Client, tickets: TicketClock, task: AnyTask) -> AnyRead:
    """Make a read; that it failed is an outcome, not an exception.

    Raises:
        InputError: the path of an object cannot be sent.
        SettingsError: the token command failed.
        Stopped: the client's pace was stopped.
    """
    if isinstance(task, WalletTask):
        return _read_wallet(client, tickets, task)
    if isinstance(task, TokenTask):
        return _read_token(client, tickets, task)
    return _read_object(client, tickets, task)


def _read_wallet(client: Client, tickets: TicketClock, task: WalletTask) -> WalletRead:
    """Read a wallet's balances; a failure is an outcome, not an exception."""
    tally = Tally()
    asked: dict[str, Any] = {
        "wallet_id": task.wallet_id,
        "ticket": tickets.take(),
        "started_at": now(),
    }
    try:
        found = client.balances(task.wallet_id, tally, etag=task.etag, known_digest=task.digest)
    except ReadError as error:
        return WalletRead(**asked, **_failure(error, tally))
    asked |= {"digest": found.digest, "etag": found.etag, "effort": tally.effort()}
    if found.entries is None:
        return WalletRead(**asked, outcome="unchanged")
    if found.unknown_field is not None:
        return WalletRead(
            **asked,
            outcome="incomplete",
            entries=found.entries,
            error=(
                f"the answer has the unknown field {found.unknown_field[:80]!r} beside "
                "nftTokenBalances and may be one page of several: nothing was taken as removed; "
                "list it in ignore_fields, or set [paging]"
            ),
        )
    return WalletRead(**asked, outcome="ok", entries=found.entries)


def _read_token(client: Client, tickets: TicketClock, task: TokenTask) -> TokenRead:
    """Read a single token; a failure is an outcome, not an exception."""
    tally = Tally()
    asked: dict[str, Any] = {
        "token_id": task.token_id,
        "ticket": tickets.take(),
        "started_at": now(),
    }
    try:
        content = client.token(task.token_id, tally)
    except ReadError as error:
        return TokenRead(**asked, **_failure(error, tally))
    return TokenRead(**asked, outcome="ok", content=content, effort=tally.effort())


def _read_object(client: Client, tickets: TicketClock, task: ObjectTask) -> ObjectRead:
    """Read another object; a failure is an outcome, not an exception."""
    tally = Tally()
    asked: dict[str, Any] = {
        "resource_type": task.resource_type,
        "resource_id": task.resource_id,
        "ticket": tickets.take(),
        "started_at": now(),
    }
    try:
        body = client.object(task.path, tally)
    except ReadError as error:
        return ObjectRead(**asked, **_failure(error, tally))
    return ObjectRead(**asked, outcome="ok", body=body.decode(), effort=tally.effort())


def _failure(error: ReadError, tally: Tally) -> dict[str, Any]:
    return {
        "outcome": "failed",
        "error": str(error),
        "effort": tally.effort(),
        "provider_down": error.provider_down,
        "status": error.status,
    }
