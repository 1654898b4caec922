"""Delivery to webhooks, Slack, email and commands, which nftsync does not trust."""

from __future__ import annotations

import re
import subprocess
import time
from html import escape

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
from nftsync.text import error_text, http_url, toml_key
from nftsync.watch.channel import SENT, Channel, SendResult
from nftsync.watch.hosts import address_check
from nftsync.watch.mail import MailChannel
from nftsync.watch.signing import key_of, signature
from nftsync.watch.texts import Outgoing

_LONGEST_PAUSE = 86_400.0
#: Statuses of a server or gateway that is temporarily unavailable.
_DOWN = {408, 429, 502, 503, 504}
#: The longest text of a Slack block (docs.slack.dev, Text object).
_LONGEST_SLACK_TEXT = 3_000
_LARGEST_RESPONSE = 64 * 1024


def open_delivery(
    destination: Destination, network: ClientConfig, *, timeout: float = 15.0
) -> Channel:
    config = msgspec.structs.replace(
        network, timeout=timeout, client_certificate=None, client_key=None
    )
    try:
        return _CHANNELS[destination.kind](destination, config)
    except InputError as error:
        raise SettingsError(f"destinations.{toml_key(destination.name)}: {error}") from None


class _Http(Channel):
    def __init__(self, destination: Destination, config: ClientConfig) -> None:
        super().__init__(destination, config)
        for secret in destination.secrets:
            key_of(secret)
        url = destination.url or ""
        parts = http_url(url)
        if parts is None or "@" in parts.netloc or not url.isascii():
            raise InputError("url must be an https URL in ASCII, without a user name")
        host = parts.hostname or ""
        accepts = address_check(destination, host, is_encrypted=parts.scheme == "https")
        config = msgspec.structs.replace(
            config,
            base_url=f"{parts.scheme}://{parts.netloc}",
            proxy="" if is_loopback(host) else config.proxy,
            max_bytes=_LARGEST_RESPONSE,
            large_bytes=_LARGEST_RESPONSE,
        )
        network = network_of(config)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._requests = Requests(network, Auth())
        accepts_peer = None if network.proxy else accepts
        self._transports = Transports(network, config, self.stopped, accepts_peer)

    def send(self, outgoing: Outgoing) -> SendResult:
        body, headers = outgoing.body, {}
        if self.destination.kind == "slack":
            body = _slack_json(outgoing.text)
        else:
            headers = _webhook_headers(outgoing, self.destination.secrets)
        request, _ = self._requests.make("POST", self._target, None, body)
        # Uncompressed, because errors quote the response.
        request.headers.update({**headers, "accept-encoding": "identity"})
        try:
            response = self._transports.send(request, lambda: None)
        except UnusableResponse:  # a 2xx whose body is too large or not gzip
            return SENT
        except (ReadError, Stopped) as error:
            return SendResult(
                "down", error_text(str(error).replace("base_url", "url"), self._target)
            )
        status = response.status
        if 200 <= status < 300:
            return SENT
        answer = f"HTTP {status} {response.body[:200].decode(errors='replace')}"
        wait = asked_wait(status, response.headers)
        is_down = status in _DOWN or (status == 403 and wait is not None)
        return SendResult(
            "gone" if status == 410 else "down" if is_down else "refused",
            error_text(answer, self._target),
            None if wait is None else min(wait, _LONGEST_PAUSE),
        )

    def abort(self) -> None:
        super().abort()
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
    safe = escape(text, quote=False)
    if len(safe) > _LONGEST_SLACK_TEXT:
        safe = re.sub(r"&[^;]*\Z", "", safe[: _LONGEST_SLACK_TEXT - 1]) + "…"
    block = {"type": "section", "text": {"type": "plain_text", "text": safe, "emoji": False}}
    off = dict.fromkeys(("mrkdwn", "link_names", "unfurl_links", "unfurl_media"), False)
    return msgspec.json.encode({"text": safe, "blocks": [block], "parse": "none", **off})


class _Command(Channel):
    def send(self, outgoing: Outgoing) -> SendResult:
        if self.stopped.is_set():
            return SendResult("down", "stopped")
        try:
            code, _ = run_program(
                self.destination.command,
                self.timeout,
                stdin=outgoing.body,
                variables={"WEBHOOK_ID": outgoing.message_id},
                stopped=self.stopped,
            )
        except subprocess.TimeoutExpired:
            late = f"the command took more than {self.timeout:g} s"
            return SendResult("down", "stopped" if self.stopped.is_set() else late)
        except (OSError, ValueError) as error:
            return SendResult("down", error_text(f"the command cannot be run: {error}", ""))
        return SendResult("refused", f"the command failed with exit code {code}") if code else SENT


_CHANNELS: dict[str, type[Channel]] = {
    "webhook": _Http,
    "slack": _Http,
    "email": MailChannel,
    "command": _Command,
}
