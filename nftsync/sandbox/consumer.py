"""Consumers of nftsync's messages."""

from __future__ import annotations

import base64
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from werkzeug.wrappers import Response

from nftsync.times import now

#: Newest messages to keep, per consumer.
_KEPT_MESSAGES = 1_000
#: Seconds until a hanging connection closes.
_HANG_SECONDS = 60
_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature", "x-service-webhook-hmac")


class Slow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A delay in seconds, then a 200, or a 429 with Retry-After."""

    slow: Annotated[float, msgspec.Meta(ge=0, le=_HANG_SECONDS)] = 0
    retry_after: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | None = msgspec.field(
        default=None, name="429"
    )


#: The fault for a message. `close`: closes the connection after half a response.
ConsumerFault: TypeAlias = Literal[500, 410, "redirect", "hang", "close"] | Slow | None
#: Faults by consumer: a list has a fault per message.
ConsumerFaults: TypeAlias = dict[str, ConsumerFault | list[ConsumerFault]]


class Consumers:
    """Newest messages and faults of all consumers; thread-safe."""

    def __init__(self) -> None:
        self._records: dict[str, deque[dict[str, Any]]] = {}
        self._scripts: dict[str, deque[ConsumerFault]] = defaultdict(deque)
        self._lasting: dict[str, ConsumerFault] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def close(self) -> None:
        """End delays, so that the server can stop."""
        self._closed.set()

    def script(self, faults: ConsumerFaults) -> None:
        """Add a list of faults, or set one fault for every message."""
        with self._lock:
            for name, fault in faults.items():
                if isinstance(fault, list):
                    self._scripts[name].extend(fault)
                else:
                    self._scripts[name].clear()
                    self._lasting[name] = fault

    def records(self, name: str) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._records.get(name, ()))

    def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Record a message, and return the response after a delay."""
        sent = {header: headers[header] for header in _HEADERS if header in headers}
        with self._lock:
            script = self._scripts[name]
            fault = script.popleft() if script else self._lasting.get(name)
            seconds, response = _response(fault)
            status = None if fault in {"hang", "close"} else response.status_code
            record = {"at": now(), "headers": sent, **_readable(body), "status": status}
            self._records.setdefault(name, deque(maxlen=_KEPT_MESSAGES)).append(record)
        self._closed.wait(seconds)
        return response


def _response(fault: ConsumerFault) -> tuple[float, Response]:
    match fault:
        case 500 | 410:
            return 0, Response("a fault of the sandbox", fault)
        case "redirect":
            return 0, Response(status=307, headers={"Location": "/sandbox/consumer/redirected"})
        case "hang" | "close":
            # waitress closes the connection after a body that is too short.
            half = Response([b"half"], headers={"Content-Length": "8"})
            return (_HANG_SECONDS if fault == "hang" else 0), half
        case Slow(slow, None):
            return slow, Response()
        case Slow(slow, retry_after):
            return slow, Response(status=429, headers={"Retry-After": str(retry_after)})
    return 0, Response()


def _readable(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
