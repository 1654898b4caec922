"""Replays beside each other, beside a sync, interrupted and killed, each in its own process."""

import json
import signal

from tests.kit.provider import Provider, entry, reply, token, uuid, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Command
from tests.replay.world import NOTHING, OK, Gate, Place, path_of, wallets


def test_ctrl_c_gives_back_what_is_not_done_and_exits_130(place: Place, provider: Provider) -> None:
    quick = wallets(20)
    for name in quick:
        provider.holds(name, entry(token(1)))
    stuck = Gate()
    provider.on(path_of(99), stuck)
    place.receive("Wallet", *quick, *[wallet(99)] * 3)
    place.receive("Whatever", uuid(1))
    place.run("UPDATE webhooks SET last_error = 'earlier'")
    process = place.command("replay")
    assert stuck.arrived.wait(PATIENCE)
    wait_until(lambda: place.states().get("done") == 20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "20 done" in out
    assert "Interrupted" in err
    assert "Traceback" not in err
    assert place.states() == {"done": 20, "pending": 3, "unrouted": 1}
    given_back = "SELECT DISTINCT attempts, last_error FROM webhooks WHERE state = 'pending'"
    assert place.run(given_back) == [(0, "earlier")]
    assert place.is_quiet()
    (ledger,) = place.runs()
    assert (ledger["status"], ledger["wallets_ok"]) == ("interrupted", 20)


def test_what_a_killed_replay_had_is_done_by_the_next(place: Place, provider: Provider) -> None:
    stuck = Gate()
    provider.always(stuck)
    place.receive("Wallet", *wallets(20))
    process = place.command("replay")
    assert stuck.arrived.wait(PATIENCE)
    process.kill()
    process.communicate(timeout=PATIENCE)
    provider.always(OK)
    place.receive("Wallet", wallet(0), wallet(20))
    assert place.replay().done == 1  # the lease of the killed one still stands
    place.expire_leases()
    assert place.replay().done == 21
    assert place.run("SELECT DISTINCT state, attempts FROM webhooks") == [("done", 1)]
    assert [ledger["status"] for ledger in place.runs()] == ["interrupted", "ok", "ok"]
    assert place.is_quiet()


def test_the_command_prints_its_counts(place: Place, provider: Provider, command: Command) -> None:
    provider.holds(wallet(1), entry(token(1)))
    place.receive("Wallet", *[wallet(1)] * 40)
    place.receive("Whatever", uuid(1))
    replay = "replay", "-d", place.database, "--base-url", place.url
    done = command(*replay)
    assert done.code == 0
    assert "40 done, 1 without a route; 1 read in" in done.out
    assert "nftsync routes suggest" in done.err
    assert place.run(
        "SELECT DISTINCT attempts, last_error, lease_no FROM webhooks WHERE state = 'done'"
    ) == [(1, None, None)]
    done = command(*replay)
    assert (done.code, done.out[:36]) == (0, "Webhooks: none were due; 0 reads in ")
    place.receive("Wallet", wallet(2))
    done = command(*replay, "--json")
    value = json.loads(done.out)
    assert done.code == 1
    assert value.pop("seconds") > 0
    assert value == NOTHING | {"failed": 1, "fetches": 1}
    assert "nftsync inbox --state failed" in done.err
    provider.always(reply(b"\x1b[31m<html>", 403))
    place.receive("Wallet", *wallets(5))
    done = command(*replay, "--json")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("nftsync: webhooks stay pending: ")
    assert "\x1b" not in done.out + done.err
    done = command("replay", "-d", place.database)
    assert (done.code, "base_url" in done.err) == (2, True)
