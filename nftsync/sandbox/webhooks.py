"""Edits of the sandbox and the webhooks they cause: configuration, queue and sender.

A webhook is made only while the configuration is enabled, has a URL and names its type (Events 2
and 3 of the provider's document). Whether one that was made leaves is decided at each attempt: it
goes to the URL of that moment, signed with the secret of that moment, so that a rotation meets
retries as it would in the field. While the configuration is disabled, or no secret was ever set,
webhooks wait and use up no attempt; a type that is no longer chosen stops only new ones.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import httpx
import msgspec

from nftsync.errors import InputError, StoreError
from nftsync.provider.webhooks import HEADER, sign
from nftsync.records import normalize_uuid
from nftsync.sandbox.world import World, decode
from nftsync.text import http_url
from nftsync.threads import start_thread
from nftsync.times import now, shifted

#: The types that can be chosen (provider's document, section Events).
WebhookType: TypeAlias = Literal[
    "payment", "transaction", "nft", "kyc", "document", "custodialAccount"
]

#: Seconds from an attempt's end to the next one. The provider's document says only that they grow
#: (section Events, 6); the figures are the sandbox's own.
RETRY_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 36_000)
_SPREAD = 0.2

_SUCCESS = 200
#: So long the receiver may take (provider's document, section Limits).
_ATTEMPT_SECONDS = 3.0
#: So many attempts at once: a receiver that lets some of them wait does not hold up the others.
_AT_ONCE = 16
#: From one look at what is due to the next; a look costs some 50 µs.
_LOOK_SECONDS = 0.005
#: Shorter than what receivers keep idle connections for: one that is just being closed by the other
#: side would cost an attempt.
_IDLE_SECONDS = 2.0

#: Key/value updates, as JSON text that is kept to the character, or None.
Changes: TypeAlias = dict[str, msgspec.Raw] | None

#: How a webhook goes wrong. `drop`: it is never sent. `duplicate`: it is sent twice. `reorder`: it
#: is sent once a later one has been tried. `corrupt`: its first attempt has a wrong
#: signature. `old_secret`: its first attempt is signed with the secret before the last change, so
#: wrongly where there was none. `delay`: its first attempt is made so many seconds later, whatever
#: the time scale.
Fault: TypeAlias = (
    Literal["drop", "duplicate", "reorder", "corrupt", "old_secret"]
    | dict[Literal["delay"], Annotated[float, msgspec.Meta(ge=0, le=86_400)]]
    | None
)
_NO_SECRETS = {"sharedSecret": "", "previousSecret": ""}


class _Patch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    url: Annotated[str, msgspec.Meta(max_length=2_000)] | msgspec.UnsetType = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    shared_secret: Annotated[str, msgspec.Meta(pattern=r"\S")] | msgspec.UnsetType = msgspec.UNSET
    webhook_types: list[WebhookType] | msgspec.UnsetType = msgspec.UNSET


class Task(NamedTuple):
    """An attempt to make: of which webhook, where to, what, and what came of those before it."""

    place: int
    url: str
    body: bytes
    signature: str
    attempts: list[dict[str, object]]


class Sandbox:
    """The provider's state, its webhook configuration and the webhooks on their way.

    The edits here send the webhooks that follow; those of `world` send none. Which edit sends what
    is the sandbox's own (provider's document, section Events, 9: not shown). For many threads.

    Args:
        world: the provider's state.
        time_scale: what every wait is multiplied by; 0.001 makes 5 minutes 0.3 seconds.
        seed: what the waits are drawn from, each within 20 % of its figure.

    Attributes:
        world: the provider's state.
        script: what happens to the next webhooks, one entry each.
    """

    def __init__(self, world: World, *, time_scale: float = 1.0, seed: int = 0) -> None:
        self.world = world
        self.script: deque[Fault] = deque()
        self._state = world.state
        self._time_scale = time_scale
        self._random = Random(f"retries {seed}")  # noqa: S311 - a simulation, to be repeatable
        # What was under way, or waited for another one, when it ended.
        self._state.run(
            "UPDATE deliveries SET due = ?, fault = nullif(fault, 'reorder')"
            " WHERE state = 'pending' AND due IS NULL",
            now(),
        )

    @property
    def config(self) -> dict[str, Any]:
        """The webhook configuration now, with the secret and the one before it."""
        noted: dict[str, Any] = msgspec.json.decode(self._state.facts.get("config", "{}"))
        return {"url": None, "enabled": False, "webhookTypes": [], **_NO_SECRETS} | noted

    def configure(self, body: bytes) -> dict[str, Any]:
        """Change the configuration by a PATCH's body, and give it without its secrets.

        Raises:
            InputError: the body is no JSON object of the document's fields and types, a type is
                not allowed, the URL is not one of http or https, or the secret is blank.
        """
        given: dict[str, Any] = msgspec.to_builtins(decode(body, _Patch))
        # Names and passwords are not part of the interface, and would show in answers.
        if "url" in given and ("@" in given["url"] or http_url(given["url"]) is None):
            raise InputError("url: it is no http or https URL, or has a user name or password")
        with self._state.transaction():
            before = self.config
            if given.get("sharedSecret", before["sharedSecret"]) != before["sharedSecret"]:
                given["previousSecret"] = before["sharedSecret"]
            config = before | given
            self._state.note(config=msgspec.json.encode(config).decode())
        return {name: config[name] for name in ("url", "enabled", "webhookTypes")}

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

    def mint(
        self, wallet_id: str, amount: int | str, metadata: Mapping[str, object]
    ) -> tuple[str, list[str]]:
        """Make a token: `nft`/`Token` with the action `create`, then `nft`/`Wallet`.

        The token's id and those of the webhooks are returned; see `World.mint`.
        """
        with self._state.transaction():
            token = self.world.mint(wallet_id, amount, metadata)
            made = self.emit("nft", "Token", token, "create")
            return token, made + self.emit("nft", "Wallet", wallet_id.lower(), "update")

    def edit_metadata(self, token_id: str, metadata: Mapping[str, object]) -> list[str]:
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
        config, run = self.config, self._state.run
        if not (config["enabled"] and config["url"] and webhook_type in config["webhookTypes"]):
            return []
        # The fields in the document's order (section Webhook).
        event: dict[str, object] = {
            "organizationId": self.world.organization_id,
            "action": action,
            "id": (webhook_id := str(uuid.uuid4())),
            "resourceId": resource_id,
            "resourceType": resource_type,
            "createdAtUtc": datetime.now(UTC).isoformat(timespec="microseconds"),
        }
        body = msgspec.json.encode({**event, "changes": changes})
        listed = msgspec.json.encode({**event, "type": webhook_type}).decode()
        fault = self.script.popleft() if self.script else None
        delay = fault.get("delay", 0) if isinstance(fault, dict) else 0
        name = fault if isinstance(fault, str) else None
        state = "dropped" if name == "drop" else "pending"
        due = None if name in {"drop", "reorder"} else shifted(now(), timedelta(seconds=delay))
        with self._state.transaction():
            for _ in range(2 if name == "duplicate" else 1):
                new = "INSERT INTO deliveries VALUES (NULL, ?, ?, ?, ?, '[]', ?)"
                run(new, listed, body, name, state, due)
        return [webhook_id]

    def claim(self) -> Task | None:
        """Take on the attempt that is due, if there is one that may be made now."""
        config = self.config
        if not (config["enabled"] and config["url"] and config["sharedSecret"]):
            return None
        rows = self._state.run(
            "UPDATE deliveries SET due = NULL WHERE place ="
            " (SELECT place FROM deliveries WHERE due <= ? ORDER BY due LIMIT 1)"
            " RETURNING place, body, attempts, iif(attempts = '[]', fault, NULL)",
            now(),
        )
        for place, body, attempts, fault in rows:
            secret = config["previousSecret" if fault == "old_secret" else "sharedSecret"]
            signature = sign(secret, body + b" " if fault == "corrupt" else body)
            return Task(place, config["url"], body, signature, msgspec.json.decode(attempts))
        return None

    def acknowledge(
        self, task: Task, at: str, status: int | None, error: str | None, ms: float
    ) -> None:
        """Note how an attempt ended, and plan the next one where there is to be one.

        Args:
            task: the attempt.
            at: when it began.
            status: the answer's HTTP status, or None when no whole answer came in time.
            error: why none came.
            ms: how long it took, in milliseconds.
        """
        due, before = None, len(task.attempts)
        if status != _SUCCESS and before < len(RETRY_SECONDS):
            spread = self._random.uniform(1 - _SPREAD, 1 + _SPREAD)
            wait = RETRY_SECONDS[before] * spread * self._time_scale
            due = shifted(at, timedelta(milliseconds=ms, seconds=wait))
        state = "delivered" if status == _SUCCESS else "failed" if due is None else "pending"
        made = {"at": at, "status": status, "error": error, "ms": ms, "nextAttemptAt": due}
        attempts = msgspec.json.encode([*task.attempts, made]).decode()
        tried = "UPDATE deliveries SET attempts = ?, due = ?, state = ? WHERE place = ?"
        release = (
            "UPDATE deliveries SET fault = NULL, due = ? WHERE fault = 'reorder' AND place < ?"
        )
        with self._state.transaction():
            self._state.run(tried, attempts, due, state, task.place)
            self._state.run(release, now(), task.place)

    def deliveries(self) -> list[dict[str, Any]]:
        """Each webhook with its attempts, newest last."""
        rows = self._state.run("SELECT event, state, attempts, due FROM deliveries ORDER BY place")
        return [
            msgspec.json.decode(event)
            | {"state": state, "attempts": msgspec.json.decode(attempts), "nextAttemptAt": due}
            for event, state, attempts, due in rows
        ]


class Sender:
    """Sends what is due in a sandbox, in a thread of its own, until `close`.

    Args:
        sandbox: whose webhooks.
        on_broken: called once, in that thread, with the unexpected exception that ends it; from
            then on nothing is sent. If None, it is only logged.
    """

    def __init__(
        self, sandbox: Sandbox, on_broken: Callable[[Exception], object] | None = None
    ) -> None:
        self._sandbox = sandbox
        self._ended = threading.Event()
        self._thread = start_thread("sender", lambda: asyncio.run(self._send()), on_broken)

    def close(self) -> None:
        """Cut off the attempts under way, which are made again after a restart, and end."""
        self._ended.set()
        self._thread.join()

    async def _send(self) -> None:
        limits = httpx.Limits(max_connections=_AT_ONCE, keepalive_expiry=_IDLE_SECONDS)
        under_way: set[asyncio.Task[None]] = set()
        async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:  # noqa: S113 - each request has one
            try:
                while not self._ended.is_set():
                    task = None
                    with suppress(StoreError):  # the disk is full: edits are answered so
                        task = self._sandbox.claim() if len(under_way) < _AT_ONCE else None
                    if task is not None:
                        under_way.add(asyncio.create_task(self._attempt(client, task)))
                    for attempt in [attempt for attempt in under_way if attempt.done()]:
                        under_way.discard(attempt)
                        attempt.result()
                    await asyncio.sleep(0 if task is not None else _LOOK_SECONDS)
            finally:
                for attempt in under_way:
                    attempt.cancel()
                await asyncio.gather(*under_way, return_exceptions=True)

    async def _attempt(self, client: httpx.AsyncClient, task: Task) -> None:
        began, at, status, error = time.monotonic(), now(), None, None
        trace = secrets.token_hex(16)
        headers = {  # as the document lists them (section Webhook delivery)
            "content-type": "application/json; charset=utf-8",
            HEADER: task.signature,
            "traceparent": f"00-{trace}-{trace[:16]}-00",
            "request-id": f"|{trace}.{trace[:16]}.",
            "request-context": "appId=cid-v1:nftsync-sandbox",
        }
        try:
            async with asyncio.timeout(_ATTEMPT_SECONDS):
                response = await client.post(task.url, content=task.body, headers=headers)
            status = response.status_code
        except TimeoutError:
            error = f"no whole answer within {_ATTEMPT_SECONDS:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as failure:
            error = f"no answer: {failure}"
        with suppress(StoreError):  # it is made again after a restart
            took = round((time.monotonic() - began) * 1000, 3)
            self._sandbox.acknowledge(task, at, status, error, took)
