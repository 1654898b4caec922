"""Replay as `serve` runs it: webhooks as they come, second looks, trouble with the database."""

import sqlite3
import threading
from contextlib import closing

import pytest

from tests.kit.provider import Provider, balances, entry, reply, silence, token, uuid, wallet
from tests.kit.worlds import PATIENCE
from tests.replay.world import OK, Gate, Place, in_time, path_of, settled, wallets


def reads(provider: Provider) -> int:
    return len(provider.requests(path_of(1)))


# Second looks -----------------------------------------------------------------------------------


def test_what_had_not_changed_is_read_once_more_only(known: Place, provider: Provider) -> None:
    before = reads(provider)
    (name,) = known.receive("Wallet", wallet(1))
    with known.following(timing={"recheck": 0.3}) as following:
        following.until(lambda: known.webhook(name)["state"] == "done")
        provider.holds(wallet(1), entry(token(1), "2"))  # what answered was behind
        following.until(lambda: known.run("SELECT 1 FROM balances WHERE amount = '2'"))
        known.receive("Wallet", wallet(2))  # another webhook's read comes after any third look
        provider.holds(wallet(2), entry(token(1)))
        following.until_states(done=2)
    assert reads(provider) - before == 2
    changes = known.run("SELECT webhook_id FROM balance_changes WHERE new_amount = '2'")
    assert changes == [(name,)]
    assert following.counts["done"] == 2
    assert known.run("SELECT count(*) FROM webhooks WHERE look_again_at IS NOT NULL") == [(0,)]


def test_a_second_look_cut_off_or_refused_is_made_later(known: Place, provider: Provider) -> None:
    (name,) = known.receive("Wallet", wallet(1))
    known.run("UPDATE webhooks SET state = 'done', next_attempt_at = NULL")
    look = "UPDATE webhooks SET look_again_at = ?"
    known.run(look, in_time(-1))
    before = reads(provider)
    provider.on(path_of(1), silence())
    with known.following() as following:
        following.until(lambda: reads(provider) > before)
        # Not before this recheck ends; if this worker is killed, the recheck is due again.
        assert in_time(30) < known.webhook(name)["look_again_at"] < in_time(90)
    assert known.webhook(name)["look_again_at"] is not None
    known.run(look, in_time(-1))
    provider.on(path_of(1), reply(b"", 403), reply(balances(entry(token(1), "9"))))
    timing = {"first_deferral": 0.05, "first_pause": 0.05, "poll": 0.05}
    with known.following(attempts=1, timing=timing) as following:
        following.until(lambda: known.run("SELECT 1 FROM balances WHERE amount = '9'"))
    row = known.webhook(name)
    assert (row["state"], row["attempts"]) == ("done", 0)


def test_an_object_that_is_as_it_was_is_looked_at_again(place: Place, provider: Provider) -> None:
    routes = {"Transfer": {"kind": "object", "path": "/v1/transfers/{resourceId}"}}
    looks = []
    with place.following(routes, timing={"poll": 0.05}) as following:
        for count, body in enumerate([b'{"a": 1}', b'{"a": 1}', b'{"a": 2}'], start=1):
            provider.on(f"/v1/transfers/{uuid(7)}", reply(body))
            (name,) = place.receive("Transfer", uuid(7))
            following.until_states(done=count)
            looks.append(place.webhook(name)["look_again_at"] is not None)
        # A later read has stored its result.
        place.run("UPDATE resources SET sequence = sequence + 60000000000")
        provider.on(f"/v1/transfers/{uuid(7)}", reply(b'{"a": 1}'))
        place.receive("Transfer", uuid(7))
        following.until_states(done=4)
    assert looks == [False, True, False]
    assert place.run("SELECT body FROM resources") == [('{"a": 2}',)]


# Leases -----------------------------------------------------------------------------------------


def test_a_lease_that_is_taken_away_costs_only_a_read(place: Place, provider: Provider) -> None:
    gate = Gate()
    provider.on(path_of(1), gate, OK)
    (name,) = place.receive("Wallet", wallet(1))
    with place.following(timing={"renew": 0.05}) as following:
        following.until(lambda: reads(provider) == 1)
        expires = place.run("SELECT expires_at FROM leases")
        following.until(lambda: place.run("SELECT expires_at FROM leases") > expires)
        lease = place.webhook(name)["lease_no"]
        # The run first: without its lease, the worker opens it again at once.
        place.run("UPDATE sync_runs SET status = 'interrupted', finished_at = 'x'")
        place.run("DELETE FROM leases")
        following.until(lambda: (place.webhook(name)["lease_no"] or 0) > lease)
        assert [ledger["status"] for ledger in place.runs()] == ["running"]
        gate.go_on.set()
        following.until(lambda: place.webhook(name)["state"] == "done")
    assert reads(provider) == 2
    assert place.webhook(name)["attempts"] == 1
    assert place.is_quiet()
    (ledger,) = place.runs()
    assert (ledger["status"], ledger["wallets_ok"]) == ("ok", 2)


def test_a_claim_whose_lease_ends_midway_is_released(place: Place, provider: Provider) -> None:
    provider.always(OK)
    place.receive("Wallet", *[wallet(1)] * 4_100)  # more than one transaction marks
    place.run(
        "CREATE TRIGGER lost AFTER UPDATE OF lease_no ON webhooks WHEN new.state = 'running'"
        " BEGIN DELETE FROM leases; END"
    )
    result = place.replay()
    assert (settled(result), result.fetches) == (0, 0)
    place.run("DROP TRIGGER lost")
    result = place.replay()
    assert (result.done, result.fetches) == (4_100, 1)


def test_the_next_read_settles_after_a_lost_lease(place: Place, provider: Provider) -> None:
    provider.on(path_of(1), OK, reply(b"", 404))
    place.receive("Wallet", *[wallet(1)] * 4_100)  # more than one transaction marks
    place.run(
        "CREATE TRIGGER lost AFTER UPDATE OF state ON webhooks WHEN new.state = 'done'"
        " BEGIN DELETE FROM leases; END"
    )
    result = place.replay(timing={"renew": 0.0, "poll": 0.0})
    assert (result.done, result.failed) == (4_000, 100)


def test_a_lease_lost_during_a_release_drops_waiting_reads(
    place: Place, provider: Provider
) -> None:
    """Each wallet loses 30 of 1,200 tokens, few enough; all of them do not fit in a step."""
    tokens = [entry(token(number)) for number in range(1_200)]
    for number in range(12):
        provider.holds(wallet(number), *tokens)
    place.receive("Wallet", *wallets(12))
    place.replay()
    for number in range(12):
        provider.holds(wallet(number), *tokens[30:])
    names = place.receive("Wallet", *wallets(12))
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
    assert {place.webhook(name)["attempts"] for name in names} == {1}
    assert place.is_quiet()


# Trouble with the database ----------------------------------------------------------------------


def test_a_lock_and_a_full_disk_lose_nothing(
    place: Place, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
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
        place.run(
            "CREATE TRIGGER full BEFORE UPDATE OF state ON webhooks WHEN new.state = 'done'"
            " AND EXISTS (SELECT 1 FROM balance_rows)"
            " BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
        place.expire_leases()
        following.until(lambda: "no room left" in caplog.text)
        assert (place.states(), place.held()) == ({"running": 1}, 0)
        place.run("DROP TRIGGER full")
        place.expire_leases()
        following.until_states(done=1)
    assert place.held() == 1
    assert place.is_quiet()
    assert [ledger["status"] for ledger in place.runs()] == ["interrupted", "interrupted", "ok"]


# The ledger -------------------------------------------------------------------------------------


def test_each_run_is_a_row_and_quiet_times_write_nothing(place: Place, provider: Provider) -> None:
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
    assert [ledger["status"] for ledger in place.runs()] == ["ok", "failed", "ok"]
    assert [ledger["wallets_ok"] for ledger in place.runs()] == [1, 0, 1]
    assert all(ledger["finished_at"] for ledger in place.runs())


# Clocks -----------------------------------------------------------------------------------------

HOUR, DAY = 3_600.0, 86_400.0


@pytest.mark.parametrize("state", ["pending", "failed"])
@pytest.mark.parametrize(
    ("received", "due", "is_due"),
    [
        (300 * DAY, 300 * DAY, True),
        (-HOUR, 400 * DAY, True),  # longer than any wait that is set
        (HOUR / 2, 300.0, False),
        (-HOUR, HOUR, False),
    ],
)
def test_what_a_wrong_clock_made_due_late_is_due_and_what_waits_is_not(
    place: Place, provider: Provider, state: str, received: float, due: float, is_due: bool
) -> None:
    provider.always(OK)
    place.receive("Wallet", wallet(1))
    received_at = in_time(received)
    place.run(
        "UPDATE webhooks SET state = ?, received_at = ?, next_attempt_at = ?",
        *(state, received_at, received_at if due == received else in_time(due)),
    )
    assert place.replay().done == int(is_due)


def test_a_lease_that_a_wrong_clock_gave_is_taken_back(place: Place, provider: Provider) -> None:
    """Its run is closed; one that was finished is left alone."""
    provider.always(OK)
    place.receive("Wallet", wallet(1))
    for number, status in enumerate(["running", "failed"], start=1):
        place.run(
            "INSERT INTO sync_runs (kind, status, started_at, first_sequence)"
            " VALUES ('replay', ?, '', 1)",
            status,
        )
        place.run("INSERT INTO leases (expires_at, run_id) VALUES (?, ?)", in_time(DAY), number)
    place.run("UPDATE webhooks SET state = 'running', lease_no = 1")
    assert place.replay().done == 1
    assert [ledger["status"] for ledger in place.runs()] == ["interrupted", "failed", "ok"]
    assert [bool(ledger["finished_at"]) for ledger in place.runs()] == [True, False, True]
