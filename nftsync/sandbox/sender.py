"""The thread that sends webhooks: so many attempts at once, each with 3 seconds as a whole."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from contextlib import suppress

import httpx

from nftsync.errors import StoreError
from nftsync.provider.webhooks import HEADER
from nftsync.sandbox.webhooks import Attempt, Outbox, Task
from nftsync.times import now

__all__ = ["Sender"]

#: So long the receiver may take (provider's document, section Limits).
ATTEMPT_SECONDS = 3.0
#: So many attempts at once: a receiver that lets some of them wait does not hold up the others.
_AT_ONCE = 16
#: Shorter than what receivers keep idle connections for: one that is just being closed by the other
#: side would cost an attempt.
_IDLE_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Sender:
    """Sends what is due in an outbox, in a thread of its own, from `start` until `close`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nftsync-sender", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._sending: asyncio.Task[None] | None = None
        self._changed: asyncio.Event

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()
        self._began.wait()

    def wake(self) -> None:
        """Look again at what is due; for any thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._changed.set)

    def close(self) -> None:
        """Cut off the attempts under way, which are made again after a restart, and end."""
        if self._thread.is_alive() and self._sending is not None:
            self._loop.call_soon_threadsafe(self._sending.cancel)
            self._thread.join()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._send())

    async def _send(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._sending = asyncio.current_task()
        limits = httpx.Limits(max_connections=_AT_ONCE, keepalive_expiry=_IDLE_SECONDS)
        free = asyncio.Semaphore(_AT_ONCE)
        async with (
            httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client,  # noqa: S113
            asyncio.TaskGroup() as attempts,
        ):
            self._began.set()
            while True:
                await free.acquire()
                attempt = attempts.create_task(self._attempt(client, await self._due()))
                attempt.add_done_callback(lambda _: free.release())

    async def _due(self) -> Task:
        while True:
            self._changed.clear()
            try:
                if (task := self._outbox.claim()) is not None:
                    return task
                seconds = self._outbox.seconds_to_next()
            except StoreError as error:
                _log.error("%s", error)
                seconds = 1.0
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()

    async def _attempt(self, client: httpx.AsyncClient, task: Task) -> None:
        began, at, status, error = time.monotonic(), now(), None, None
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                answer = await client.post(
                    task.url, content=task.body, headers=_headers(task.signature)
                )
            status = answer.status_code
        except TimeoutError:
            error = f"no whole answer within {ATTEMPT_SECONDS:g} s"
        except (httpx.ConnectError, httpx.InvalidURL, UnicodeError) as failure:
            error = f"no connection: {failure}"
        except httpx.HTTPError as failure:
            error = f"the connection broke: {failure}"
        took = round((time.monotonic() - began) * 1000, 3)
        try:
            self._outbox.settle(task, Attempt(at, status, error, took))
        except StoreError as unkept:
            # It is made again after a restart.
            _log.error("%s", unkept)
        self._changed.set()


def _headers(signature: str) -> dict[str, str]:
    """Those that the document lists (section Webhook delivery); transport ones are made up."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return {
        "content-type": "application/json; charset=utf-8",
        HEADER: signature,
        "traceparent": f"00-{trace}-{span}-00",
        "request-id": f"|{trace}.{span}.",
        "request-context": "appId=cid-v1:nftsync-sandbox",
    }
