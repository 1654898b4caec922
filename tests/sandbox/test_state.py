import json
import os
import sqlite3
from contextlib import closing

import msgspec
import pytest

from nftsync.errors import InputError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.state import State
from nftsync.sandbox.world import Holding, World
from tests.kit.provider import reply
from tests.kit.waiting import wait_until
from tests.sandbox.conftest import SECRET, UNKNOWN, enable, finished


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
    receiver.always(reply(status=500))
    with SandboxServer(generate(wallets=2), state=state, time_scale=0.05) as server:
        enable(server, receiver, webhookTypes=["nft", "kyc"])
        server.sandbox.script.extend([None, {"delay": 0.5}, "reorder", "drop"])
        for kind in "ABCD":
            server.sandbox.emit("nft", kind, UNKNOWN, "create")
        wait_until(lambda: server.sandbox.deliveries()[0]["attempts"])
        before, config = server.sandbox.deliveries(), server.sandbox.config
    first = receiver.requests()[0].body

    receiver.always(reply())
    with SandboxServer(pytest.fail, state=state, time_scale=0.05) as server:
        assert server.sandbox.config == config
        ended = finished(server)
    assert [each["state"] for each in ended] == ["delivered"] * 3 + ["dropped"]
    for old, new in zip(before, ended, strict=True):
        assert new["attempts"][: len(old["attempts"])] == old["attempts"]
        changed = ("attempts", "state", "nextAttemptAt")
        assert new == old | {name: new[name] for name in changed}
    assert [each.body for each in receiver.requests()].count(first) >= 2


def test_the_file_is_its_owners_alone_whatever_the_umask(tmp_path):
    mask = os.umask(0)
    try:
        (tmp_path / "empty").touch(0o644)
        for name in ("new", "empty"):
            with SandboxServer(generate(wallets=1), state=tmp_path / name) as server:
                server.sandbox.configure(json.dumps({"sharedSecret": SECRET}).encode())
                server.world.add_wallet()
                modes = [file.stat().st_mode & 0o777 for file in tmp_path.glob(f"{name}*")]
                assert modes == [0o600]
    finally:
        os.umask(mask)


def test_a_file_that_was_cut_off_is_read_and_one_in_use_is_refused(tmp_path):
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


def test_another_file_is_refused_in_a_line_and_left(tmp_path):
    with closing(sqlite3.connect(tmp_path / "older")) as older:
        older.executescript("CREATE TABLE x (y); PRAGMA application_id = 0x6E667473")
        older.execute("PRAGMA user_version = 3")
    (tmp_path / "text").write_text("no state\n" * 99)
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("text", "cannot be used: it is not a sandbox state"),
        ("older", "is a sandbox state of version 3, but this nftsync reads 5"),
        ("folder", r"cannot be used: \[Errno 21\] Is a directory"),
        ("gone/x", r"cannot be used: \[Errno 2\] No such file"),
    ):
        path = tmp_path / name
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(InputError, match=rf"^(?=.*{path}).*{message}.*\Z"):
            SandboxServer(generate(wallets=1), state=path)
        assert (path.read_bytes() if path.is_file() else b"") == before
