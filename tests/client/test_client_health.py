"""When a run has no point any more."""

from __future__ import annotations

import threading

import pytest
from provider import MakeClient, Provider, balances, raw, reply, token, wallet

from nftsync.errors import ReadError
from nftsync.provider import Auth, Health, Tally


def tell(health: Health, *events: int | str) -> list[bool]:
    """Report statuses and reasons; whether there was a verdict after each."""
    verdicts = []
    for event in events:
        if isinstance(event, int):
            health.answered(event)
        else:
            health.unanswered(event)
        verdicts.append(health.verdict is not None)
    return verdicts


@pytest.mark.parametrize("statuses", [[401] * 20, [403] * 20, [401, 403] * 10])
def test_twenty_refusals_at_the_beginning_are_enough(statuses: list[int]) -> None:
    health = Health()
    assert tell(health, *statuses) == [False] * 19 + [True]
    assert health.verdict is not None
    assert "first 20 answers were all 401 or 403" in health.verdict
    assert "token_command" in health.verdict


@pytest.mark.parametrize("other", [200, 304, 404, 429, 500])
@pytest.mark.parametrize("place", [0, 10, 19])
def test_one_other_answer_among_the_first_twenty_says_that_we_are_let_in(
    other: int, place: int
) -> None:
    statuses = [401] * 20
    statuses[place] = other
    health = Health()
    assert not any(tell(health, *statuses, *[401] * 100))


def test_refusals_count_however_often_nothing_answers_between() -> None:
    health = Health()
    events: list[int | str] = []
    for _ in range(20):
        events += [401, "refused"]
    assert tell(health, *events).index(True) == 38


def test_fifty_requests_in_a_row_without_an_answer_are_enough() -> None:
    health = Health()
    assert tell(health, *["no connection: refused"] * 50) == [False] * 49 + [True]
    assert health.verdict is not None
    assert "50 requests in a row got no connection (no connection: refused)" in health.verdict


@pytest.mark.parametrize("status", [200, 401, 500])
def test_an_answer_in_between_begins_the_count_again(status: int) -> None:
    health = Health()
    assert not any(tell(health, *["x"] * 49, status, *["x"] * 49))
    assert tell(health, "x") == [True]


def test_late_in_a_run_fifty_in_a_row_are_still_noticed() -> None:
    health = Health()
    assert not any(tell(health, *[200] * 1_000, *["x"] * 49, 200, *["x"] * 49))
    assert tell(health, "x") == [True]


def test_all_threads_count_together() -> None:
    health = Health()
    threads = [threading.Thread(target=tell, args=(health, *["x"] * 5)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert health.verdict is not None


def test_a_client_reports_what_its_requests_met(
    provider: Provider, make_client: MakeClient
) -> None:
    health = Health()
    client = make_client(health=health, attempts=7, first_wait=0.0)
    nobody = make_client(url="http://127.0.0.1:9", health=health, attempts=7, first_wait=0.0)
    for number in range(7):
        with pytest.raises(ReadError):
            nobody.balances(wallet(number), Tally())
    assert health.verdict is None  # 49
    provider.always(reply(status=404))
    with pytest.raises(ReadError):
        client.token(token(1), Tally())
    for number in range(7):
        with pytest.raises(ReadError):
            nobody.token(token(number), Tally())
    assert health.verdict is None
    # There was a connection, so these are not counted, though they do not begin the count anew.
    provider.always(raw(then="reset"))
    with pytest.raises(ReadError):
        client.balances(wallet(1), Tally())
    assert health.verdict is None
    with pytest.raises(ReadError):
        nobody.balances(wallet(1), Tally())
    assert health.verdict is not None


@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_too_large_to_be_read_is_an_answer(
    provider: Provider, make_client: MakeClient, status: int
) -> None:
    health = Health()
    tell(health, *["x"] * 49)
    provider.always(reply(b"x" * 100_000, status))
    with pytest.raises(ReadError):
        make_client(health=health, attempts=1, max_bytes=1_000).balances(wallet(1), Tally())
    assert tell(health, "x") == [False]


def test_a_401_that_a_new_token_mends_is_no_refusal(
    provider: Provider, make_client: MakeClient
) -> None:
    health = Health()
    client = make_client(health=health, auth=Auth(token_command="echo x"))
    for number in range(25):
        provider.always(reply(status=401), reply(balances()))
        client.balances(wallet(number), Tally())
    assert len(provider.requests()) == 50
    assert health.verdict is None
