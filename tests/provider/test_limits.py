import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from nftsync.errors import AccessRefused, ReadError, Stopped
from nftsync.provider.client import Client, access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule, RateLimiter, Slots
from nftsync.records import Effort
from tests.kit.provider import CountedAnswer, balances, raw, reply, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE
from tests.provider.conftest import Reader

GOOD = reply(balances())


def take(slots: Slots) -> float:
    """Take a slot; return when."""
    with slots:
        return time.monotonic()


def queue(threads: ThreadPoolExecutor, limiter: RateLimiter, *urgent: bool) -> list[Future[float]]:
    """Take slots in threads that wait in line in this order."""
    found = []
    for number, is_urgent in enumerate(urgent, start=1):
        found.append(threads.submit(take, Slots(limiter, urgent=is_urgent)))
        wait_until(lambda number=number: limiter.waiting == number)
    return found


@pytest.mark.parametrize("rate", [None, 20.0])
def test_urgent_requests_overtake_ordinary_ones(rate):
    limiter = RateLimiter(rate, at_once=1)
    with ThreadPoolExecutor(4) as threads:
        with Slots(limiter):
            waiting = queue(threads, limiter, False, False, True, True)
        ordinary, later, urgent, last = (each.result() for each in waiting)
    assert urgent < last < ordinary < later


def test_a_pause_also_delays_requests_that_wait_in_line():
    limiter = RateLimiter(at_once=1)
    with ThreadPoolExecutor(4) as threads:
        with Slots(limiter):
            waiting = queue(threads, limiter, *[False] * 4)
            limiter.pause(0.5)
            resume_at = time.monotonic() + 0.4
        assert min(each.result() for each in waiting) >= resume_at


@pytest.mark.parametrize("at_once", [None, 3])
def test_a_rate_limit_spaces_the_requests_of_all_clients_and_saves_no_slots(at_once):
    limiter = RateLimiter(100, at_once=at_once)
    clients = [Slots(limiter, urgent=number % 2 == 0) for number in range(4)]
    with clients[0]:
        time.sleep(0.1)
    began = time.monotonic()
    with ThreadPoolExecutor(16) as threads:
        left = sorted(threads.map(take, clients * 10))
    assert all(at - began >= number / 100 for number, at in enumerate(left))


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_requests_than_allowed_are_in_flight(provider, make_client, at_once):
    limiter = RateLimiter(at_once=at_once)
    clients = [make_client(limiter=limiter, urgent=urgent) for urgent in (False, True)]
    answer = CountedAnswer(GOOD, seconds=0.005)
    provider.always(answer)
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(lambda n: clients[n % 2].balances(n), range(60)))
    assert answer.most_at_once <= at_once
    assert len(provider.requests()) == 60


def test_a_slot_is_free_after_a_failure_and_between_attempts(provider, make_client):
    limiter = RateLimiter(at_once=1)
    client = make_client(limiter=limiter, token_command="echo x", first_wait=60.0)
    provider.always(reply(status=404))
    for _ in range(3):
        client.fails("404")
    provider.always(reply(status=503), reply(status=401), GOOD)  # a new token takes no second slot
    waiting = client.client.balances(wallet(1), Effort())
    assert next(waiting) > 0
    assert make_client(limiter=limiter, token_command="echo x").balances(2).entries == []
    with pytest.raises(ReadError, match="503"):
        waiting.throw(Stopped("stopped"))


def tell(rule: GiveUpRule, *events: int | str) -> list[bool]:
    """Report statuses and reasons; return whether there was a reason to stop after each."""
    found = []
    for event in events:
        if isinstance(event, int):
            rule.count_response(event)
        else:
            rule.count_failure(event)
        found.append(rule.reason is not None)
    return found


def test_a_run_ends_after_twenty_refusals_at_the_start_without_any_other_answer():
    rule = GiveUpRule()
    assert tell(rule, *[401, 403] * 10) == [False] * 19 + [True]
    assert "first 20 responses were all 401 or 403" in str(rule.reason)
    assert "token_command" in str(rule.reason)
    for place in (0, 10, 19):
        statuses = [401] * 20
        statuses[place] = 500
        assert not any(tell(GiveUpRule(), *statuses, *[401] * 100))


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("before", [0, 1_000])
def test_a_run_ends_after_fifty_requests_in_a_row_without_connection(status, before):
    rule = GiveUpRule()
    assert not any(tell(rule, *[200] * before, *["x"] * 49, status, *["x"] * 49))
    assert tell(rule, "no connection: refused") == [True]
    reason = "50 requests in a row got no connection (no connection: refused)"
    assert reason in str(rule.reason)


def test_a_client_reports_its_responses_to_the_rule(provider, make_client):
    for answer, is_counted in (
        (reply(status=404), True),
        (reply(b"x" * 100_000), True),
        (raw(then="reset"), False),  # a connection without an answer
    ):
        rule = GiveUpRule()
        tell(rule, *["x"] * 49)
        provider.always(answer)
        make_client(attempts=1, max_bytes=1_000, rule=rule).fails()
        assert tell(rule, "x") == [not is_counted]


def test_a_401_before_a_new_token_and_a_403_with_a_wait_are_no_refusals(provider, make_client):
    rule = GiveUpRule()
    client = make_client(token_command="echo x", rule=rule, attempts=5)
    for number in range(25):
        provider.always(reply(status=401), GOOD)
        client.balances(number)
    assert len(provider.requests()) == 50
    client = make_client(rule=GiveUpRule(), attempts=5)
    provider.always(reply(b"", 403, retry_after="0"))
    for number in range(5):
        client.fails(r"^the provider answered 403 Forbidden \(after 5 attempts\)$", number=number)


@pytest.mark.parametrize(("answers", "reason"), [([], "no TLS"), ([500], None)])
def test_a_final_failure_ends_the_run_unless_the_provider_has_answered(answers, reason):
    rule = GiveUpRule()
    tell(rule, *answers)
    rule.count_failure("no TLS", final=True)
    assert rule.reason == reason


def test_a_run_that_gives_up_stops_all_its_clients_and_no_other(provider, tmp_path):
    """They may share an access, and then the token; a request that waits for a slot ends, too."""
    runs = tmp_path / "runs"
    command = f"sh -c 'echo x >> {runs}; echo t'"
    config = ClientConfig(base_url=provider.url, token_command=command, rate_limit=1000)
    access, rule = access_to(config, at_once=2), GiveUpRule()
    provider.always(*[reply(status=403)] * 21, GOOD)
    with (
        Client(config, access, rule=rule) as first,
        Client(config, access, rule=rule) as second,
        Client(config, access, urgent=True) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        for _ in range(20):
            assert rule.reason is None
            Reader(first).fails(kind=AccessRefused)
        assert rule.reason is not None
        Reader(other).fails(kind=AccessRefused)
        for client in (first, second, Client(config, access, rule=rule)):
            with pytest.raises(Stopped):
                Reader(client).balances()
        Reader(other).balances()
        assert (runs.read_text(), len(provider.requests())) == ("x\n", 22)
        access.limiter.pause(PATIENCE)
        rule = GiveUpRule()
        with Client(config, access, rule=rule) as paused:
            waiting = thread.submit(Reader(paused).balances)
            rule.count_failure("no TLS", final=True)
            assert isinstance(waiting.exception(), Stopped)
