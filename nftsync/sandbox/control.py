"""The sandbox as its callers drive it: edits, and the webhooks that follow from them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nftsync.records import normalize_uuid
from nftsync.sandbox.sender import Sender
from nftsync.sandbox.webhooks import Changes, Outbox, WebhookConfig
from nftsync.sandbox.world import Metadata, World

__all__ = ["Sandbox"]


class Sandbox:
    """The provider's state and its webhooks.

    The edits here send the webhooks that follow; those of `world` send none. Which edit sends what
    is the sandbox's own (provider's document, section Events, 9: not shown).

    Args:
        world: the provider's state.
        outbox: the webhooks on their way.
        restored: whether the world is that of a state file.

    Attributes:
        world: the provider's state.
        restored: whether the world is that of a state file.
        requests: how many requests each of the provider's calls got, refused ones included, by
            kind: `balances`, `token`, `webhook_config`, or `other` for no call.
    """

    def __init__(self, world: World, outbox: Outbox, *, restored: bool) -> None:
        self.world = world
        self.restored = restored
        self.requests: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._outbox = outbox
        self._sender = Sender(outbox)

    def start(self) -> None:
        """Begin to deliver; until then webhooks wait."""
        self._sender.start()

    def close(self) -> None:
        """Stop to deliver, and close the state."""
        self._sender.close()
        self.world.state.close()

    def count(self, kind: str) -> None:
        """Count a request."""
        with self._counting:
            self.requests[kind] += 1

    def transfer(
        self, from_wallet: str, to_wallet: str, token_id: str, amount: int | str
    ) -> list[str]:
        """Move an amount of a token: `nft`/`Wallet` for both wallets, or the one.

        Returns:
            The ids of the webhooks that it caused.

        Raises:
            InputError: see `World.transfer`.
        """
        with self._causing():
            self.world.transfer(from_wallet, to_wallet, token_id, amount)
            made = self._outbox.make("nft", "Wallet", from_wallet.lower(), "update")
            if to_wallet.lower() != from_wallet.lower():
                made += self._outbox.make("nft", "Wallet", to_wallet.lower(), "update")
            return made

    def mint(self, wallet_id: str, amount: int | str, metadata: Metadata) -> tuple[str, list[str]]:
        """Make a token: `nft`/`Token` with the action `create`, then `nft`/`Wallet`.

        Returns:
            The token's id, and the ids of the webhooks.

        Raises:
            InputError: see `World.mint`.
        """
        with self._causing():
            token = self.world.mint(wallet_id, amount, metadata)
            made = self._outbox.make("nft", "Token", token, "create")
            return token, made + self._outbox.make("nft", "Wallet", wallet_id.lower(), "update")

    def edit_metadata(self, token_id: str, metadata: Metadata) -> list[str]:
        """Replace a token's metadata: `nft`/`Token`.

        Returns:
            The ids of the webhooks that it caused.

        Raises:
            InputError: see `World.edit_metadata`.
        """
        with self._causing():
            self.world.edit_metadata(token_id, metadata)
            return self._outbox.make("nft", "Token", token_id.lower(), "update")

    def emit(
        self,
        webhook_type: str,
        resource_type: str,
        resource_id: str,
        action: str,
        changes: Changes = None,
    ) -> list[str]:
        """Send one webhook of whatever kind; nothing is edited.

        Args:
            webhook_type: one of the document's six.
            resource_type: any text.
            resource_id: any UUID, sent as it is written.
            action: any text.
            changes: key/value updates, or None.

        Returns:
            The webhook's id, or nothing where the configuration wants none of its type.

        Raises:
            InputError: the type is not allowed, or the id is no UUID.
        """
        normalize_uuid(resource_id, "resource id")
        with self._causing():
            return self._outbox.make(webhook_type, resource_type, resource_id, action, changes)

    def configure(self, body: bytes) -> WebhookConfig:
        """Change the webhook configuration by a PATCH's body; see `WebhookConfig.patched`."""
        with self._causing():
            return self._outbox.configure(body)

    def script(self, entries: Sequence[object]) -> None:
        """Let the next webhooks go wrong; see `Outbox.script`."""
        self._outbox.script(entries)

    def deliveries(self) -> list[dict[str, object]]:
        """Each webhook with its attempts; see `Outbox.deliveries`."""
        return self._outbox.deliveries()

    @contextmanager
    def _causing(self) -> Iterator[None]:
        """Edit and make webhooks as one change; they leave once it has been kept."""
        with self.world.state.transaction():
            yield
        self._sender.wake()
