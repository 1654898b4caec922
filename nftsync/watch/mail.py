"""Email over SMTP, with a time limit and only to accepted addresses."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from contextlib import closing, suppress
from email.message import EmailMessage
from typing import Any, TypeAlias

from nftsync.alerts import Destination
from nftsync.errors import Stopped
from nftsync.threads import start_thread
from nftsync.watch.hosts import Accepts

#: Seconds between checks for a stop.
_SLICE = 0.25
#: Limit for connecting to an address, in seconds.
_LONGEST_CONNECT = 3.5

#: The server's replies, by refused recipient.
Refusals: TypeAlias = dict[str, tuple[int, bytes]]


class Mailer:
    """Sender of emails, each over its own connection, until `stopped` is set."""

    def __init__(
        self, destination: Destination, tls: ssl.SSLContext, accepts: Accepts, timeout: float
    ) -> None:
        self._destination, self._tls = destination, tls
        self._accepts, self._timeout = accepts, timeout
        self.stopped = threading.Event()

    def send(self, message: EmailMessage) -> Refusals:
        """Send an email; return the refused recipients if the server accepts others.

        Raises:
            OSError: no connection in time, or a refusal (SMTPException).
            ValueError: the server does not use SMTP.
            Stopped: `stopped` was set.
        """
        ends_at = time.monotonic() + self._timeout
        server = str(self._destination.server), self._destination.port
        done = threading.Event()
        try:
            with (
                socket.create_connection(server, min(self._timeout, _LONGEST_CONNECT)) as connected,
                connected.dup() as watched,  # TLS detaches the other one
            ):
                start_thread("mail", lambda: self._watch(watched, done, ends_at))
                return self._converse(connected, message)
        except OSError:
            if self.stopped.is_set():
                raise Stopped("stopped") from None
            if time.monotonic() >= ends_at:
                raise TimeoutError(f"not accepted within {self._timeout:g} s") from None
            raise
        finally:
            done.set()

    def _watch(self, connected: socket.socket, done: threading.Event, ends_at: float) -> None:
        """Close the connection at the time limit or a stop."""
        left = self._timeout
        while left > 0.0 and not self.stopped.is_set():
            if done.wait(min(left, _SLICE)):
                return
            left = ends_at - time.monotonic()
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    def _converse(self, connected: socket.socket, message: EmailMessage) -> Refusals:
        if not self._accepts(connected.getpeername()[0]):
            raise OSError("the host has a private network address")
        connected.settimeout(self._timeout)
        host = str(self._destination.server)
        if self._destination.security == "tls":
            connected = self._tls.wrap_socket(connected, server_hostname=host)
        with closing(_Session(connected, host)) as session:
            if self._destination.security == "starttls":
                session.starttls(context=self._tls)
            if self._destination.username is not None:
                session.login(self._destination.username, self._destination.password or "")
            refusals = session.send_message(message)
            with suppress(smtplib.SMTPException):  # the server has accepted the email
                session.quit()
        return refusals


class _Session(smtplib.SMTP):
    """An SMTP session on a given connection."""

    def __init__(self, connected: socket.socket, host: str) -> None:
        self._connected = connected
        super().__init__(host)

    def connect(self, host: str = "", *_: Any, **__: Any) -> tuple[int, bytes]:
        # Certificates are checked for this name. Newer Pythons expect it from here.
        self._host, self.sock = host, self._connected
        return self.getreply()
