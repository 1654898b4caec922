"""`serve` refuses unusable settings in one line, starts before the API is up, and ends in order."""

import re
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit import serve_process
from tests.kit.processes import start_process
from tests.kit.provider import silence, wallet
from tests.kit.serve_process import (
    SECRET,
    Serve,
    assert_settled,
    command,
    free_port,
    id_of,
    query,
    signed,
    states,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, listed, mirrored

SOME = "--base-url http://127.0.0.1:9"
NAME = "NFTSYNC_WEBHOOK_SECRET"
#: Arguments, variables, and a part of the message.
UNUSABLE: list[tuple[str, dict[str, str | None], str]] = [
    *((SOME, {NAME: secret}, NAME) for secret in (None, "", "  \t ")),
    ("--no-replay", {NAME: None, f"{NAME}_PREVIOUS": "old"}, NAME),
    ("--no-replay", {NAME: None, f"{NAME}_FILE": "blank"}, NAME),
    ("", {}, "NFTSYNC_BASE_URL"),
    ("--no-replay --sync-every 1h", {}, "base_url"),
    (f"{SOME} --sync-every 1h --wallets-file -", {}, "wallets_file"),
    *(
        (f"{SOME} --sync-every={every}", {}, "")
        for every in ("0s", "nonsense", "-5m", "", "99999999999d", "1e3s", "5")
    ),
]


@pytest.mark.parametrize(("arguments", "variables", "named"), UNUSABLE)
def test_missing_and_unusable_settings_are_named(
    tmp_path, command, monkeypatch, arguments, variables, named
):
    (tmp_path / "blank").write_text(" \n")
    for name, value in {NAME: SECRET, **variables}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    done = command("serve", "-d", "nftsync.db", *arguments.split()).tells(named)
    assert done.err.startswith("nftsync: ")
    assert (done.err.count("\n"), SECRET in done.err) == (1, False), done.err
    assert not (tmp_path / "nftsync.db").exists()


def test_a_secret_that_can_be_guessed_is_warned_of_and_never_shown(serve):
    short = "short-and-sweet"
    with serve(
        None, "--no-replay", variables={NAME: short, f"{NAME}_PREVIOUS": short + "!"}
    ) as server:
        assert server.post(webhook("Wallet", wallet(1)), secret=short) == 200
    [warning] = [line["message"] for line in server.lines if line["level"] == "WARNING"]
    assert warning.startswith("the webhook secret is shorter than 16 characters")
    assert "nftsync webhook-config --send-secret" in warning
    assert short not in "".join(server.raw)


def test_it_starts_before_the_api_is_up_and_replays_once_it_is(serve, database):
    world = World(seed=4)
    holder = world.add_wallet()
    world.mint(holder, 2, {"name": "one"})
    port = serve_process.free_port()
    with serve(f"http://127.0.0.1:{port}", "--retries", 1) as server:
        assert server.get("/readyz") == 200
        assert server.post(webhook("Wallet", holder)) == 200
        wait_until(lambda: server.logged("replay paused"))
        assert set(states(database).values()) <= {"pending", "running"}
        with SandboxServer(world, port=port):
            wait_until_done(database)
    assert mirrored(database) == listed(world)
    assert query(database, "SELECT attempts FROM webhooks") == [(1,)]


SANDBOX = serve_process.command("sandbox", "--wallets", 1, "--port", 0)
LISTEN = "import socket, sys, time\ns = socket.create_server(('127.0.0.1', 0))\n"
LISTEN += "print(f':{s.getsockname()[1]} ', file=sys.stderr)\ntime.sleep(3600)"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("other", [SANDBOX, [sys.executable, "-c", LISTEN]], ids=["ours", "theirs"])
def test_a_taken_port_is_named_with_the_process_that_has_it(other, command, monkeypatch):
    monkeypatch.setenv(NAME, SECRET)
    process = start_process(other, stderr=subprocess.PIPE, text=True)
    [port] = re.findall(r":(\d+) ", process.stderr.readline())
    comm = Path(f"/proc/{process.pid}/comm").read_text().strip()
    name = "nftsync sandbox" if other is SANDBOX else comm
    for words in (
        *("sandbox --port", "serve --no-replay -d x.db --port", "notebook -d x.db --port"),
        "serve --no-replay -d x.db --port 0 --metrics-port",
    ):
        done = command(*words.split(), port).tells(f"port {port} on 127.0.0.1 is taken by ")
        whose = f" is taken by {name} (process {process.pid})"
        assert done.err.endswith(f"{whose}; choose another with {words.split()[-1]}\n")


def test_the_ports_of_documented_commands_differ(demo, command):
    """Of `serve`, `sandbox`, JupyterLab, and the demo's provider, if it finds its own free."""
    for name, port in (("serve", 8787), ("sandbox", 8788)):
        assert re.search(rf"--port .*?Default:\s+{port}", command(name, "--help").out, re.DOTALL)
    url = demo.with_name("demo-provider.url").read_text()
    assert int(url.rpartition(":")[2]) not in {8787, 8788, 8888}


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
    """One that is half sent is cut off; more signals do nothing."""
    body = webhook("Wallet", wallet(1))
    with (
        serve(None, "--no-replay") as server,
        closing(connect(server)) as client,
        closing(connect(server)) as half_sent,
        closing(sqlite3.connect(database, isolation_level=None)) as other,
    ):
        half_sent.sendall(request(webhook("Wallet", wallet(1)))[:-40])
        other.execute("BEGIN IMMEDIATE")
        client.sendall(request(body))
        assert server.get("/healthz") == 200
        for _ in range(2):
            server.process.send_signal(signal.SIGINT)
            wait_until(lambda: server.logged("stopping"))
        other.execute("ROLLBACK")
        answered = status(client)
        assert server.wait() == 0
        assert status(half_sent) == b""
    # Not that it logged the end: its last lines have a second, in which this machine is busy.
    assert "Traceback" not in "".join(server.raw)
    assert_settled(database)
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
