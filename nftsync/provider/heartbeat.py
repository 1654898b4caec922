"""Requests to a heartbeat monitor, which reports runs that fail or never end.

Healthchecks takes the state from the URL's path: healthchecks.io/docs/http_api. Uptime Kuma and
Cronitor take it from a parameter.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from functools import partial
from typing import Literal, Self, TypeAlias
from urllib.parse import SplitResult, quote_plus, urlsplit

import msgspec

from nftsync.errors import NftsyncError, ReadError, SyncRunning
from nftsync.provider.addresses import is_loopback
from nftsync.provider.config import ClientConfig
from nftsync.provider.network import network_of
from nftsync.provider.rate_limit import Auth
from nftsync.provider.transport import Requests, Transports
from nftsync.text import cut_line, error_text
from nftsync.threads import start_thread

_log = logging.getLogger("nftsync.sync")

#: Limit of a request, and of the wait for all requests, which a resolver may exceed; seconds.
_TIMEOUT, _LONGEST_DELAY = 2.25, 4.75
_LONGEST_PROBLEM = 300

#: Blank: the run ended well.
_State: TypeAlias = Literal["start", "fail", ""]
#: Of monitors that take the state from a parameter: this parameter in the URL, in the other states,
#: and the name of the reason's. Uptime Kuma has no start.
_PARAMETERS: tuple[tuple[str, dict[_State, str], str], ...] = (
    ("status=up", {"fail": "status=down"}, "msg="),  # Uptime Kuma
    ("state=complete", {"start": "state=run", "fail": "state=fail"}, "message="),  # Cronitor
)


class Heartbeat:
    """The requests about one run, sent by a thread; without a URL, there are none.

    The end of the block reports the end of the run. It waits less than 5 seconds, raises nothing,
    and logs at most one warning. Nothing is reported if another run prevents this one.

    Attributes:
        problem: one line on why the run did not end well, or None.
    """

    def __init__(self, url: str | None, config: ClientConfig) -> None:
        self.problem: str | None = None
        self._url = urlsplit(url or "")
        self._config = config
        self._start: threading.Thread | None = None  # noqa: TID251 - only its type
        self._stopped = threading.Event()
        self._failure = ""

    def start(self) -> None:
        """Report the start of the run, without waiting."""
        if self._url.netloc:
            self._start = start_thread("heartbeat", partial(self._send, "start"), self._fail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        is_prevented = isinstance(error, SyncRunning) and self._start is None
        if is_prevented or not self._url.netloc:
            return
        if error is not None:
            self.problem = str(error) if isinstance(error, NftsyncError) else type(error).__name__
        state: _State = "" if self.problem is None else "fail"
        send = partial(self._send, state, self.problem or "")
        end = start_thread("heartbeat", send, self._fail)
        end.join(_LONGEST_DELAY)
        self._stopped.set()
        late = f"no response within {_LONGEST_DELAY:g} s" if end.is_alive() else ""
        if failure := self._failure or late:
            _log.warning("cannot report to the heartbeat monitor (ping_url): %s", failure)

    def _fail(self, error: Exception) -> None:
        secret = self._url.path + self._url.query
        text = (str(error) or repr(error)).replace("base_url", "ping_url")
        self._failure = self._failure or error_text(text, secret)

    def _send(self, state: _State, problem: str = "") -> None:
        if self._start is not None and state != "start":
            self._start.join()  # the monitor expects them in order
        asked = _target(self._url, state, cut_line(problem, _LONGEST_PROBLEM))
        if asked is None:
            return
        target, body = asked
        config = msgspec.structs.replace(
            self._config,
            base_url=f"{self._url.scheme}://{self._url.netloc}",
            proxy="" if is_loopback(self._url.hostname or "") else self._config.proxy,
            timeout=_TIMEOUT,
        )
        network = network_of(config)
        request, _ = Requests(network, Auth()).make("POST" if body else "GET", target, None, body)
        request.headers["content-type"] = "text/plain; charset=utf-8"
        with closing(Transports(network, config, self._stopped)) as transports:
            status = transports.send(request, lambda: None).status
        if not 200 <= status < 300:
            raise ReadError(f"it answered {status}; check the URL")


def _target(url: SplitResult, state: _State, problem: str) -> tuple[str, bytes | None] | None:
    """Return what to request, with the body of a POST; None: the monitor has no such state."""
    path, parameters = url.path or "/", url.query.split("&")
    for success, others, reason in _PARAMETERS:
        if state and success in parameters:
            if state not in others:
                return None
            rest = [x for x in parameters if x != success and not x.startswith(reason)]
            given = [reason + quote_plus(problem)] if problem else []
            return f"{path}?{'&'.join([*rest, others[state], *given])}", None
    if state:
        path = f"{path.rstrip('/')}/{state}"
    return f"{path}?{url.query}" if url.query else path, problem.encode() or None
