"""One pace for many clients: its spacing, its seats, its lanes, and what a pause or a stop does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from provider import MakeClient, Peer, Provider, balances, reply, wallet

from nftsync.errors import AccessRefused, ReadError, Stopped
from nftsync.provider import ClientConfig, Lane, Pace, Tally

GOOD = reply(balances())


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Crowd:
    """Threads that each take one turn, and the order in which they got it."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.order: list[str] = []
        self.stopped: list[str] = []
        self.left_at: list[float] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        return len(self.pace._urgent) + len(self.pace._ordinary)

    def come(self, name: str, lane: Lane) -> None:
        """Send one more, and see it wait in line."""
        before = self.waiting
        thread = threading.Thread(target=self._take, args=(name, lane), daemon=True)
        self._threads.append(thread)
        thread.start()
        until(lambda: self.waiting == before + 1)

    def _take(self, name: str, lane: Lane) -> None:
        try:
            with lane.turn(), self._lock:
                self.left_at.append(time.monotonic())
                self.order.append(name)
        except Stopped:
            self.stopped.append(name)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def test_urgent_requests_go_before_ordinary_ones_that_wait_for_a_seat() -> None:
    pace = Pace(at_once=1)
    ordinary, urgent = pace.lane(), pace.lane(urgent=True)
    crowd = Crowd(pace)
    with ordinary.turn():
        for number in range(3):
            crowd.come(f"ordinary {number}", ordinary)
        for number in range(3):
            crowd.come(f"urgent {number}", urgent)
    crowd.join()
    assert crowd.order == [*(f"urgent {n}" for n in range(3)), *(f"ordinary {n}" for n in range(3))]


def test_urgent_requests_go_before_ordinary_ones_that_wait_for_a_slot() -> None:
    pace = Pace(1)
    ordinary, urgent = pace.lane(), pace.lane(urgent=True)
    crowd = Crowd(pace)
    with ordinary.turn():
        pass
    with pace._lock:  # far enough off for all of them to come first
        pace._next_slot = time.monotonic() + 1e6
    for number in range(3):
        crowd.come(f"ordinary {number}", ordinary)
    for number in range(3):
        crowd.come(f"urgent {number}", urgent)
    with pace._lock:
        pace._next_slot, pace._interval = 0.0, 0.05
        pace._wake_first()
    crowd.join()
    assert crowd.order == [*(f"urgent {n}" for n in range(3)), *(f"ordinary {n}" for n in range(3))]


@pytest.mark.parametrize("at_once", [None, 3])
def test_a_rate_limit_holds_over_all_lanes(at_once: int | None) -> None:
    pace = Pace(100, at_once=at_once)
    lanes = [pace.lane(urgent=number % 2 == 0) for number in range(4)]
    began = time.monotonic()

    def take(number: int) -> float:
        with lanes[number % 4].turn():
            return time.monotonic()

    with ThreadPoolExecutor(16) as threads:
        left = sorted(threads.map(take, range(40)))
    assert all(at - began >= number / 100 for number, at in enumerate(left))


def test_idle_time_saves_up_no_turns() -> None:
    lane = Pace(50).lane()
    with lane.turn():
        time.sleep(0.2)
    began = time.monotonic()
    for _ in range(4):
        with lane.turn():
            pass
    assert time.monotonic() - began >= 3 / 50


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_than_that_are_in_flight_at_once(
    provider: Provider, make_client: MakeClient, at_once: int
) -> None:
    pace = Pace(at_once=at_once)
    clients = [make_client(pace=pace.lane(urgent=urgent)) for urgent in (False, True)]
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
        list(threads.map(lambda n: clients[n % 2].balances(wallet(n), Tally()), range(60)))
    assert most <= at_once
    assert len(provider.requests()) == 60
    assert pace._seats == at_once


def test_a_seat_is_free_while_a_request_waits_for_its_next_try(
    provider: Provider, make_client: MakeClient
) -> None:
    pace = Pace(at_once=1)
    provider.on(f"/v1/wallets/{wallet(1)}/nft-balances", reply(status=503))
    provider.holds(wallet(2))
    retrying = make_client(pace=pace.lane(), first_wait=60.0)
    other = make_client(pace=pace.lane())
    ended: list[BaseException] = []

    def retry() -> None:
        try:
            retrying.balances(wallet(1), Tally())
        except Stopped as error:
            ended.append(error)

    thread = threading.Thread(target=retry)
    thread.start()
    provider.wait_for(1)
    assert other.balances(wallet(2), Tally()).entries == []
    retrying.pace.stopped.set()
    thread.join(30)
    assert len(ended) == 1


def test_a_new_token_is_had_without_holding_a_second_seat(
    provider: Provider, make_client: MakeClient
) -> None:
    provider.always(reply(status=401), GOOD)
    config = ClientConfig(base_url=provider.url, token_command="echo x")
    client, _ = config.connect(config.access(at_once=1))
    with client:
        assert client.balances(wallet(1), Tally()).entries == []


@pytest.mark.parametrize("failure", [404, 401])
def test_a_failed_request_gives_its_seat_back(
    provider: Provider, make_client: MakeClient, failure: int
) -> None:
    pace = Pace(at_once=1)
    provider.always(reply(status=failure))
    client = make_client(pace=pace.lane())
    for _ in range(3):
        with pytest.raises(ReadError):
            client.balances(wallet(1), Tally())
    assert pace._seats == 1


@pytest.mark.parametrize("why", ["slot", "seat", "pause"])
def test_stopping_a_lane_ends_its_waits_and_leaves_the_others(why: str) -> None:
    pace = Pace(1, at_once=1) if why == "slot" else Pace(at_once=1)
    stopping, other = pace.lane(urgent=True), pace.lane()
    crowd = Crowd(pace)
    turn = other.turn()
    turn.__enter__()
    if why == "slot":
        with pace._lock:
            pace._next_slot = time.monotonic() + 1e6
        turn.__exit__()
    for number in range(3):
        crowd.come(f"stopping {number}", stopping)
    crowd.come("other", other)
    if why == "pause":
        pace.pause(1.0)
    stopping.stopped.set()
    until(lambda: len(crowd.stopped) == 3)
    assert crowd.order == []
    if why == "slot":
        with pace._lock:
            pace._next_slot = 0.0
    else:
        turn.__exit__()
    crowd.join()
    assert crowd.order == ["other"]
    with pytest.raises(Stopped), stopping.turn():
        pass
    assert (pace._seats, crowd.waiting) == (1, 0)


@pytest.mark.parametrize("arguments", [{}, {"rate_limit": 1000}, {"at_once": 8}])
def test_one_429_holds_all_lanes_back(
    provider: Provider, make_client: MakeClient, arguments: dict[str, Any]
) -> None:
    pace = Pace(**arguments)
    refused = make_client(pace=pace.lane(), attempts=1)
    others = [make_client(pace=pace.lane(urgent=urgent)) for urgent in (True, False)]
    provider.always(reply(status=429, retry_after="1"), GOOD)
    with pytest.raises(ReadError, match="429"):
        refused.balances(wallet(0), Tally())
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: others[n % 2].balances(wallet(n), Tally()), range(8)))
    first, *rest = provider.requests()
    assert len(rest) == 8
    assert min(seen.at for seen in rest) - first.at >= 0.9


def test_a_pause_that_comes_while_requests_wait_in_line_holds_them_back_too() -> None:
    pace = Pace(at_once=1)
    lane = pace.lane()
    crowd = Crowd(pace)
    with lane.turn():
        for number in range(4):
            crowd.come(str(number), lane)
        pace.pause(0.5)
        resume_at = pace._resume_at
    crowd.join()
    assert min(crowd.left_at) >= resume_at
    assert sorted(crowd.order) == ["0", "1", "2", "3"]


def test_a_pace_without_limits_lets_everybody_through_at_once() -> None:
    lane = Pace().lane()
    with lane.turn(), lane.turn(), lane.turn():
        pass
    assert lane._pace._next_slot == 0.0


def test_clients_of_one_access_share_pace_and_token_and_not_health(
    provider: Provider, tmp_path: Any
) -> None:
    runs = tmp_path / "runs"
    provider.always(GOOD)
    config = ClientConfig(
        base_url=provider.url, token_command=f"sh -c 'echo x >> {runs}; echo t'", rate_limit=1000
    )
    access = config.access(at_once=2)
    (one, health), (two, other_health) = config.connect(access), config.connect(access, urgent=True)
    with one, two:
        one.balances(wallet(1), Tally())
        two.balances(wallet(2), Tally())
    assert runs.read_text() == "x\n"
    assert health is not other_health
    assert one.pace._pace is two.pace._pace is access.pace
    assert (one.pace.urgent, two.pace.urgent) == (False, True)
    alone, _ = config.connect()
    assert alone.pace._pace is not access.pace


def test_health_of_one_client_says_nothing_of_another(provider: Provider) -> None:
    provider.always(reply(status=401))
    config = ClientConfig(base_url=provider.url)
    access = config.access()
    (one, health), (two, other_health) = config.connect(access), config.connect(access)
    with one, two:
        for number in range(20):
            with pytest.raises(AccessRefused):
                one.balances(wallet(number), Tally())
    assert health.verdict is not None
    assert other_health.verdict is None
