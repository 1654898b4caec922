"""The rate limiter: spacing, slots, priority, pauses and stops over many clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from nftsync.errors import AccessRefused, ReadError, Stopped
from nftsync.provider.access import GiveUpRule, RateLimiter, Slots, access_to
from nftsync.provider.client import Client, finish
from nftsync.provider.config import ClientConfig
from nftsync.records import Effort
from tests.kit.provider import Peer, balances, reply, wallet

GOOD = reply(balances())


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Crowd:
    """Threads that each take one slot, and the order in which they got it."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.order: list[str] = []
        self.stopped: list[str] = []
        self.left_at: list[float] = []
        self._threads = ExitStack()

    def come(self, name: str, slots: Slots) -> None:
        """Send one more, and see it wait in line."""
        before = self.limiter.waiting
        thread = threading.Thread(target=self._take, args=(name, slots), daemon=True)
        thread.start()
        self._threads.callback(thread.join, 30)
        until(lambda: self.limiter.waiting == before + 1)

    def _take(self, name: str, slots: Slots) -> None:
        try:
            with slots:
                self.left_at.append(time.monotonic())
                self.order.append(name)
        except Stopped:
            self.stopped.append(name)

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


def test_a_slot_is_free_while_a_request_waits_for_its_next_try(provider, make_client):
    limiter = RateLimiter(at_once=1)
    provider.on(f"/v1/wallets/{wallet(1)}/nft-balances", reply(status=503))
    provider.holds(wallet(2))
    retrying = make_client(limiter=limiter, first_wait=60.0)
    other = make_client(limiter=limiter)
    waiting = retrying.balances(wallet(1), Effort())
    assert next(waiting) > 0
    assert finish(other.balances(wallet(2), Effort())).entries == []
    with pytest.raises(ReadError, match="503"):
        waiting.throw(Stopped("stopped"))


def test_a_failed_request_gives_its_slot_back_and_a_new_token_takes_no_second_one(
    provider, make_client
):
    provider.always(reply(status=404))
    client = make_client(limiter=RateLimiter(at_once=1), token_command="echo x")
    for _ in range(3):
        with pytest.raises(ReadError):
            finish(client.balances(wallet(1), Effort()))
    provider.always(reply(status=401), GOOD)
    assert finish(client.balances(wallet(1), Effort())).entries == []


@pytest.mark.parametrize("pause", [False, True])
def test_stopping_a_client_ends_its_waits_and_leaves_the_others(pause):
    limiter = RateLimiter(at_once=1)
    stopping, other = Slots(limiter, urgent=True), Slots(limiter)
    crowd = Crowd(limiter)
    with other:
        for number in range(3):
            crowd.come(f"stopping {number}", stopping)
        crowd.come("other", other)
        if pause:
            limiter.pause(0.3)
        stopping.stopped.set()
        until(lambda: len(crowd.stopped) == 3)
        assert crowd.order == []
    crowd.join()
    assert crowd.order == ["other"]
    with pytest.raises(Stopped), stopping:
        pass
    assert limiter.waiting == 0
    with other:
        pass


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
    config = ClientConfig(
        base_url=provider.url, token_command=f"sh -c 'echo x >> {runs}; echo t'", rate_limit=1000
    )
    access = access_to(config, at_once=2)
    rule = GiveUpRule()
    with Client(config, access, rule=rule) as one, Client(config, access, urgent=True) as other:
        for number in range(20):
            with pytest.raises(AccessRefused):
                finish(one.balances(wallet(number), Effort()))
        with pytest.raises(AccessRefused):
            finish(other.balances(wallet(2), Effort()))
        assert runs.read_text() == "x\n"
        assert rule.reason is not None
