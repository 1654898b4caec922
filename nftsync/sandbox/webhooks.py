"""A webhook and what has become of it (provider's document, section Webhook)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from nftsync.sandbox.webhook_faults import WebhookFault

__all__ = ["Attempt", "Changes", "Delivery", "DeliveryState", "Webhook", "make_webhook"]

#: `failed`: given up after its last attempt. `dropped`: a script let it never be sent.
DeliveryState: TypeAlias = Literal["pending", "delivered", "failed", "dropped"]

#: Key/value updates, as JSON text that is kept to the character, or None.
Changes: TypeAlias = dict[str, msgspec.Raw] | None


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """A webhook; its JSON is the notification's body, with the fields in the document's order."""

    organization_id: str
    action: str
    id: str
    resource_id: str
    resource_type: str
    created_at_utc: str
    changes: Changes = None


class Attempt(msgspec.Struct, frozen=True, rename="camel"):
    """One try to deliver.

    Attributes:
        at: when it began, in UTC.
        status: the answer's HTTP status, or None when no whole answer came in time.
        error: why none came.
        ms: how long it took, in milliseconds.
        next_attempt_at: when the next was to follow, or None.
    """

    at: datetime
    status: int | None
    error: str | None
    ms: float
    next_attempt_at: datetime | None = None


class Delivery(msgspec.Struct):
    """What has become of a webhook; the outbox's lock guards it.

    Attributes:
        type: the webhook type that the organization chose it by; it is not in the body.
        webhook: what is told.
        body: the bytes that every attempt sends.
        fault: what goes wrong on purpose.
        state: see `DeliveryState`.
        attempts: those made, oldest first.
        next_attempt_at: when it is due; None once it is finished, or while it waits for the next
            webhook.
    """

    type: str
    webhook: Webhook
    body: bytes
    fault: WebhookFault = None
    state: DeliveryState = "pending"
    attempts: list[Attempt] = []
    next_attempt_at: datetime | None = None

    @property
    def id(self) -> str:
        """The webhook's id."""
        return self.webhook.id

    def shown(self) -> dict[str, object]:
        """The delivery as `GET /sandbox/deliveries` lists it."""
        webhook = self.webhook
        return {
            "id": webhook.id,
            "type": self.type,
            "resourceType": webhook.resource_type,
            "resourceId": webhook.resource_id,
            "action": webhook.action,
            "createdAtUtc": webhook.created_at_utc,
            "state": self.state,
            "attempts": [msgspec.to_builtins(each) for each in self.attempts],
            "nextAttemptAt": msgspec.to_builtins(self.next_attempt_at),
        }


def make_webhook(
    organization_id: str,
    *,
    resource_type: str,
    resource_id: str,
    action: str,
    changes: Changes = None,
) -> Webhook:
    """Make a webhook with an id and a time of its own."""
    return Webhook(
        organization_id=organization_id,
        action=action,
        id=str(uuid.uuid4()),
        resource_id=resource_id,
        resource_type=resource_type,
        created_at_utc=datetime.now(UTC).isoformat(timespec="microseconds"),
        changes=changes,
    )
