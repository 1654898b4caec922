"""`webhook-config` sends the given fields only, and never shows the secret."""

import gzip
import io
import json
from collections.abc import Iterator

import pytest

from tests.kit.provider import Provider, reply, silence

PATH = "/api/organization/v1/current-organization/webhook-config"
URL = "https://hooks.example.com/webhooks?tenant=1"
SECRET = "s3cret-\u00fc-0123456789"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider() as running:
        running.bodies[PATH] = b"{}"
        monkeypatch.setenv("NFTSYNC_BASE_URL", running.url)
        monkeypatch.setenv("NFTSYNC_RETRIES", "1")
        monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
        yield running


def test_only_what_is_given_is_sent(provider, command):
    url = {"url": "http://[::1]:1/w"}
    words = ["--send-secret", "--enable", "--url", url["url"], "--type", "kyc", "--yes"]
    for given, body in (
        (["--url", URL], {"url": URL}),
        (["--enable"], {"enabled": True}),
        (["--disable"], {"enabled": False}),
        (["--type", "nft", "--type", "kyc", "--type", "nft"], {"webhookTypes": ["nft", "kyc"]}),
        (words, {**url, "enabled": True, "webhookTypes": ["kyc"], "sharedSecret": SECRET}),
    ):
        done = command("webhook-config", *given)
        assert (done.code, SECRET in done.said, "warning" in done.err) == (0, False, False)
        seen = provider.requests()[-1]
        assert (seen.method, seen.path, json.loads(seen.body)) == ("PATCH", PATH, body)
        assert seen.headers["content-type"] == "application/json"
        assert done.out.startswith(f"Sent to {provider.url}:\n")
        assert all(name in done.out for name in body)


def test_a_call_that_cannot_be_meant_sends_nothing(provider, command, monkeypatch):
    """Nothing given; an address that no receiver can have; no secret, or a blank one."""

    def refused(*words: str) -> str:
        done = command("webhook-config", *words)
        assert (done.code, done.out, provider.requests()) == (2, "", [])
        return done.err

    for words in ([], ["--yes"]):
        said = refused(*words)
        for flag in ("--url", "--type", "--enable", "--disable", "--send-secret"):
            assert flag in said
    for url in (
        *("hooks.example.com", "ftp://hooks.example.com/", "https://", "https:///webhooks", ""),
        *("https://h:0/", "https://h:99999/", "https://[::1/", "https://a b/", "https://h/\nx"),
        *("https://h/#here", "https://h\\x/", "javascript:alert(1)", "https://h/\x1b[2J"),
    ):
        assert "https://hooks.example.com/webhooks" in refused("--url", url)
    said = refused("--url", "https://me:hunter2@h/")
    assert "user name or password" in said
    assert "hunter2" not in said
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", "  ")
    assert "NFTSYNC_WEBHOOK_SECRET" in refused("--send-secret", "--enable")
    monkeypatch.delenv("NFTSYNC_WEBHOOK_SECRET")
    assert "NFTSYNC_WEBHOOK_SECRET" in refused("--send-secret", "--enable")


def test_a_refusal_says_what_to_do(provider, command):
    """Without an answer, the message says that the change may have been applied."""
    for status, said in (
        (401, "nothing was changed: the provider answered 401: no access; no token is set"),
        (403, "nothing was changed: the provider answered 403: no access; no token is set"),
        (404, "check base_url"),
        (400, "refused the change (400)"),
        (302, "redirect"),
        (503, "run the command again later"),
        (None, "may or may not have been applied"),
    ):
        provider.always(reply(SECRET.encode(), status) if status else silence())
        seconds = 60 if status else 0.3
        done = command("webhook-config", "--send-secret", "--timeout", seconds)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert said in done.err
        assert SECRET not in done.err


def test_the_provider_s_reason_for_a_refusal_is_shown(provider, command):
    """As one line of a bounded length, whatever its form."""
    reason = {"error": "url: must be a public host\n\x1b[2J", "code": 17}
    for status in (400, 422):
        for content in (json.dumps(reason).encode(), gzip.compress(json.dumps(reason).encode())):
            provider.always(reply(content, status))
            done = command("webhook-config", "--url", URL, "--yes")
            assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
            assert f"refused the change ({status}): " in done.err
            assert "url: must be a public host" in done.err
            assert "\x1b" not in done.err
    provider.always(reply("ä\x9b[2J\u202e reason".encode() * 5_000, 400))
    done = command("webhook-config", "--enable")
    assert "(400): ä [2J reason" in done.err
    assert len(done.err) < 500
    for content in (b"", b" \n", b"\x1f\x8b\x08\x00broken"[:4]):
        provider.always(reply(content, 400))
        done = command("webhook-config", "--enable")
        assert done.err.strip().endswith("refused the change (400); check the options")


ESCAPED = [
    *(SECRET, SECRET.upper(), SECRET[:6], SECRET[-6:], json.dumps(SECRET), f"x{SECRET[2:9]}x"),
    *("t0k3n-abcdef", "Bearer t0k3n-abcdef", "abcdef", "a-header-value"),
]


def test_a_reason_that_repeats_a_part_of_a_secret_is_not_shown(provider, command, monkeypatch):
    monkeypatch.setenv("NFTSYNC_API_TOKEN", "t0k3n-abcdef")
    monkeypatch.setenv("NFTSYNC_HEADERS", '{"X-Key": "a-header-value"}')
    for part in ESCAPED:
        provider.always(reply(f'{{"why": "no: {part} is bad"}}'.encode(), 400))
        done = command("webhook-config", "--send-secret", "--enable")
        assert "refused the change (400); check" in done.err, part
    provider.always(reply(b"sharedSecret is too short", 400))
    done = command("webhook-config", "--send-secret")
    assert "(400): sharedSecret is too short; check the options" in done.err


def test_on_a_terminal_only_a_new_url_is_confirmed(provider, command, monkeypatch):
    monkeypatch.setattr("sys.stdin", typed := io.StringIO("n\ny\n"))
    monkeypatch.setattr(typed, "isatty", lambda: True)
    done = command("webhook-config", "--url", URL)
    assert (done.code, done.out, provider.requests()) == (1, "", [])
    assert URL in done.err
    assert "Nothing was changed." in done.err
    assert "Sent to" in command("webhook-config", "--url", URL).out
    for words in (["--url", "http://hooks.example.com/webhooks", "--yes"], ["--enable"]):
        done = command("webhook-config", *words)
        assert "[y/N]" not in done.said
        unencrypted = "warning: webhooks to hooks.example.com would travel unencrypted" in done.err
        assert unencrypted == ("--url" in words)
    assert len(provider.requests()) == 3
