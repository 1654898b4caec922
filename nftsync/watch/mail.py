"""Email over SMTP, within a time limit."""

from __future__ import annotations

import re
import smtplib
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parseaddr
from functools import partial
from smtplib import SMTPAuthenticationError, SMTPRecipientsRefused, SMTPResponseException
from typing import TypeAlias

import msgspec

from nftsync.alerts import Destination
from nftsync.errors import InputError, Stopped
from nftsync.provider.config import ClientConfig
from nftsync.provider.network import network_of
from nftsync.text import cut_line, error_text
from nftsync.threads import start_thread
from nftsync.watch.channel import Channel, SendResult
from nftsync.watch.hosts import address_check
from nftsync.watch.texts import Outgoing

_LONGEST_SUBJECT = 200
#: ASCII only, because some servers refuse other characters.
_MAIL_POLICY = SMTP.clone(cte_type="7bit")
_MAIL_ADDRESS = re.compile(r"[^\s@<>,;]+@[^\s@<>,;]+")
#: Seconds between checks for a stop and the time limit.
_SLICE = 0.25
#: Limit for connecting to an address, in seconds.
_LONGEST_CONNECT = 3.5

#: Returns the socket to use for a new connection.
Prepare: TypeAlias = Callable[[socket.socket], socket.socket]


class MailChannel(Channel):
    """Channel by email; each message has its own connection."""

    def __init__(self, destination: Destination, config: ClientConfig) -> None:
        super().__init__(destination, config)
        login = self._password = destination.password or ""
        login += destination.username or ""
        self._people = (destination.sender or "", *destination.recipients)
        addresses = [parseaddr(person)[1] for person in self._people]
        if not all(map(_MAIL_ADDRESS.fullmatch, addresses)) or len(addresses) < 2:
            raise InputError("from and recipients must be email addresses")
        if not "".join((login, *self._people)).isascii() or not "".join(self._people).isprintable():
            raise InputError("from, recipients, username and password must be ASCII")
        self._domain = addresses[0].rpartition("@")[2]
        host = destination.server or ""
        self._accepts = address_check(
            destination, host, is_encrypted=destination.security != "none"
        )
        scheme = "http" if destination.security == "none" else "https"
        config = msgspec.structs.replace(config, base_url=f"{scheme}://mail.invalid", proxy="")
        self._place = f"{host}:{destination.port}"
        self._tls = network_of(config).tls

    def send(self, outgoing: Outgoing) -> SendResult:
        try:
            refusals = self._deliver(self._message(outgoing))
        except (OSError, ValueError, Stopped) as error:
            return self._failed(error)
        return SendResult("sent", self._reply(*min(refusals.values())) if refusals else None)

    def _failed(self, error: Exception) -> SendResult:
        reply: bytes | str
        match error:
            case SMTPRecipientsRefused():
                code, reply = min(error.recipients.values())
            case SMTPAuthenticationError():  # its text may contain the login
                code, reply = error.smtp_code, b"no access; check username and password"
            case SMTPResponseException():
                code, reply = error.smtp_code, error.smtp_error
            case _:
                problem = getattr(error, "strerror", None) or error
                return SendResult("down", error_text(f"{self._place}: {problem}", self._password))
        is_down = code < 0 or 400 <= code < 500
        return SendResult("down" if is_down else "refused", self._reply(code, reply))

    def _reply(self, code: int, reply: bytes | str) -> str:
        text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
        return error_text(f"{self._place}: {code} {text}", self._password)

    def _message(self, outgoing: Outgoing) -> EmailMessage:
        message = EmailMessage(policy=_MAIL_POLICY)
        message["From"], *recipients = self._people
        message["To"] = ", ".join(recipients)
        # Mail programs decode encoded words, which may hide line breaks (RFC 2047).
        message["Subject"] = cut_line(outgoing.subject, _LONGEST_SUBJECT).replace("=?", "= ?")
        message["Date"] = datetime.now(UTC)
        message["Message-ID"] = f"<{outgoing.message_id}@{self._domain}>"
        message["X-Nftsync-Message-Id"] = outgoing.message_id
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(outgoing.text)
        return message

    def _deliver(self, message: EmailMessage) -> dict[str, tuple[int, bytes]]:
        """Return the refused recipients, if the server accepted others."""
        ends_at, to = time.monotonic() + self.timeout, self.destination
        try:
            with ExitStack() as stack:
                prepare = partial(self._prepare, stack, ends_at)
                longest = min(self.timeout, _LONGEST_CONNECT)
                session = _Session(prepare, str(to.server), to.port, longest)
                stack.enter_context(closing(session))
                if to.security == "starttls":
                    session.starttls(context=self._tls)
                if to.username is not None:
                    session.login(to.username, to.password or "")
                refusals = session.send_message(message)
                with suppress(smtplib.SMTPException):  # the server has accepted the email
                    session.quit()
                return refusals
        except OSError:
            if self.stopped.is_set():
                raise Stopped("stopped") from None
            if time.monotonic() >= ends_at:
                raise TimeoutError(
                    f"the server did not accept the email within {self.timeout:g} s"
                ) from None
            raise

    def _prepare(self, stack: ExitStack, ends_at: float, connected: socket.socket) -> socket.socket:
        """Check the address, limit the time, and start TLS unless STARTTLS does."""
        stack.enter_context(connected)
        if not self._accepts(connected.getpeername()[0]):
            raise OSError("the host has a private network address")
        connected.settimeout(self.timeout)
        watched = stack.enter_context(connected.dup())  # TLS detaches the other one
        done = threading.Event()
        stack.callback(done.set)
        start_thread("mail", lambda: self._watch(watched, done, ends_at))
        if self.destination.security != "tls":
            return connected
        return self._tls.wrap_socket(connected, server_hostname=self.destination.server)

    def _watch(self, connected: socket.socket, done: threading.Event, ends_at: float) -> None:
        while not self.stopped.is_set() and time.monotonic() < ends_at:
            if done.wait(_SLICE):
                return
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)


class _Session(smtplib.SMTP):
    """An SMTP session that prepares its connection before the greeting."""

    def __init__(self, prepare: Prepare, server: str, port: int, timeout: float) -> None:
        self._prepare: Prepare | None = prepare
        super().__init__(server, port, timeout=timeout)

    def getreply(self) -> tuple[int, bytes]:
        if self.sock is not None and self._prepare is not None:
            prepare, self._prepare = self._prepare, None
            self.sock = prepare(self.sock)
        return super().getreply()
