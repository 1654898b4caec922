"""`webhook-config` sends the given fields only, and never shows the secret."""

import gzip
import io
import json
import re
from functools import partial

import pytest

from tests.kit.provider import reply, silence

PATH = "/api/organization/v1/current-organization/webhook-config"
URL = "https://hooks.example.com/webhooks?tenant=1"
SECRET = "s3cret-\u00fc-0123456789"


@pytest.fixture
def provider(lying, monkeypatch):
    lying.bodies[PATH] = b"{}"
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    monkeypatch.setenv("NFTSYNC_RETRIES", "1")
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    return lying


ALL = {"url": "http://[::1]:1/w", "enabled": True, "webhookTypes": ["kyc"], "sharedSecret": SECRET}
GIVEN = {
    f"--url {URL}": {"url": URL},
    "--enable": {"enabled": True},
    "--disable": {"enabled": False},
    "--type nft --type kyc --type nft": {"webhookTypes": ["nft", "kyc"]},
    "--send-secret --enable --url http://[::1]:1/w --type kyc --yes": ALL,
}


@pytest.mark.parametrize("words", GIVEN)
def test_only_what_is_given_is_sent(provider, command, words):
    done = command("webhook-config", *words.split()).says(*GIVEN[words])
    assert done.out.startswith(f"Sent to {provider.url}:\n")
    assert (SECRET in done.said, "warning" in done.err) == (False, False)
    (seen,) = provider.requests()
    assert (seen.method, seen.path, json.loads(seen.body)) == ("PATCH", PATH, GIVEN[words])
    assert seen.headers["content-type"] == "application/json"


BAD_URLS = [
    *("hooks.example.com", "ftp://hooks.example.com/", "https://", "https:///webhooks", ""),
    *("https://h:0/", "https://h:99999/", "https://[::1/", "https://a b/", "https://h/\nx"),
    *("https://h/#here", "https://h\\x/", "javascript:alert(1)", "https://h/\x1b[2J"),
]


def test_a_call_that_cannot_be_meant_sends_nothing(provider, command, monkeypatch):
    """Nothing given; an address that no receiver can have; no secret, or a blank one."""
    for words in ([], ["--yes"]):
        flags = ("--url", "--type", "--enable", "--disable", "--send-secret")
        command("webhook-config", *words).tells(*flags)
    for url in BAD_URLS:
        command("webhook-config", "--url", url).tells("https://hooks.example.com/webhooks")
    done = command("webhook-config", "--url", "https://me:hunter2@h/").tells(
        "user name or password"
    )
    assert "hunter2" not in done.err
    for change in (partial(monkeypatch.setenv, value="  "), monkeypatch.delenv):
        change("NFTSYNC_WEBHOOK_SECRET")
        command("webhook-config", "--send-secret", "--enable").tells("NFTSYNC_WEBHOOK_SECRET")
    assert provider.requests() == []


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (403, "nothing was changed: the provider answered 403: no access; no token is set"),
        (404, "check base_url"),
        (400, "refused the change (400)"),
        (302, "redirect"),
        (503, "run the command again later"),
        (None, "may or may not have been applied"),
    ],
)
def test_a_refusal_says_what_to_do(provider, command, status, says):
    provider.always(reply(SECRET.encode(), status) if status else silence())
    seconds = 60 if status else 0.3
    done = command("webhook-config", "--send-secret", "--timeout", seconds).tells(says, code=1)
    assert (done.err.count("\n"), SECRET in done.err) == (1, False)


REASON = json.dumps({"error": "url: must be a public host\n\x1b[2J", "code": 17}).encode()
REASONS = {
    REASON: r".*url: must be a public host.*",
    gzip.compress(REASON): r".*url: must be a public host.*",
    "ä\x9b[2J\u202e reason".encode() * 5_000: r"ä \[2J reason.{,450}",
    b"sharedSecret is too short": "sharedSecret is too short; check the options.*",
}
#: Parts of the secret, the token and a header.
ESCAPED = [
    *(SECRET, SECRET.upper(), SECRET[:6], SECRET[-6:], json.dumps(SECRET), f"x{SECRET[2:9]}x"),
    *("t0k3n-abcdef", "Bearer t0k3n-abcdef", "abcdef", "a-header-value"),
]
HIDDEN = [b"", b" \n", b"\x1f\x8b\x08\x00", *(f'{{"why": "no: {x} is bad"}}' for x in ESCAPED)]


def test_the_provider_s_reason_is_one_line_and_repeats_no_part_of_a_secret(
    provider, command, monkeypatch
):
    monkeypatch.setenv("NFTSYNC_API_TOKEN", "t0k3n-abcdef")
    monkeypatch.setenv("NFTSYNC_HEADERS", '{"X-Key": "a-header-value"}')
    hidden = dict.fromkeys((x if isinstance(x, bytes) else x.encode() for x in HIDDEN), None)
    for content, says in (REASONS | hidden).items():
        for status in (400, 422):
            provider.always(reply(content, status))
            done = command("webhook-config", "--send-secret", "--enable").tells(code=1)
            pattern = "; check the options.*" if says is None else f": {says}"
            _, _, reason = done.err.removesuffix("\n").partition(f"refused the change ({status})")
            assert re.fullmatch(pattern, reason), reason
            assert reason.isprintable()


def test_on_a_terminal_only_a_new_url_is_confirmed(provider, command, monkeypatch):
    monkeypatch.setattr("sys.stdin", typed := io.StringIO("n\ny\n"))
    monkeypatch.setattr(typed, "isatty", lambda: True)
    command("webhook-config", "--url", URL).tells(URL, "Nothing was changed.", code=1)
    assert provider.requests() == []
    assert "Sent to" in command("webhook-config", "--url", URL).out
    for words in (["--url", "http://hooks.example.com/webhooks", "--yes"], ["--enable"]):
        done = command("webhook-config", *words)
        assert "[y/N]" not in done.said
        unencrypted = "warning: webhooks to hooks.example.com would travel unencrypted" in done.err
        assert unencrypted == ("--url" in words)
    assert len(provider.requests()) == 3
