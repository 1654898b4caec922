"""One read of the provider, from its ticket to its outcome."""

from __future__ import annotations

from typing import Any, TypeAlias, overload

import msgspec

from nftsync.errors import ReadError
from nftsync.provider.client import Client
from nftsync.records import Effort, ObjectRead, TokenRead, WalletRead
from nftsync.store.clock import TicketClock
from nftsync.times import now

__all__ = [
    "AnyRead",
    "AnyTask",
    "ObjectTask",
    "Read",
    "Subject",
    "Task",
    "TokenTask",
    "WalletTask",
    "read",
    "subject_of",
]


class WalletTask(msgspec.Struct, frozen=True, tag="wallet", array_like=True):
    """A wallet to read, and what the mirror knows of its last response."""

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
#: What a task or a read is of: its kind, and the ids that name the object.
Subject: TypeAlias = tuple[str, ...]


def subject_of(of: AnyTask | AnyRead) -> Subject:
    """What a task asks for, or a read answers."""
    if isinstance(of, WalletTask | WalletRead):
        return ("wallet", of.wallet_id)
    if isinstance(of, TokenTask | TokenRead):
        return ("token", of.token_id)
    return ("object", of.resource_type, of.resource_id)


@overload
def read(client: Client, tickets: TicketClock, task: Task) -> Read: ...
@overload
def read(client: Client, tickets: TicketClock, task: AnyTask) -> AnyRead: ...
def read(client: Client, tickets: TicketClock, task: AnyTask) -> AnyRead:
    """Make a read; that it failed is an outcome, not an exception.

    Raises:
        InputError: the path of an object cannot be sent.
        SettingsError: the token command failed.
        Stopped: the client was stopped.
    """
    effort = Effort()
    fields: dict[str, Any] = {"ticket": tickets.take(), "started_at": now(), "outcome": "ok"}
    try:
        if isinstance(task, WalletTask):
            fields |= _wallet_fields(client, task, effort)
        elif isinstance(task, TokenTask):
            fields["content"] = client.token(task.token_id, effort)
        else:
            fields["body"] = client.object(task.path, effort).decode()
    except ReadError as error:
        fields["outcome"] = "failed"
        fields |= {"error": str(error), "status": error.status}
        fields["provider_down"] = error.provider_down
    fields["effort"] = effort
    if isinstance(task, WalletTask):
        return WalletRead(wallet_id=task.wallet_id, **fields)
    if isinstance(task, TokenTask):
        return TokenRead(token_id=task.token_id, **fields)
    return ObjectRead(resource_type=task.resource_type, resource_id=task.resource_id, **fields)


def _wallet_fields(client: Client, task: WalletTask, effort: Effort) -> dict[str, Any]:
    found = client.balances(task.wallet_id, effort, etag=task.etag, known_digest=task.digest)
    fields: dict[str, Any] = {"digest": found.digest, "etag": found.etag}
    if found.entries is None:
        return fields | {"outcome": "unchanged"}
    fields["entries"] = found.entries
    if found.unknown_field is not None:
        fields["outcome"] = "incomplete"
        fields["error"] = (
            f"the answer has the unknown field {found.unknown_field[:80]!r} beside "
            "nftTokenBalances and may be one page of several: nothing was taken as removed; "
            "list it in ignore_fields, or set [paging]"
        )
    return fields
