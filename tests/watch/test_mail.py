"""Mail to real servers on loopback: TLS, headers, replies and misbehaving servers."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from tests.kit.provider import Provider, Sender, endless, raw, silence
from tests.kit.serve_process import free_port
from tests.kit.waiting import wait_until
from tests.watch.conftest import MESSAGE, PASSWORD, SendResult, mail_to, send_in_thread


class Mailbox:
    """Keeps mails; `refusals` are replies to recipients, and `reply` to mails."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.refusals: dict[str, str] = {}
        self.reply = "250 OK"

    async def handle_RCPT(self, *given: Any) -> str:  # noqa: N802 - aiosmtpd's name
        _, _, envelope, address, _ = given
        if address not in self.refusals:
            envelope.rcpt_tos.append(address)
        return self.refusals.get(address, "250 OK")

    async def handle_DATA(self, *given: Any) -> str:  # noqa: N802
        envelope = given[-1]
        mail = message_from_bytes(envelope.original_content, policy=policy.default)
        mail["X-To"] = ", ".join(envelope.rcpt_tos)
        mail["X-From"] = envelope.mail_from
        self.mails.append(mail)
        return self.reply


def authenticate(_server, _session, _envelope, _mechanism, data) -> AuthResult:
    right = (data.login, data.password) == (b"me", PASSWORD.encode())
    return AuthResult(success=right, handled=False)


@contextmanager
def mail_server(mailbox: Mailbox, certificate: str | None, security: str) -> Iterator[int]:
    tls = None
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    is_upgraded = security == "starttls"
    controller = Controller(
        mailbox,
        hostname="127.0.0.1",
        port=free_port(),
        ssl_context=None if is_upgraded else tls,
        tls_context=tls if is_upgraded else None,
        require_starttls=is_upgraded,
        authenticator=authenticate,
        auth_required=is_upgraded,
        auth_require_tls=is_upgraded,  # it does not see the other kind
    )
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_is_sent_over_verified_tls_with_a_login(certificates, opened, security):
    box = Mailbox()
    two = ("ops@example.org", "desk@example.org")
    with mail_server(box, certificates.server, security) as port:
        fields = mail_to("127.0.0.1", port, security=security, recipients=two)
        delivery = opened("email", ca=certificates.ca, **fields)
        assert delivery.send(MESSAGE) == SendResult("sent")
        wrong = opened("email", ca=certificates.ca, **(fields | {"password": "wrong-C4n4ry"}))
        assert wrong.send(MESSAGE) == SendResult(
            "refused", f"127.0.0.1:{port}: 535 no access; check username and password"
        )
        untrusted = opened("email", **fields).send(MESSAGE)
        assert untrusted.result == "down"
        assert "certificate verify failed" in untrusted.error
    (mail,) = box.mails
    assert mail["X-To"] == mail["To"] == ", ".join(two)
    assert f"nftsync <{mail['X-From']}>" == mail["From"] == "nftsync <alerts@example.com>"
    assert mail["Message-ID"] == f"<{mail['X-Nftsync-Message-Id']}@example.com>"
    sent = (mail["X-Nftsync-Message-Id"], mail["Subject"], mail.get_content_type())
    assert sent == (MESSAGE.message_id, MESSAGE.subject, "text/plain")
    assert mail.get_content().splitlines() == MESSAGE.text.splitlines()


@pytest.fixture
def plain() -> Iterator[tuple[Mailbox, int]]:
    box = Mailbox()
    with mail_server(box, None, "none") as port:
        yield box, port


def to_plain(port: int, **of: Any) -> dict[str, Any]:
    return mail_to("127.0.0.1", port, security="none", username=None, **of)


def test_a_token_name_adds_no_header_to_a_mail(plain, opened):
    box, port = plain
    delivery = opened("email", **to_plain(port))
    hidden = base64.b64encode(b"x\r\nBcc: victim@example.net")
    text = "Line\n.\n..\n=?utf-8?q?x?= é \u05d0\n" + "long " * 400
    for name, shown in (
        (f"=?utf-8?b?{hidden.decode()}?=", f"= ?utf-8?b?{hidden.decode()}".replace("=?", "= ?")),
        (
            "Ape\r\nBcc: victim@example.net\r\n\r\n<b>\u202e\x00 =?utf-8?q?x?= é" + "😀" * 300,
            "Ape Bcc: victim@example.net <b>",
        ),
    ):
        sent = delivery.send(MESSAGE._replace(subject=name, text=text))
        assert sent == SendResult("sent")
        mail = box.mails.pop()
        assert (mail["Bcc"], mail["X-To"]) == (None, "ops@example.org")
        assert mail["Subject"].startswith(shown)
        assert mail.get_content().splitlines() == text.splitlines()


@pytest.mark.parametrize(
    ("replies", "reply", "result", "error"),
    [
        ({}, "250 OK", "sent", None),
        ({}, "451 try later", "down", "451 try later"),
        ({}, "554 spam", "refused", "554 spam"),
        ({"a@x.org": "550 unknown"}, "250 OK", "sent", "550 unknown"),
        ({"a@x.org": "550 unknown", "b@x.org": "450 busy"}, "250 OK", "down", "450 busy"),
        ({"a@x.org": "550 no", "b@x.org": f"550 {PASSWORD}"}, "250 OK", "refused", "550 …"),
    ],
)
def test_a_mail_server_s_replies_decide_on_the_result(plain, opened, replies, reply, result, error):
    box, port = plain
    box.refusals, box.reply = replies, reply
    fields = to_plain(port, recipients=("a@x.org", "b@x.org"))
    shown = None if error is None else f"127.0.0.1:{port}: {error}"
    assert opened("email", **fields).send(MESSAGE)[:2] == (result, shown)


class Greeting(Provider):
    """A server that greets each client in a way of its own before it hears anything."""

    answer: Sender

    def _read(self, *_: object) -> Any:
        return object()

    def _answer(self, *_: object) -> Sender:
        return self.answer


@pytest.fixture
def mail_liar() -> Iterator[Greeting]:
    with Greeting() as running:
        yield running


@pytest.mark.parametrize(
    ("answer", "result", "error"),
    [
        (raw(b"554 no service\r\n", then="hold"), "refused", "554 no service"),
        (raw(b"421 busy\r\n", then="hold"), "down", "421 busy"),
        (raw(b"HTTP/1.1 400 Bad\r\n", then="hold"), "down", "-1 /1.1 400 Bad"),
        (raw(b""), "down", "Connection unexpectedly closed"),
        (
            endless(b"220-slow\r\n", pause=0.02),
            "down",
            "the server did not accept the email within 0.4 s",
        ),
        (endless(b"2", pause=0.02), "down", "the server did not accept the email within 0.4 s"),
        (silence(), "down", "the server did not accept the email within 0.4 s"),
    ],
)
def test_a_mail_server_that_misbehaves_ends_the_attempt(mail_liar, opened, answer, result, error):
    mail_liar.answer = answer
    outcome = opened("email", timeout=0.4, **to_plain(mail_liar.port)).send(MESSAGE)
    assert outcome[:2] == (result, f"127.0.0.1:{mail_liar.port}: {error}")


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_without_tls_is_not_sent(plain, opened, security):
    box, port = plain
    delivery = opened("email", timeout=1.0, **mail_to("127.0.0.1", port, security=security))
    assert delivery.send(MESSAGE).result == "down"
    assert not box.mails


def test_an_abort_ends_a_mail_in_flight(mail_liar, opened):
    mail_liar.answer = silence()
    delivery = opened("email", **to_plain(mail_liar.port))
    outcome = send_in_thread(delivery)
    wait_until(lambda: mail_liar.connections == 1)
    delivery.abort()
    assert outcome() == SendResult("down", f"127.0.0.1:{mail_liar.port}: stopped")
