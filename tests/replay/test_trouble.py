"""The attempts and waits that a provider costs which is down, refuses, or answers wrongly."""

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.kit.provider import Peer, Provider, Sender, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE
from tests.replay.world import NOTHING, OK, Gate, Place, hold, in_time, path_of, settled, wallets


def seconds_until(moment: str) -> float:
    return (datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds()


# Down -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "client"),
    [
        (reply(b"", 401), {}),
        (reply(b"", 429), {}),
        (reply(b"", 503, retry_after="3600"), {}),
        (OK, {"base_url": "http://127.0.0.1:9"}),
        (OK, {"token_command": "false"}),
    ],
    ids=["401", "429", "503 for an hour", "nothing listens", "no token"],
)
def test_a_provider_that_is_down_costs_no_attempts(
    place: Place, provider: Provider, answer: Sender, client: dict[str, str]
) -> None:
    provider.always(answer)
    place.receive("Wallet", *wallets(10))
    result = place.replay(**client)
    assert (settled(result), place.states(), place.attempts()) == (0, {"pending": 10}, {0})
    assert "the provider is down or refuses" in str(result.error)
    assert bool(provider.requests()) != bool(client)
    assert place.run("SELECT count(*) FROM wallets") == [(0,)]
    assert place.is_quiet()
    (ledger,) = place.runs()
    assert (ledger["status"], ledger["error"]) == ("failed", result.error)
    # It answers again, and the next call processes all.
    provider.always(OK)
    place.make_due()
    again = place.replay()
    assert (again.done, again.error) == (10, None)


def test_while_it_is_down_one_object_at_a_time_is_tried_and_then_follow_goes_on(
    place: Place, provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also with deferred objects. At first, the token is missing."""

    def refuse_slowly(peer: Peer) -> bool:
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
    assert place.attempts() == {1}


# One object alone -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("concurrency", "status", "bad"), [(1, 403, [0]), (4, 403, [3, 12, 25]), (1, 500, [3, 12, 25])]
)
def test_objects_that_alone_are_refused_are_put_off_and_the_others_done(
    place: Place, provider: Provider, concurrency: int, status: int, bad: list[int]
) -> None:
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
    assert [ledger["status"] for ledger in place.runs()] == ["partial"]


def test_a_refused_objects_waits_grow_up_to_a_bound_and_hold_up_no_other(
    place: Place, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the first refusal may be the provider's; the others are known to be the object's."""
    caplog.set_level(logging.INFO, "nftsync.replay")
    provider.on(path_of(1), reply(b"", 403))
    provider.holds(wallet(1))
    provider.holds(wallet(2), entry(token(2)))
    (bad,) = place.receive("Wallet", wallet(1))
    timing = {"first_deferral": 100.0, "first_pause": 0.01, "poll": 0.05}
    with place.following(timing=timing) as following:
        for wait in (100, 200, 400, 800, 900, 900):
            if wait > 200:  # after the first wait, the answer for the other wallet ends it
                place.make_due()
            following.until(
                lambda w=wait: in_time(w - 50) < place.webhook(bad)["next_attempt_at"] <= in_time(w)
            )
            assert place.webhook(bad)["attempts"] == 0
            (good,) = place.receive("Wallet", wallet(2))
            following.until(lambda good=good: place.webhook(good)["state"] == "done")
        provider.on(path_of(1))
        place.make_due()
        following.until_states(done=7)
    assert place.webhook(bad)["last_error"] is None
    assert sum("paused" in record.getMessage() for record in caplog.records) == 1


#: Attempts until a webhook is dead.
MOST_ATTEMPTS = 8

# Attempts ---------------------------------------------------------------------------------------


def test_404s_and_unusable_answers_cost_attempts(place: Place, provider: Provider) -> None:
    provider.on(path_of(1), reply(b"<html>"), reply(b"", 404))
    (old,) = place.receive("Wallet", wallet(1))
    waits = []
    for attempt in range(1, MOST_ATTEMPTS):
        result = place.replay()
        row = place.webhook(old)
        assert (result.failed, result.error) == (1, None)
        assert (row["state"], row["attempts"]) == ("failed", attempt)
        waits.append(seconds_until(row["next_attempt_at"]))
        assert place.replay().as_dict().items() >= NOTHING.items()
        place.make_due()
    assert 3 < waits[0] <= 6
    assert waits[:5] == sorted(waits[:5])
    (new,) = place.receive("Wallet", wallet(1))
    result = place.replay()
    assert (result.failed, result.dead, result.fetches) == (1, 1, 1)
    row = place.webhook(old)
    assert (row["state"], row["attempts"], row["next_attempt_at"]) == ("dead", MOST_ATTEMPTS, None)
    assert "404" in row["last_error"]
    assert row["finished_at"] is not None
    assert place.webhook(new)["state"] == "failed"
    assert place.run("SELECT count(*) FROM wallets") == [(0,)]
    ledgers = place.runs()
    assert {ledger["status"] for ledger in ledgers} == {"failed"}
    assert sum(ledger["requests"] for ledger in ledgers) == len(provider.requests())


# Empty lists ------------------------------------------------------------------------------------


def test_empty_lists_for_everyone_take_nothing_away(place: Place, provider: Provider) -> None:
    hold(place, provider, 24)
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


def test_a_read_that_waits_for_a_decision_is_repeated_after_a_lost_lease(
    place: Place, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    hold(place, provider, 3)
    stuck = Gate()
    provider.on(path_of(0), OK)
    provider.on(path_of(1), stuck)
    place.receive("Wallet", wallet(0), wallet(1))
    asked = len(provider.requests(path_of(0)))

    def is_lost() -> bool:
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
