"""Threads of the package that end by an exception: their owner gets it."""

from __future__ import annotations

import json
import logging
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import pytest

from nftsync.errors import NftsyncError, NoConnection
from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.network import network_of
from nftsync.provider.transport import Transports
from nftsync.provider.webhooks import Routes, merge_routes
from nftsync.replay.config import ReplayConfig
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.serve.serve import ServeConfig, Service, run_service, serve
from nftsync.store.checkpoints import Checkpoints
from nftsync.store.database import connect_writer
from nftsync.threads import Failures, start_thread
from nftsync.wsgi import HttpServer, Listener
from tests.kit.provider import Provider, silence, wallet
from tests.kit.serve_process import SECRET, free_port, post, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE


class Unforeseen(Exception):
    """An unexpected error."""


def failing(*_: object, **__: object) -> Any:
    raise Unforeseen("a fault")


def get(url: str) -> int:
    return httpx.get(url, trust_env=False, verify=False, timeout=30).status_code


# The mechanism --------------------------------------------------------------------------------


def test_the_failure_of_a_thread_for_which_nobody_waits_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start_thread("x", failing).join(PATIENCE)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "a thread failed: x")


def test_the_first_of_several_failures_is_raised_with_what_failed() -> None:
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


# serve ----------------------------------------------------------------------------------------


class FaultyRoutes(Routes):
    find = failing


@pytest.fixture
def parts(tmp_path: Path) -> Callable[..., ServeConfig]:
    """A `serve` that never reaches its provider, with the parts that a test names."""
    client = ClientConfig(base_url="http://127.0.0.1:9")

    def make(*, routes: Routes | None = None, run_sync: Any = None) -> ServeConfig:
        replay = ReplayConfig(
            client=client,
            access=access_to(client),
            routes=routes or merge_routes({}),
            run_sync=failing,
        )
        return ServeConfig(
            database=tmp_path / "nftsync.db",
            secrets=[SECRET],
            port=0,
            metrics_port=free_port(),
            replay=replay,
            sync_every=None if run_sync is None else timedelta(hours=1),
            run_sync=run_sync,
        )

    return make


def assert_fails(config: ServeConfig, part: str, act: Callable[[Service], object]) -> None:
    """A fault makes health checks fail, names the part, and lets all else end."""
    over = threading.Event()
    with run_service(config, over.set) as running:
        health = running.url.replace("/webhooks", "/healthz")
        act(running)
        assert over.wait(PATIENCE)
        assert get(health) == 503
    with pytest.raises(NftsyncError, match=f"^the {part} failed unexpectedly"):
        running.failures.raise_first()


def test_a_replay_that_fails_unexpectedly_ends_serve(parts: Callable[..., ServeConfig]) -> None:
    config = parts(routes=FaultyRoutes(merge_routes({}).by_type))
    assert_fails(config, "replay", lambda r: post(r.url, webhook("Wallet", wallet(1))))


def test_a_serve_whose_sync_fails_unexpectedly_ends_and_says_so(
    parts: Callable[..., ServeConfig],
) -> None:
    message = (
        r"the sync failed unexpectedly \(Unforeseen: a fault\); stored data is kept. Start it again"
    )
    with pytest.raises(NftsyncError, match=message):
        serve(parts(run_sync=failing), print)


# HTTP servers ---------------------------------------------------------------------------------


class FaultySocket(socket.socket):
    """A listening socket whose fault ends the loop that polls it."""

    def accept(self) -> Any:
        raise SystemExit


def faulty_listener() -> Listener:
    listener = Listener()
    family, number = listener.socket.family, listener.socket.detach()
    listener.socket = FaultySocket(family, socket.SOCK_STREAM, fileno=number)
    return listener


def test_an_http_server_that_ends_by_itself_tells_its_owner_and_can_be_closed() -> None:
    failures: SimpleQueue[Exception] = SimpleQueue()
    with (
        HttpServer(failing, faulty_listener(), on_broken=failures.put) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        assert "ended unexpectedly" in str(failures.get(timeout=PATIENCE))
    Listener(port=server.port).close()  # the port is free again


# The provider's client ------------------------------------------------------------------------


def test_without_the_watch_over_deadlines_no_attempt_goes_on_and_none_begins() -> None:
    """Its wait is longer than the clock's functions take, as no setting is."""
    with Provider() as provider:
        provider.always(silence())
        config = ClientConfig(base_url=provider.url)
        network = network_of(config)
        stopped = threading.Event()
        with closing(Transports(network, config, stopped)) as transports:
            transports.timeout = 1.5e10

            def send() -> None:
                transports.send(httpx.Request("GET", provider.url + "/x"), lambda: None)

            with pytest.raises((NoConnection, OverflowError)):
                send()
            with pytest.raises(OverflowError):
                send()


# The sandbox ----------------------------------------------------------------------------------


def test_a_sandbox_command_whose_deliveries_fail_ends_with_1_and_says_so(tmp_path: Path) -> None:
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


# Logs ---------------------------------------------------------------------------------------


@pytest.fixture
def faulty_log() -> Iterator[Callable[[str], None]]:
    """Loggers that fail: a filter of the application's own, with a fault."""
    faulty: list[logging.Logger] = []

    def make(name: str) -> None:
        faulty.append(logging.getLogger(name))
        faulty[-1].addFilter(failing)

    yield make
    for logger in faulty:
        logger.removeFilter(failing)


def test_a_checkpoint_that_fails_is_logged_and_the_writer_goes_on(
    tmp_path: Path, faulty_log: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    faulty_log("nftsync.store")
    with closing(connect_writer(tmp_path / "nftsync.db")) as writer:
        writer.execute("CREATE TABLE padding (content BLOB)")
        reader = sqlite3.connect(tmp_path / "nftsync.db")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM padding").fetchone()
        checkpoints = Checkpoints(tmp_path / "nftsync.db", writer, rows=1, long_log=10)

        def failed() -> bool:
            writer.execute("INSERT INTO padding VALUES (zeroblob(100000))")
            checkpoints.after_commit()
            return "a thread failed: checkpoint" in caplog.text

        wait_until(failed)
        reader.close()
        checkpoints.after_commit()
        checkpoints.close()
        assert writer.execute("PRAGMA integrity_check").fetchone() == ("ok",)


LOG = """
import logging, sys
from nftsync.serve.log import unblock_stderr
def faulty(record):
    raise ValueError("a fault")
unblock_stderr()
logging.getLogger("nftsync.log").addFilter(faulty)
for _ in range(5):
    sys.stdin.readline()
    for _ in range(1_000):
        print("x" * 1_000, file=sys.stderr)
    print("written", flush=True)
"""


def test_a_log_that_fails_keeps_nobody_waiting_and_says_so() -> None:
    """It fails when it reports dropped lines, as the pipe had no reader."""
    with subprocess.Popen(
        [sys.executable, "-c", LOG],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        too_late = threading.Timer(PATIENCE, process.kill)
        too_late.start()
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"written\n"
        said = b""
        while b"the log ended" not in said and (more := os.read(process.stderr.fileno(), 100_000)):
            said += more
        process.stdin.write(b"\n" * 4)
        process.stdin.close()
        assert process.stdout.read() == b"written\n" * 4
        assert process.wait(PATIENCE) == 0
        too_late.cancel()
    assert b"nftsync: the log ended: ValueError('a fault')\n" in said
