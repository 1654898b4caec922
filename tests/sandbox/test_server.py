"""The sandbox's life on a port: start, stop, signals, and the command."""

import gc
import threading

import httpx
import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer


def test_a_stopped_sandbox_leaves_no_thread_no_socket_and_a_free_port():
    before = set(threading.enumerate())
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
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(10)
    assert not [thread for thread in left if thread.is_alive()]
    with SandboxServer(generate(wallets=1), port=server.port) as again:
        assert again.port == server.port


def test_the_command_says_what_it_cannot_use(command, tmp_path):
    for arguments, message in (
        (["--world", tmp_path / "gone"], "cannot read"),
        (["--latency-ms", "nan"], "finite numbers"),
    ):
        failed = command("sandbox", "--port", "0", *arguments).tells(message)
        assert failed.err.count("\n") == 1
    for line in (
        *("--world x --wallets 5", "--world x --nfts 5", "--fail-rate 1.5", "--rate-limit 0"),
        *("--latency-ms -1", "--port 99999", "--time-scale 0"),
    ):
        assert command("sandbox", *line.split()).code == 2
