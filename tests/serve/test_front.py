"""The web servers of docs/operate/webhooks.md in front of `serve`, loaded as they stand there."""

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.provider import wallet
from tests.kit.serve_process import Serve, free_port, id_of, serving, signed, states, webhook
from tests.kit.waiting import wait_until
from tests.receiver.framing import requests

DOCS = Path(__file__).parents[2] / "docs" / "operate" / "webhooks.md"
HOST = "hooks.example.com"
CERTIFICATE = "req -x509 -newkey rsa:2048 -nodes -out certificate.pem -keyout key.pem -subj"


def documented(name: str, changes: dict[str, str]) -> str:
    """Return a configuration with the ports and paths of a test."""
    (text,) = re.findall(rf"^```{name}\n(.*?)^```$", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx(folder: Path, port: int, upstream: str) -> list[str]:
    changes = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "    listen [::]:443 ssl;\n": "",
        f"/etc/letsencrypt/live/{HOST}/fullchain.pem": f"{folder}/certificate.pem",
        f"/etc/letsencrypt/live/{HOST}/privkey.pem": f"{folder}/key.pem",
        "http://127.0.0.1:8787": upstream,
    }
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "front.conf").write_text(
        f"daemon off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}{documented('nginx', changes)}}}\n"
    )
    return ["nginx", "-e", "stderr", "-c", str(folder / "front.conf")]


def caddy(folder: Path, port: int, upstream: str) -> list[str]:
    changes = {
        "{\n\tservers": "{\n\tadmin off\n\tauto_https disable_redirects\n\tservers",
        f"{HOST} {{": f"https://{HOST}:{port} {{\n\ttls certificate.pem key.pem",
        "127.0.0.1:8787": upstream.removeprefix("http://"),
    }
    if "2.6" in subprocess.check_output(["caddy", "version"], text=True):  # as Debian 12 has it
        changes["request_buffers 256KiB"] = "buffer_requests"
    (folder / "front.conf").write_text(documented("caddy", changes))
    return ["caddy", "run", "--adapter", "caddyfile", "--config", "front.conf"]


class Front(NamedTuple):
    """A running web server, with `serve` behind it."""

    port: int
    behind: Serve
    database: Path

    def connect(self) -> ssl.SSLSocket:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        link = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return tls.wrap_socket(link, server_hostname=HOST)

    def is_up(self) -> bool:
        with suppress(OSError), closing(self.connect()):
            return True
        return False

    def status(self, body: bytes, *lines: str, path: str = "/webhooks") -> int:
        """Return the status of the reply to a signed webhook."""
        head = [f"POST {path} HTTP/1.1", f"Host: {HOST}", *lines, "Connection: close"]
        head += [f"{name}: {value}" for name, value in signed(body).items()]
        with closing(self.connect()) as link:
            link.sendall("\r\n".join([*head, "", ""]).encode())
            with suppress(ConnectionError):  # it need not read all of a refused body
                link.sendall(body)
            return int(link.recv(4096).split()[1])


@pytest.fixture(scope="module", params=[nginx, caddy])
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    name, folder = request.param.__name__, tmp_path_factory.mktemp("front")
    if shutil.which(name) is None or shutil.which("openssl") is None:
        pytest.skip(f"{name} or openssl is not installed")
    made = ["openssl", *CERTIFICATE.split(), f"/CN={HOST}"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    with serving(folder, None, "--no-replay") as behind, (folder / "front.log").open("w+") as log:
        front = Front(free_port(), behind, folder / "nftsync.db")
        command = request.param(folder, front.port, behind.base)
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            wait_until(lambda: front.is_up() or process.poll() is not None)
            assert process.poll() is None, (folder / "front.log").read_text()
            yield front
        finally:
            process.terminate()
            process.wait()
        assert behind.stop() == 0


def test_a_signed_webhook_passes_as_it_is_and_nothing_else_does(front):
    good, large = webhook("Wallet", wallet(1)), b" " * (256 * 1024 + 1)
    length = f"Content-Length: {len(good)}"
    assert front.status(good, length) == 200
    assert front.status(good, length, path="/healthz") == 404
    refused = front.status(large, f"Content-Length: {len(large)}")
    assert refused in {413, 502}, "502 is what Caddy 2.6 says"
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(good), good)
    both = front.status(chunked, length, "Transfer-Encoding: chunked")
    assert both in {400, 401}, "refused, or read in one way, in which it is signed wrongly"
    assert states(front.database) == {id_of(good): "pending"}


def signature(body: bytes) -> str:
    return ": ".join(next(iter(signed(body).items())))


def test_serve_takes_no_more_requests_than_the_front_answers(front):
    """However the front reads a length, `serve` reads it in the same way."""

    def accepted(number: int) -> tuple[set[str], bytes, int]:
        """Send a request of the table and one behind it; return their ids and replies of 200."""
        body, hidden = webhook("Wallet", wallet(1)), webhook("Wallet", wallet(1))
        _, content = [*requests(HOST, "/webhooks", signature(body), body.decode())][number]
        head = f"POST /webhooks HTTP/1.1\r\nHost: {HOST}\r\n{signature(hidden)}\r\n"
        head += f"Connection: close\r\nContent-Length: {len(hidden)}\r\n\r\n"
        got = b""
        with closing(front.connect()) as link, suppress(OSError):
            link.settimeout(5)  # a front may wait for the rest of a malformed request
            link.sendall(content + head.encode() + hidden)
            while data := link.recv(65_536):
                got += data
        return {id_of(body), id_of(hidden)}, content, len(re.findall(rb"HTTP/1\.[01] 200", got))

    with ThreadPoolExecutor(32) as pool:
        count = len([*requests(HOST, "/webhooks", "", "{}")])
        results = [*pool.map(accepted, range(count))]
    stored = states(front.database).keys()
    for ids, content, replies in results:
        assert len(ids & stored) <= replies, content
    assert sum(replies == 2 for _, _, replies in results) > 3


def test_a_head_that_drips_in_is_cut_off_before_it_reaches_serve(front):
    with closing(front.connect()) as link:
        link.sendall(f"POST /webhooks HTTP/1.1\r\nHost: {HOST}\r\nX-Slow: ".encode())
        with pytest.raises((ConnectionError, ssl.SSLError)):  # noqa: PT012
            while True:
                link.sendall(b"x")
                time.sleep(0.5)
    assert front.behind.get("/healthz") == 200
