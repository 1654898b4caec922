"""Each row of the receiver's table of replies, over real connections."""

import gzip
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from nftsync.errors import InputError, SettingsError
from tests.kit.inbox import quarantine_id
from tests.kit.worlds import PATIENCE
from tests.receiver.conftest import SECRET, Running, body, headers, logged, raw

LIMIT = 256 * 1024
HEADER, *_ = headers(b"")


def good(content: bytes, secret: str = SECRET) -> str:
    return headers(content, secret)[HEADER]


def bad_signatures(content: bytes) -> list[list[tuple[str, str | bytes]]]:
    """The headers of requests, none of which is signed."""
    return [
        [],
        *([(HEADER, value)] for value in ("", "ä" * 44, b"\xff" * 44, "x" * 3_000)),
        [(HEADER, good(content, "another secret"))],
        [(HEADER, good(content)), (HEADER, good(content))],
        [(HEADER, good(content)), (HEADER, "x")],
        [(HEADER, f"{good(content)},{good(content)}")],
        [(HEADER, good(content).rstrip("="))],
        [(HEADER, f"sha256={good(content)}")],
        [(HEADER, good(content + b" "))],
        [(HEADER.replace("-", "_"), good(content))],
    ]


def test_a_bad_signature_is_401_and_nothing_is_stored(
    receiver: Running,
) -> None:
    content = body()
    for lines in bad_signatures(content):
        encoded = [
            (name.encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
            for name, value in lines
        ]
        reply = receiver.client.post("/webhooks", content=content, headers=encoded)
        assert (reply.status_code, reply.json()) == (401, {"error": "signature refused"}), lines
    assert receiver.webhooks() == []


def _chunks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 10_000):
        yield content[start : start + 10_000]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_413_whole_each_time(receiver: Running, chunked: bool) -> None:
    for signed, size in ((False, 1_000_000), (True, LIMIT + 1)) * 3:
        content = b" " * size
        with httpx.Client(base_url=receiver.server.url, trust_env=False, verify=False) as client:
            reply = client.post(
                "/webhooks",
                content=_chunks(content) if chunked else content,
                headers=headers(content) if signed else {},
            )
        assert (reply.status_code, reply.json()) == (413, {"error": "body over 256 KiB"})
    content = body()
    content += b" " * (LIMIT - len(content))
    reply = receiver.client.post(
        "/webhooks", content=_chunks(content) if chunked else content, headers=headers(content)
    )
    assert reply.status_code == 200
    assert receiver.webhooks("state, length(body)") == [("pending", LIMIT)]


def test_a_signed_body_that_is_unusable_is_200_and_quarantined(receiver: Running) -> None:
    contents = [b"", b"x", b"[]", b"\xff", b"[" * 100_000, body(resourceId="..")]
    for content in contents:
        assert receiver.post(content) == 200
    expected = [(quarantine_id(content), "quarantined", content) for content in contents]
    assert receiver.webhooks("webhook_id, state, body") == expected


OTHERS = [
    *((method, "/webhooks", 405, "POST") for method in ("GET", "HEAD", "PUT", "OPTIONS", "BREW")),
    *(("POST", path, 404, None)
      for path in ("/webhooks/", "//webhooks", "/Webhooks", "/webhooks/x", "/")),
    *(("GET", path, 404, None) for path in ("/%00", "/metrics")),
    ("POST", "/healthz", 405, "GET, HEAD"),
    ("OPTIONS", "/readyz", 405, "GET, HEAD"),
    *((method, path, 200, None) for method in ("GET", "HEAD") for path in ("/healthz", "/readyz")),
]  # fmt: skip


def test_another_method_is_405_another_path_404(receiver: Running) -> None:
    for method, path, status, allow in OTHERS:
        reply = receiver.client.request(method, path, follow_redirects=False)
        assert reply.status_code == status, (method, path)
        allowed = reply.headers.get("Allow")
        assert (allowed and ", ".join(sorted(allowed.split(", ")))) == allow
        if method != "HEAD":
            error = {"error": reply.reason_phrase.lower()}
            assert reply.json() == ({"status": "ok"} if status == 200 else error)
        assert reply.headers["Server"] == "nftsync"


def test_a_query_changes_nothing_and_the_path_can_be_chosen(run: Callable[..., Running]) -> None:
    receiver = run(path="/hooks/nft")
    content = body()
    for path, status in (("/hooks/nft?a=b", 200), ("/webhooks", 404)):
        reply = receiver.client.post(path, content=content, headers=headers(content))
        assert reply.status_code == status
    assert receiver.client.get("/hooks/nft").status_code == 405


def test_pipelined_and_chunked_requests_are_answered_in_order(receiver: Running) -> None:
    """Several requests in one packet, one of them refused, one chunked."""
    first, second, third = body(), body(), body()
    head = f"Transfer-Encoding: chunked\r\n{HEADER}: {good(third)}\r\n\r\n{len(third):x}"
    chunked = f"POST /webhooks HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + third
    last = b"\r\n0\r\n\r\nGET /no HTTP/1.1\r\nHost: x\r\n\r\n"  # whose reply ends the connection
    replies = receiver.replies(raw(first) + raw(second, secret="wrong") + chunked + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", replies) == [b"200", b"401", b"200", b"404"]
    assert receiver.webhooks("body") == [(first,), (third,)]


@pytest.mark.parametrize("hosts", ["", "Host: x\r\nHost: y\r\n"])
def test_a_request_without_one_host_is_400_and_the_last(receiver: Running, hosts: str) -> None:
    bad = raw(body()).replace(b"Host: receiver\r\n", hosts.encode())
    reply = receiver.replies(bad + raw(body()))
    assert (reply.split()[1], reply.count(b"HTTP/1")) == (b"400", 1)
    assert receiver.webhooks() == []


def test_a_body_shorter_than_it_was_said_to_be_stores_nothing(receiver: Running) -> None:
    content = body()
    with receiver.connect() as link:
        link.sendall(raw(content)[:-1])
    assert receiver.post(body(action="afterwards")) == 200
    assert receiver.webhooks("action") == [("afterwards",)]


def test_replay_is_woken_by_what_is_new_alone(run: Callable[..., Running]) -> None:
    woken = threading.Semaphore(0)
    receiver = run(on_stored=woken.release)
    content = body()
    receiver.post(content)
    assert woken.acquire(timeout=PATIENCE)
    receiver.post(content)
    receiver.post(b"unusable")
    receiver.client.get("/readyz")
    assert not woken.acquire(blocking=False)


def test_a_receiver_needs_a_good_secret_and_path(
    run: Callable[..., Running], tmp_path: Path
) -> None:
    for secrets in ([], [""], [" \t"], ["good", ""], ["\udcff"]):
        with pytest.raises(SettingsError, match="NFTSYNC_WEBHOOK_SECRET"):
            run(secrets=secrets)
    for path in (
        *("", "webhooks", "/<x>", "/a?b", "/healthz", "/a b"),
        *("/ä", "/readyz", "/a/", "//", "//a", "/\n"),
    ):
        with pytest.raises(InputError, match="--path"):
            run(path=path)
    assert list(tmp_path.iterdir()) == []


def test_many_wrong_signatures_are_logged_once_with_advice(
    run: Callable[..., Running],
) -> None:
    receiver = run()
    with logged() as lines:
        for _ in range(9):
            receiver.post(body(), "wrong")
        receiver.post(body())
        for _ in range(9):
            receiver.post(body(), "wrong")
        assert not [line for line in lines() if "in a row" in line["message"]]
        for _ in range(200):
            receiver.post(body(), "wrong")
        (advice,) = [line["check"] for line in lines() if "in a row" in line["message"]]
    for words in ("webhook_secret", "webhook-config --send-secret", "proxy", HEADER):
        assert words in advice


def test_the_log_names_the_encoding_of_a_refused_webhook(receiver: Running) -> None:
    content = body()
    encodings = ("gzip", "br", "x" * 1_000)
    with logged() as lines:
        for encoding in encodings:
            receiver.client.post(
                "/webhooks",
                content=gzip.compress(content),
                headers=headers(content) | {"Content-Encoding": encoding},
            )
        receiver.post(content, "wrong")
    found = [line.get("content_encoding") for line in lines()]
    assert found == ["gzip", "br", "x" * 40, None]
    assert receiver.webhooks() == []


def test_a_flood_of_refused_webhooks_is_a_few_lines_and_a_count(receiver: Running) -> None:
    with logged() as of_receiver:
        for _ in range(100):
            receiver.post(b"x", "wrong")
        time.sleep(1)
        receiver.post(b"x", "wrong")
        lines = [line for line in of_receiver() if line["message"] == "refused a webhook"]
    assert sum(line.get("suppressed", 0) for line in lines) + len(lines) == 101
    by_second = Counter(line["time"][:19] for line in lines)
    assert max(by_second.values()) == 10
