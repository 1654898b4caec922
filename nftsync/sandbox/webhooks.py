"""Edits and the webhooks that follow from them: their configuration, and those that wait.

A webhook is made only while the configuration is enabled, has a URL and names its type (Events 2
and 3 of the provider's document). Whether one that was made leaves is decided at each attempt: it
goes to the URL of that moment, signed with the secret of that moment, so that a rotation meets
retries as it would in the field. While the configuration is disabled, or no secret was ever set,
webhooks wait and use up no attempt; a type that is no longer chosen stops only new ones.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from nftsync.errors import InputError
from nftsync.provider.webhooks import sign
from nftsync.records import normalize_uuid
from nftsync.sandbox.world import Metadata, World, decode
from nftsync.text import visible
from nftsync.times import now, shifted

__all__ = ["Attempt", "Changes", "Sandbox", "Task", "WebhookConfig", "WebhookType"]

#: The types that can be chosen (provider's document, section Events).
WebhookType: TypeAlias = Literal[
    "payment", "transaction", "nft", "kyc", "document", "custodialAccount"
]

#: Seconds from an attempt's end to the next one. The provider's document says only that they grow
#: (section Events, 6); the figures are the sandbox's own.
RETRY_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 36_000)
_SPREAD = 0.2

#: Of the latest so many webhooks, the finished ones are still listed.
_LISTED = 20_000
_SUCCESS = 200

# Names and passwords are not part of the interface, and would show in answers.
_URL = (
    r"^[Hh][Tt][Tt][Pp][Ss]?://([A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])"
    r"(:[0-9]{1,5})?([/?#][!-~]{0,2000})?\Z"
)

#: Key/value updates, as JSON text that is kept to the character, or None.
Changes: TypeAlias = dict[str, msgspec.Raw] | None

_Name: TypeAlias = Literal["drop", "duplicate", "reorder", "corrupt", "old_secret"]

#: The faults that a script knows, for people. `drop`: never sent. `duplicate`: sent once more right
#: after its first attempt, whatever came of that. `reorder`: sent once the next webhook has been
#: tried. `corrupt`: its first attempt has a wrong signature. `old_secret`: its first attempt is
#: signed with the secret before the last change, so wrongly where there was none. `delay`: its
#: first attempt is made so much later; the time scale does not count.
FAULTS_TEXT = (
    '"drop", "duplicate", "reorder", "corrupt", "old_secret", {"delay": SECONDS} or null for none'
)


class _Delay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    delay: Annotated[float, msgspec.Meta(ge=0, le=86_400)]


_Fault: TypeAlias = _Name | _Delay | None


class _Patch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    url: Annotated[str, msgspec.Meta(pattern=_URL)] | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    shared_secret: Annotated[str, msgspec.Meta(pattern=r"\S")] | msgspec.UnsetType = msgspec.UNSET
    webhook_types: list[WebhookType] | msgspec.UnsetType = msgspec.UNSET


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where webhooks go, which, and signed with what.

    Attributes:
        url: the receiver, or None.
        enabled: whether webhooks leave at all.
        webhook_types: the chosen types.
        shared_secret: what webhooks are signed with; empty while none was set.
        previous_secret: the secret before the last change; empty when there was none.
    """

    url: str | None = None
    enabled: bool = False
    webhook_types: tuple[str, ...] = ()
    shared_secret: str = ""
    previous_secret: str = ""

    def __repr__(self) -> str:
        return f"WebhookConfig({self.shown()})"

    def shown(self) -> dict[str, object]:
        """What a PATCH is answered: all but the secrets."""
        return {"url": self.url, "enabled": self.enabled, "webhookTypes": self.webhook_types}

    @property
    def may_send(self) -> bool:
        """Whether a webhook can leave now: enabled, with a URL and a secret."""
        return self.enabled and self.url is not None and bool(self.shared_secret)

    def takes(self, webhook_type: str) -> bool:
        """Whether a webhook of this type is made now (provider's document, Events 2 and 3)."""
        return self.enabled and self.url is not None and webhook_type in self.webhook_types

    def patched(self, body: bytes) -> WebhookConfig:
        """The configuration with the fields of a PATCH's body changed.

        Raises:
            InputError: the body is no JSON object of the document's fields and types, a type is
                not allowed, the URL is not one of http or https, or the secret is blank.
        """
        given = msgspec.structs.asdict(decode(body, _Patch))
        changes = {name: value for name, value in given.items() if value is not msgspec.UNSET}
        if changes.get("shared_secret", self.shared_secret) != self.shared_secret:
            changes["previous_secret"] = self.shared_secret
        if "webhook_types" in changes:
            changes["webhook_types"] = tuple(dict.fromkeys(changes["webhook_types"]))
        return msgspec.structs.replace(self, **changes)


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    organization_id: str
    action: str
    id: str
    resource_id: str
    resource_type: str
    created_at_utc: str


class Webhook(_Event, frozen=True, rename="camel"):
    """The notification's body, with the fields in the document's order (section Webhook)."""

    changes: Changes = None


class Attempt(msgspec.Struct, rename="camel"):
    """One try to deliver.

    Attributes:
        at: when it began.
        status: the answer's HTTP status, or None when no whole answer came in time.
        error: why none came.
        ms: how long it took, in milliseconds.
        next_attempt_at: when the next is to follow, or None.
    """

    at: str
    status: int | None
    error: str | None
    ms: float
    next_attempt_at: str | None = None


class Task(NamedTuple):
    """An attempt to make: of which webhook, where to, and what."""

    id: str
    url: str
    body: bytes
    signature: str


class Sandbox:
    """The provider's state, its webhook configuration and the webhooks on their way.

    The edits here send the webhooks that follow; those of `world` send none. Which edit sends what
    is the sandbox's own (provider's document, section Events, 9: not shown). For many threads.

    Args:
        world: the provider's state.
        time_scale: what every wait is multiplied by; 0.001 makes 5 minutes 0.3 seconds.
        seed: what the waits are drawn from, each within 20 % of its figure.
        restored: whether the world is that of a state file.

    Attributes:
        world: the provider's state.
        restored: whether the world is that of a state file.
        requests: how many requests each of the provider's calls got, refused ones included, by
            kind: `balances`, `token`, `webhook_config`, or `other` for no call.
    """

    def __init__(
        self, world: World, *, time_scale: float = 1.0, seed: int = 0, restored: bool = False
    ) -> None:
        self.world = world
        self.restored = restored
        self.requests: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._state = world.state
        self._time_scale = time_scale
        self._random = Random(f"retries {seed}")  # noqa: S311 - a simulation, to be repeatable
        self._script: deque[_Fault] = deque()
        # What was under way, or waited for another one, when it ended.
        self._state.run(
            "UPDATE deliveries SET due = ?, waits_for = NULL"
            " WHERE state = 'pending' AND due IS NULL",
            now(),
        )

    def count(self, kind: str) -> None:
        """Count a request."""
        with self._counting:
            self.requests[kind] += 1

    @property
    def config(self) -> WebhookConfig:
        """The configuration now."""
        return msgspec.json.decode(self._state.facts.get("config", "{}"), type=WebhookConfig)

    def configure(self, body: bytes) -> WebhookConfig:
        """Change the configuration by a PATCH's body; see `WebhookConfig.patched`."""
        with self._state.transaction():
            config = self.config.patched(body)
            self._state.note(config=msgspec.json.encode(config).decode())
            return config

    def script(self, entries: Sequence[Any]) -> None:
        """Let the next webhooks go wrong, one entry each; it adds to what is left of earlier ones.

        Args:
            entries: each a fault as FAULTS_TEXT has it.

        Raises:
            InputError: an entry is no fault.
        """
        try:
            self._script.extend(msgspec.convert(entries, list[_Fault]))
        except msgspec.ValidationError as error:
            raise InputError(f"no script of {FAULTS_TEXT}: {visible(str(error))}") from error

    def transfer(
        self, from_wallet: str, to_wallet: str, token_id: str, amount: int | str
    ) -> list[str]:
        """Move an amount of a token: `nft`/`Wallet` for both wallets, or the one.

        The ids of these webhooks are returned; for what is refused see `World.transfer`.
        """
        with self._state.transaction():
            self.world.transfer(from_wallet, to_wallet, token_id, amount)
            wallets = dict.fromkeys((from_wallet.lower(), to_wallet.lower()))
            return [id_ for each in wallets for id_ in self.emit("nft", "Wallet", each, "update")]

    def mint(self, wallet_id: str, amount: int | str, metadata: Metadata) -> tuple[str, list[str]]:
        """Make a token: `nft`/`Token` with the action `create`, then `nft`/`Wallet`.

        The token's id and those of the webhooks are returned; see `World.mint`.
        """
        with self._state.transaction():
            token = self.world.mint(wallet_id, amount, metadata)
            made = self.emit("nft", "Token", token, "create")
            return token, made + self.emit("nft", "Wallet", wallet_id.lower(), "update")

    def edit_metadata(self, token_id: str, metadata: Metadata) -> list[str]:
        """Replace a token's metadata: `nft`/`Token`.

        The ids of these webhooks are returned; see `World.edit_metadata`.
        """
        with self._state.transaction():
            self.world.edit_metadata(token_id, metadata)
            return self.emit("nft", "Token", token_id.lower(), "update")

    def emit(
        self,
        webhook_type: WebhookType,
        resource_type: str,
        resource_id: str,
        action: str,
        changes: Changes = None,
    ) -> list[str]:
        """Make one webhook where the configuration wants one; nothing is edited.

        Args:
            webhook_type: which of the document's.
            resource_type: any text.
            resource_id: any UUID, sent as it is written.
            action: any text.
            changes: key/value updates, or None.

        Returns:
            Its id, or nothing.

        Raises:
            InputError: the id is no UUID.
        """
        normalize_uuid(resource_id, "resource id")
        if not self.config.takes(webhook_type):
            return []
        webhook = Webhook(
            self.world.organization_id,
            action,
            str(uuid.uuid4()),
            resource_id,
            resource_type,
            datetime.now(UTC).isoformat(timespec="microseconds"),
            changes,
        )
        fault = self._script.popleft() if self._script else None
        delay = timedelta(seconds=fault.delay if isinstance(fault, _Delay) else 0)
        due = None if fault in ("drop", "reorder") else shifted(now(), delay)
        run = self._state.run
        with self._state.transaction():
            [(place,)] = run(
                "INSERT INTO deliveries (id, type, body, fault, state, due, waits_for)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING place",
                webhook.id,
                webhook_type,
                msgspec.json.encode(webhook),
                msgspec.json.encode(fault).decode(),
                "dropped" if fault == "drop" else "pending",
                due,
                "" if fault == "reorder" else None,
            )
            if due is not None:
                run("UPDATE deliveries SET waits_for = ? WHERE waits_for = ''", webhook.id)
            run("DELETE FROM deliveries WHERE place < ? AND state != 'pending'", place - _LISTED)
        return [webhook.id]

    def claim(self) -> Task | None:
        """Take on the attempt that is due, if there is one that may be made now."""
        config = self.config
        if not config.may_send or config.url is None:
            return None
        rows = self._state.run(
            "UPDATE deliveries SET due = NULL WHERE place ="
            " (SELECT place FROM deliveries WHERE due <= ? ORDER BY due LIMIT 1)"
            " RETURNING id, body, fault, attempts",
            now(),
        )
        if not rows:
            return None
        webhook_id, body, fault, attempts = rows[0]
        secret, signed = config.shared_secret, body
        if attempts == "[]":
            secret = config.previous_secret if fault == '"old_secret"' else secret
            signed = body + b" " if fault == '"corrupt"' else body
        return Task(webhook_id, config.url, body, sign(secret, signed))

    def acknowledge(self, task: Task, attempt: Attempt) -> None:
        """Note how an attempt ended, and plan the next one where there is to be one."""
        run = self._state.run
        with self._state.transaction():
            [(fault, text)] = run("SELECT fault, attempts FROM deliveries WHERE id = ?", task.id)
            attempts = msgspec.json.decode(text, type=list[Attempt])
            attempts.append(attempt)
            attempt.next_attempt_at = self._next(attempts, doubled=fault == '"duplicate"')
            state = "pending"
            if attempt.next_attempt_at is None:
                delivered = any(each.status == _SUCCESS for each in attempts)
                state = "delivered" if delivered else "failed"
            run(
                "UPDATE deliveries SET attempts = ?, due = ?, state = ? WHERE id = ?",
                msgspec.json.encode(attempts).decode(),
                attempt.next_attempt_at,
                state,
                task.id,
            )
            run(
                "UPDATE deliveries SET due = ?, waits_for = NULL WHERE waits_for = ?",
                now(),
                task.id,
            )

    def _next(self, attempts: list[Attempt], *, doubled: bool) -> str | None:
        """When the next attempt is to be made."""
        failures = len(attempts) - doubled
        if doubled and len(attempts) == 1:
            wait = 0.0
        elif failures > len(RETRY_SECONDS) or any(each.status == _SUCCESS for each in attempts):
            return None
        else:
            spread = self._random.uniform(1 - _SPREAD, 1 + _SPREAD)
            wait = RETRY_SECONDS[failures - 1] * spread * self._time_scale
        return shifted(attempts[-1].at, timedelta(milliseconds=attempts[-1].ms, seconds=wait))

    def deliveries(self) -> list[dict[str, object]]:
        """Each webhook with its attempts, newest last; of the finished ones only the latest."""
        rows = self._state.run(
            "SELECT type, body, state, attempts, due FROM deliveries ORDER BY place"
        )
        return [
            msgspec.to_builtins(msgspec.json.decode(body, type=_Event))
            | {
                "type": kind,
                "state": state,
                "attempts": msgspec.json.decode(attempts),
                "nextAttemptAt": due,
            }
            for kind, body, state, attempts, due in rows
        ]
