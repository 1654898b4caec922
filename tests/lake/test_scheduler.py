"""A scheduler that is none, or that answers no more: a line within seconds, and Ctrl-C works."""

from __future__ import annotations

import json
import signal
import socketserver
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import pytest

import nftsync.lake.cluster
from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import cluster_of, driver
from tests.kit.provider import Provider, balances, reply, wallet
from tests.kit.servers import ThreadServer
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome
from tests.lake.conftest import refused

#: A process that does not end by itself within so many seconds hangs.
HANGS = 60.0
WALLETS = [wallet(number) for number in range(20)]


def sync(lake: Path, *more: object, url: str = "http://127.0.0.1:9") -> subprocess.Popen[str]:
    (lake.parent / "wallets.txt").write_text("\n".join(WALLETS))
    where = ("--base-url", url, "--wallets-file", "wallets.txt", "--buckets", 2)
    return driver(lake, *where, *more, folder=lake.parent)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return the exit code and output of a process that ends by itself."""
    try:
        out, err = process.communicate(timeout=HANGS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        pytest.fail("it hangs")
    return process.returncode, out, err


class Talk(socketserver.BaseRequestHandler):
    server: Stranger

    def handle(self) -> None:
        server, sock = self.server, self.request
        server.connections += 1
        if server.tls is not None:
            sock = server.tls.wrap_socket(sock, server_side=True)
        sock.sendall(server.greeting)
        while sock.recv(65536):
            pass


class Stranger(ThreadServer):
    """A server that is no scheduler.

    Attributes:
        connections: how many it has accepted.
    """

    def __init__(self, greeting: bytes = b"", tls: ssl.SSLContext | None = None) -> None:
        self.greeting, self.tls, self.connections = greeting, tls, 0
        super().__init__(Talk)
        self.address = f"tcp://127.0.0.1:{self.port}"


#: What a server says that is no scheduler.
STRANGERS = {
    "nothing": b"",
    "nothing in TLS": b"",
    "a web server": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "a message of Dask's kind without sense": (
        b"\x18" + b"\0" * 7 + b"\1" + b"\0" * 7 + b"\x08" + b"\0" * 7 + b"garbage!"
    ),
}
#: Addresses where no scheduler can be.
ADDRESSES = [
    *(
        "tcp://127.0.0.1:9",
        "tls://127.0.0.1:9",
        "nonsense://127.0.0.1:8786",
        "tcp://127.0.0.1:dask",
    ),
    *("tcp://127.0.0.1:87860", "tcp://scheduler.invalid:8786", "inproc://127.0.0.1/1/1", ""),
]


def hangs(*_: object) -> None:
    raise AssertionError("it hangs")


@pytest.mark.parametrize("what", [*STRANGERS, *ADDRESSES])
def test_an_address_without_a_scheduler_ends_with_one_line(
    what: str,
    lake: Path,
    certificates: Any,
    command: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nftsync.lake.cluster, "_CONNECT_SECONDS", 2.0)
    Path("wallets.txt").write_text("\n".join(WALLETS))
    tls = None
    if what == "nothing in TLS":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificates.server)
    signal.signal(signal.SIGALRM, hangs)
    with Stranger(STRANGERS.get(what, b""), tls) as stranger:
        address = stranger.address if what in STRANGERS else what
        signal.alarm(int(HANGS))
        where = ("--base-url", "http://127.0.0.1:9", "--scheduler", address)
        done = command("lake", "sync", lake, *where, "--wallets-file", "wallets.txt")
        signal.alarm(0)
    refused(done, 1, f"nftsync: cannot reach a Dask scheduler at {address or repr('')}: ")
    assert not done.out
    assert not lake.exists()
    assert dask.compute(dask.delayed(sum)([1, 2])) == (3,)  # as before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_connecting(number: int, lake: Path) -> None:
    with Stranger() as silent:
        process = sync(lake, "--scheduler", silent.address)
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


@pytest.mark.parametrize("asks", [False, True])
def test_few_wallets_have_one_worker_which_a_signal_ends(
    asks: bool, lake: Path, provider: Provider
) -> None:
    provider.always(lambda peer: peer.wait(PATIENCE) or reply(balances())(peer))
    process = sync(lake, url=provider.url)
    wait_until(provider.requests if asks else lambda: len(processes_of(process.pid)) > 1)
    commands = [Path(f"/proc/{x}/cmdline").read_text() for x in processes_of(process.pid)]
    process.send_signal(signal.SIGTERM)
    code, _, err = ended(process)
    assert (code, err.count("\n")) == (130, 1), err
    wait_until(lambda: not processes_of(process.pid))
    assert not asks or len([words for words in commands if "spawn_main" in words]) == 1, commands


@pytest.mark.parametrize("which", ["worker", "scheduler"])
def test_a_signal_ends_a_run_that_cannot_reach_its_worker_or_scheduler(
    lake: Path, provider: Provider, tmp_path: Path, which: str
) -> None:
    provider.always(lambda peer: peer.wait(PATIENCE) or reply(balances())(peer))
    with cluster_of(tmp_path, 1) as cluster:
        process = sync(lake, "--scheduler", cluster.address, url=provider.url)
        wait_until(provider.requests)
        stopped = cluster.workers[0] if which == "worker" else cluster.scheduler
        stopped.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        code, out, err = ended(process)
    assert (code, err.count("\n")) == (130, 1), err
    assert json.loads(out)["status"] == "interrupted"
    assert err.startswith("Interrupted; all reads are saved. ")
    assert Ledger(Lake(str(lake))).runs()[-1].status == "interrupted"
