"""Signatures: libraries of other authors verify those of nftsync, and of its sandbox."""

from __future__ import annotations

import base64
import hashlib
import json
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.hmac import HMAC
from linebot.v3 import SignatureValidator
from resend import Webhooks

from nftsync.provider.webhooks import HEADER, sign, verify
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.watch.signing import signature
from tests.foreign.suites import read_suite
from tests.kit.provider import Provider, reply

SECRET = "s3cret-ключ-🔑"
STRINGS: list[str] = json.loads(read_suite("naughty_strings")["blns.json"])


def test_line_bot_sdk_verifies_webhooks_of_the_sandbox_and_no_changed_ones(
    lying: Provider,
) -> None:
    """LINE signs its webhooks as the provider does: Base64(HMAC-SHA256(secret, body))."""
    config = {"url": f"{lying.url}/webhooks", "enabled": True, "sharedSecret": SECRET}
    lying.always(reply())
    with SandboxServer(generate(wallets=2, nfts=3)) as server:
        server.sandbox.configure(json.dumps(config | {"webhookTypes": ["nft"]}).encode())
        server.sandbox.mint(server.world.wallets()[0], 1, {"name": "Ünïcode"})
        lying.wait_for(1)
    for received in lying.requests("/webhooks"):
        body, signed = received.body.decode(), received.headers[HEADER.lower()]
        assert SignatureValidator(SECRET).validate(body, signed)
        assert not SignatureValidator(SECRET).validate(f"{body} ", signed)
        assert not SignatureValidator(f"{SECRET}x").validate(body, signed)


def test_two_libraries_make_and_verify_the_signatures_of_the_receiver() -> None:
    for text in STRINGS:
        secret, body = f"secret {text}", text.encode()
        assert SignatureValidator(secret).validate(text, sign(secret, body))
        mac = HMAC(secret.encode(), hashes.SHA256())
        mac.update(body)
        header = base64.b64encode(mac.finalize()).decode()
        assert verify(body, header, [secret]) == 0
        assert verify(body + b" ", header, [secret]) == "wrong"
    assert len(STRINGS) == 485


def resend_accepts(secret: str, message_id: str, timestamp: int, header: str, body: str) -> bool:
    headers = {"id": message_id, "timestamp": str(timestamp), "signature": header}
    try:
        Webhooks.verify({"payload": body, "headers": headers, "webhook_secret": secret})
    except ValueError:
        return False
    return True


def test_resend_verifies_alerts_also_during_a_rotation_and_no_changed_ones() -> None:
    """resend has its own implementation of Standard Webhooks; svix wraps `standardwebhooks`."""
    for text in STRINGS:
        body, at = json.dumps({"name": text}, ensure_ascii=False), int(time.time())
        keys = (hashlib.sha256(f"{number} {text}".encode()).digest() for number in range(3))
        old, new, other = (f"whsec_{base64.b64encode(key).decode()}" for key in keys)
        header = signature([new, old], "msg_1", at, body.encode())
        assert resend_accepts(old, "msg_1", at, header, body)
        assert resend_accepts(new, "msg_1", at, header, body)
        assert not resend_accepts(other, "msg_1", at, header, body)
        assert not resend_accepts(new, "msg_2", at, header, body)
        assert not resend_accepts(new, "msg_1", at + 1, header, body)
        assert not resend_accepts(new, "msg_1", at, header, f"{body} ")
