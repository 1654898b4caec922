"""Threads of the package that end by an exception: their owner gets it."""

import json
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import pytest

from nftsync.errors import NftsyncError
from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import Routes, merge_routes
from nftsync.replay.config import ReplayConfig
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.serve.serve import ServeConfig, run_service, serve
from nftsync.threads import Failures, start_thread
from nftsync.wsgi import HttpServer, Listener
from tests.kit.provider import wallet
from tests.kit.serve_process import SECRET, free_port, post, webhook
from tests.kit.worlds import PATIENCE


class Unforeseen(Exception):
    """An unexpected error."""


def failing(*_: object, **__: object) -> Any:
    raise Unforeseen("a fault")


def test_a_thread_s_failure_without_an_owner_is_logged(caplog):
    start_thread("x", failing).join(PATIENCE)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "a thread failed: x")


def test_the_first_of_several_failures_is_raised_with_what_failed():
    given_up: list[bool] = []
    failures = Failures(lambda: given_up.append(True))
    failures.raise_first()
    assert not failures
    for part in ("the first", "the second"):
        start_thread("x", failing, failures.of(part)).join(PATIENCE)
    assert failures
    assert given_up == [True, True]
    message = r"the first failed unexpectedly \(Unforeseen: a fault\)"
    with pytest.raises(NftsyncError, match=message) as raised:
        failures.raise_first()
    assert isinstance(raised.value.__cause__, Unforeseen)


class FaultyRoutes(Routes):
    find = failing


def config_of(routes: Routes, **options: Any) -> ServeConfig:
    """A `serve` that never reaches its provider."""
    client = ClientConfig(base_url="http://127.0.0.1:9")
    access = access_to(client)
    replay = ReplayConfig(client=client, access=access, routes=routes, run_sync=failing)
    ports = {"port": 0, "metrics_port": free_port()}
    return ServeConfig(
        database=Path("nftsync.db").resolve(), secrets=[SECRET], replay=replay, **ports, **options
    )


def test_a_replay_that_fails_unexpectedly_ends_serve():
    """Health checks fail meanwhile."""
    config = config_of(FaultyRoutes(merge_routes({}).by_type), sync_every=None, run_sync=None)
    over = threading.Event()
    with run_service(config, over.set) as running:
        post(running.url, webhook("Wallet", wallet(1)))
        assert over.wait(PATIENCE)
        health = running.url.replace("/webhooks", "/healthz")
        assert httpx.get(health, trust_env=False, verify=False, timeout=30).status_code == 503
    with pytest.raises(NftsyncError, match="^the replay failed unexpectedly"):
        running.failures.raise_first()


def test_a_serve_whose_sync_fails_unexpectedly_ends():
    reason = r"the sync failed unexpectedly \(Unforeseen: a fault\)"
    config = config_of(merge_routes({}), sync_every=timedelta(hours=1), run_sync=failing)
    with pytest.raises(NftsyncError, match=f"{reason}; stored data is kept. Start it again"):
        serve(config, print)


class FaultySocket(socket.socket):
    """A listening socket whose fault ends the loop that polls it."""

    def accept(self) -> Any:
        raise SystemExit


def faulty_listener() -> Listener:
    listener = Listener()
    family, number = listener.socket.family, listener.socket.detach()
    listener.socket = FaultySocket(family, socket.SOCK_STREAM, fileno=number)
    return listener


def test_an_http_server_that_ends_by_itself_tells_its_owner_and_can_be_closed():
    failures: SimpleQueue[Exception] = SimpleQueue()
    with (
        HttpServer(failing, faulty_listener(), on_broken=failures.put) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        assert "ended unexpectedly" in str(failures.get(timeout=PATIENCE))
    Listener(port=server.port).close()  # the port is free again


def test_a_sandbox_command_whose_deliveries_fail_ends_with_1_and_says_so(tmp_path):
    """A damaged state file: its attempts are not JSON."""
    state = tmp_path / "state"
    with SandboxServer(generate(wallets=1), state=state) as server:
        (number,) = server.world.wallets()
        config = {"url": "http://127.0.0.1:9", "enabled": True, "webhookTypes": ["nft"]}
        server.sandbox.configure(json.dumps({"sharedSecret": SECRET, **config}).encode())
        server.sandbox.emit("nft", "Wallet", number, "update")
    with state.open("a") as file:
        file.write('[[["deliveries","1","body"],5],[["deliveries","1","state"],"pending"]]\n')
    done = subprocess.run(
        [sys.executable, "-m", "nftsync", "sandbox", "--port", "0", "--state", str(state)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("nftsync: the sandbox failed unexpectedly (")
