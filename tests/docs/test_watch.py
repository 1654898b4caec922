"""The consumer in docs/operate/watch.md verifies messages; its settings are TOML."""

import base64
import hashlib
import hmac
import json
import re
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.runner import EXAMPLES, evaluated, held

PAGE = ROOT / "docs" / "operate" / "watch.md"
KEY = bytes(range(32))
MESSAGE = {"type": "holding.sent", "timestamp": "2026-01-31T12:00:00Z", "data": {"name": "Ключ"}}
BODY = json.dumps(MESSAGE, ensure_ascii=False).encode()


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[httpx.Client]:
    secret = tmp_path / "ops-secret"
    secret.write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    (code,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    names: dict[str, Any] = {"__name__": "consumer"}
    evaluated(code.replace("/etc/nftsync", str(tmp_path)), names)
    transport = httpx.WSGITransport(app=names["app"])
    with httpx.Client(base_url="http://consumer", transport=transport) as client:
        yield client


def signed(body: bytes, *keys: bytes, age: int = 0) -> dict[str, str]:
    """The headers of Standard Webhooks 1.0: a signature per key over id, time and body."""
    message_id, at = "msg_1", str(int(time.time()) - age)
    content = f"{message_id}.{at}.".encode() + body
    digests = [hmac.new(key, content, hashlib.sha256).digest() for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": " ".join(f"v1,{base64.b64encode(x).decode()}" for x in digests),
    }


def test_the_page_s_consumer_accepts_signed_messages_and_refuses_everything_else(consumer, capfd):
    good = signed(BODY, KEY)
    for body, headers, status in (
        (BODY, good, 204),
        (BODY, signed(BODY, b"a previous secret of 24 bytes", KEY), 204),
        (BODY.replace(b"sent", b"left"), good, 401),
        (BODY + b"\xff", good, 401),
        (BODY, signed(BODY, b"another secret"), 401),
        (BODY, signed(BODY, KEY, age=3_600), 401),
        (BODY, good | {"webhook-id": "msg_2"}, 401),
        (BODY, good | {"webhook-signature": good["webhook-signature"].replace("v1,", "v2,")}, 401),
        (BODY, good | {"webhook-signature": "no signature"}, 401),
        (BODY, good | {"webhook-signature": "v1,abc"}, 401),
        (BODY, {}, 401),
    ):
        answer = consumer.post("/nft", content=body, headers=headers)
        assert (answer.status_code, headers) == (status, headers)
        assert answer.content == b"" or status == 401
    assert capfd.readouterr().out == "msg_1 holding.sent {'name': 'Ключ'}\n" * 2


def test_the_first_example_reports_an_nft_that_left(provider, runner, tmp_path):
    first = [block for block in blocks(PAGE) if block.line < _line_of("## Destinations")]
    write_url, test_and_send, create_secret = (
        block.text for block in blocks(PAGE) if block.language == "sh"
    )
    (settings,) = (block.text for block in first if block.language == "toml")
    (shown,) = (block.text for block in first if block.language == "text")
    runner.replace |= {
        "/etc/nftsync": str(tmp_path),
        "https://hooks.slack.com/services/T000/B000/XXXX": f"{provider.url}/sandbox/consumer/slack",
    }
    wallets = "".join(
        f"{wallet},{label},house\n" for wallet, label in zip(EXAMPLES, "AB", strict=True)
    )
    (tmp_path / "wallets.csv").write_text(f"wallet_id,label,group\n{wallets}")
    general = f'base_url = "{provider.url}"\nwallets_file = "wallets.csv"\n'
    (tmp_path / "nftsync.toml").write_text(general + runner.replaced(settings))
    runner.shell(write_url)
    runner.shell("nftsync sync; nftsync watch")
    token = next(iter(held(provider.world, EXAMPLES[0])))
    provider.world.transfer(EXAMPLES[0], provider.world.wallets()[0], token, 1)
    runner.shell("nftsync sync; nftsync watch")
    printed = runner.shell(test_and_send).splitlines()
    heading, _, event, sent = shown.splitlines()
    assert (printed[0], printed[-1]) == (heading, sent)
    assert re.fullmatch(r"\S+Z +A sent .+ to .+", printed[2])
    assert re.fullmatch(r"\S+Z +Treasury sent .+ to .+", event)
    answer = httpx.get(f"{provider.url}/sandbox/consumer/slack", trust_env=False)
    texts = [json.loads(message["body"])["text"] for message in answer.json()]
    assert {texts[0]} == {printed[2].partition("  ")[2].strip()}
    assert texts[-1].startswith("Test message")
    runner.shell(create_secret)
    assert (tmp_path / "ops-secret").read_text().startswith("whsec_")
    assert (tmp_path / "ops-secret").stat().st_mode & 0o777 == 0o600


def _line_of(heading: str) -> int:
    return PAGE.read_text(encoding="utf-8").splitlines().index(heading)


def test_the_page_s_settings_are_toml_with_the_kinds_of_destinations():
    tables = [tomllib.loads(block.text) for block in blocks(PAGE) if block.language == "toml"]
    kinds = {x["kind"] for table in tables for x in table.get("destinations", {}).values()}
    assert kinds == {"webhook", "slack", "email", "command"}
