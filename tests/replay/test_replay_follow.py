"""Replay as `serve` runs it: webhooks as they come, second looks, trouble with the database."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pytest
from provider import Provider, balances, entry, reply, silence, token, uuid, wallet
from replay_world import OK, Gate, Place, in_time, path_of, settled

from nftsync.provider.routes import Route
from nftsync.records import ObjectRead
from nftsync.replay.config import Timing
from nftsync.store.mirror import Mirror, store_object


@pytest.fixture
def known(place: Place, provider: Provider) -> Place:
    """Wallet 1 has been read and holds a token; no webhook is left."""
    provider.holds(wallet(1), entry(token(1), "1"))
    place.receive("Wallet", wallet(1))
    place.replay()
    place.run("DELETE FROM webhooks")
    return place


def reads(provider: Provider, number: int = 1) -> int:
    return len(provider.requests(path_of(number)))


def due_again(known: Place) -> str:
    """Wallet 1's webhook is done, and it is time to look once more."""
    (name,) = known.receive("Wallet", wallet(1))
    known.run(
        "UPDATE webhooks SET state = 'done', next_attempt_at = NULL, look_again_at = ?", in_time(-1)
    )
    return name


# Second looks -----------------------------------------------------------------------------------


def test_what_had_not_changed_is_read_once_more_and_no_more(
    known: Place, provider: Provider
) -> None:
    before = reads(provider)
    (name,) = known.receive("Wallet", wallet(1))
    with known.following(timing=Timing(recheck=0.3)) as following:
        following.until(lambda: known.webhook(name)["state"] == "done")
        provider.holds(wallet(1), entry(token(1), "2"))  # what answered was behind
        following.until(lambda: known.run("SELECT amount FROM balances") == [("2",)])
        known.receive("Wallet", wallet(2))  # another webhook's read comes after any third look
        provider.holds(wallet(2), entry(token(1)))
        following.until_states(done=2)
    assert reads(provider) - before == 2
    assert known.run("SELECT webhook_id FROM balance_changes ORDER BY change_id LIMIT 2")[1] == (
        name,
    )
    assert following.counts["done"] == 2
    assert known.run("SELECT count(*) FROM webhooks WHERE look_again_at IS NOT NULL") == [(0,)]


def test_a_second_look_that_is_cut_off_is_made_after_the_restart(
    known: Place, provider: Provider
) -> None:
    gate = Gate()
    name = due_again(known)
    before = reads(provider)
    provider.on(path_of(1), gate)
    with known.following() as following:
        following.until(lambda: reads(provider) > before)
        # Not before this look is over; but should this worker vanish, it is due again by itself.
        assert in_time(30) < known.webhook(name)["look_again_at"] < in_time(90)
    gate.go_on.set()
    assert known.webhook(name)["look_again_at"] is not None


def test_a_second_look_at_a_provider_that_refuses_is_made_later(
    known: Place, provider: Provider
) -> None:
    name = due_again(known)
    provider.on(path_of(1), reply(b"", 403), reply(balances(entry(token(1), "9"))))
    with known.following(
        attempts=1, timing=Timing(first_deferral=0.1, first_pause=0.05)
    ) as following:
        following.until(lambda: known.run("SELECT amount FROM balances") == [("9",)])
    row = known.webhook(name)
    assert (row["state"], row["attempts"]) == ("done", 0)


def test_objects_are_looked_at_again_when_they_are_as_they_were(
    place: Place, provider: Provider
) -> None:
    path = f"/v1/transfers/{uuid(7)}"
    routes = {"Transfer": Route(kind="object", path="/v1/transfers/{resourceId}")}
    looks = []
    with place.following(routes) as following:
        for count, body in enumerate([b'{"a": 1}', b'{"a": 1}', b'{"a": 2}'], start=1):
            provider.on(path, reply(body))
            (name,) = place.receive("Transfer", uuid(7))
            following.until_states(done=count)
            looks.append(place.webhook(name)["look_again_at"] is not None)
    assert looks == [False, True, False]
    assert place.run("SELECT body FROM resources") == [('{"a": 2}',)]


def test_an_object_that_was_read_earlier_does_not_replace_what_was_read_later(
    place: Place,
) -> None:
    reads = [(5, "{}", True), (4, '{"a": 1}', False), (6, "{}", False), (7, '{"a": 2}', True)]
    with Mirror(place.database) as mirror, mirror.transaction() as transaction:
        for sequence, body, is_new in reads:
            read = ObjectRead(
                resource_type="Transfer",
                resource_id=uuid(7),
                outcome="ok",
                sequence=sequence,
                started_at=f"at {sequence}",
                body=body,
            )
            assert store_object(transaction.connection, read) == is_new
    assert place.run("SELECT body, fetched_at FROM resources") == [('{"a": 2}', "at 7")]


# Leases -----------------------------------------------------------------------------------------


def test_a_lease_that_was_taken_away_midway_costs_a_read_and_no_webhook(
    place: Place, provider: Provider
) -> None:
    gate = Gate()
    provider.on(path_of(1), gate, OK)
    (name,) = place.receive("Wallet", wallet(1))
    with place.following(timing=Timing(renew=0.05)) as following:
        following.until(lambda: reads(provider) == 1)
        lease = place.webhook(name)["lease_no"]
        place.run("DELETE FROM leases")
        place.run("UPDATE sync_runs SET status = 'interrupted', finished_at = 'x'")
        following.until(lambda: (place.webhook(name)["lease_no"] or 0) > lease)
        assert [ledger["status"] for ledger in place.runs()] == ["running"]
        gate.go_on.set()
        following.until(lambda: place.webhook(name)["state"] == "done")
    assert reads(provider) == 2
    assert place.webhook(name)["attempts"] == 1
    assert place.is_quiet()
    (ledger,) = place.runs()
    assert (ledger["status"], ledger["wallets_ok"]) == ("ok", 2)


def test_a_worker_whose_lease_ended_between_two_steps_of_a_claim_lets_it_go(
    place: Place, provider: Provider
) -> None:
    provider.always(OK)
    place.receive("Wallet", *[wallet(1)] * 4_100)  # more than one transaction claims
    place.run(
        "CREATE TRIGGER lost AFTER UPDATE OF lease_no ON webhooks WHEN new.state = 'running'"
        " BEGIN DELETE FROM leases; END"
    )
    result = place.replay()
    assert (settled(result), result.fetches) == (0, 0)
    place.run("DROP TRIGGER lost")
    result = place.replay()
    assert (result.done, result.fetches) == (4_100, 1)


def test_what_is_given_back_at_the_end_keeps_why_it_failed_before(
    place: Place, provider: Provider
) -> None:
    (name,) = place.receive("Wallet", wallet(1))
    place.replay()
    reason = place.webhook(name)["last_error"]
    assert "404" in reason
    place.make_due()
    provider.on(path_of(1), silence())
    with place.following() as following:
        following.until(lambda: reads(provider) == 2)
    row = place.webhook(name)
    assert (row["state"], row["attempts"], row["last_error"]) == ("pending", 1, reason)
    assert row["next_attempt_at"] <= in_time(0)


# Trouble with the database ----------------------------------------------------------------------


def test_a_database_that_is_locked_for_long_delays_and_loses_nothing(
    place: Place, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """Longer than a writer waits, so that replay begins anew; what it had in hand comes back."""
    gate = Gate()
    provider.on(path_of(1), gate, OK)
    place.receive("Wallet", wallet(1))
    with place.following(timing=Timing(restart=0.05, renew=0.05, busy=0.2)) as following:
        assert gate.arrived.wait(10)
        with closing(sqlite3.connect(place.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            gate.go_on.set()
            following.until(lambda: "database trouble" in caplog.text)
            other.execute("COMMIT")
        assert place.states() == {"running": 1}
        place.run("UPDATE leases SET expires_at = ?", in_time(-1))  # as in 20 s
        following.until_states(done=1)
    assert place.is_quiet()
    assert [ledger["status"] for ledger in place.runs()] == ["interrupted", "ok"]


def test_follow_settles_nothing_that_could_not_be_stored(
    place: Place, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """A read that can be stored and a settlement that can't are stored only together."""
    provider.holds(wallet(1), entry(token(1)))
    place.receive("Wallet", wallet(1))
    place.run(
        "CREATE TRIGGER full_disk BEFORE UPDATE OF state ON webhooks WHEN new.state = 'done'"
        " AND EXISTS (SELECT 1 FROM balance_rows)"
        " BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    )
    with place.following(timing=Timing(restart=0.05, renew=0.05)) as following:
        following.until(lambda: "no room left" in caplog.text)
        assert place.states() == {"running": 1}
        place.run("DROP TRIGGER full_disk")
        place.run("UPDATE leases SET expires_at = ?", in_time(-1))
        following.until_states(done=1)
    assert place.held() == 1


# The ledger -------------------------------------------------------------------------------------


def test_each_run_in_the_ledger_says_what_it_came_to_itself(
    place: Place, provider: Provider
) -> None:
    provider.always(OK)
    provider.on(path_of(1), reply(b"", 404))
    with place.following(timing=Timing(quiet=0.05)) as following:
        for count, number in enumerate([2, 1, 3], start=1):
            place.receive("Wallet", wallet(number))
            following.wake()
            following.until(lambda n=count: len(place.runs()) == n and place.is_quiet())
    assert [ledger["status"] for ledger in place.runs()] == ["ok", "failed", "ok"]
    assert [ledger["wallets_ok"] for ledger in place.runs()] == [1, 0, 1]
    assert all(ledger["finished_at"] for ledger in place.runs())


def test_quiet_times_write_nothing(place: Place, provider: Provider) -> None:
    provider.always(OK)
    place.receive("Wallet", wallet(1))
    with place.following(timing=Timing(quiet=0.05, renew=0.01, poll=0.01)) as following:
        following.until(lambda: place.states() == {"done": 1} and place.is_quiet())
        with closing(sqlite3.connect(place.database)) as other:
            version = other.execute("PRAGMA data_version").fetchone()
            threading.Event().wait(0.3)
            assert other.execute("PRAGMA data_version").fetchone() == version
