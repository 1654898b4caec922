"""Each row of the receiver's table of replies, over real connections."""

import gzip
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from nftsync import frames
from nftsync.errors import InputError, SettingsError
from nftsync.provider.webhooks import HEADER
from tests.kit.inbox import quarantine_id
from tests.kit.serve_process import SECRET, signed
from tests.kit.worlds import PATIENCE
from tests.receiver.conftest import body, logged, raw

LIMIT = 256 * 1024


def test_a_bad_signature_is_401_and_nothing_is_stored(receiver):
    content = body()
    good = signed(content)[HEADER]
    signatures: list[list[str | bytes]] = [
        *([], [""], ["ä" * 44], [b"\xff" * 44], ["x" * 3_000], [good, good], [good, "x"]),
        *([f"{good},{good}"], [good.rstrip("=")], [f"sha256={good}"]),
        *([signed(content, "another secret")[HEADER]], [signed(content + b" ")[HEADER]]),
    ]
    lines = [[(HEADER, value) for value in values] for values in signatures]
    for sent in (*lines, [(HEADER.replace("-", "_"), good)]):
        encoded = [
            (name.encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
            for name, value in sent
        ]
        reply = receiver.client.post("/webhooks", content=content, headers=encoded)
        assert (reply.status_code, reply.json()) == (401, {"error": "signature refused"}), sent
    assert receiver.webhooks() == []


def _chunks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 10_000):
        yield content[start : start + 10_000]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_413_whole_each_time(receiver, chunked):
    for is_signed, size in ((False, 1_000_000), (True, LIMIT + 1)) * 3:
        content = b" " * size
        with httpx.Client(base_url=receiver.server.url, trust_env=False, verify=False) as client:
            reply = client.post(
                "/webhooks",
                content=_chunks(content) if chunked else content,
                headers=signed(content) if is_signed else {},
            )
        assert (reply.status_code, reply.json()) == (413, {"error": "body over 256 KiB"})
    content = body()
    content += b" " * (LIMIT - len(content))
    reply = receiver.client.post(
        "/webhooks", content=_chunks(content) if chunked else content, headers=signed(content)
    )
    assert reply.status_code == 200
    assert receiver.webhooks("state, length(body)") == [("pending", LIMIT)]


def test_a_signed_body_that_is_unusable_is_200_and_quarantined(receiver):
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


def test_another_method_is_405_another_path_404(receiver):
    for method, path, status, allow in OTHERS:
        reply = receiver.client.request(method, path, follow_redirects=False)
        assert reply.status_code == status, (method, path)
        allowed = reply.headers.get("Allow")
        assert (allowed and ", ".join(sorted(allowed.split(", ")))) == allow
        if method != "HEAD":
            error = {"error": reply.reason_phrase.lower()}
            assert reply.json() == ({"status": "ok"} if status == 200 else error)
        assert reply.headers["Server"] == "nftsync"


def test_a_query_changes_nothing_and_the_path_can_be_chosen(run):
    receiver = run(path="/hooks/nft")
    content = body()
    for path, status in (("/hooks/nft?a=b", 200), ("/webhooks", 404)):
        reply = receiver.client.post(path, content=content, headers=signed(content))
        assert reply.status_code == status
    assert receiver.client.get("/hooks/nft").status_code == 405


def test_pipelined_and_chunked_requests_are_answered_in_order(receiver):
    """Several requests in one packet, one of them refused, one chunked."""
    first, second, third = body(), body(), body()
    head = f"Transfer-Encoding: chunked\r\n{HEADER}: {signed(third)[HEADER]}\r\n\r\n{len(third):x}"
    chunked = f"POST /webhooks HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + third
    last = b"\r\n0\r\n\r\nGET /no HTTP/1.1\r\nHost: x\r\n\r\n"  # whose reply ends the connection
    replies = receiver.replies(raw(first) + raw(second, secret="wrong") + chunked + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", replies) == [b"200", b"401", b"200", b"404"]
    assert receiver.webhooks("body") == [(first,), (third,)]


@pytest.mark.parametrize("hosts", ["", "Host: x\r\nHost: y\r\n"])
def test_a_request_without_one_host_is_400_and_the_last(receiver, hosts):
    bad = raw(body()).replace(b"Host: receiver\r\n", hosts.encode())
    reply = receiver.replies(bad + raw(body()))
    assert (reply.split()[1], reply.count(b"HTTP/1")) == (b"400", 1)
    assert receiver.webhooks() == []


def test_a_body_shorter_than_it_was_said_to_be_stores_nothing(receiver):
    content = body()
    with receiver.connect() as link:
        link.sendall(raw(content)[:-1])
    assert receiver.post(body(action="afterwards")) == 200
    assert receiver.webhooks("action") == [("afterwards",)]


def test_replay_is_woken_by_what_is_new_alone(run):
    woken = threading.Semaphore(0)
    receiver = run(on_stored=woken.release)
    content = body()
    receiver.post(content)
    assert woken.acquire(timeout=PATIENCE)
    receiver.post(content)
    receiver.post(b"unusable")
    receiver.client.get("/readyz")
    assert not woken.acquire(blocking=False)


def test_a_receiver_needs_a_good_secret_and_path(run, tmp_path):
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


def test_many_wrong_signatures_are_logged_once_with_advice(run):
    receiver = run()
    with logged() as lines:
        for _ in range(2):
            for _ in range(9):
                receiver.post(body(), "wrong")
            receiver.post(body())
        assert not [line for line in lines() if "in a row" in line["message"]]
        for _ in range(200):
            receiver.post(body(), "wrong")
        (advice,) = [line["check"] for line in lines() if "in a row" in line["message"]]
    for words in ("webhook_secret", "webhook-config --send-secret", "proxy", HEADER):
        assert words in advice


def test_the_log_names_the_encoding_of_a_refused_webhook(receiver):
    content = body()
    encodings = ("gzip", "br", "x" * 1_000)
    with logged() as lines:
        for encoding in encodings:
            receiver.client.post(
                "/webhooks",
                content=gzip.compress(content),
                headers=signed(content) | {"Content-Encoding": encoding},
            )
        receiver.post(content, "wrong")
    found = [line.get("content_encoding") for line in lines()]
    assert found == ["gzip", "br", "x" * 40, None]
    assert receiver.webhooks() == []


def test_the_inbox_and_the_log_have_the_headers_of_the_last_delivery(receiver, command):
    content, unusable = body(), b"{}"
    trace = {"Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}

    def post(content, **headers):
        secret = headers.pop("secret", SECRET)
        sent = signed(content, secret) | headers
        return receiver.client.post("/webhooks", content=content, headers=sent).status_code

    with logged() as lines:
        for identifier in ("|first.", "|second."):
            assert post(content, **{"Request-Id": identifier}, **trace) == 200
        assert post(content, secret="wrong", **{"Request-Id": "|third."}) == 401
        assert post(unusable, **trace) == 200
        refused, quarantined = lines()
    assert (refused["request_id"], refused.get("traceparent")) == ("|third.", None)
    assert (quarantined.get("request_id"), quarantined["traceparent"]) == (None, *trace.values())
    expected = {"request_id": "|second.", "traceparent": trace["Traceparent"]}
    shown = command("inbox", "show", json.loads(content)["id"], "-d", receiver.database)
    shown.says(*expected.values())
    row = frames.webhooks(receiver.database).iloc[0].to_dict()
    assert row | expected | {"deliveries": 2} == row


@pytest.mark.parametrize("value", ["x" * 201, "a\tb", "", "\x85"], ids=ascii)
def test_a_header_that_is_long_or_not_printable_is_left_out(receiver, value):
    content = body()
    headers = signed(content) | {"Request-Id": value.encode("latin-1"), "Traceparent": "00-x"}
    assert receiver.client.post("/webhooks", content=content, headers=headers).status_code == 200
    assert receiver.webhooks("request_id, traceparent, state") == [(None, "00-x", "pending")]


def test_a_flood_of_refused_webhooks_is_a_few_lines_and_a_count(receiver):
    with logged() as of_receiver:
        for _ in range(100):
            receiver.post(b"x", "wrong")
        time.sleep(1)
        receiver.post(b"x", "wrong")
        lines = [line for line in of_receiver() if line["message"] == "refused a webhook"]
    assert sum(line.get("suppressed", 0) for line in lines) + len(lines) == 101
    by_second = Counter(line["time"][:19] for line in lines)
    assert max(by_second.values()) == 10
