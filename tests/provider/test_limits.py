"""The rate limiter over many clients, and the give-up rule: when a run sends no more requests."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from nftsync.errors import AccessRefused, ReadError, Stopped
from nftsync.provider.client import Client, access_to, finish
from nftsync.provider.config import ClientConfig
from nftsync.provider.rate_limit import GiveUpRule, RateLimiter, Slots
from nftsync.records import Effort
from tests.kit.provider import Peer, balances, raw, reply, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

GOOD = reply(balances())


class Crowd:
    """Threads that each take one slot, and the order in which they got it."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.order: list[str] = []
        self.left_at: list[float] = []
        self._threads = ExitStack()

    def come(self, name: str, slots: Slots) -> None:
        """Send one more, and see it wait in line."""
        before = self.limiter.waiting
        thread = threading.Thread(target=self._take, args=(name, slots), daemon=True)
        thread.start()
        self._threads.callback(thread.join, 30)
        wait_until(lambda: self.limiter.waiting == before + 1)

    def _take(self, name: str, slots: Slots) -> None:
        with slots:
            self.left_at.append(time.monotonic())
            self.order.append(name)

    def join(self) -> None:
        self._threads.close()


@pytest.mark.parametrize("arguments", [{"at_once": 1}, {"rate_limit": 20.0, "at_once": 1}])
def test_urgent_requests_go_before_ordinary_ones_that_wait(arguments):
    limiter = RateLimiter(**arguments)
    ordinary, urgent = Slots(limiter), Slots(limiter, urgent=True)
    crowd = Crowd(limiter)
    with ordinary:
        for number in range(2):
            crowd.come(f"ordinary {number}", ordinary)
        for number in range(2):
            crowd.come(f"urgent {number}", urgent)
    crowd.join()
    assert crowd.order == ["urgent 0", "urgent 1", "ordinary 0", "ordinary 1"]


@pytest.mark.parametrize("at_once", [None, 3])
def test_a_rate_limit_spaces_requests_of_all_clients_and_saves_up_no_slots(at_once):
    limiter = RateLimiter(100, at_once=at_once)
    clients = [Slots(limiter, urgent=number % 2 == 0) for number in range(4)]
    with clients[0]:
        time.sleep(0.1)
    began = time.monotonic()

    def take(number: int) -> float:
        with clients[number % 4]:
            return time.monotonic()

    with ThreadPoolExecutor(16) as threads:
        left = sorted(threads.map(take, range(40)))
    assert all(at - began >= number / 100 for number, at in enumerate(left))


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_than_that_are_in_flight_at_once(provider, make_client, at_once):
    limiter = RateLimiter(at_once=at_once)
    clients = [make_client(limiter=limiter, urgent=urgent) for urgent in (False, True)]
    lock = threading.Lock()
    here = most = 0

    def answer(peer: Peer) -> bool:
        nonlocal here, most
        with lock:
            here += 1
            most = max(most, here)
        time.sleep(0.005)
        with lock:
            here -= 1
        return GOOD(peer)

    provider.always(answer)
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(lambda n: finish(clients[n % 2].balances(wallet(n), Effort())), range(60)))
    assert most <= at_once
    assert len(provider.requests()) == 60


def test_a_slot_is_free_after_a_failure_and_while_a_request_waits_for_its_next_try(
    provider, make_client
):
    limiter = RateLimiter(at_once=1)
    client = make_client(limiter=limiter, token_command="echo x", first_wait=60.0)
    provider.always(reply(status=404))
    for _ in range(3):
        with pytest.raises(ReadError):
            finish(client.balances(wallet(1), Effort()))
    provider.always(reply(status=503), reply(status=401), GOOD)  # a new token takes no second slot
    waiting = client.balances(wallet(1), Effort())
    assert next(waiting) > 0
    assert finish(make_client(limiter=limiter, token_command="echo x").balances(
        wallet(2), Effort())).entries == []  # fmt: skip
    with pytest.raises(ReadError, match="503"):
        waiting.throw(Stopped("stopped"))


def test_a_pause_that_comes_while_requests_wait_in_line_holds_them_back_too():
    limiter = RateLimiter(at_once=1)
    slots = Slots(limiter)
    crowd = Crowd(limiter)
    with slots:
        for number in range(4):
            crowd.come(str(number), slots)
        limiter.pause(0.5)
        resume_at = time.monotonic() + 0.4
    crowd.join()
    assert min(crowd.left_at) >= resume_at
    assert sorted(crowd.order) == ["0", "1", "2", "3"]


def test_clients_of_one_access_share_the_token_and_not_the_give_up_rule(provider, tmp_path):
    runs = tmp_path / "runs"
    provider.always(reply(status=403))
    command = f"sh -c 'echo x >> {runs}; echo t'"
    config = ClientConfig(base_url=provider.url, token_command=command, rate_limit=1000)
    access = access_to(config, at_once=2)
    rule = GiveUpRule()
    with Client(config, access, rule=rule) as one, Client(config, access, urgent=True) as other:
        for client in [one] * 20 + [other]:
            with pytest.raises(AccessRefused):
                finish(client.balances(wallet(1), Effort()))
    assert runs.read_text() == "x\n"
    assert rule.reason is not None


# The give-up rule -------------------------------------------------------------------------------


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
