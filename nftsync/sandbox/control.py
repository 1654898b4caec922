"""The sandbox as its callers drive it: edits and the webhooks that follow from them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TypeAlias

from nftsync.records import normalize_uuid
from nftsync.sandbox.faults import Faults
from nftsync.sandbox.inputs import Metadata
from nftsync.sandbox.outbox import Outbox
from nftsync.sandbox.sender import Sender
from nftsync.sandbox.statefile import StateFile
from nftsync.sandbox.webhook_config import WebhookConfig, check_type
from nftsync.sandbox.webhooks import Changes, Delivery, make_webhook
from nftsync.sandbox.world import World

__all__ = ["RequestCounts", "Sandbox", "open_sandbox"]

#: Makes a webhook, where the configuration wants it: type, resourceType, resourceId, action.
_Announce: TypeAlias = Callable[..., None]


class RequestCounts:
    """How many requests each of the provider's calls got, refused ones included."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, kind: str) -> None:
        """Count one request."""
        with self._lock:
            self._counts[kind] += 1

    def __getitem__(self, kind: str) -> int:
        with self._lock:
            return self._counts[kind]

    @property
    def total(self) -> int:
        """All of them."""
        with self._lock:
            return self._counts.total()

    def snapshot(self) -> dict[str, int]:
        """A copy by kind: `balances`, `token`, `webhook_config`, or `other` for no call."""
        with self._lock:
            return dict(self._counts)


class Sandbox:
    """The provider's state, its faults, and its webhooks.

    The edits here send the webhooks that follow; those of `world` send none. Which edit sends what
    is the sandbox's own (provider's document, section Events, 9: not shown).

    Args:
        world: the provider's state.
        faults: what goes wrong with answers on purpose.
        outbox: the webhooks on their way.
        state: the file that keeps all of it, which `close` closes.

    Attributes:
        world: the provider's state.
        faults: what goes wrong with answers on purpose.
        requests: how often each call came.
        restored: whether the world is that of a state file.
    """

    def __init__(
        self, world: World, faults: Faults, outbox: Outbox, state: StateFile | None = None
    ) -> None:
        self.world = world
        self.faults = faults
        self.requests = RequestCounts()
        self.restored = state is not None and not state.is_new
        self._outbox = outbox
        self._sender = Sender(outbox)
        self._state = state

    def start(self) -> None:
        """Begin to deliver; until then webhooks wait."""
        self._sender.start()

    def close(self) -> None:
        """Stop to deliver, and close the state file."""
        self._sender.close()
        if self._state is not None:
            self._state.close()

    def transfer(
        self, from_wallet: str, to_wallet: str, token_id: str, amount: int | str
    ) -> list[str]:
        """Move an amount of a token: `nft`/`Wallet` for both wallets, or the one.

        Args:
            from_wallet: see `World.transfer`.
            to_wallet: see `World.transfer`.
            token_id: see `World.transfer`.
            amount: see `World.transfer`.

        Returns:
            The ids of the webhooks that it caused.

        Raises:
            InputError: see `World.transfer`.
        """
        with self._causing() as (announce, made):
            self.world.transfer(from_wallet, to_wallet, token_id, amount)
            for wallet in dict.fromkeys((from_wallet.lower(), to_wallet.lower())):
                announce("nft", "Wallet", wallet, "update")
        return [each.id for each in made]

    def mint(self, wallet_id: str, amount: int | str, metadata: Metadata) -> tuple[str, list[str]]:
        """Make a token: `nft`/`Token` with the action `create`, then `nft`/`Wallet`.

        Args:
            wallet_id: see `World.mint`.
            amount: see `World.mint`.
            metadata: see `World.mint`.

        Returns:
            The token's id, and the ids of the webhooks.

        Raises:
            InputError: see `World.mint`.
        """
        with self._causing() as (announce, made):
            token = self.world.mint(wallet_id, amount, metadata)
            announce("nft", "Token", token, "create")
            announce("nft", "Wallet", wallet_id.lower(), "update")
        return token, [each.id for each in made]

    def edit_metadata(self, token_id: str, metadata: Metadata) -> list[str]:
        """Replace a token's metadata: `nft`/`Token`.

        Args:
            token_id: see `World.edit_metadata`.
            metadata: see `World.edit_metadata`.

        Returns:
            The ids of the webhooks that it caused.

        Raises:
            InputError: see `World.edit_metadata`.
        """
        with self._causing() as (announce, made):
            self.world.edit_metadata(token_id, metadata)
            announce("nft", "Token", token_id.lower(), "update")
        return [each.id for each in made]

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
        check_type(webhook_type)
        normalize_uuid(resource_id, "resource id")
        with self._causing() as (announce, made):
            announce(webhook_type, resource_type, resource_id, action, changes)
        return [each.id for each in made]

    def configure(self, body: bytes) -> WebhookConfig:
        """Change the webhook configuration by a PATCH's body; see `WebhookConfig.patched`."""
        return self._outbox.configure(body)

    def script(self, entries: Sequence[object]) -> None:
        """Let the next webhooks go wrong; see `Outbox.script`."""
        self._outbox.script(entries)

    def deliveries(self) -> list[dict[str, object]]:
        """Each webhook with its attempts; see `Outbox.deliveries`."""
        return self._outbox.deliveries()

    @contextmanager
    def _causing(self) -> Iterator[tuple[_Announce, list[Delivery]]]:
        """Edit and make webhooks as one change; they leave once it has been kept."""
        made: list[Delivery] = []

        def announce(
            webhook_type: str,
            resource_type: str,
            resource_id: str,
            action: str,
            changes: Changes = None,
        ) -> None:
            webhook = make_webhook(
                self.world.organization_id,
                resource_type=resource_type,
                resource_id=resource_id,
                action=action,
                changes=changes,
            )
            delivery = self._outbox.make(webhook_type, webhook)
            if delivery is not None:
                made.append(delivery)

        with self.world.editing():
            yield announce, made
        self._outbox.put(made)


def open_sandbox(
    world: World | Callable[[], World],
    *,
    faults: Faults,
    time_scale: float = 1.0,
    state: str | PathLike[str] | None = None,
    seed: int = 0,
) -> Sandbox:
    """Put a sandbox together, from its state file where there is one with a world.

    Args:
        world: the provider's state, or what makes it; neither counts where the file has one.
        faults: what goes wrong with answers on purpose.
        time_scale: see `RetrySchedule`.
        state: a file that keeps the world, the webhook configuration and the undelivered webhooks
            over restarts; None keeps nothing.
        seed: see `RetrySchedule`.

    Raises:
        InputError: the state file cannot be used, the world not be made, or the time scale is out
            of its range.
        StoreError: the state file cannot be written.
    """
    if state is None:
        made = world if isinstance(world, World) else world()
        return Sandbox(made, faults, Outbox(time_scale=time_scale, seed=seed))
    file = StateFile(state)
    try:
        if file.is_new:
            made = world if isinstance(world, World) else world()
            file.begin(made)
        else:
            made = file.world()
        outbox = Outbox(
            journal=file,
            config=file.config(),
            waiting=file.waiting(),
            time_scale=time_scale,
            seed=seed,
        )
    except BaseException:
        file.close()
        raise
    made.tell(file)
    return Sandbox(made, faults, outbox, file)
