"""The sandbox's webhooks.

A webhook is created only if the configuration is enabled, has a URL and allows its type (provider's
document, Events 2 and 3). Each attempt uses the current URL and secret. Without an enabled
configuration or a secret, webhooks wait and use no attempts. Removing a type stops only new
webhooks.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
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
from nftsync.provider.webhooks import HEADER, WebhookType, sign
from nftsync.records import normalize_uuid
from nftsync.sandbox.world import World, decode
from nftsync.text import http_url, visible
from nftsync.threads import start_thread
from nftsync.times import now, shifted

#: Seconds from the end of an attempt to the next. The provider's document says only that they grow
#: (section Events, 6).
RETRY_SECONDS = (5, 300, 1800, 7200, 18_000, 36_000, 36_000)
_JITTER = 0.2

_log = logging.getLogger("nftsync.sandbox")

_SUCCESS = 200
#: The receiver's time limit (provider's document, section Limits).
_ATTEMPT_SECONDS = 3.0
#: Concurrent attempts, so that slow ones do not delay the others.
_AT_ONCE = 16
#: Seconds between queries for due attempts; a query takes some 50 µs.
_POLL_SECONDS = 0.005
#: Shorter than receivers keep connections: a request on a closing connection costs an attempt.
_IDLE_SECONDS = 2.0

#: Key/value updates as unchanged JSON text, or None.
Changes: TypeAlias = dict[str, msgspec.Raw] | None

#: A webhook's fault. `drop`: never sent. `duplicate`: sent twice. `reorder`: sent after an attempt
#: of a later webhook. The others change the first attempt only. `corrupt`: wrong signature.
#: `old_secret`: signed with the previous secret, which may be missing. `delay`: seconds later, at
#: any time scale.
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
    """An attempt to send a webhook, and the earlier attempts."""

    place: int
    url: str
    body: bytes
    signature: str
    attempts: list[dict[str, object]]


class Sandbox:
    """The provider's world, webhook configuration and queued webhooks; safe for many threads.

    Edits here send webhooks and return their ids; edits of `world` send none (provider's document,
    Events, 9: not shown).

    `time_scale` multiplies waits between attempts. `seed` decides their jitter, within 20 % of
    RETRY_SECONDS.
    `script` holds faults for the next webhooks, one entry each.
    """

    def __init__(self, world: World, *, time_scale: float = 1.0, seed: int = 0) -> None:
        self.world = world
        self.script: deque[Fault] = deque()
        self._state = world.state
        self._time_scale = time_scale
        self._random = Random(f"retries {seed}")  # noqa: S311 - a simulation, to be repeatable
        # Attempts that were in progress, or reordered, when the sandbox ended.
        self._state.run(
            "UPDATE deliveries SET due = ?, fault = nullif(fault, 'reorder')"
            " WHERE state = 'pending' AND due IS NULL",
            now(),
        )

    @property
    def config(self) -> dict[str, Any]:
        """The current webhook configuration, with the secret and the previous secret."""
        stored: dict[str, Any] = msgspec.json.decode(self._state.facts.get("config", "{}"))
        return {"url": None, "enabled": False, "webhookTypes": [], **_NO_SECRETS} | stored

    def configure(self, body: bytes) -> dict[str, Any]:
        """Apply a PATCH body, and return the configuration without secrets."""
        patch: dict[str, Any] = msgspec.to_builtins(decode(body, _Patch))
        # Responses would show a user name or password.
        if "url" in patch and ("@" in patch["url"] or http_url(patch["url"]) is None):
            raise InputError("url: not an http or https URL, or it has a user name or password")
        with self._state.transaction():
            before = self.config
            if patch.get("sharedSecret", before["sharedSecret"]) != before["sharedSecret"]:
                patch["previousSecret"] = before["sharedSecret"]
            config = before | patch
            self._state.note(config=msgspec.json.encode(config).decode())
        return {name: config[name] for name in ("url", "enabled", "webhookTypes")}

    def transfer(
        self, from_wallet: str, to_wallet: str, token_id: str, amount: int | str
    ) -> list[str]:
        """See `World.transfer`; queue `nft`/`Wallet` for each wallet."""
        with self._state.transaction():
            self.world.transfer(from_wallet, to_wallet, token_id, amount)
            wallets = dict.fromkeys((from_wallet.lower(), to_wallet.lower()))
            return [id_ for x in wallets for id_ in self.emit("nft", "Wallet", x, "update")]

    def mint(
        self, wallet_id: str, amount: int | str, metadata: Mapping[str, object]
    ) -> tuple[str, list[str]]:
        """Mint a token, queue `nft`/`Token` and `nft`/`Wallet`; return its id and the webhooks'."""
        with self._state.transaction():
            token = self.world.mint(wallet_id, amount, metadata)
            made = self.emit("nft", "Token", token, "create")
            return token, made + self.emit("nft", "Wallet", wallet_id.lower(), "update")

    def edit_metadata(self, token_id: str, metadata: Mapping[str, object]) -> list[str]:
        """See `World.edit_metadata`; queue `nft`/`Token`."""
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
        """Queue one webhook, without an edit; return its id if the configuration allows it.

        `resource_id` is any UUID, sent as written; the other texts may be anything.
        """
        normalize_uuid(resource_id, "resource id")
        config = self.config
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
        new = "INSERT INTO deliveries VALUES (NULL, ?, ?, ?, ?, '[]', ?)"
        rows = [(listed, body, name, state, due)] * (2 if name == "duplicate" else 1)
        self._state.run_many(new, rows)
        return [webhook_id]

    def claim(self) -> Task | None:
        """Start a due attempt; None: nothing is due, or the configuration forbids it."""
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
        """Store an attempt's outcome and duration, and schedule the next attempt if necessary.

        Without a status, `error` is the reason that no complete response came.
        """
        due, before = None, len(task.attempts)
        if status != _SUCCESS and before < len(RETRY_SECONDS):
            jitter = self._random.uniform(1 - _JITTER, 1 + _JITTER)
            wait = RETRY_SECONDS[before] * jitter * self._time_scale
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
        """Return each webhook with its attempts, newest last."""
        rows = self._state.run("SELECT event, state, attempts, due FROM deliveries ORDER BY place")
        return [
            msgspec.json.decode(event)
            | {"state": state, "attempts": msgspec.json.decode(attempts), "nextAttemptAt": due}
            for event, state, attempts, due in rows
        ]


class Sender:
    """Thread that sends a sandbox's due webhooks until `close`.

    The thread calls `on_broken` once with an unexpected exception that ends it; None: only log.
    """

    def __init__(
        self, sandbox: Sandbox, on_broken: Callable[[Exception], object] | None = None
    ) -> None:
        self._sandbox = sandbox
        self._logged: set[tuple[str, str]] = set()
        self._ended = threading.Event()
        self._thread = start_thread("sender", lambda: asyncio.run(self._send()), on_broken)

    def close(self) -> None:
        """Abandon running attempts, which a restart repeats, and end."""
        self._ended.set()
        self._thread.join()

    async def _send(self) -> None:
        limits = httpx.Limits(max_connections=_AT_ONCE, keepalive_expiry=_IDLE_SECONDS)
        running: set[asyncio.Task[None]] = set()
        tls = ssl.create_default_context()  # trusts SSL_CERT_FILE
        async with httpx.AsyncClient(limits=limits, trust_env=False, verify=tls) as client:
            try:
                while not self._ended.is_set():
                    task = None
                    with suppress(StoreError):  # with a full disk, edits report it
                        task = self._sandbox.claim() if len(running) < _AT_ONCE else None
                    if task is not None:
                        running.add(asyncio.create_task(self._attempt(client, task)))
                    for attempt in [attempt for attempt in running if attempt.done()]:
                        running.discard(attempt)
                        attempt.result()
                    await asyncio.sleep(0 if task is not None else _POLL_SECONDS)
            finally:
                for attempt in running:
                    attempt.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def _attempt(self, client: httpx.AsyncClient, task: Task) -> None:
        began, at, status, error = time.monotonic(), now(), None, None
        trace = secrets.token_hex(16)
        headers = {  # provider's document, section Webhook delivery
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
            error = f"no complete response within {_ATTEMPT_SECONDS:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as failure:
            error = f"no response: {failure}"
        reason = error or f"it answered {status}"
        if status != _SUCCESS and (task.url, reason) not in self._logged:
            self._logged.add((task.url, reason))
            trust = "; to trust it, set SSL_CERT_FILE" if "CERTIFICATE_" in reason else ""
            _log.warning("cannot deliver webhooks to %s: %s%s", task.url, visible(reason), trust)
        with suppress(StoreError):  # repeated after a restart
            took = round((time.monotonic() - began) * 1000, 3)
            self._sandbox.acknowledge(task, at, status, error, took)
