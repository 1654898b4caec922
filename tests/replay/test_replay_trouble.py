"""A provider that is down, refuses, or does not know: what costs attempts, and what only waits."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from provider import Peer, Provider, Sender, reply, wallet
from replay_world import NOTHING, OK, Place, in_time, path_of, settled, wallets

from nftsync.replay.config import Timing
from nftsync.store.queue import MOST_ATTEMPTS


def seconds_until(time: str) -> float:
    then, now = datetime.fromisoformat(time), datetime.fromisoformat(in_time(0))
    return (then - now).total_seconds()


# Down -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [reply(b"", 401), reply(b"", 429), reply(b"", 500), reply(b"", 503, retry_after="3600")],
    ids=["401", "429", "500", "503 for an hour"],
)
def test_a_provider_that_refuses_costs_no_attempts_and_all_waits(
    place: Place, provider: Provider, answer: Sender
) -> None:
    provider.always(answer)
    place.receive("Wallet", *wallets(30))
    result = place.replay()
    assert (settled(result), place.states()) == (0, {"pending": 30})
    assert "the provider is down or refuses" in str(result.error)
    assert place.attempts() == {0}
    assert place.run("SELECT count(*) FROM wallets") == [(0,)]
    assert place.is_quiet()
    (ledger,) = place.runs()
    assert ledger["status"] == "failed"
    assert ledger["error"] == result.error
    # It answers again, and at the next call all is done, bar what is put off for seconds.
    provider.always(OK)
    place.make_due()
    again = place.replay()
    assert (again.done, again.error) == (30, None)


@pytest.mark.parametrize("client", [{"base_url": "http://127.0.0.1:9"}, {"token_command": "false"}])
def test_a_provider_that_cannot_be_asked_costs_no_attempts(
    place: Place, provider: Provider, client: dict[str, str]
) -> None:
    """Nothing listens, or there is no token to be had."""
    provider.always(OK)
    place.receive("Wallet", *wallets(20))
    result = place.replay(**client)
    assert (settled(result), place.states(), place.attempts()) == (0, {"pending": 20}, {0})
    assert "down or refuses" in str(result.error)
    assert provider.requests() == []
    assert place.is_quiet()
    place.make_due()
    assert place.replay(token_command="echo secret").done == 20


def test_follow_outlives_a_token_command_that_fails_for_a_while(
    place: Place, provider: Provider, tmp_path: Path
) -> None:
    provider.always(OK)
    place.receive("Wallet", *wallets(20))
    token_file = tmp_path / "token"
    timing = Timing(first_pause=0.05)
    with place.following(token_command=f"cat {token_file}", timing=timing) as following:
        following.until(lambda: place.run("SELECT 1 FROM leases"))
        token_file.write_text("secret")
        following.until_states(done=20)
    assert place.attempts() == {1}


def refuse_slowly(peer: Peer) -> bool:
    peer.wait(0.02)
    return reply(b"", 403)(peer)


def test_while_the_provider_is_down_one_object_at_a_time_is_tried(
    place: Place, provider: Provider
) -> None:
    provider.always(refuse_slowly)
    place.receive("Wallet", *wallets(200))
    timing = Timing(first_pause=0.01, longest_pause=0.02, poll=0.01)
    with place.following(concurrency=2, timing=timing) as following:
        provider.wait_for(30, 20)  # the first ones came before it was known to be down
        seen = len(provider.requests())
        while len(provider.requests()) < seen + 10:
            assert place.states().get("running", 0) <= 1
            following.until(lambda: True)
        tried = [request.path for request in provider.requests()]
    assert len(set(tried)) == len(tried)  # each try is another object
    assert place.is_quiet()
    assert place.states() == {"pending": 200}


def test_follow_goes_on_by_itself_when_the_provider_answers_again(
    place: Place, provider: Provider
) -> None:
    """Also with what was put off for long."""
    provider.always(refuse_slowly)
    place.receive("Wallet", *wallets(40))
    timing = Timing(first_pause=0.01, longest_pause=0.02, poll=0.01, first_deferral=600.0)
    with place.following(concurrency=1, timing=timing) as following:
        provider.wait_for(10)
        following.until(lambda: len(place.run("SELECT 1 FROM webhooks WHERE last_error > ''")) > 9)
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
    assert (result.done, result.failed, result.dead) == (30 - len(bad), 0, 0)
    waiting = place.run(
        "SELECT resource_id, attempts FROM webhooks WHERE state = 'pending' ORDER BY resource_id"
    )
    assert waiting == [(wallet(number), 0) for number in bad]
    assert result.error is not None
    (ledger,) = place.runs()
    assert ledger["status"] == "partial"


def test_a_refused_objects_waits_grow_up_to_a_bound_and_cost_no_attempts(
    place: Place, provider: Provider
) -> None:
    provider.on(path_of(1), reply(b"", 403))
    provider.holds(wallet(1))
    (bad,) = place.receive("Wallet", wallet(1))
    timing = Timing(first_deferral=100.0, first_pause=0.01, longest_pause=0.02, poll=0.05)
    with place.following(timing=timing) as following:
        for wait in (100, 200, 400, 800, 900, 900):
            following.until(
                lambda w=wait: in_time(w - 50) < place.webhook(bad)["next_attempt_at"] <= in_time(w)
            )
            assert place.webhook(bad)["attempts"] == 0
            place.make_due()
        provider.on(path_of(1))
        following.until_states(done=1)
    assert place.webhook(bad)["last_error"] is None


# Attempts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [reply(b"", 404), reply(b"[]"), reply(b"<html>")], ids=["404", "no object", "no JSON"]
)
def test_an_answer_that_cannot_be_used_costs_an_attempt(
    place: Place, provider: Provider, answer: Sender
) -> None:
    provider.on(path_of(1), answer)
    (name,) = place.receive("Wallet", wallet(1))
    result = place.replay()
    row = place.webhook(name)
    assert (result.failed, result.error, row["state"], row["attempts"]) == (1, None, "failed", 1)
    assert 3 < seconds_until(row["next_attempt_at"]) <= 6
    assert row["last_error"]
    assert place.run("SELECT count(*) FROM wallets") == [(0,)]
    (ledger,) = place.runs()
    assert (ledger["status"], ledger["requests"]) == ("failed", len(provider.requests()))
    assert place.replay().as_dict().items() >= NOTHING.items()


def test_waits_grow_until_the_last_attempt_and_the_reason_is_kept(
    place: Place, provider: Provider
) -> None:
    (name,) = place.receive("Wallet", wallet(1))
    waits = []
    for _ in range(MOST_ATTEMPTS - 1):
        assert place.replay().failed == 1
        waits.append(seconds_until(place.webhook(name)["next_attempt_at"]))
        place.make_due()
    assert place.replay().dead == 1
    row = place.webhook(name)
    assert (row["state"], row["attempts"], row["next_attempt_at"]) == ("dead", MOST_ATTEMPTS, None)
    assert "404" in row["last_error"]
    assert row["finished_at"] is not None
    assert waits[:5] == sorted(waits[:5])
    assert len(provider.requests()) == MOST_ATTEMPTS


def test_attempts_are_each_webhooks_own(place: Place, provider: Provider) -> None:
    (old,) = place.receive("Wallet", wallet(1))
    for _ in range(MOST_ATTEMPTS - 1):
        place.replay()
        place.make_due()
    (new,) = place.receive("Wallet", wallet(1))
    result = place.replay()
    assert (result.failed, result.dead, result.fetches) == (1, 1, 1)
    assert (place.webhook(old)["state"], place.webhook(new)["state"]) == ("dead", "failed")
