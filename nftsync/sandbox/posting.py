"""One attempt to deliver a webhook: a POST out and an answer back, all within 3 seconds.

httpcore is what httpx sends with. It follows no redirect and reads no proxy from the environment,
and lets every wait for bytes end with the attempt.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import httpcore

from nftsync.sandbox.webhooks import Attempt
from nftsync.signature import HEADER

__all__ = ["ATTEMPT_SECONDS", "Poster"]

#: So long the receiver may take (provider's document, section Limits).
ATTEMPT_SECONDS = 3.0

#: How long a wait for bytes may go on after the stop event was set, in seconds.
_SLICE = 0.25
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


class _Stopped(Exception):
    pass


class _Limit:
    """When the attempt under way must be over."""

    def __init__(self, stopped: threading.Event) -> None:
        self.deadline = 0.0
        self._stopped = stopped

    def left(self) -> float:
        if self._stopped.is_set():
            raise _Stopped
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left


class _LimitedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, limit: _Limit) -> None:
        self._stream = stream
        self._limit = limit

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        while True:
            left = self._limit.left()
            try:
                return self._stream.read(max_bytes, min(left, _SLICE))
            except httpcore.ReadTimeout:
                continue

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._stream.write(buffer, self._limit.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: Any,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._limit.left())
        return _LimitedStream(stream, self._limit)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _LimitedBackend(httpcore.SyncBackend):
    def __init__(self, limit: _Limit) -> None:
        self._limit = limit

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            stream = super().connect_tcp(
                host, port, self._limit.left(), local_address, socket_options
            )
        except UnicodeError:  # out of the resolver, for a label too long
            raise httpcore.ConnectError("that is no host name") from None
        return _LimitedStream(stream, self._limit)


class Poster:
    """A kept-alive connection to the receiver, for one thread.

    Looking up the receiver's name is not part of the 3 seconds, and a name with several addresses
    takes them for each that does not answer.

    Args:
        stopped: once it is set, the attempt under way is cut off.
    """

    def __init__(self, stopped: threading.Event) -> None:
        self._limit = _Limit(stopped)
        self._pool = httpcore.ConnectionPool(
            max_connections=1,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=_LimitedBackend(self._limit),
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
        self._limit.deadline = began + ATTEMPT_SECONDS
        status: int | None = None
        error: str | None = None
        try:
            status = self._status(url, body, _headers(signature))
        except _Stopped:
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
