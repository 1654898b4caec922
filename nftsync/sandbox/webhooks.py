"""The sandbox's webhooks.

A webhook is created only if the configuration is enabled, has a URL and allows its type (provider's
document, Events 2 and 3). Without an enabled configuration or a secret, webhooks wait.
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
from heapq import heapify, heappop, heappush
from itertools import count, islice
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


class ClaimedWebhook(NamedTuple):
    """An attempt to send a webhook."""

    place: int
    url: str
    body: bytes
    signature: str


class Sandbox:
    """The provider's world, webhook configuration and queued webhooks; safe for many threads.

    Edits here send webhooks and return their ids; edits of `world` send none (provider's document,
    Events, 9: not shown). `time_scale` multiplies waits between attempts, `seed` decides their
    jitter, and `script` holds a fault for each of the next webhooks.
    """

    def __init__(self, world: World, *, time_scale: float = 1.0, seed: int = 0) -> None:
        self.world = world
        self.script: deque[Fault] = deque()
        self._state = world.state
        self._time_scale = time_scale
        self._random = Random(f"retries {seed}")  # noqa: S311 - a simulation, to be repeatable
        stored = {int(place): delivery for place, delivery in self._state["deliveries"].items()}
        self._places = count(max(stored, default=0) + 1)
        # After a restart, reordered webhooks are due, too.
        self._due = [(x["due"] or now(), n) for n, x in stored.items() if x["state"] == "pending"]
        heapify(self._due)
        self._reordered: deque[int] = deque()

    @property
    def config(self) -> dict[str, Any]:
        """The current configuration, with the secret and the previous secret."""
        stored: dict[str, Any] = self._state["facts"].get("config", {})
        return {"url": None, "enabled": False, "webhookTypes": [], **_NO_SECRETS} | stored

    def configure(self, body: bytes) -> dict[str, Any]:
        """Apply a PATCH body; return the configuration without secrets."""
        patch: dict[str, Any] = msgspec.to_builtins(decode(body, _Patch))
        # Responses would show a user name or password.
        if "url" in patch and ("@" in patch["url"] or http_url(patch["url"]) is None):
            raise InputError("url: not an http or https URL, or it has a user name or password")
        with self._state.transaction():
            before = self.config
            if patch.get("sharedSecret", before["sharedSecret"]) != before["sharedSecret"]:
                patch["previousSecret"] = before["sharedSecret"]
            config = before | patch
            self._state.put("facts", "config", value=config)
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
        """See `World.mint`; queue `nft`/`Token` and `nft`/`Wallet`."""
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

        `resource_id` is any UUID, sent as written.
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
        fault = self.script.popleft() if self.script else None
        delay = fault.get("delay", 0) if isinstance(fault, dict) else 0
        name = fault if isinstance(fault, str) else None
        due = None if name in {"drop", "reorder"} else shifted(now(), timedelta(seconds=delay))
        delivery: dict[str, object] = {
            "event": {**event, "type": webhook_type},
            "body": msgspec.json.encode({**event, "changes": changes}).decode(),
            "fault": name,
            "state": "dropped" if name == "drop" else "pending",
            "attempts": [],
            "due": due,
        }
        with self._state.transaction():
            for place in islice(self._places, 2 if name == "duplicate" else 1):
                self._state.put("deliveries", str(place), value=delivery)
                if due is not None:
                    heappush(self._due, (due, place))
                elif name == "reorder":
                    self._reordered.append(place)
        return [webhook_id]

    def claim(self) -> ClaimedWebhook | None:
        config = self.config
        is_ready = config["enabled"] and config["url"] and config["sharedSecret"]
        with self._state.lock:
            if not (is_ready and self._due and self._due[0][0] <= now()):
                return None
            _, place = heappop(self._due)
            delivery = self._state["deliveries"].get(str(place))
        if delivery is None:  # its edit could not be stored
            return None
        fault = None if delivery["attempts"] else delivery["fault"]
        body = delivery["body"].encode()
        secret = config["previousSecret" if fault == "old_secret" else "sharedSecret"]
        signature = sign(secret, body + b" " if fault == "corrupt" else body)
        return ClaimedWebhook(place, config["url"], body, signature)

    def acknowledge(
        self, task: ClaimedWebhook, at: str, status: int | None, error: str | None, ms: float
    ) -> None:
        """Store an attempt's outcome, and schedule the next one if necessary."""
        with self._state.lock:
            delivery = self._state["deliveries"][str(task.place)]
            due, attempts = None, delivery["attempts"]
            if status != _SUCCESS and len(attempts) < len(RETRY_SECONDS):
                jitter = self._random.uniform(1 - _JITTER, 1 + _JITTER)
                wait = RETRY_SECONDS[len(attempts)] * jitter * self._time_scale
                due = shifted(at, timedelta(milliseconds=ms, seconds=wait))
            state = "delivered" if status == _SUCCESS else "failed" if due is None else "pending"
            made = {"at": at, "status": status, "error": error, "ms": ms, "nextAttemptAt": due}
            changed = {"attempts": [*attempts, made], "due": due, "state": state}
            self._state.put("deliveries", str(task.place), value=delivery | changed)
            if due is not None:
                heappush(self._due, (due, task.place))
            while self._reordered and self._reordered[0] < task.place:
                heappush(self._due, (now(), self._reordered.popleft()))

    def deliveries(self) -> list[dict[str, Any]]:
        return [
            x["event"] | {"state": x["state"], "attempts": x["attempts"], "nextAttemptAt": x["due"]}
            for x in list(self._state["deliveries"].values())
        ]


class Sender:
    """Thread that sends due webhooks until `close`; `on_broken` gets the exception that ends it."""

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

    async def _attempt(self, client: httpx.AsyncClient, task: ClaimedWebhook) -> None:
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
