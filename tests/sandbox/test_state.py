"""A sandbox with a state file after a restart, also after a kill."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import httpx
import msgspec
import pytest

from nftsync.errors import InputError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.state import State
from nftsync.sandbox.world import Holding, World
from tests.kit.waiting import wait_until
from tests.kit.webhook_receiver import CONFIG, SECRET, UNKNOWN, Received, enable, finished
from tests.kit.worlds import PATIENCE

COMMAND = [sys.executable, "-c", "from nftsync.cli import main; main()", "sandbox", "--port", "0"]


@contextmanager
def command(*arguments: str, notes: int = 3, **options: Any) -> Iterator[tuple[Any, str, str]]:
    """The command as a process, killed at the end, with its address and its first lines."""
    with subprocess.Popen(
        [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, **options
    ) as process:
        assert process.stderr is not None
        said = "".join(process.stderr.readline() for _ in range(notes))
        try:
            yield process, said.split()[0], said
        finally:
            process.kill()
            process.wait(PATIENCE)


def answers(world: World) -> dict[str, object]:
    """All that a world answers, in the order of its lists."""
    found: dict[str, object] = {"wallets": world.wallets(), "organization": world.organization_id}
    for wallet in world.wallets():
        found[wallet] = body = world.balances_body(wallet) or b""
        for entry in json.loads(body)["nftTokenBalances"]:
            found[entry["tokenId"]] = world.token_body(entry["tokenId"])
    return found


def test_a_restarted_world_answers_as_before(tmp_path):
    before = generate(wallets=3, nfts=4)
    records = [msgspec.UNSET, msgspec.Raw(b"null"), msgspec.Raw(b'{ "rate": 1.10 }')]
    odd_ones = [Holding(f"{UNKNOWN[:-1]}{n}".upper(), "0012", x) for n, x in enumerate(records)]
    before.add_wallet(UNKNOWN.upper(), odd_ones)
    for number in range(2):
        with SandboxServer(before, state=tmp_path / "s") as server:
            world = server.world
            assert answers(world) == answers(before)
            giver, getter, _, odd = world.wallets()[:4]
            held = json.loads(world.balances_body(giver) or b"")["nftTokenBalances"]
            world.transfer(giver, getter, held[0]["tokenId"], 1)
            world.edit_metadata(held[1]["tokenId"], {"name": str(number)})
            world.edit_metadata(world.mint(odd, 2, {"name": "☃"}), {})
            world.set_amount(giver, odd_ones[number].token_id, "1e3")
            copied = State()
            world.state.copy_into(copied)
            before = World(state=copied)


def test_configuration_and_undelivered_webhooks_survive_with_their_attempts(tmp_path, receiver):
    state = tmp_path / "state"
    receiver.answer = lambda _received, _number: 500
    with SandboxServer(generate(wallets=2), state=state, time_scale=0.05) as server:
        enable(server, receiver, webhookTypes=["nft", "kyc"])
        server.sandbox.script.extend([None, {"delay": 0.5}, "reorder", "drop"])
        for kind in "ABCD":
            server.sandbox.emit("nft", kind, UNKNOWN, "create")
        wait_until(lambda: server.sandbox.deliveries()[0]["attempts"])
        before, config = server.sandbox.deliveries(), server.sandbox.config
    first = receiver.got[0].body

    receiver.answer = lambda _received, _number: 200
    with SandboxServer(pytest.fail, state=state, time_scale=0.05) as server:
        assert server.sandbox.config == config
        ended = finished(server)
    assert [each["state"] for each in ended] == ["delivered"] * 3 + ["dropped"]
    for old, new in zip(before, ended, strict=True):
        assert new["attempts"][: len(old["attempts"])] == old["attempts"]
        for each in (old, new):
            del each["attempts"], each["state"], each["nextAttemptAt"]
        assert old == new
    assert [each.body for each in receiver.got].count(first) >= 2


def mint_until_it_dies(client: httpx.Client, wallet: str, made: list[dict[str, Any]]) -> None:
    """Mint repeatedly, and record the acknowledged mints."""
    body = {"walletId": wallet, "amount": 1, "metadata": {}}
    with suppress(httpx.TransportError):
        while True:
            answer = client.post("/sandbox/mint", json=body)
            assert answer.status_code == 200
            made.append(answer.json())


def test_after_kill_9_every_acknowledged_edit_is_there_and_every_webhook_comes(tmp_path, receiver):
    state = str(tmp_path / "state")
    made: list[dict[str, Any]] = []

    def refuse_once(received: Received, _number: int) -> int:
        return 500 if [each.body for each in receiver.got].count(received.body) == 1 else 200

    receiver.answer = refuse_once
    config = {"url": receiver.url, "enabled": True, "sharedSecret": SECRET, "webhookTypes": ["nft"]}
    with (
        command("--state", state, "--time-scale", "0.1") as (process, url, _said),
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        client.patch(CONFIG, json=config)
        wallet = client.get("/sandbox/wallets").json()[0]
        minting = threading.Thread(target=mint_until_it_dies, args=(client, wallet, made))
        minting.start()
        wait_until(lambda: len(made) >= 40)
        process.kill()
        minting.join()
    receiver.answer = lambda _received, _number: 200
    with SandboxServer(pytest.fail, state=state, time_scale=0.1) as server:
        finished(server)
        listed = (server.world.balances_body(wallet) or b"").decode()
        for answer in made:
            assert answer["tokenId"] in listed
            assert server.world.token_body(answer["tokenId"]) is not None
    came = [json.loads(each.body) for each in receiver.got]
    told = {webhook for answer in made for webhook in answer["webhooks"]}
    assert len(told) == 2 * len(made)
    assert told <= {each["id"] for each in came}
    # Never a webhook of an edit that is not there.
    assert all(each["resourceId"] == wallet or each["resourceId"] in listed for each in came)


def test_the_file_is_its_owners_alone_and_holds_the_secret_nobody_else_sees(tmp_path):
    mask = os.umask(0)
    try:
        (tmp_path / "empty").touch(0o644)
        for name in ("new", "empty"):
            with SandboxServer(generate(wallets=1), state=tmp_path / name) as server:
                server.sandbox.configure(json.dumps({"sharedSecret": SECRET}).encode())
                server.world.add_wallet()
                files = list(tmp_path.glob(f"{name}*"))
                assert len(files) == 1
                assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    finally:
        os.umask(mask)


def test_a_file_that_is_something_else_or_in_use_is_refused_in_a_line_and_left(tmp_path):
    with (
        SandboxServer(generate(wallets=1), state=tmp_path / "x"),
        pytest.raises(InputError, match=r"locked\. .* no other sandbox is using"),
    ):
        SandboxServer(generate(wallets=1), state=tmp_path / "x")
    with (tmp_path / "x").open("a") as file:
        file.write('[[["facts"')  # a kill has cut this line off
    for _ in range(2):
        with SandboxServer(pytest.fail, state=tmp_path / "x") as server:
            assert server.world.restored
            server.world.add_wallet()
    with closing(sqlite3.connect(tmp_path / "older")) as older:
        older.executescript("CREATE TABLE x (y); PRAGMA application_id = 0x6E667473")
        older.execute("PRAGMA user_version = 3")
    (tmp_path / "text").write_text("no state\n" * 99)
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("text", "cannot be used: it is not a sandbox state"),
        ("older", "is a sandbox state of version 3, but this nftsync reads 5"),
        ("folder", "cannot be used: [Errno 21] Is a directory"),
        ("gone/x", "cannot be used: [Errno 2] No such file"),
    ):
        path = tmp_path / name
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(InputError) as refused:
            SandboxServer(generate(wallets=1), state=path)
        assert message in str(refused.value)
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)
        assert (path.read_bytes() if path.is_file() else b"") == before
