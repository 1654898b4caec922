"""Delivery of messages to webhooks, Slack, email and commands.

Receivers are untrusted: attempts are short, follow no redirect, and report one safe line.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parseaddr
from functools import partial
from html import escape
from smtplib import SMTPAuthenticationError, SMTPRecipientsRefused, SMTPResponseException
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from nftsync.alerts import Destination
from nftsync.errors import InputError, ReadError, SettingsError, Stopped, UnusableResponse
from nftsync.provider.addresses import is_loopback
from nftsync.provider.config import ClientConfig
from nftsync.provider.network import network_of
from nftsync.provider.programs import run_program
from nftsync.provider.rate_limit import Auth
from nftsync.provider.transport import Requests, Transports
from nftsync.provider.waits import asked_wait
from nftsync.text import cut_line, http_url, toml_key
from nftsync.watch.hosts import Accepts, may_reach
from nftsync.watch.mail import Mailer
from nftsync.watch.signing import key_of, signature
from nftsync.watch.texts import Outgoing

#: `refused`: uses up an attempt. `down`: uses up none. `gone`: stops the destination.
Result: TypeAlias = Literal["sent", "refused", "down", "gone"]

_LONGEST_ERROR = 300
_LONGEST_SUBJECT = 200
_LONGEST_PAUSE = 86_400.0
#: Statuses of a server or gateway that is temporarily unavailable.
_DOWN = {408, 429, 502, 503, 504}
#: The longest text of a Slack block (docs.slack.dev, Text object).
_LONGEST_SLACK_TEXT = 3_000
_LARGEST_RESPONSE = 64 * 1024
#: ASCII only, because some servers refuse other characters.
_MAIL_POLICY = SMTP.clone(cte_type="7bit")
_MAIL_ADDRESS = re.compile(r"[^\s@<>,;]+@[^\s@<>,;]+")


class Outcome(NamedTuple):
    """The result of an attempt, with one safe line about an error."""

    result: Result
    error: str | None = None
    retry_after: float | None = None


_SENT = Outcome("sent")


class Channel(Protocol):
    """Connection to a destination, for any number of threads."""

    def send(self, outgoing: Outgoing) -> Outcome:
        """Attempt to deliver a message."""

    def abort(self) -> None:
        """End current attempts, and refuse new ones."""

    def close(self) -> None:
        """Close all connections."""


def open_delivery(
    destination: Destination, network: ClientConfig, *, timeout: float = 15.0
) -> Channel:
    """Return a channel, with the proxy and the trusted certificates of `network`.

    Raises:
        SettingsError: the destination's settings are unusable.
    """
    config = msgspec.structs.replace(
        network, timeout=timeout, client_certificate=None, client_key=None
    )
    kinds: dict[str, Callable[[Destination, ClientConfig], Channel]]
    kinds = {"webhook": _Http, "slack": _Http, "email": _Mail, "command": _Command}
    try:
        return kinds[destination.kind](destination, config)
    except InputError as error:
        raise SettingsError(f"destinations.{toml_key(destination.name)}: {error}") from None


class _Http:
    """Channel to a webhook or to Slack."""

    def __init__(self, destination: Destination, config: ClientConfig) -> None:
        for secret in destination.secrets:
            key_of(secret)
        url = destination.url or ""
        parts = http_url(url)
        if parts is None or "@" in parts.netloc or not url.isascii():
            raise InputError("url must be an https URL in ASCII, without a user name")
        host = parts.hostname or ""
        accepts = _check_of(destination, host, is_encrypted=parts.scheme == "https")
        config = msgspec.structs.replace(
            config,
            base_url=f"{parts.scheme}://{parts.netloc}",
            proxy="" if is_loopback(host) else config.proxy,
            max_bytes=_LARGEST_RESPONSE,
            large_bytes=_LARGEST_RESPONSE,
        )
        network = network_of(config)
        self._destination = destination
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._requests = Requests(network, Auth())
        self._stopped = threading.Event()
        accepts_peer = None if network.proxy else accepts
        self._transports = Transports(network, config, self._stopped, accepts_peer)

    def send(self, outgoing: Outgoing) -> Outcome:
        body, headers = outgoing.body, {}
        if self._destination.kind == "slack":
            body = _slack_json(outgoing.text)
        else:
            headers = _webhook_headers(outgoing, self._destination.secrets)
        request, _ = self._requests.make("POST", self._target, None, body)
        # Uncompressed, because errors quote the response.
        request.headers.update({**headers, "accept-encoding": "identity"})
        try:
            response = self._transports.send(request, lambda: None)
        except UnusableResponse:  # a 2xx whose body is too large or not gzip
            return _SENT
        except (ReadError, Stopped) as error:
            return Outcome("down", _line(str(error).replace("base_url", "url"), self._target))
        status = response.status
        if 200 <= status < 300:
            return _SENT
        error_line = f"HTTP {status} {response.body[:200].decode(errors='replace')}"
        wait = asked_wait(status, response.headers)
        is_down = status in _DOWN or (status == 403 and wait is not None)
        return Outcome(
            "gone" if status == 410 else "down" if is_down else "refused",
            _line(error_line, self._target),
            None if wait is None else min(wait, _LONGEST_PAUSE),
        )

    def abort(self) -> None:
        self._stopped.set()
        self._transports.abort()

    def close(self) -> None:
        self._transports.close()


def _webhook_headers(outgoing: Outgoing, secrets: tuple[str, ...]) -> dict[str, str]:
    message_id, timestamp = outgoing.message_id, int(time.time())
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if secrets:
        signed = signature(secrets, message_id, timestamp, outgoing.body)
        headers["webhook-signature"] = signed
    return {**outgoing.headers, **headers}


def _slack_json(text: str) -> bytes:
    """Return a message for Slack, without mentions, links and markup."""
    safe = escape(text, quote=False)
    if len(safe) > _LONGEST_SLACK_TEXT:
        safe = re.sub(r"&[^;]*\Z", "", safe[: _LONGEST_SLACK_TEXT - 1]) + "…"
    block = {"type": "section", "text": {"type": "plain_text", "text": safe, "emoji": False}}
    off = dict.fromkeys(("mrkdwn", "link_names", "unfurl_links", "unfurl_media"), False)
    return msgspec.json.encode({"text": safe, "blocks": [block], "parse": "none", **off})


class _Mail:
    """Channel by email."""

    def __init__(self, destination: Destination, config: ClientConfig) -> None:
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
        accepts = _check_of(destination, host, is_encrypted=destination.security != "none")
        scheme = "http" if destination.security == "none" else "https"
        config = msgspec.structs.replace(config, base_url=f"{scheme}://mail.invalid", proxy="")
        self._place = f"{host}:{destination.port}"
        self._mailer = Mailer(destination, network_of(config).tls, accepts, config.timeout)

    def send(self, outgoing: Outgoing) -> Outcome:
        try:
            refusals = self._mailer.send(self._message(outgoing))
        except (OSError, ValueError, Stopped) as error:
            return self._failed(error)
        return Outcome("sent", self._reply(*min(refusals.values())) if refusals else None)

    def _failed(self, error: Exception) -> Outcome:
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
                return Outcome("down", _line(f"{self._place}: {problem}", self._password))
        is_down = code < 0 or 400 <= code < 500
        return Outcome("down" if is_down else "refused", self._reply(code, reply))

    def _reply(self, code: int, reply: bytes | str) -> str:
        text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
        return _line(f"{self._place}: {code} {text}", self._password)

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

    def abort(self) -> None:
        self._mailer.stopped.set()

    close = abort


class _Command:
    """Channel to a program's standard input."""

    def __init__(self, destination: Destination, config: ClientConfig) -> None:
        self._command = destination.command
        self._timeout = config.timeout
        self._stopped = threading.Event()

    def send(self, outgoing: Outgoing) -> Outcome:
        if self._stopped.is_set():
            return Outcome("down", "stopped")
        try:
            code, _ = run_program(
                self._command,
                self._timeout,
                stdin=outgoing.body,
                variables={"WEBHOOK_ID": outgoing.message_id},
                stopped=self._stopped,
            )
        except subprocess.TimeoutExpired:
            late = f"the command took more than {self._timeout:g} s"
            return Outcome("down", "stopped" if self._stopped.is_set() else late)
        except (OSError, ValueError) as error:
            return Outcome("down", _line(f"the command cannot be run: {error}", ""))
        return Outcome("refused", f"the command failed with exit code {code}") if code else _SENT

    def abort(self) -> None:
        self._stopped.set()

    close = abort


def _check_of(destination: Destination, host: str, *, is_encrypted: bool) -> Accepts:
    """Return the check of connected addresses; InputError for a refused host."""
    if not (is_encrypted or destination.allow_http or is_loopback(host)):
        raise InputError("must use TLS, unless its host is this machine (or set allow_http = true)")
    check = partial(may_reach, host=host, allow_private=destination.allow_private)
    if not check(host):
        raise InputError(
            "its host is in a private network (set allow_private = true), or a cloud service"
        )
    return check


def _line(text: str, secret: str) -> str:
    """Return an error as one safe line, without words of the secret."""
    safe = re.sub(r"[\w-]{4,}", lambda word: "…" if word[0] in secret else word[0], text)
    return cut_line(safe, _LONGEST_ERROR)
