"""The give-up rule: after which responses a run sends no more requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from nftsync.errors import ReadError, Stopped
from nftsync.provider.access import GiveUpRule, RateLimiter
from nftsync.provider.client import finish
from nftsync.records import Effort
from tests.kit.provider import balances, raw, reply, wallet
from tests.kit.worlds import PATIENCE


def tell(rule: GiveUpRule, *events: int | str) -> list[bool]:
    """Report statuses and reasons; whether there was a reason to stop after each."""
    found = []
    for event in events:
        if isinstance(event, int):
            rule.count_response(event)
        else:
            rule.count_failure(event)
        found.append(rule.reason is not None)
    return found


def test_twenty_refusals_at_the_beginning_are_enough_unless_one_other_answer_is_among_them():
    rule = GiveUpRule()
    assert tell(rule, *[401, 403] * 10) == [False] * 19 + [True]
    assert rule.reason is not None
    assert "first 20 responses were all 401 or 403" in rule.reason
    assert "token_command" in rule.reason
    for place in (0, 10, 19):
        statuses = [401] * 20
        statuses[place] = 500
        assert not any(tell(GiveUpRule(), *statuses, *[401] * 100))


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("before", [0, 1_000])
def test_fifty_requests_in_a_row_without_an_answer_are_enough(status, before):
    rule = GiveUpRule()
    assert not any(tell(rule, *[200] * before, *["x"] * 49, status, *["x"] * 49))
    assert tell(rule, "no connection: refused") == [True]
    assert rule.reason is not None
    assert "50 requests in a row got no connection (no connection: refused)" in rule.reason


def test_a_client_reports_what_its_requests_met(provider, make_client):
    for answer, is_counted in (
        (reply(status=404), True),
        (reply(b"x" * 100_000), True),
        (raw(then="reset"), False),  # there was a connection, but no answer
    ):
        rule = GiveUpRule()
        client = make_client(attempts=1, max_bytes=1_000, rule=rule)
        tell(rule, *["x"] * 49)
        provider.always(answer)
        with pytest.raises(ReadError):
            finish(client.balances(wallet(1), Effort()))
        assert rule.reason is None
        assert tell(rule, "x") == [not is_counted]


def test_a_401_that_a_new_token_mends_is_no_refusal(provider, make_client):
    rule = GiveUpRule()
    client = make_client(token_command="echo x", rule=rule)
    for number in range(25):
        provider.always(reply(status=401), reply(balances()))
        finish(client.balances(wallet(number), Effort()))
    assert len(provider.requests()) == 50
    assert rule.reason is None


def test_what_no_repeat_mends_is_enough_at_once_unless_the_provider_has_answered():
    for answers, reason in (([], "no TLS"), ([500], None)):
        rule = GiveUpRule()
        tell(rule, *answers)
        rule.count_failure("no TLS", final=True)
        assert rule.reason == reason


def test_a_run_that_gave_up_stops_all_its_clients_and_no_other(provider, make_client):
    """Whoever waits for a slot is woken, and sends nothing."""
    rule, limiter = GiveUpRule(), RateLimiter()
    one, later = (make_client(rule=rule, limiter=limiter) for _ in range(2))
    other = make_client()
    provider.always(reply(balances()))
    limiter.pause(PATIENCE)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(finish, one.balances(wallet(1), Effort()))
        rule.count_failure("no TLS", final=True)
        assert isinstance(waiting.exception(), Stopped)
    for client in (later, make_client(rule=rule)):
        with pytest.raises(Stopped):
            finish(client.balances(wallet(1), Effort()))
    finish(other.balances(wallet(1), Effort()))
    assert len(provider.requests()) == 1
