"""What the sandbox tells of each change to whatever keeps it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nftsync.sandbox.webhook_config import WebhookConfig
    from nftsync.sandbox.webhooks import Delivery
    from nftsync.sandbox.worldfile import Holding, Record

__all__ = ["Journal", "NoJournal"]


class Journal(Protocol):
    """Is told of changes, each inside a transaction.

    Locks are taken in one order: the world's, a transaction's, the outbox's.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """Hold other threads off; what is told inside is kept whole when it ends, or not at all."""

    def keep_wallet(self, wallet: str, shown: str) -> None:
        """A wallet was opened; `shown` is its id as it is answered."""

    def keep_record(self, token: str, record: Record) -> None:
        """A token's own record is now this."""

    def keep_holding(self, wallet: str, token: str, holding: Holding | None) -> None:
        """A wallet's entry for a token is now this; None: it is no longer listed."""

    def keep_minted(self, minted: int) -> None:
        """So many tokens have been minted."""

    def keep_config(self, config: WebhookConfig) -> None:
        """The webhook configuration is now this."""

    def keep_delivery(self, delivery: Delivery) -> None:
        """A webhook was made, or has another attempt behind it."""

    def drop_delivery(self, delivery: Delivery) -> None:
        """A webhook was delivered or given up."""


class NoJournal:
    """Keeps nothing."""

    def transaction(self) -> AbstractContextManager[None]:
        """See `Journal`."""
        return nullcontext()

    def keep_wallet(self, wallet: str, shown: str) -> None:
        """See `Journal`."""

    def keep_record(self, token: str, record: Record) -> None:
        """See `Journal`."""

    def keep_holding(self, wallet: str, token: str, holding: Holding | None) -> None:
        """See `Journal`."""

    def keep_minted(self, minted: int) -> None:
        """See `Journal`."""

    def keep_config(self, config: WebhookConfig) -> None:
        """See `Journal`."""

    def keep_delivery(self, delivery: Delivery) -> None:
        """See `Journal`."""

    def drop_delivery(self, delivery: Delivery) -> None:
        """See `Journal`."""
