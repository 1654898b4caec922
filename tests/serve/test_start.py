"""`serve` refuses unusable settings in one line, and starts before the API is up."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit import serve_process
from tests.kit.processes import start_process
from tests.kit.provider import wallet
from tests.kit.serve_process import SECRET, id_of, query, states, wait_until_done, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, mirrored

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


def test_without_a_base_url_it_only_stores_and_its_secret_may_be_in_a_file(serve, database):
    Path("secret").write_text("from a file\n")
    body = webhook("Wallet", wallet(1))
    with serve(None, "--no-replay", variables={NAME: None, f"{NAME}_FILE": "secret"}) as server:
        assert server.post(body, secret="from a file") == 200
    assert states(database) == {id_of(body): "pending"}


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


# Ports ---------------------------------------------------------------------------------------

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
        assert re.search(rf"--port .*?\[default:\s+{port}", command(name, "--help").out, re.DOTALL)
    url = demo.with_name("demo-provider.url").read_text()
    assert int(url.rpartition(":")[2]) not in {8787, 8788, 8888}
