"""Stopped: requests in flight are answered, reads in flight given up, and it exits with 0."""

import signal
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import httpx

from tests.kit.processes import start_process
from tests.kit.provider import silence, wallet
from tests.kit.serve_process import (
    Serve,
    command,
    free_port,
    id_of,
    post,
    query,
    signed,
    states,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE


def request(body: bytes) -> bytes:
    head = [f"POST /webhooks HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in signed(body).items()]
    return "\r\n".join([*head, "", ""]).encode() + body


def connect(server: Serve) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def status(connection: socket.socket) -> bytes:
    """The status line of a reply, once the connection has ended, in order or by a reset."""
    reply = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(4096):
            reply += part
    return reply.partition(b"\r\n")[0]


def test_under_load_each_webhook_that_was_answered_200_is_stored(serve, database):
    """Others are refused or cut off; more signals do nothing."""
    answered: list[str] = []

    def load() -> None:
        with (
            suppress(httpx.TransportError),
            httpx.Client(trust_env=False, verify=False, timeout=60) as client,
        ):
            while True:
                body = webhook("Wallet", wallet(1))
                code = post(server.url, body, client=client)
                assert code in {200, 503}
                if code == 200:
                    answered.append(id_of(body))

    with serve(None, "--no-replay") as server, ThreadPoolExecutor(8) as pool:
        with closing(connect(server)) as half_sent:
            half_sent.sendall(request(webhook("Wallet", wallet(1)))[:-40])
            loads = [pool.submit(load) for _ in range(8)]
            wait_until(lambda: len(answered) > 100)
            for _ in range(2):
                server.process.send_signal(signal.SIGTERM)
                wait_until(lambda: server.logged("stopping"))
            assert server.wait() == 0
            assert status(half_sent) == b""
        for each in loads:
            each.result()
    # Not that it logged the end: its last lines have a second, in which this machine is busy.
    assert "Traceback" not in "".join(server.raw)
    assert set(answered) <= states(database).keys()


def test_a_hangup_stops_no_server(serve, synced, provider):
    """By convention, it means to reload; systemd would take the end for a wanted one."""
    port = free_port()
    sandbox = start_process(command("sandbox", "--port", port, "--wallets", 1))

    def answers() -> bool:
        with suppress(httpx.TransportError):
            url = f"http://127.0.0.1:{port}/sandbox/wallets"
            return httpx.get(url, trust_env=False, verify=False).status_code == 200
        return False

    with serve(provider.url) as server:
        for _ in range(3):
            server.process.send_signal(signal.SIGHUP)
            assert server.post(webhook("Wallet", provider.world.wallets()[0])) == 200
            wait_until_done(synced)
    assert server.logged("stopping")[0]["signal"] == "SIGTERM"
    wait_until(answers)
    sandbox.send_signal(signal.SIGHUP)
    assert answers()
    sandbox.send_signal(signal.SIGTERM)
    assert sandbox.wait(PATIENCE) == 0


def test_a_request_that_waits_for_the_database_is_still_answered(serve, database):
    body = webhook("Wallet", wallet(1))
    with serve(None, "--no-replay") as server, closing(connect(server)) as client:
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            client.sendall(request(body))
            assert server.get("/healthz") == 200
            server.process.send_signal(signal.SIGINT)
            wait_until(lambda: server.logged("stopping"))
            other.execute("ROLLBACK")
        answered = status(client)
        assert server.wait() == 0
    stored = id_of(body) in states(database)
    # 503 if this machine was too slow to release the lock within 2 s.
    assert answered == (b"HTTP/1.1 200 OK" if stored else b"HTTP/1.1 503 Service Unavailable")


def test_reads_in_flight_are_given_up_and_their_webhooks_wait_again(serve, database, lying):
    bodies = [webhook("Wallet", wallet(number)) for number in range(5)]
    lying.always(silence())
    with serve(lying.url, "--timeout", 3600) as server:
        assert {server.post(body) for body in bodies} == {200}
        wait_until(lambda: set(states(database).values()) == {"running"})
        lying.wait_for(len(bodies))
        assert server.stop(signal.SIGINT) == 0
    assert server.logged("stopping")[0]["signal"] == "SIGINT"
    assert states(database) == {id_of(body): "pending" for body in bodies}
    assert query(database, "SELECT DISTINCT attempts FROM webhooks") == [(0,)]
