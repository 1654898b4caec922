"""When a run has no point any more."""

from __future__ import annotations

import pytest
from provider import balances, raw, reply, token, wallet

from nftsync.errors import ReadError
from nftsync.provider.client import CircuitBreaker, Client
from nftsync.records import Effort


def tell(breaker: CircuitBreaker, *events: int | str) -> list[bool]:
    """Report statuses and reasons; whether there was a reason to stop after each."""
    found = []
    for event in events:
        if isinstance(event, int):
            breaker.answered(event)
        else:
            breaker.unanswered(event)
        found.append(breaker.reason is not None)
    return found


def test_twenty_refusals_at_the_beginning_are_enough_unless_one_other_answer_is_among_them():
    breaker = CircuitBreaker()
    assert tell(breaker, *[401, 403] * 10) == [False] * 19 + [True]
    assert breaker.reason is not None
    assert "first 20 answers were all 401 or 403" in breaker.reason
    assert "token_command" in breaker.reason
    for place in (0, 10, 19):
        statuses = [401] * 20
        statuses[place] = 500
        assert not any(tell(CircuitBreaker(), *statuses, *[401] * 100))


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("before", [0, 1_000])
def test_fifty_requests_in_a_row_without_an_answer_are_enough(status, before):
    breaker = CircuitBreaker()
    assert not any(tell(breaker, *[200] * before, *["x"] * 49, status, *["x"] * 49))
    assert tell(breaker, "no connection: refused") == [True]
    assert breaker.reason is not None
    assert "50 requests in a row got no connection (no connection: refused)" in breaker.reason


def test_a_client_reports_what_its_requests_met(provider, make_client):
    client = make_client(attempts=49, first_wait=0.0)
    breaker = client.breaker

    def fails(times: int = 1) -> None:
        for number in range(times):
            with pytest.raises(ReadError):
                client.token(token(number), Effort()).result()

    provider.always(reply(status=404))
    fails()
    tell(breaker, *["x"] * 49)
    provider.always(raw(then="reset"))  # there was a connection, so it is not counted
    fails()
    assert breaker.reason is None
    assert tell(breaker, "x") == [True]


def test_an_answer_too_large_to_be_read_is_an_answer(provider, make_client):
    client: Client = make_client(attempts=1, max_bytes=1_000)
    tell(client.breaker, *["x"] * 49)
    provider.always(reply(b"x" * 100_000))
    with pytest.raises(ReadError):
        client.balances(wallet(1), Effort()).result()
    assert tell(client.breaker, "x") == [False]


def test_a_401_that_a_new_token_mends_is_no_refusal(provider, make_client):
    client = make_client(token_command="echo x")
    for number in range(25):
        provider.always(reply(status=401), reply(balances()))
        client.balances(wallet(number), Effort()).result()
    assert len(provider.requests()) == 50
    assert client.breaker.reason is None
