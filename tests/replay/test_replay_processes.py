"""Replays beside each other, beside a sync, interrupted and killed, each in its own process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator

import pytest
from provider import Provider, entry, reply, token, uuid, wallet
from replay_world import NOTHING, OK, Gate, Place, in_time, path_of, wait_until, wallets
from worlds import Outcome, listed, mirrored, replayed

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer


def test_two_replay_commands_share_a_backlog(place: Place, provider: Provider) -> None:
    def slow(peer):
        peer.wait(0.005)
        return OK(peer)

    provider.always(slow)
    place.receive("Wallet", *wallets(600))
    processes = [place.command("replay", "--json") for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    results = [json.loads(out) for out, _ in outputs]
    assert sum(result["done"] for result in results) == 600
    assert sum(result["fetches"] for result in results) == len(provider.requests()) == 600
    assert place.is_quiet()


@pytest.fixture
def world() -> Iterator[SandboxServer]:
    with SandboxServer(
        lambda url: generate(wallets=80, nfts=3, seed=3, image_base=url), latency=0.004
    ) as server:
        yield server


def test_replay_beside_a_sync_of_the_same_wallets(place: Place, world: SandboxServer) -> None:
    place.url = world.url
    ours = list(world.world.wallets())
    place.receive("Wallet", *ours[:50])
    sync = place.command("sync", "--json", *ours)
    replay = place.command("replay", "--json")
    synced, replayed_out = sync.communicate(timeout=60), replay.communicate(timeout=60)
    assert (sync.returncode, replay.returncode) == (0, 0), (synced, replayed_out)
    result = json.loads(replayed_out[0])
    assert (result["done"], result["failed"]) == (50, 0)
    assert mirrored(place.database) == listed(world.world) == replayed(place.database)
    assert place.is_quiet()


def test_ctrl_c_gives_back_what_is_not_done_and_exits_130(place: Place, provider: Provider) -> None:
    quick = wallets(20)
    for name in quick:
        provider.holds(name, entry(token(1)))
    stuck = Gate()
    provider.on(path_of(99), stuck)
    place.receive("Wallet", *quick, *[wallet(99)] * 3)
    place.receive("Whatever", uuid(1))
    process = place.command("replay")
    assert stuck.arrived.wait(20)
    wait_until(lambda: place.states().get("done") == 20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert "20 done" in out
    assert "Interrupted" in err
    assert "Traceback" not in err
    assert place.states() == {"done": 20, "pending": 3, "unrouted": 1}
    assert place.run("SELECT DISTINCT attempts FROM webhooks WHERE state = 'pending'") == [(0,)]
    assert place.is_quiet()
    (ledger,) = place.runs()
    assert (ledger["status"], ledger["wallets_ok"]) == ("interrupted", 20)


def test_what_a_killed_replay_had_is_done_by_the_next_and_its_run_is_closed(
    place: Place, provider: Provider
) -> None:
    stuck = Gate()
    provider.always(stuck)
    place.receive("Wallet", *wallets(600))
    process = place.command("replay")
    assert stuck.arrived.wait(20)
    process.kill()
    process.communicate(timeout=20)
    provider.always(OK)
    result = place.replay()
    assert result.done == 600 - 512  # the lease of the killed one still stands
    place.run("UPDATE leases SET expires_at = ?", in_time(-1))
    assert place.replay().done == 512
    assert place.run("SELECT DISTINCT state, attempts FROM webhooks") == [("done", 1)]
    assert [ledger["status"] for ledger in place.runs()] == ["interrupted", "ok", "ok"]
    assert place.is_quiet()


def test_the_command_says_what_it_came_to(
    place: Place, provider: Provider, command: Callable[..., Outcome]
) -> None:
    provider.holds(wallet(1), entry(token(1)))
    place.receive("Wallet", wallet(1), wallet(1))
    place.receive("Whatever", uuid(1))
    arguments = "replay", "-d", place.database, "--base-url", place.url
    done = command(*arguments)
    assert done.code == 0
    assert "2 done, 1 without a route; 1 read in" in done.out
    assert "nftsync routes suggest" in done.err
    done = command(*arguments)
    assert (done.code, done.out[:36]) == (0, "Webhooks: none were due; 0 reads in ")
    place.receive("Wallet", wallet(2))
    done = command(*arguments, "--json")
    value = json.loads(done.out)
    assert done.code == 1
    assert value.pop("seconds") > 0
    assert value == NOTHING | {"failed": 1, "fetches": 1}
    assert "nftsync inbox --state failed" in done.err


def test_the_command_says_in_one_line_why_the_provider_is_not_read(
    place: Place, provider: Provider, command: Callable[..., Outcome]
) -> None:
    provider.always(reply(b"\x1b[31m<html>", 403))
    place.receive("Wallet", *wallets(5))
    done = command("replay", "--json", "-d", place.database, "--base-url", place.url)
    assert done.code == 1
    assert '"fetches":' in done.out
    assert done.err.count("\n") == 1
    assert done.err.startswith("nftsync: webhooks wait: ")
    assert "\x1b" not in done.out + done.err
    done = command("replay", "-d", place.database)
    assert done.code == 2
    assert "base_url" in done.err
    assert done.err.count("\n") <= 4
