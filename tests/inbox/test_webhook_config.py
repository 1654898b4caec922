"""`webhook-config`: sends what was given and nothing else, and never shows the secret."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from provider import Provider, reply, silence
from worlds import Outcome

Command = Callable[..., Outcome]

PATH = "/api/organization/v1/current-organization/webhook-config"
URL = "https://hooks.example.com/webhooks?tenant=1"
SECRET = "s3cret-\u00fc-0123456789"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider() as running:
        running.bodies[PATH] = b"{}"
        monkeypatch.setenv("NFTSYNC_BASE_URL", running.url)
        monkeypatch.setenv("NFTSYNC_RETRIES", "1")
        yield running


def sent(provider: Provider) -> Any:
    (seen,) = provider.requests()
    assert (seen.method, seen.path) == ("PATCH", PATH)
    assert seen.headers["content-type"] == "application/json"
    return json.loads(seen.body)


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["--url", URL], {"url": URL}),
        (["--enable"], {"enabled": True}),
        (["--disable"], {"enabled": False}),
        (["--type", "nft", "--type", "kyc", "--type", "nft"], {"webhookTypes": ["nft", "kyc"]}),
        (
            [*("--send-secret", "--enable", "--url", "http://[::1]:1/w", "--type", "kyc", "--yes")],
            {
                "url": "http://[::1]:1/w",
                "enabled": True,
                "webhookTypes": ["kyc"],
                "sharedSecret": SECRET,
            },
        ),
    ],
)
def test_only_what_is_given_is_sent(
    provider: Provider, command: Command, monkeypatch: pytest.MonkeyPatch, words: Any, body: Any
) -> None:
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    done = command("webhook-config", *words)
    assert done.code == 0
    assert sent(provider) == body
    assert done.out.startswith(f"Sent to {provider.url}:\n")
    assert all(name in done.out for name in body)
    assert SECRET not in done.out + done.err
    assert "warning" not in done.err


def test_a_call_that_cannot_be_meant_sends_nothing(
    provider: Provider, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing given; no secret, or a blank one; an address that no receiver can have."""

    def refused(*words: str) -> str:
        done = command("webhook-config", *words)
        assert (done.code, done.out) == (2, "")
        assert not provider.requests()
        return done.err

    for words in ([], ["--yes"]):
        said = refused(*words)
        for flag in ("--url", "--type", "--enable", "--disable", "--send-secret"):
            assert flag in said
    for blank in (None, "  "):
        if blank is not None:
            monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", blank)
        assert "NFTSYNC_WEBHOOK_SECRET" in refused("--send-secret", "--enable")
    for url in (
        *("hooks.example.com", "ftp://hooks.example.com/", "https://", "https:///webhooks", ""),
        *("https://h:0/", "https://h:99999/", "https://[::1/", "https://a b/", "https://h/\nx"),
        *("https://h/#here", "https://h\\x/", "javascript:alert(1)", "https://h/\x1b[2J"),
    ):
        assert "https://hooks.example.com/webhooks" in refused("--url", url)
    said = refused("--url", "https://me:hunter2@h/")
    assert "user name or password" in said
    assert "hunter2" not in said


def test_a_refusal_says_what_to_do(
    provider: Provider, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    for status, said in (
        (401, "check api_token"),
        (403, "check api_token"),
        (404, "check base_url"),
        (400, "refused the change (400)"),
        (302, "redirect"),
        (503, "run it again later"),
    ):
        provider.always(reply(SECRET.encode(), status))
        done = command("webhook-config", "--send-secret")
        assert (done.code, done.out) == (1, "")
        assert said in done.err
        assert done.err.count("\n") == 1
        assert SECRET not in done.err


class Terminal(io.StringIO):
    """Somebody types this."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_new_url_is_asked_about_and_nothing_else(
    provider: Provider, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\ny\n"))
    done = command("webhook-config", "--url", URL)
    assert (done.code, done.out) == (1, "")
    assert URL in done.err
    assert "Nothing was changed." in done.err
    assert not provider.requests()
    assert "Sent to" in command("webhook-config", "--url", URL).out
    assert sent(provider) == {"url": URL}
    for words in (["--url", URL, "--yes"], ["--enable"]):
        assert "[y/N]" not in command("webhook-config", *words).said
    assert len(provider.requests()) == 3


def test_no_answer_and_plain_http_are_said(provider: Provider, command: Command) -> None:
    """Without an answer it is not known whether the change has arrived."""
    done = command("webhook-config", "--url", "http://hooks.example.com/webhooks")
    assert done.code == 0
    assert "warning: webhooks to hooks.example.com would travel unencrypted" in done.err
    provider.always(silence())
    done = command("webhook-config", "--enable", "--timeout", "0.3")
    assert (done.code, done.out) == (1, "")
    assert "not known" in done.err
