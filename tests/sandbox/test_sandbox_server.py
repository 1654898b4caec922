"""The sandbox's life on a port: start, stop, signals, and the command."""

from __future__ import annotations

import gc
import json
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from nftsync.cli.local import sandbox
from nftsync.errors import InputError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World

COMMAND = [sys.executable, "-c", "from nftsync.cli.local import sandbox; sandbox()"]


def test_a_stopped_sandbox_leaves_no_thread_no_socket_and_a_free_port() -> None:
    before = threading.active_count()
    with (
        SandboxServer(generate(wallets=1)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        client.get("/sandbox/wallets")
        server.close()
        server.close()
        with pytest.raises(httpx.TransportError):
            client.get("/sandbox/wallets")
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("waitress"):
            thread.join(10)
    assert threading.active_count() == before
    with SandboxServer(generate(wallets=1), port=server.port) as again:
        assert again.port == server.port


def test_a_world_can_be_built_once_the_address_is_known() -> None:
    told: list[str] = []

    def build(url: str) -> World:
        told.append(url)
        return generate(wallets=1, image_base=url)

    with SandboxServer(build) as server:
        assert told == [server.url]
        assert server.url == f"http://127.0.0.1:{server.port}"
        assert server.url.encode() in (server.world.balances_body(server.world.wallets()[0]) or b"")


def test_a_world_that_cannot_be_built_frees_the_port() -> None:
    ports: list[int] = []

    def fail(url: str) -> World:
        ports.append(int(url.rpartition(":")[2]))
        raise InputError("no world")

    with pytest.raises(InputError, match="no world"):
        SandboxServer(fail)
    gc.collect()
    with SandboxServer(generate(wallets=1), port=ports[0]):
        pass


def test_a_taken_port_is_named_before_a_world_is_built() -> None:
    with (
        SandboxServer(generate(wallets=1)) as first,
        pytest.raises(InputError) as caught,
    ):
        SandboxServer(pytest.fail, port=first.port)
    assert str(caught.value) == (
        f"port {first.port} on 127.0.0.1 is taken; choose another with --port"
    )


def test_a_port_or_host_that_cannot_be_used_is_an_input_error() -> None:
    with pytest.raises(InputError, match="cannot listen on port 70000"):
        SandboxServer(generate(wallets=0), port=70000)
    with pytest.raises(InputError, match=r"cannot listen on port 0 of 192\.0\.2\.1"):
        SandboxServer(generate(wallets=0), host="192.0.2.1")


def test_many_clients_are_answered_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """All requests wait together: each is held until the last of them has arrived."""
    everyone = threading.Barrier(48)
    with SandboxServer(generate(wallets=1)) as server:

        def wait_for_all() -> None:
            everyone.wait(30)

        server.app.before_request(wait_for_all)

        def read(_: int) -> int:
            with httpx.Client(trust_env=False, timeout=60) as client:
                return client.get(f"{server.url}/sandbox/wallets").status_code

        with ThreadPoolExecutor(48) as pool:
            assert set(pool.map(read, range(48))) == {200}
    assert not caplog.records


def test_close_lets_a_request_in_work_finish() -> None:
    arrived, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        arrived.set()
        may_go.wait(30)

    with SandboxServer(generate(wallets=3)) as server:
        server.app.before_request(hold)
        with ThreadPoolExecutor(2) as pool:
            reading = pool.submit(httpx.get, f"{server.url}/sandbox/wallets", trust_env=False)
            assert arrived.wait(30)
            closing = pool.submit(server.close)
            may_go.set()
            closing.result(30)
            assert reading.result(30).json() == server.world.wallets()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_a_signal_and_exits_0(number: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--wallets", "2", "--nfts", "3"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        url = said.split()[0]
        hint = process.stderr.readline()
        with httpx.Client(base_url=url, trust_env=False) as client:
            wallets = client.get("/sandbox/wallets").json()
            assert len(wallets) == 2
            body = client.get(f"/v1/wallets/{wallets[0]}/nft-balances").json()
            assert len(body["nftTokenBalances"]) == 3
            assert f"nftsync sync --base-url {url} {wallets[0]}" in hint
            process.send_signal(number)
            output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")


def test_the_command_serves_a_world_file(tmp_path: Path) -> None:
    wallet = "11111111-1111-4111-8111-aaaaaaaaaaaa"
    path = tmp_path / "world.jsonl"
    path.write_text(json.dumps({"walletId": wallet, "nftTokenBalances": []}))
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--world", str(path)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[0]
        assert httpx.get(f"{url}/sandbox/wallets", trust_env=False).json() == [wallet]
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_the_command_raises_what_its_caller_prints_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(sandbox, ["--port", port])
    assert isinstance(result.exception, InputError)
    assert f"port {port} on 127.0.0.1 is taken" in str(result.exception)
    missing = CliRunner().invoke(sandbox, ["--port", "0", "--world", str(tmp_path / "gone")])
    assert isinstance(missing.exception, InputError)
    assert "cannot be read" in str(missing.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--world", "x", "--wallets", "5"],
        ["--world", "x", "--nfts", "5"],
        ["--fail-rate", "1.5"],
        ["--rate-limit", "0"],
        ["--latency-ms", "-1"],
        ["--port", "99999"],
        ["--time-scale", "0"],
    ],
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(sandbox, arguments).exit_code == 2


def test_help_shows_examples_a_line_each() -> None:
    text = CliRunner().invoke(sandbox, ["--help"]).output
    assert "\n    nftsync sandbox --world wallets.jsonl.gz\n" in text
    assert "curl -s http://127.0.0.1:8788/sandbox/transfer -d" in text
    for option in (
        "--port",
        "--wallets",
        "--nfts",
        "--seed",
        "--world",
        "--latency-ms",
        "--time-scale",
        "--state",
    ):
        assert option in text
