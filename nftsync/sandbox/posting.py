"""One attempt to deliver a webhook: a POST out and an answer back, all within 3 seconds.

httpcore is what httpx sends with. It follows no redirect and reads no proxy from the environment,
and lets every wait for bytes end with the attempt.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import httpcore

from nftsync.errors import Stopped
from nftsync.provider import timed_socket
from nftsync.provider.webhooks import HEADER
from nftsync.sandbox.webhooks import Attempt

__all__ = ["ATTEMPT_SECONDS", "Poster"]

#: So long the receiver may take (provider's document, section Limits).
ATTEMPT_SECONDS = 3.0

#: So much of an answer's body is read; its connection is closed where there is more.
_ANSWER_BYTES = 64 * 1024
#: Shorter than what receivers keep idle connections for: one that is just being closed by the other
#: side would cost an attempt.
_IDLE_SECONDS = 2.0
_FAILURES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


class Poster:
    """A kept-alive connection to the receiver, for one thread.

    Looking up the receiver's name is not part of the 3 seconds.

    Args:
        stopped: once it is set, the attempt under way is cut off.
    """

    def __init__(self, stopped: threading.Event) -> None:
        self._attempt = timed_socket.Attempt(stopped)
        self._pool = httpcore.ConnectionPool(
            max_connections=1,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=timed_socket.TimedBackend(self._attempt),
        )

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def post(self, url: str, body: bytes, signature: str) -> Attempt | None:
        """Make one attempt.

        Args:
            url: the receiver's, already checked.
            body: the webhook's bytes.
            signature: what the header carries.

        Returns:
            How it ended; None when it was cut off by the stop event. The receiver may have the
            webhook even so.
        """
        began, at = time.monotonic(), datetime.now(UTC)
        self._attempt.deadline = began + ATTEMPT_SECONDS
        status: int | None = None
        error: str | None = None
        try:
            status = self._status(url, body, _headers(signature))
        except Stopped:
            return None
        except _FAILURES as failure:
            error = _say(failure)
        return Attempt(at, status, error, round((time.monotonic() - began) * 1000, 3))

    def _status(self, url: str, body: bytes, headers: Mapping[bytes | str, bytes | str]) -> int:
        with self._pool.stream("POST", url, headers=headers, content=body) as response:
            size = 0
            for chunk in response.iter_stream():
                size += len(chunk)
                if size > _ANSWER_BYTES:
                    break
            return response.status


def _headers(signature: str) -> dict[bytes | str, bytes | str]:
    """Those that the document lists (section Webhook delivery); transport ones are made up."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return {
        "Content-Type": "application/json; charset=utf-8",
        HEADER: signature,
        "traceparent": f"00-{trace}-{span}-00",
        "request-id": f"|{trace}.{span}.",
        "request-context": "appId=cid-v1:nftsync-sandbox",
    }


def _say(failure: Exception) -> str:
    if isinstance(failure, httpcore.TimeoutException):
        return f"no whole answer within {ATTEMPT_SECONDS:g} s"
    text = str(failure) or type(failure).__name__
    if isinstance(failure, httpcore.ConnectError):
        return f"no connection: {text}"
    return f"the connection broke: {text}"
