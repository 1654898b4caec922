"""The attempts and waits that a provider costs which is down, refuses, or answers wrongly."""

import logging
from functools import partial

import pytest

from tests.kit.provider import entry, path_of, reply, token, wallet
from tests.kit.worlds import PATIENCE
from tests.replay.world import NOTHING, OK, Gate, in_time, settled, wallets


@pytest.mark.parametrize(
    ("answer", "client"),
    [
        (reply(b"", 503, retry_after="3600"), {}),
        (OK, {"base_url": "http://127.0.0.1:9"}),
        (OK, {"token_command": "false"}),
    ],
    ids=["503 for an hour", "nothing listens", "no token"],
)
def test_a_provider_that_is_down_costs_no_attempts(place, provider, answer, client):
    provider.always(answer)
    place.receive("Wallet", *wallets(10))
    result = place.replay(**client)
    assert (settled(result), place.states()) == (0, {"pending": 10})
    assert place.run("SELECT max(attempts) FROM webhooks") == [(0,)]
    assert "the provider is down or refuses" in str(result.error)
    assert bool(provider.requests()) != bool(client)
    assert place.run("SELECT count(*) FROM wallets") == [(0,)]
    assert place.is_quiet()
    assert (place.runs(), place.runs("error")) == (["failed"], [result.error])
    # It answers again, and the next call processes all.
    provider.always(OK)
    place.make_due()
    again = place.replay()
    assert (again.done, again.error) == (10, None)


def test_while_it_is_down_one_object_at_a_time_is_tried_and_then_follow_goes_on(
    place, provider, tmp_path, caplog
):
    """Also with deferred objects. At first, the token is missing."""

    def refuse_slowly(peer):
        peer.wait(0.02)
        return reply(b"", 403)(peer)

    provider.always(refuse_slowly)
    place.receive("Wallet", *wallets(40))
    token_file = tmp_path / "token"
    timing = {"first_pause": 0.01, "longest_pause": 0.02, "poll": 0.01, "first_deferral": 600.0}
    with place.following(token_command=f"cat {token_file}", timing=timing) as following:
        following.until(lambda: "replay paused" in caplog.text)
        following.until(lambda: place.states().get("running", 0) <= 1)
        token_file.write_text("secret")
        while len(provider.requests()) < 12:
            assert place.states().get("running", 0) <= 1
        tried = [request.path for request in provider.requests()]
        assert len(set(tried)) == len(tried)  # each try is another object
        assert place.states().keys() <= {"pending", "running"}
        provider.always(OK)
        following.until_states(done=40)
    assert place.run("SELECT DISTINCT attempts FROM webhooks") == [(1,)]


@pytest.mark.parametrize(
    ("concurrency", "status", "bad"), [(1, 403, [0]), (4, 403, [3, 12, 25]), (1, 500, [3, 12, 25])]
)
def test_objects_that_alone_are_refused_are_put_off_and_the_others_done(
    place, provider, concurrency, status, bad
):
    provider.always(OK)
    for number in bad:
        provider.on(path_of(number), reply(b"", status))
    place.receive("Wallet", *wallets(30))
    result = place.replay(concurrency=concurrency, attempts=1)
    assert (result.done, settled(result)) == (30 - len(bad), 30 - len(bad))
    waiting = place.run(
        "SELECT resource_id, attempts FROM webhooks WHERE state = 'pending' ORDER BY resource_id"
    )
    assert waiting == [(wallet(number), 0) for number in bad]
    assert result.error is not None
    assert place.runs() == ["partial"]


def test_a_refused_objects_waits_grow_up_to_a_bound_and_hold_up_no_other(place, provider, caplog):
    """Only the first refusal may be the provider's; the others are known to be the object's."""
    caplog.set_level(logging.INFO, "nftsync.replay")
    provider.on(path_of(1), reply(b"", 403))
    provider.holds(wallet(1))
    provider.holds(wallet(2), entry(token(2)))
    (name,) = place.receive("Wallet", wallet(1))
    bad = partial(place.inbox.row, name)
    timing = {"first_deferral": 100.0, "first_pause": 0.01, "poll": 0.05}
    with place.following(timing=timing) as following:
        for wait in (100, 200, 400, 800, 900, 900):
            if wait > 200:  # after the first wait, the answer for the other wallet ends it
                place.make_due()
            following.until(lambda w=wait: in_time(w - 50) < bad()["next_attempt_at"] <= in_time(w))
            assert bad()["attempts"] == 0
            (good,) = place.receive("Wallet", wallet(2))
            following.until(lambda good=good: place.inbox.row(good)["state"] == "done")
        provider.on(path_of(1))
        place.make_due()
        following.until_states(done=7)
    assert bad()["last_error"] is None
    assert sum("paused" in record.getMessage() for record in caplog.records) == 1


def test_404s_and_unusable_answers_cost_attempts(place, provider):
    provider.on(path_of(1), reply(b"<html>"), reply(b"", 404))
    (old,) = place.receive("Wallet", wallet(1))
    for attempt, wait in enumerate((5, 20, 80, 320, 1_280, 3_600, 3_600), start=1):
        earliest = in_time(0.8 * wait)
        result = place.replay()
        row = place.inbox.row(old)
        assert (result.failed, result.error) == (1, None)
        assert (row["state"], row["attempts"]) == ("failed", attempt)
        assert earliest <= row["next_attempt_at"] <= in_time(1.2 * wait)
        assert place.replay().as_dict().items() >= NOTHING.items()
        place.make_due()
    place.receive("Wallet", wallet(1))
    result = place.replay()
    assert (result.failed, result.dead, result.fetches) == (1, 1, 1)
    row = place.inbox.row(old)
    assert (row["state"], row["attempts"], row["next_attempt_at"]) == ("dead", 8, None)
    assert "404" in row["last_error"]
    assert row["finished_at"] is not None
    assert place.states() == {"dead": 1, "failed": 1}
    assert place.run("SELECT count(*) FROM wallets") == [(0,)]
    assert place.runs() == ["failed"] * 8
    assert sum(place.runs("requests")) == len(provider.requests())


def test_empty_lists_for_everyone_take_nothing_away(place, provider):
    place.hold(provider, 24)
    for number in range(24):
        provider.on(path_of(number), OK)
    place.receive("Wallet", *wallets(24))
    result = place.replay()
    assert (result.done, result.failed, result.reads_held, place.held()) == (24, 0, 24, 24)
    assert not place.run("SELECT 1 FROM balance_changes WHERE new_amount IS NULL")
    assert place.run("SELECT status, count(*) FROM wallets GROUP BY 1") == [("incomplete", 24)]
    for number in {*range(24)} - {3}:
        provider.on(path_of(number))
    place.receive("Wallet", *wallets(24))
    result = place.replay()
    assert (result.done, result.reads_held, place.held()) == (24, 0, 23)
    assert place.run("SELECT status, count(*) FROM wallets GROUP BY 1") == [("ok", 24)]


def test_a_read_that_waits_for_a_decision_is_repeated_after_a_lost_lease(place, provider, caplog):
    place.hold(provider, 3)
    stuck = Gate()
    provider.on(path_of(0), OK)
    provider.on(path_of(1), stuck)
    place.receive("Wallet", wallet(0), wallet(1))
    asked = len(provider.requests(path_of(0)))

    def is_lost():
        place.expire_leases()  # it may be renewed at the same moment
        return "lease lost" in caplog.text

    with place.following(timing={"decide": 60.0, "renew": 0.05}) as following:
        assert stuck.arrived.wait(PATIENCE)
        following.until(lambda: len(provider.requests(path_of(0))) > asked)
        assert (place.states(), place.held()) == ({"running": 2}, 3)
        following.until(is_lost)
        stuck.go_on.set()
        following.until_states(done=2)
    assert place.held() == 1
