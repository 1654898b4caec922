"""Replays beside each other, beside a sync, interrupted and killed, each in its own process."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator

import pytest
from provider import Provider, balances, entry, reply, token, uuid, wallet
from replay_world import Place, in_time, wait_until
from worlds import listed, mirrored, replayed

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer

OK = reply(balances())


def test_two_replay_commands_share_a_backlog(place: Place, provider: Provider) -> None:
    def slow(peer):
        peer.wait(0.005)
        return OK(peer)

    provider.always(slow)
    place.receive("Wallet", *(wallet(number) for number in range(900)))
    processes = [place.command("replay", "--json") for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    results = [json.loads(out) for out, _ in outputs]
    assert sum(result["done"] for result in results) == 900
    assert sum(result["fetches"] for result in results) == len(provider.requests()) == 900
    assert place.is_quiet()


@pytest.fixture
def world() -> Iterator[SandboxServer]:
    with SandboxServer(
        lambda url: generate(wallets=150, nfts=6, seed=3, image_base=url), latency=0.004
    ) as server:
        yield server


def test_replay_beside_a_sync_of_the_same_wallets(place: Place, world: SandboxServer) -> None:
    place.url = world.url
    wallets = list(world.world.wallets())
    for name in wallets[:100]:
        place.receive("Wallet", name)
    sync = place.command("sync", "--json", *wallets)
    replay = place.command("replay", "--json")
    synced, replayed_out = sync.communicate(timeout=60), replay.communicate(timeout=60)
    assert (sync.returncode, replay.returncode) == (0, 0), (synced, replayed_out)
    result = json.loads(replayed_out[0])
    assert (result["done"], result["failed"]) == (100, 0)
    assert mirrored(place.database) == listed(world.world) == replayed(place.database)
    assert place.is_quiet()


def test_ctrl_c_gives_back_what_is_not_done_and_exits_130(place: Place, provider: Provider) -> None:
    quick = [wallet(number) for number in range(20)]
    for name in quick:
        provider.holds(name, entry(token(1)))
    stuck = threading.Event()

    def never(peer):
        stuck.set()
        peer.wait(30)
        return False

    provider.on(f"/v1/wallets/{wallet(99)}/nft-balances", never)
    place.receive("Wallet", *quick, *[wallet(99)] * 3)
    place.receive("Whatever", uuid(1))
    process = place.command("replay")
    assert stuck.wait(20)
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
    stuck = threading.Event()

    def never(peer):
        stuck.set()
        peer.wait(30)
        return False

    provider.always(never)
    place.receive("Wallet", *(wallet(number) for number in range(700)))
    process = place.command("replay")
    assert stuck.wait(20)
    process.kill()
    process.communicate(timeout=20)
    provider.always(OK)
    result = place.replay()
    assert result.done == 700 - 512  # the lease of the killed one still stands
    place.run("UPDATE leases SET expires_at = ?", in_time(-1))
    assert place.replay().done == 512
    assert place.run("SELECT DISTINCT state, attempts FROM webhooks") == [("done", 1)]
    assert [ledger["status"] for ledger in place.runs()] == ["interrupted", "ok", "ok"]
    assert place.is_quiet()


def test_follow_and_replay_beside_each_other(place: Place, provider: Provider) -> None:
    provider.always(OK)
    with place.following() as following:
        for round_ in range(5):
            place.receive("Wallet", *(wallet(number) for number in range(40)))
            result = place.replay()
            following.wake()
            following.until(lambda n=round_: place.states() == {"done": 40 * (n + 1)})
            assert result.failed == 0
    assert place.run("SELECT DISTINCT attempts FROM webhooks") == [(1,)]
    assert place.is_quiet()


def test_the_command_says_what_it_came_to(place: Place, provider: Provider) -> None:
    provider.holds(wallet(1), entry(token(1)))
    place.receive("Wallet", wallet(1), wallet(1))
    place.receive("Whatever", uuid(1))
    process = place.command("replay")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "2 done, 1 without a route; 1 read in" in out
    assert "nftsync routes suggest" in err
    nothing = place.command("replay")
    assert nothing.communicate(timeout=30)[0].startswith("Webhooks: none were due; 0 reads")
    assert nothing.returncode == 0


def test_the_command_exits_with_1_when_a_webhook_failed(place: Place) -> None:
    place.receive("Wallet", wallet(1))
    process = place.command("replay", "--json")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    value = json.loads(out)
    assert set(value) == {
        "done", "failed", "dead", "unrouted", "quarantined", "fetches", "seconds",
    }  # fmt: skip
    assert (value["failed"], value["fetches"]) == (1, 1)
    assert "nftsync inbox --state failed" in err


def test_without_a_provider_the_command_says_what_is_missing(place: Place) -> None:
    place.url = ""
    process = place.command("replay")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "base_url" in err
    assert err.count("\n") <= 4
