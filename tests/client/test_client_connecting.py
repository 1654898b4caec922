"""Until a connection is there: stops, deadlines and slow peers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self

import pytest
from provider import MakeClient, Provider, balances, entry, reply, token, wallet
from stopping import ends_in_stopped

from nftsync.errors import NoConnection
from nftsync.provider import Health, Tally

GOOD = balances(entry(token(1)))


class Mute:
    """A listener that takes connections in its queue, and whatever comes over them.

    Attributes:
        address: host and port.
    """

    def __init__(self, *, backlog: int = 128) -> None:
        self._held = ExitStack()
        self._listener = self._held.enter_context(
            socket.create_server(("127.0.0.1", 0), backlog=backlog)
        )
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def hear(self) -> None:
        """Wait until somebody has said something."""
        peer, _ = self._listener.accept()
        self._held.enter_context(peer)
        assert peer.recv(1)

    def fill(self) -> None:
        """Fill the queue, so that who connects now waits."""
        for _ in range(8):
            waiting = self._held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(self._listener.getsockname())


@pytest.fixture
def mute() -> Iterator[Mute]:
    """It accepts connections, and never says a word."""
    with Mute() as mute:
        yield mute


@pytest.fixture
def full() -> Iterator[Mute]:
    """It does not even accept connections."""
    with Mute(backlog=0) as full:
        full.fill()
        yield full


def test_a_stop_ends_a_tls_handshake_and_is_no_failed_read(
    mute: Mute, make_client: MakeClient
) -> None:
    health = Health()
    client = make_client(url=f"https://{mute.address}", timeout=60.0, health=health)
    took = ends_in_stopped(
        lambda: client.balances(wallet(1), Tally()), mute.hear, client.pace.stopped.set
    )
    assert took < 5
    assert health._unanswered == 0


def test_a_stop_ends_the_wait_for_a_connection_and_is_no_failed_read(
    full: Mute, make_client: MakeClient
) -> None:
    health, tally = Health(), Tally()
    client = make_client(url=f"http://{full.address}", timeout=60.0, health=health)

    def until_it_connects() -> None:
        while not tally.requests:
            time.sleep(0.005)
        time.sleep(0.3)  # nothing shows when the wait itself begins

    took = ends_in_stopped(
        lambda: client.balances(wallet(1), tally), until_it_connects, client.pace.stopped.set
    )
    assert took < 5
    assert health._unanswered == 0


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_connection_that_does_not_come_about_in_time_is_none(
    full: Mute, make_client: MakeClient, scheme: str
) -> None:
    health = Health()
    client = make_client(url=f"{scheme}://{full.address}", timeout=0.6, attempts=1, health=health)
    with pytest.raises(NoConnection, match=r"^no connection: timed out$"):
        client.balances(wallet(1), Tally())
    assert health._unanswered == 1


def test_a_tls_handshake_that_takes_too_long_is_no_connection(
    mute: Mute, make_client: MakeClient
) -> None:
    health = Health()
    client = make_client(url=f"https://{mute.address}", timeout=0.6, attempts=1, health=health)
    with pytest.raises(NoConnection, match=r"^no connection: the TLS handshake timed out$"):
        client.balances(wallet(1), Tally())
    assert health._unanswered == 1


@contextmanager
def dripping(port: int) -> Iterator[int]:
    """A port that leads to another; what comes back over it first comes in parts."""
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))

        def carry(source: socket.socket, target: socket.socket, parts: int) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    while parts and data:
                        target.sendall(data[:100])
                        data = data[100:]
                        parts -= 1
                        time.sleep(0.3)
                    target.sendall(data)

        def serve() -> None:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            with near, far:
                there = threading.Thread(target=carry, args=(near, far, 0), daemon=True)
                there.start()
                carry(far, near, 5)
                there.join(10)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def test_a_tls_handshake_that_drips_in_goes_on_where_it_was(
    certificate: str, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    with Provider(certificate=certificate) as secure, dripping(secure.port) as port:
        secure.always(reply(GOOD))
        client, tally = make_client(url=f"https://127.0.0.1:{port}"), Tally()
        for _ in range(2):
            assert client.balances(wallet(1), tally).entries
        assert (tally.effort(), secure.connections) == ((2, 0), 1)


@pytest.mark.parametrize("silent", [1, 9])
def test_of_several_addresses_the_last_is_asked_when_the_others_do_not_answer(
    silent: int,
    full: Mute,
    provider: Provider,
    make_client: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def several(*_: Any, **__: Any) -> list[Any]:
        addresses = [*[full.address] * silent, f"127.0.0.1:{provider.port}"]
        pairs = [address.rsplit(":", 1) for address in addresses]
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, int(port))) for host, port in pairs
        ]

    provider.always(reply(GOOD))
    client = make_client(url="http://several.example", timeout=2.0)
    with monkeypatch.context() as resolver:
        resolver.setattr(socket, "getaddrinfo", several)
        assert client.balances(wallet(1), Tally()).entries
