"""A missing, silent or foreign scheduler: one line within seconds, and Ctrl-C works."""

from __future__ import annotations

import signal
import socketserver
import ssl
from contextlib import suppress
from pathlib import Path

import dask
import pytest

from tests.kit import lakes
from tests.kit.lake_cluster import cluster_of, refused, sync_words
from tests.kit.processes import ended, start
from tests.kit.provider import Provider, balances, reply, wallet
from tests.kit.servers import ThreadServer
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE
from tests.kit.worlds import run_command as command

#: Seconds after which a command hangs.
HANGS = 60
WALLETS = [wallet(number) for number in range(20)]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def provider(provider) -> Provider:
    """A provider that leaves all requests unanswered."""
    provider.always(lambda peer: peer.wait(PATIENCE) or reply(balances())(peer))
    return provider


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
    """A server of another kind; it counts its connections."""

    def __init__(self, greeting: bytes = b"", tls: ssl.SSLContext | None = None) -> None:
        self.greeting, self.tls, self.connections = greeting, tls, 0
        super().__init__(Talk)
        self.address = f"tcp://127.0.0.1:{self.port}"


#: First bytes from servers of other kinds.
STRANGERS = {
    "nothing in TLS": b"",
    "a web server": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "an invalid message of Dask": (
        b"\x18" + b"\0" * 7 + b"\1" + b"\0" * 7 + b"\x08" + b"\0" * 7 + b"garbage!"
    ),
}
#: Addresses where no scheduler can be.
ADDRESSES = [
    *("tcp://127.0.0.1:9", "tls://127.0.0.1:9", "nonsense://127.0.0.1:8786", ""),
    *("tcp://127.0.0.1:dask", "tcp://127.0.0.1:87860", "tcp://scheduler.invalid:8786"),
    "inproc://127.0.0.1/1/1",
]


def hangs(*_: object) -> None:
    raise AssertionError("it hangs")


@pytest.mark.parametrize("what", [*STRANGERS, *ADDRESSES])
def test_an_address_without_a_scheduler_ends_with_one_line(what, lake, certificates):
    tls = None
    if what == "nothing in TLS":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificates.server)
    signal.signal(signal.SIGALRM, hangs)
    with Stranger(STRANGERS.get(what, b""), tls) as stranger:
        address = stranger.address if what in STRANGERS else what
        signal.alarm(HANGS)
        outcome = command(*sync_words(lake, WALLETS, NOWHERE, address))
        signal.alarm(0)
    refused(outcome, 1, f"nftsync: cannot reach a Dask scheduler at {address or repr('')}: ")
    assert not outcome.out
    assert not lake.exists()
    assert dask.compute(dask.delayed(sum)([1, 2])) == (3,)  # Dask works as before


def processes_of(session: int) -> set[int]:
    running = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, _, number, *_ = stat.read_text().rpartition(")")[2].split()
            if int(number) == session and state != "Z":
                running.add(int(stat.parent.name))
    return running


def test_ctrl_c_ends_the_wait_for_a_silent_scheduler(lake):
    with Stranger() as silent:
        words = sync_words(lake, WALLETS, NOWHERE, silent.address)
        process = start(*words, folder=lake.parent)
        wait_until(lambda: silent.connections)
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "", "nftsync: interrupted\n")


@pytest.mark.parametrize("when", ["starts", "reads"])
def test_few_wallets_have_one_worker_which_a_signal_ends(when, lake, provider):
    process = start(*sync_words(lake, WALLETS, provider.url), folder=lake.parent)
    wait_until(provider.requests if when == "reads" else lambda: len(processes_of(process.pid)) > 1)
    commands = [Path(f"/proc/{x}/cmdline").read_text() for x in processes_of(process.pid)]
    process.send_signal(signal.SIGTERM)
    refused(ended(process), 130)
    wait_until(lambda: not processes_of(process.pid))
    if when == "reads":
        assert len([words for words in commands if "spawn_main" in words]) == 1, commands


def test_a_signal_ends_a_run_that_cannot_reach_its_worker_or_scheduler(lake, provider, tmp_path):
    with cluster_of(tmp_path, 1) as cluster:
        for stopped in (cluster.workers[0], cluster.scheduler):
            asked = len(provider.requests())
            process = start(*sync_words(lake, WALLETS, provider.url, cluster), folder=tmp_path)
            provider.wait_for(asked + 1)
            stopped.send_signal(signal.SIGSTOP)
            process.send_signal(signal.SIGTERM)
            outcome = ended(process)
            refused(outcome, 130, "Interrupted; all reads are saved. ")
            assert outcome.json["status"] == lakes.runs_of(lake)[-1].status == "interrupted"
            cluster.kill()
            cluster.start_worker()
