"""`serve` refuses unusable settings in one line, and starts before the API is up."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit.serve_process import (
    SECRET,
    id_of,
    query,
    serving,
    states,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import Command, listed, mirrored

NOWHERE = "http://127.0.0.1:9"
WALLET = "00000000-0000-4000-8000-000000000001"


SECRET_NAME = "NFTSYNC_WEBHOOK_SECRET"
#: Arguments, variables, and a part of the message.
UNUSABLE: list[tuple[str, dict[str, str | None], str]] = [
    *((f"--base-url {NOWHERE}", {SECRET_NAME: x}, SECRET_NAME) for x in (None, "", "  \t ")),
    ("--no-replay", {SECRET_NAME: None, f"{SECRET_NAME}_PREVIOUS": "old"}, SECRET_NAME),
    ("--no-replay", {SECRET_NAME: None, f"{SECRET_NAME}_FILE": "blank"}, SECRET_NAME),
    ("", {}, "NFTSYNC_BASE_URL"),
    ("--no-replay --sync-every 1h", {}, "base_url"),
    (f"--base-url {NOWHERE} --sync-every 1h --wallets-file -", {}, "wallets_file"),
    *(
        (f"--base-url {NOWHERE} --sync-every={every}", {}, "")
        for every in ("0s", "nonsense", "-5m", "", "99999999999d", "1e3s", "5")
    ),
]


@pytest.mark.parametrize(("arguments", "variables", "named"), UNUSABLE)
def test_missing_and_unusable_settings_are_named(
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    variables: dict[str, str | None],
    named: str,
) -> None:
    (tmp_path / "blank").write_text(" \n")
    for name, value in {SECRET_NAME: SECRET, **variables}.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    done = command("serve", "-d", tmp_path / "nftsync.db", *arguments.split()).tells(named)
    assert done.err.startswith("nftsync: ")
    assert (done.err.count("\n"), SECRET in done.err) == (1, False), done.err
    assert not (tmp_path / "nftsync.db").exists()


def test_without_a_base_url_it_only_stores_and_its_secret_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    variables = {"NFTSYNC_WEBHOOK_SECRET": None, "NFTSYNC_WEBHOOK_SECRET_FILE": "secret"}
    body = webhook("Wallet", WALLET)
    with serving(tmp_path, None, "--no-replay", variables=variables) as server:
        assert server.post(body, secret="from a file") == 200
        assert server.stop() == 0
    assert states(tmp_path / "nftsync.db") == {id_of(body): "pending"}


def test_a_secret_that_can_be_guessed_is_warned_of_and_never_shown(tmp_path: Path) -> None:
    short = "short-and-sweet"
    variables = {"NFTSYNC_WEBHOOK_SECRET": short, "NFTSYNC_WEBHOOK_SECRET_PREVIOUS": f"{short}!"}
    with serving(tmp_path, None, "--no-replay", variables=variables) as server:
        assert server.post(webhook("Wallet", WALLET), secret=short) == 200
        warnings = [line["message"] for line in server.lines if line["level"] == "WARNING"]
        assert server.stop() == 0
    [warning] = warnings
    assert warning.startswith("the webhook secret is shorter than 16 characters")
    assert "nftsync webhook-config --send-secret" in warning
    assert short not in "".join(server.raw)


def test_it_starts_before_the_api_is_up_and_replays_once_it_is(tmp_path: Path) -> None:
    world = World(seed=4)
    wallet = world.add_wallet()
    world.mint(wallet, 2, {"name": "one"})
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    database = tmp_path / "nftsync.db"
    body = webhook("Wallet", wallet)
    with serving(tmp_path, f"http://127.0.0.1:{port}", "--retries", 1) as server:
        assert server.get("/readyz") == 200
        assert server.post(body) == 200
        wait_until(lambda: server.logged("replay paused"))
        assert states(database)[id_of(body)] in {"pending", "running"}
        with SandboxServer(world, port=port):
            wait_until_done(database)
            assert server.stop() == 0
    assert mirrored(database) == listed(world)
    assert query(database, "SELECT attempts FROM webhooks") == [(1,)]
