"""A scheduler that is none, or that answers no more: a line within seconds, and Ctrl-C works."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from distributed import Client

from nftsync.lake.cluster import each_bucket
from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import cluster_of, dask, driver, staged
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.serve_process import free_port
from tests.kit.servers import ThreadServer
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome

#: A process that does not end by itself within so many seconds hangs.
HANGS = 60.0
#: In the last bucket, and so read last by a single worker.
WALLETS = [wallet(number) for number in range(20)]


@pytest.fixture
def provider(provider: Provider) -> Provider:
    for number, each in enumerate(WALLETS):
        provider.holds(each, entry(token(number)))
    return provider


def sync(lake: Path, *more: object, url: str = "http://127.0.0.1:9") -> subprocess.Popen[str]:
    file = lake.parent / "wallets.txt"
    file.write_text("\n".join(WALLETS))
    arguments = (lake, "--base-url", url, "--wallets-file", file, "--buckets", 2)
    return driver(*arguments, *more, folder=lake.parent)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return the exit code and output of a process that ends by itself."""
    try:
        out, err = process.communicate(timeout=HANGS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        pytest.fail("it hangs")
    return process.returncode, out, err


class Stranger:
    """A server that is no scheduler.

    Attributes:
        connections: how many it has accepted.
    """

    def __init__(self, greeting: bytes, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self._greeting, self._tls = greeting, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._talk, args=(sock,), daemon=True).start()

    def _talk(self, sock: socket.socket) -> None:
        with suppress(OSError), sock:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            sock.sendall(self._greeting)
            while sock.recv(65536):
                pass

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def stranger(greeting: bytes, tls: ssl.SSLContext | None = None) -> Iterator[Stranger]:
    running = Stranger(greeting, tls)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def closed_port(_folder: Path, _files: Any) -> Iterator[str]:
    yield f"tcp://127.0.0.1:{free_port()}"


def saying(greeting: bytes) -> Callable[..., Any]:
    @contextmanager
    def address(_folder: Path, _files: Any) -> Iterator[str]:
        with stranger(greeting) as running:
            yield f"tcp://127.0.0.1:{running.port}"

    return address


def named(address: str) -> Callable[..., Any]:
    @contextmanager
    def same(_folder: Path, _files: Any) -> Iterator[str]:
        yield address

    return same


@contextmanager
def dashboard(folder: Path, _files: Any) -> Iterator[str]:
    port = free_port()
    where = ("--port", "0", "--host", "127.0.0.1", "--dashboard-address", f"127.0.0.1:{port}")
    process = dask("scheduler", *where, folder=folder)
    try:
        with httpx.Client(trust_env=False) as client:

            def healthy() -> bool:
                with suppress(httpx.TransportError):
                    return client.get(f"http://127.0.0.1:{port}/health").is_success
                return False

            wait_until(healthy)
        yield f"tcp://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def web_server(_folder: Path, _files: Any) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadServer(Handler) as server:
        yield f"tcp://127.0.0.1:{server.port}"


@contextmanager
def tls_server(_folder: Path, files: Any) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server)
    with stranger(b"", context) as running:
        yield f"tcp://127.0.0.1:{running.port}"


@contextmanager
def scheduler_without_tls(folder: Path, _files: Any) -> Iterator[str]:
    with cluster_of(folder, 0) as cluster:
        yield cluster.address.replace("tcp://", "tls://")


WRONG = {
    "a closed port": closed_port,
    "a port that says nothing": saying(b""),
    "the dashboard of a scheduler": dashboard,
    "a web server": web_server,
    "another protocol": saying(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "zeros": saying(b"\0" * 4096),
    "a message of Dask's kind without sense": saying(
        b"\x18" + b"\0" * 7 + b"\1" + b"\0" * 7 + b"\x08" + b"\0" * 7 + b"garbage!"
    ),
    "a server with TLS": tls_server,
    "a scheduler without TLS": scheduler_without_tls,
    "a web address": named("http://127.0.0.1:8786"),
    "an unknown scheme": named("nonsense://127.0.0.1:8786"),
    "no port": named("tcp://127.0.0.1"),
    "a port that is no number": named("tcp://127.0.0.1:dask"),
    "a port that cannot be": named("tcp://127.0.0.1:87860"),
    "an unknown host": named("tcp://scheduler.invalid:8786"),
    "a scheduler of this process alone": named("inproc://127.0.0.1/1/1"),
    "nothing": named(""),
}


def hangs(*_: object) -> None:
    raise AssertionError("it hangs")


@pytest.mark.parametrize("kind", WRONG)
def test_an_address_without_a_scheduler_ends_with_one_line(
    kind: str, lake: Path, tmp_path: Path, certificates: Any, command: Callable[..., Outcome]
) -> None:
    (tmp_path / "wallets.txt").write_text("\n".join(WALLETS))
    signal.signal(signal.SIGALRM, hangs)
    with WRONG[kind](tmp_path, certificates) as address:
        signal.alarm(int(HANGS))
        where = ("--base-url", "http://127.0.0.1:9", "--scheduler", address)
        done = command("lake", "sync", lake, *where, "--wallets-file", tmp_path / "wallets.txt")
        signal.alarm(0)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1), done.err
    assert done.err.startswith(f"nftsync: cannot reach a Dask scheduler at {address or repr('')}: ")
    assert not lake.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_connecting(number: int, lake: Path) -> None:
    with stranger(b"") as silent:
        process = sync(lake, "--scheduler", f"tcp://127.0.0.1:{silent.port}")
        wait_until(lambda: silent.connections)
        process.send_signal(number)
        assert ended(process) == (130, "", "nftsync: interrupted\n")


def processes_of(session: int) -> set[int]:
    """Return the processes of a session that have not ended."""
    running = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, _, number, *_ = stat.read_text().rpartition(")")[2].split()
            if int(number) == session and state != "Z":
                running.add(int(stat.parent.name))
    return running


def test_a_signal_ends_the_start_of_workers(lake: Path, provider: Provider) -> None:
    provider.always(lambda peer: peer.wait(PATIENCE) or reply(balances())(peer))
    process = sync(lake, "--workers", 1, url=provider.url)
    wait_until(lambda: len(processes_of(process.pid)) > 1)
    process.send_signal(signal.SIGTERM)
    code, _, err = ended(process)
    assert (code, err.count("\n")) == (130, 1), err
    wait_until(lambda: not processes_of(process.pid))


def test_a_signal_ends_a_run_whose_scheduler_answers_no_more(
    lake: Path, provider: Provider, tmp_path: Path
) -> None:
    go = threading.Event()
    provider.always(lambda peer: not go.wait(PATIENCE) or reply(balances())(peer))
    with cluster_of(tmp_path, 1) as cluster:
        process = sync(lake, "--scheduler", cluster.address, url=provider.url)
        wait_until(provider.requests)
        cluster.scheduler.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        code, out, err = ended(process)
        go.set()
    assert (code, err.count("\n")) == (130, 1), err
    assert json.loads(out)["status"] == "interrupted"
    assert err.startswith("Interrupted; what was read is kept. ")
    assert staged(lake) == 0


def test_a_signal_ends_a_run_that_cannot_reach_its_worker(
    lake: Path, provider: Provider, tmp_path: Path
) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        where = ("--scheduler", cluster.address)
        assert ended(sync(lake, *where, url=provider.url))[0] == 0
        cluster.workers[0].send_signal(signal.SIGSTOP)
        process = sync(lake, *where, url=provider.url)
        wait_until(lambda: len(Ledger(Lake(str(lake))).runs()) == 2)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
    assert (code, err.count("\n")) == (130, 1), err
    assert Ledger(Lake(str(lake))).runs()[-1].status == "interrupted"


class Interrupted(Exception):
    """Ctrl-C."""


def test_a_worker_that_freezes_while_it_sends_a_result_delays_no_signal(tmp_path: Path) -> None:
    class Freezing:
        def __reduce__(self) -> Any:  # called when it is sent
            os.kill(os.getpid(), signal.SIGSTOP)
            return int, ()

    with cluster_of(tmp_path, 1) as cluster, Client(cluster.address, timeout=PATIENCE) as client:
        stat = Path(f"/proc/{cluster.workers[0].pid}/stat")

        def check() -> None:
            if stat.read_text().rpartition(")")[2].split()[0] == "T":
                raise Interrupted

        with pytest.raises(Interrupted):
            list(each_bucket(client, lambda _bucket: Freezing(), [0], check))
