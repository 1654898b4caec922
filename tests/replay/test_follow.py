"""Replay by `serve` and its command: rechecks, leases, interruptions, trouble with the database."""

import json
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing

from tests.kit import serve_process
from tests.kit.processes import start_process
from tests.kit.provider import balances, entry, path_of, reply, silence, token, uuid, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE
from tests.replay.world import NOTHING, OK, Gate, in_time, settled, wallets


def reads(provider):
    return len(provider.requests(path_of(1)))


def test_an_object_that_had_not_changed_is_read_once_more_only(known, provider):
    before = reads(provider)
    (name,) = known.receive("Wallet", wallet(1))
    with known.following(timing={"recheck": 0.3}) as following:
        following.until_states(done=1)
        provider.holds(wallet(1), entry(token(1), "2"))  # the first answer was behind
        following.until(lambda: known.run("SELECT 1 FROM balances WHERE amount = '2'"))
        known.receive("Wallet", wallet(2))  # its read comes after any third read of the other
        provider.holds(wallet(2), entry(token(1)))
        following.until_states(done=2)
    assert reads(provider) - before == 2
    changes = known.run("SELECT webhook_id FROM balance_changes WHERE new_amount = '2'")
    assert changes == [(name,)]
    assert following.counts["done"] == 2
    assert known.run("SELECT count(*) FROM webhooks WHERE look_again_at IS NOT NULL") == [(0,)]


def test_an_interrupted_or_refused_recheck_is_repeated_later(known, provider):
    known.receive("Wallet", wallet(1))
    due = "UPDATE webhooks SET state = 'done', next_attempt_at = NULL, look_again_at = ?"
    known.run(due, in_time(-1))
    before = reads(provider)
    provider.on(path_of(1), silence())
    with known.following() as following:
        following.until(lambda: reads(provider) > before)
        # Not before this recheck ends; if this worker is killed, the recheck is due again.
        ((later,),) = known.run("SELECT look_again_at FROM webhooks")
        assert in_time(30) < later < in_time(90)
    assert known.run("SELECT count(look_again_at) FROM webhooks") == [(1,)]
    known.run(due, in_time(-1))
    provider.on(path_of(1), reply(b"", 403), reply(balances(entry(token(1), "9"))))
    timing = {"first_deferral": 0.05, "first_pause": 0.05, "poll": 0.05}
    with known.following(attempts=1, timing=timing) as following:
        following.until(lambda: known.run("SELECT 1 FROM balances WHERE amount = '9'"))
    assert known.run("SELECT state, attempts FROM webhooks") == [("done", 0)]


def test_only_an_unchanged_object_is_read_again(place, provider):
    routes = {"Transfer": {"kind": "object", "path": "/v1/transfers/{resourceId}"}}
    rechecks = []
    with place.following(routes, timing={"poll": 0.05}) as following:
        for count, body in enumerate([b'{"a": 1}', b'{"a": 1}', b'{"a": 2}'], start=1):
            provider.on(f"/v1/transfers/{uuid(7)}", reply(body))
            place.receive("Transfer", uuid(7))
            following.until_states(done=count)
            rechecks += place.run("SELECT count(look_again_at) FROM webhooks")
        # A later read has stored its result.
        place.run("UPDATE resources SET sequence = sequence + 60000000000")
        provider.on(f"/v1/transfers/{uuid(7)}", reply(b'{"a": 1}'))
        place.receive("Transfer", uuid(7))
        following.until_states(done=4)
    assert rechecks == [(0,), (1,), (1,)]
    assert place.run("SELECT body FROM resources") == [('{"a": 2}',)]


def test_a_lease_that_is_taken_away_costs_only_a_read(place, provider):
    gate = Gate()
    provider.on(path_of(1), gate, OK)
    place.receive("Wallet", wallet(1))
    lease = "SELECT coalesce(lease_no, 0) FROM webhooks"
    with place.following(timing={"renew": 0.05}) as following:
        following.until(lambda: reads(provider) == 1)
        expires = place.run("SELECT expires_at FROM leases")
        following.until(lambda: place.run("SELECT expires_at FROM leases") > expires)
        before = place.run(lease)
        # The run first: without its lease, the worker opens it again at once.
        place.run("UPDATE sync_runs SET status = 'interrupted', finished_at = 'x'")
        place.run("DELETE FROM leases")
        following.until(lambda: place.run(lease) > before)
        assert place.runs() == ["running"]
        gate.go_on.set()
        following.until_states(done=1)
    assert reads(provider) == 2
    assert place.run("SELECT attempts FROM webhooks") == [(1,)]
    assert place.is_quiet()
    assert (place.runs(), place.runs("wallets_ok")) == (["ok"], [2])


#: More webhooks than one transaction marks.
MANY = 4_100
LOST = "CREATE TRIGGER lost AFTER UPDATE OF {} ON webhooks WHEN new.state = '{}' BEGIN {}; END"


def test_a_claim_whose_lease_ends_midway_is_released(place, provider):
    provider.always(OK)
    place.receive("Wallet", *[wallet(1)] * MANY)
    place.run(LOST.format("lease_no", "running", "DELETE FROM leases"))
    result = place.replay()
    assert (settled(result), result.fetches) == (0, 0)
    place.run("DROP TRIGGER lost")
    result = place.replay()
    assert (result.done, result.fetches) == (MANY, 1)


def test_the_next_read_settles_after_a_lost_lease(place, provider):
    provider.on(path_of(1), OK, reply(b"", 404))
    place.receive("Wallet", *[wallet(1)] * MANY)
    place.run(LOST.format("state", "done", "DELETE FROM leases"))
    result = place.replay(timing={"renew": 0.0, "poll": 0.0})
    assert (result.done, result.failed) == (4_000, 100)


def test_a_lease_lost_during_a_release_drops_waiting_reads(place, provider):
    """Each wallet loses 30 of 1,200 tokens, few enough; all of them do not fit in a step."""
    tokens = [entry(token(number)) for number in range(1_200)]
    for left in (tokens, tokens[30:]):
        for number in range(12):
            provider.holds(wallet(number), *left)
        place.receive("Wallet", *wallets(12))
        if left is tokens:
            place.replay()
    place.run("CREATE TABLE releases (wallet_no)")
    place.run(
        "CREATE TRIGGER lost AFTER INSERT ON balance_change_rows"
        " WHEN new.new_amount IS NULL AND NOT EXISTS (SELECT 1 FROM releases)"
        " BEGIN INSERT INTO releases VALUES (new.wallet_no); DELETE FROM leases; END"
    )
    result = place.replay(timing={"renew": 0.0, "poll": 0.0})
    assert result.done == 12
    assert 12 < result.fetches < 24  # reads without a decision are repeated
    assert place.run(
        "SELECT wallet_no, count(*), count(DISTINCT observed_at) FROM balance_change_rows"
        " WHERE new_amount IS NULL GROUP BY 1"
    ) == [(number, 30, 1) for number in range(1, 13)]
    assert place.run("SELECT DISTINCT attempts FROM webhooks") == [(1,)]
    assert place.is_quiet()


def test_a_lock_and_a_full_disk_lose_nothing(place, provider, caplog):
    """Replay restarts, and its claimed webhooks are pending again.

    The database is locked for longer than a writer waits; then a read could be stored, but not
    that its webhook is done: they are stored together.
    """
    gate = Gate(reply(balances(entry(token(1)))))
    provider.on(path_of(1), gate)
    place.receive("Wallet", wallet(1))
    with place.following(timing={"restart": 0.05, "renew": 0.05, "busy": 0.2}) as following:
        assert gate.arrived.wait(PATIENCE)
        with closing(sqlite3.connect(place.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            gate.go_on.set()
            following.until(lambda: "database trouble" in caplog.text)
            other.execute("COMMIT")
        assert place.states() == {"running": 1}
        full = "SELECT RAISE(ABORT, 'disk is full') FROM balance_rows"
        place.run(LOST.format("state", "done", full))
        place.expire_leases()
        following.until(lambda: "no room left" in caplog.text)
        assert (place.states(), place.held()) == ({"running": 1}, 0)
        place.run("DROP TRIGGER lost")
        place.expire_leases()
        following.until_states(done=1)
    assert place.held() == 1
    assert place.is_quiet()
    assert place.runs() == ["interrupted", "interrupted", "ok"]


def test_each_run_is_a_row_and_quiet_times_write_nothing(place, provider):
    provider.always(OK)
    provider.on(path_of(1), reply(b"", 404))
    with place.following(timing={"quiet": 0.05, "renew": 0.01, "poll": 0.01}) as following:
        for count, number in enumerate([2, 1, 3], start=1):
            place.receive("Wallet", wallet(number))
            following.until(lambda n=count: len(place.runs()) == n and place.is_quiet())
        with closing(sqlite3.connect(place.database)) as other:
            version = other.execute("PRAGMA data_version").fetchone()
            threading.Event().wait(0.3)
            assert other.execute("PRAGMA data_version").fetchone() == version
    assert (place.runs(), place.runs("wallets_ok")) == (["ok", "failed", "ok"], [1, 0, 1])
    assert all(place.runs("finished_at"))


HOUR, DAY = 3_600.0, 86_400.0


def test_webhooks_that_a_wrong_clock_delayed_are_due_and_no_others(place, provider):
    provider.always(OK)
    times = (
        (300 * DAY, 300 * DAY, True),
        (-HOUR, 400 * DAY, True),  # longer than any wait that is set
        (HOUR / 2, 300.0, False),
        (-HOUR, HOUR, False),
    )
    names = iter(place.receive("Wallet", *wallets(8)))
    for received, due, _ in times:
        received_at = in_time(received)
        due_at = received_at if due == received else in_time(due)
        for state in ("pending", "failed"):
            values = f"state = '{state}', received_at = ?, next_attempt_at = ?"
            change = f"UPDATE webhooks SET {values} WHERE webhook_id = ?"
            place.run(change, received_at, due_at, next(names))
    place.replay()
    done = place.run("SELECT state = 'done' FROM webhooks ORDER BY webhook_id")
    assert done == [(is_due,) for _, _, is_due in times for _ in range(2)]


def test_a_lease_that_a_wrong_clock_gave_is_taken_back(place, provider):
    """Its run is closed; one that was finished is left alone."""
    provider.always(OK)
    place.receive("Wallet", wallet(1))
    for number, status in enumerate(["running", "failed"], start=1):
        columns = "(kind, status, started_at, first_sequence)"
        place.run(f"INSERT INTO sync_runs {columns} VALUES ('replay', ?, '', 1)", status)
        place.run("INSERT INTO leases (expires_at, run_id) VALUES (?, ?)", in_time(DAY), number)
    place.run("UPDATE webhooks SET state = 'running', lease_no = 1")
    assert place.replay().done == 1
    assert place.runs() == ["interrupted", "failed", "ok"]
    assert place.runs("finished_at IS NULL") == [0, 1, 0]


def test_ctrl_c_releases_pending_webhooks_and_exits_130(place, provider):
    quick, stuck = wallets(20), Gate()
    for name in quick:
        provider.holds(name, entry(token(1)))
    provider.on(path_of(99), stuck)
    place.receive("Wallet", *quick, *[wallet(99)] * 3)
    place.receive("Whatever", uuid(1))
    place.run("UPDATE webhooks SET last_error = 'earlier'")
    process = start_process(
        serve_process.command("replay", "-d", place.database, "--base-url", place.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert stuck.arrived.wait(PATIENCE)
    wait_until(lambda: place.states().get("done") == 20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "20 done" in out
    assert "Interrupted" in err
    assert "Traceback" not in err
    assert place.states() == {"done": 20, "pending": 3, "unrouted": 1}
    released = "SELECT DISTINCT attempts, last_error FROM webhooks WHERE state = 'pending'"
    assert place.run(released) == [(0, "earlier")]
    assert place.is_quiet()
    assert (place.runs(), place.runs("wallets_ok")) == (["interrupted"], [20])


def test_the_command_prints_its_counts(place, provider, command):
    replay = "replay", "-d", place.database, "--base-url", place.url
    provider.holds(wallet(1), entry(token(1)))
    place.receive("Wallet", *[wallet(1)] * 40)
    place.receive("Whatever", uuid(1))
    command(*replay).says("40 done, 1 without a route; 1 read in", "nftsync routes suggest")
    ended = "SELECT DISTINCT attempts, last_error, lease_no FROM webhooks WHERE state = 'done'"
    assert place.run(ended) == [(1, None, None)]
    command(*replay).says("Webhooks: none were due; 0 reads in ")
    place.receive("Wallet", wallet(2))
    done = command(*replay, "--json").says("nftsync inbox --state failed", code=1)
    value = done.json
    assert value.pop("seconds") > 0
    assert value == NOTHING | {"failed": 1, "fetches": 1}
    provider.always(reply(b"\x1b[31m<html>", 403))
    place.receive("Wallet", *wallets(5))
    done = command(*replay, "--json").says("nftsync: webhooks stay pending: ", code=1)
    assert done.err.count("\n") == 1
    assert "\x1b" not in done.said
    assert json.loads(done.out)["done"] == 0
    command("replay", "-d", place.database).says("base_url", code=2)
