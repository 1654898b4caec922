"""Channel to real peers on loopback: results, limits, addresses, and texts from strangers."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from nftsync.alerts import Destination
from nftsync.errors import SettingsError
from nftsync.provider.images import Images
from nftsync.watch.hosts import may_reach
from tests.kit.provider import Provider, endless, head, raw, reply, silence
from tests.kit.serve_process import free_port
from tests.kit.waiting import has_ended, wait_until
from tests.watch.conftest import BODY, MESSAGE, PASSWORD, SendResult, mail_to, send_in_thread

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
CANARY = "T0C4n4ry/B0C4n4ry/xoxbC4n4ry4711secret"


def test_a_webhook_is_signed_and_carries_no_credentials_of_nftsync(lying, opened):
    lying.always(reply(b"thanks"))
    delivery = opened(url=f"{lying.url}/hook?a=1%2F2&b=é".replace("é", "%C3%A9"), secrets=(SECRET,))
    signed = MESSAGE._replace(headers={"x-service-webhook-hmac": "theirs", "webhook-id": "no"})
    assert [delivery.send(signed) for _ in range(2)] == [SendResult("sent")] * 2
    first, _ = lying.requests()
    assert (first.method, first.path, first.query) == ("POST", "/hook", "a=1%2F2&b=%C3%A9")
    assert first.body == BODY
    assert first.headers["webhook-id"] == MESSAGE.message_id
    assert first.headers["x-service-webhook-hmac"] == "theirs"
    assert first.headers["content-type"] == "application/json"
    Webhook(SECRET).verify(first.body, dict(first.headers))
    assert "canary" not in str(lying.requests())
    assert lying.connections == 1


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        *((reply(status=status), "sent") for status in (200, 202, 204)),
        (reply(b"x" * 100_000), "sent"),
        (reply(b"not gzip", content_encoding="gzip"), "sent"),
        (reply(status=410), "gone"),
        *((reply(status=status), "down") for status in (408, 429, 502, 503, 504)),
        *((reply(status=status), "refused") for status in (304, 400, 401, 403, 404, 500, 501)),
        (reply(status=307, location="/elsewhere"), "refused"),
        (raw(b""), "down"),
        (raw(head("content-length: 9") + b"half"), "down"),
        (raw(b"HTTP/1.1 200 OK\r\n", then="reset"), "down"),
        (raw(b"220 not a web server\r\n"), "down"),
    ],
)
def test_the_answer_decides_on_the_result_and_no_redirect_is_followed(
    lying, opened, answer, result
):
    lying.always(answer)
    assert opened(url=f"{lying.url}/hook").send(MESSAGE).result == result
    assert [seen.path for seen in lying.requests()] == ["/hook"]


def test_without_a_listener_or_a_name_the_destination_is_down(opened):
    for url in (f"http://127.0.0.1:{free_port()}", "https://nftsync.invalid"):
        outcome = opened(url=url).send(MESSAGE)
        assert outcome.result == "down"
        assert outcome.error.startswith(f"no connection to {url}: ")


DATES = {"date": "Wed, 21 Oct 2026 07:28:00 GMT", "retry_after": "Wed, 21 Oct 2026 07:29:30 GMT"}


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (429, {"retry_after": "120"}, 120.0),
        (429, {"retry_after": "9999999"}, 86_400.0),
        (429, DATES, 90.0),
        (429, {"retry_after": "1.5, 3"}, 3.0),
        (429, {"x_ratelimit_reset": "30"}, 30.0),
        (429, {"ratelimit": '"default";r=0;t=20'}, 20.0),
        (429, {"retry_after": "soon"}, None),
        (403, {"retry_after": "2"}, 2.0),
        (403, {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "9"}, 9.0),
    ],
)
def test_the_wait_that_a_receiver_asks_for_is_returned(lying, opened, status, headers, wait):
    lying.always(reply(status=status, **headers))
    assert opened(url=lying.url).send(MESSAGE) == SendResult("down", f"HTTP {status}", wait)


@pytest.mark.parametrize(
    "answer",
    [
        silence(),
        endless(b"x", head("content-length: 999999"), pause=0.02),
        endless(b"X-A: b\r\n", b"HTTP/1.1 200 X\r\n", pause=0.02),
    ],
)
def test_an_attempt_ends_in_time_however_slowly_the_peer_sends(lying, opened, answer):
    lying.always(answer)
    outcome = opened(url=lying.url, timeout=0.3).send(MESSAGE)
    assert outcome == SendResult("down", "no complete response within 0.3 s")


def test_an_abort_ends_the_attempts_in_flight(lying, opened):
    lying.always(silence())
    delivery = opened(url=lying.url)
    outcome = send_in_thread(delivery)
    lying.wait_for(1)
    delivery.abort()
    assert outcome() == delivery.send(MESSAGE) == SendResult("down", "stopped")
    assert len(lying.requests()) == 1


def test_an_error_quotes_the_start_of_the_answer_in_one_safe_line(lying, opened):
    lying.always(reply(b"no\r\n\x1b[31m \xe2\x80\xae\xff" + b"y" * 500, 500))
    error = opened(url=lying.url).send(MESSAGE).error
    assert error.startswith("HTTP 500 no [31m \ufffdyyy")
    assert len(error) < 220
    assert error.isprintable()


#: Addresses, by whether messages reach them: always, or on a private network only.
ADDRESSES = {
    (True, True): ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"],
    (False, True): [
        *("10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1", "::ffff:10.0.0.1", "100.64.0.1"),
        *("64:ff9b::10.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0"),
        *("fd20:ce::253", "fd00:ec3::254"),
    ],
    (False, False): [
        *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254"),
        *("100.100.100.200", "192.0.0.192", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
        *("::ffff:100.100.100.200", "::ffff:192.0.0.192", "168.63.129.16", "169.254.170.2"),
        *("fe80::a9fe:a9fe%2", "fd20:ce::254", "fd00:ec2::23", "fd00:ec2:0:0::0254"),
        *("fd00:c1::a9fe:a9fe", "fd00:42::42"),
    ],
}


@pytest.mark.parametrize("is_reached", ADDRESSES)
def test_messages_for_a_public_host_reach_public_addresses_only(is_reached):
    for address in ADDRESSES[is_reached]:
        for allow_private, expected in zip((False, True), is_reached, strict=True):
            told = may_reach(address, host="alerts.example.com", allow_private=allow_private)
            assert told is expected, address


METADATA = ("169.254.169.254", "169.254.170.2", "168.63.129.16", "192.0.0.192", "100.100.100.200")


@pytest.mark.parametrize("inner", METADATA)
def test_no_ipv6_form_of_a_metadata_service_is_reached(inner):
    number = int(IPv4Address(inner))
    high, low = number >> 16, number & 0xFFFF
    top, middle, bottom = number >> 24, number >> 8 & 0xFFFF, number & 0xFF
    for form in (
        *(f"::ffff:{inner}", f"::{inner}", f"::ffff:0:{inner}", f"64:ff9b::{inner}"),
        f"2002:{high:x}:{low:x}::1",  # 6to4
        f"2001:0:{high:x}:{low:x}::1",  # Teredo: the server, then the client
        f"2001:0:808:808::{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}",
        *(f"2620::5efe:{inner}", f"2620::200:5efe:{inner}"),  # ISATAP
        # NAT64 within a site, for each length of the prefix (RFC 6052)
        f"64:ff9b:1:{high:x}:{low >> 8:x}:{bottom << 8:x}::",
        f"64:ff9b:1:{top:x}:{middle >> 8:x}:{(middle & 0xFF) << 8 | bottom:x}::",
        f"64:ff9b:1:0:{top:x}:{middle:x}:{bottom << 8:x}:0",
        f"64:ff9b:1::{inner}",
    ):
        assert not may_reach(form, host="alerts.example.com", allow_private=True), form
        assert not Images().at(f"https://[{IPv6Address(form)}]/1.png").url, form


def test_loopback_is_reached_only_by_its_own_names():
    for host in ("localhost", "127.0.0.1", "127.8.8.8", "::1"):
        assert may_reach("127.0.0.1", host=host, allow_private=False)
        assert not may_reach("10.0.0.1", host=host, allow_private=False)
        assert not may_reach("169.254.169.254", host=host, allow_private=True)


PRIVATE = ("10.0.0.1", "[fd00::1]", "169.254.169.254", "[::ffff:169.254.169.254]", "alertmanager")


@pytest.mark.parametrize("host", [*PRIVATE, "hooks.internal"])
def test_a_private_host_is_refused_as_a_setting(opened, host):
    with pytest.raises(SettingsError, match=r"^destinations\.ops: its host is in a private"):
        opened(url=f"https://{host}/x")


def test_a_name_of_a_loopback_address_is_refused_before_a_byte_is_sent(lying, opened):
    url = lying.url.replace("127.0.0.1", "127.1")  # a name: not a valid address
    outcome = opened(url=url, allow_http=True).send(MESSAGE)
    assert outcome == SendResult("down", "the host has a private network address")
    wait_until(lambda: lying.connections == 1)
    assert lying.requests() == []
    lying.always(reply())
    assert opened(url=url, allow_http=True, allow_private=True).send(MESSAGE).result == "sent"
    mail = mail_to("127.1", lying.port, security="none", allow_http=True)
    assert "private network" in opened("email", **mail).send(MESSAGE).error


def test_http_leaves_this_machine_only_if_that_is_allowed(opened):
    with pytest.raises(SettingsError, match=r"^destinations\.ops: .* allow_http = true"):
        opened(url="http://alerts.example.com/x")
    opened(url="http://alerts.example.com/x", allow_http=True)
    opened(url="http://localhost/x")
    with pytest.raises(SettingsError, match="allow_http = true"):
        opened("email", **mail_to("mail.example.com", 25, security="none"))


def test_a_proxy_is_used_except_for_this_machine(lying, opened, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", lying.url)
    lying.always(reply())
    opened(url="http://alerts.example.com/x", allow_http=True).send(MESSAGE)
    assert [seen.path for seen in lying.requests()] == ["http://alerts.example.com/x"]
    with Provider() as own:
        own.always(reply())
        assert opened(url=f"{own.url}/y").send(MESSAGE).result == "sent"


@pytest.mark.parametrize(
    "answer",
    [
        lambda peer: reply(f'<b title="{peer.seen.path}">no such page</b>'.encode(), 404)(peer),
        lambda peer: raw(f"POST {peer.seen.path} HTTP/1.1\r\n".encode())(peer),
        reply(b"x" * 180 + f" /services/{CANARY}".encode(), 500),
    ],
)
def test_no_error_shows_the_path_of_a_slack_url(lying, opened, answer):
    lying.always(answer)
    error = opened("slack", url=f"{lying.url}/services/{CANARY}?k=C4n4ryQuery").send(MESSAGE).error
    assert error
    assert "C4n4ry" not in error


def test_no_error_of_a_setting_and_no_repr_shows_a_secret(opened):
    for of in (
        {"kind": "slack", "url": f"hooks.slack.com/{CANARY}"},
        {"kind": "slack", "url": f"http://hooks.slack.com/{CANARY}"},
        {"kind": "slack", "url": f"https://C4n4ry:C4n4ry@hooks.slack.com/{CANARY}é"},
        {"kind": "webhook", "url": "https://alerts.example.com", "secrets": ("whsec_C4n4ry",)},
        {"kind": "email", **mail_to("mail.example.com", 25, password=f"{PASSWORD}é")},
    ):
        with pytest.raises(SettingsError) as caught:
            opened(**of)
        destination = Destination(name="ops", **of)
        shown = (caught.value, repr(destination), destination.__rich_repr__())
        assert "C4n4ry" not in "".join(map(str, shown))


def test_a_token_name_cannot_mention_link_or_format_in_slack(lying, opened):
    lying.always(reply(b"ok"))
    hostile = "<!channel> & <https://evil.example|click> @here *b* &lt;\nnext"
    delivery = opened("slack", url=f"{lying.url}/services/x", secrets=(SECRET,))
    assert delivery.send(MESSAGE._replace(text=hostile)).result == "sent"
    (seen,) = lying.requests()
    sent = json.loads(seen.body)
    safe = "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt; @here *b* &amp;lt;\nnext"
    block = {"type": "section", "text": {"type": "plain_text", "text": safe, "emoji": False}}
    assert sent.pop("blocks") == [block]
    assert sent.pop("text") == safe
    assert sent.pop("parse") == "none"
    assert set(sent) == {"mrkdwn", "link_names", "unfurl_links", "unfurl_media"}
    assert not any(sent.values())
    assert not any(name.startswith("webhook-") for name in seen.headers)


@pytest.mark.parametrize("text", ["&" * 3_000, "x" + "&" * 3_000, "y" * 9_000])
def test_a_long_text_is_cut_to_the_length_that_slack_takes(lying, opened, text):
    lying.always(reply())
    opened("slack", url=lying.url).send(MESSAGE._replace(text=text))
    shown = json.loads(lying.requests()[0].body)["text"]
    assert 2_990 < len(shown) <= 3_000
    assert shown.removesuffix("…").replace("&amp;", "").strip("xy") == ""


def test_a_command_gets_the_message_as_its_input_and_no_secret(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("NFTSYNC_API_TOKEN", "canary")
    code = (
        "import os, sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read());"
        "pathlib.Path(sys.argv[2]).write_text(str(dict(os.environ))); print('x' * 200_000)"
    )
    arguments = str(tmp_path / "in put;x"), str(tmp_path / "environment")
    body = BODY + b" " * 300_000
    delivery = opened("command", command=(sys.executable, "-I", "-S", "-c", code, *arguments))
    assert delivery.send(MESSAGE._replace(body=body)) == SendResult("sent")
    assert Path(arguments[0]).read_bytes() == body
    assert "NFTSYNC_" not in Path(arguments[1]).read_text()


FAILED = "the command failed with exit code"


@pytest.mark.parametrize(
    ("command", "result", "error"),
    [
        (("true",), "sent", None),
        (("false",), "refused", f"{FAILED} 1"),
        (("sh", "-c", "kill -9 $$"), "refused", f"{FAILED} -9"),
        (("/no/such/program",), "down", "the command cannot be run:"),
        (("a\0b",), "down", "the command cannot be run:"),
        (("sleep", "600"), "down", "the command took more than 0.3 s"),
    ],
)
def test_the_end_of_a_command_decides_on_the_result(opened, command, result, error):
    delivery = opened("command", command=command, timeout=0.3 if "600" in command else 60)
    outcome = delivery.send(MESSAGE._replace(body=bytes(300_000)))  # more than a pipe holds
    shown = outcome.error and outcome.error[: len(error or "")]
    assert (outcome.result, shown) == (result, error)


def has_open(file: Path) -> bool:
    """Whether any process has a file open."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            if any(link.readlink() == file for link in (process / "fd").iterdir()):
                return True
    return False


def test_an_abort_kills_a_command_in_flight_with_its_children(opened, tmp_path):
    output = tmp_path / "output"
    command = ("sh", "-c", 'sleep 600 > "$0" & wait', str(output))
    delivery = opened("command", command=command)
    outcome = send_in_thread(delivery)
    wait_until(lambda: has_open(output))
    delivery.abort()
    assert outcome() == SendResult("down", "stopped")
    wait_until(lambda: not has_open(output))
    output.unlink()
    assert delivery.send(MESSAGE) == SendResult("down", "stopped")
    assert not output.exists()


@pytest.mark.parametrize("end", ["exit 0", "exit 1", "abort"])
def test_no_background_child_outlives_a_command(opened, tmp_path, end):
    output = tmp_path / "output"
    code = f'sleep 600 > "$0" & echo $$ > "$0.pid"; {end if end != "abort" else ""}'
    timeout = 60.0 if end == "abort" else 0.5
    delivery = opened("command", command=("sh", "-c", code, str(output)), timeout=timeout)
    outcome = send_in_thread(delivery)
    if end == "abort":
        wait_until(lambda: has_ended(output.with_suffix(".pid")) and has_open(output))
        delivery.abort()
    assert outcome().result == ("refused" if end == "exit 1" else "sent")
    wait_until(lambda: not has_open(output))


def test_a_background_child_of_a_command_has_time_to_end(opened, tmp_path):
    file = tmp_path / "output"
    script = '(while [ ! -e "$0.ended" ]; do sleep 0.05; done; touch "$0") & touch "$0.ended"'
    delivery = opened("command", command=("sh", "-c", script, str(file)))
    assert delivery.send(MESSAGE) == SendResult("sent")
    assert file.exists()
