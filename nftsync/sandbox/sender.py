"""The thread that sends webhooks: so many attempts at once, each with 3 seconds as a whole."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import httpx

from nftsync.errors import StoreError
from nftsync.provider.webhooks import HEADER
from nftsync.sandbox.webhooks import Sandbox, Task
from nftsync.threads import start_thread
from nftsync.times import now

#: So long the receiver may take (provider's document, section Limits).
_ATTEMPT_SECONDS = 3.0
#: So many attempts at once: a receiver that lets some of them wait does not hold up the others.
_AT_ONCE = 16
#: From one look at what is due to the next; a look costs some 50 µs.
_LOOK_SECONDS = 0.005
#: Shorter than what receivers keep idle connections for: one that is just being closed by the other
#: side would cost an attempt.
_IDLE_SECONDS = 2.0


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
