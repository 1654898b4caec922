"""A database with webhooks in it, and replays of them, within this process and beside it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import Route, merge_routes
from nftsync.pull.plan import SyncRequest
from nftsync.pull.run import sync_wallets
from nftsync.replay import worker
from nftsync.replay.config import COUNTS, ReplayConfig, ReplayResult, Timing
from nftsync.times import now, shifted
from tests.kit.inbox import ORGANIZATION, Inbox, body_of, webhook
from tests.kit.provider import Peer, Sender, balances, entry, reply, token, uuid, wallet
from tests.kit.serve_process import query
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, under_way

THEIRS = uuid(2, 0xC)
#: A wallet that holds nothing.
OK = reply(balances())
#: Counts of a replay without due webhooks.
NOTHING = dict.fromkeys((*COUNTS, "held"), 0)
#: Routes by resource type, and their fields.
Routes: TypeAlias = Mapping[str, Mapping[str, Any]]


def wallets(count: int) -> list[str]:
    return [wallet(number) for number in range(count)]


class Gate:
    """An answer that comes once the test opens it."""

    def __init__(self, answer: Sender = OK) -> None:
        self._answer = answer
        self.arrived, self.go_on = threading.Event(), threading.Event()

    def __call__(self, peer: Peer) -> bool:
        self.arrived.set()
        while not self.go_on.wait(0.005):
            if peer.wait(0):
                return False
        return self._answer(peer)


def settled(result: ReplayResult) -> int:
    """Return the number of webhooks that ended in any state."""
    return sum(getattr(result, state) for state in COUNTS if state != "fetches")


def in_time(seconds: float) -> str:
    return shifted(now(), timedelta(seconds=seconds))


class Place:
    """A database and the address of its provider."""

    def __init__(self, database: Path, url: str) -> None:
        self.database, self.url = database, url
        self.inbox = Inbox(database)
        self._stored = 0

    def receive(
        self, resource_type: str, *objects: str, by: str = ORGANIZATION, at: str = ""
    ) -> list[str]:
        """Store a webhook on each object; return their ids."""
        numbers = range(self._stored, self._stored + len(objects))
        self._stored = numbers.stop
        fields = [{"resourceType": resource_type, "resourceId": each} for each in objects]
        bodies = map(lambda n, about: body_of(n, organizationId=by, **about), numbers, fields)
        self.inbox.receive(*bodies, at=at or in_time(-1))
        return [webhook(number) for number in numbers]

    def hold(self, provider: Any, count: int) -> None:
        """Let wallets be known and hold a token each, without a webhook."""
        for number in range(count):
            provider.holds(wallet(number), entry(token(number)))
        self.receive("Wallet", *wallets(count))
        assert self.replay().done == count
        self.run("DELETE FROM webhooks")

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return query(self.database, statement, *parameters)

    def states(self) -> dict[str, int]:
        return dict(self.run("SELECT state, count(*) FROM webhooks GROUP BY state"))

    def runs(self, column: str = "status") -> list[Any]:
        """Return a column of the replays."""
        query = f"SELECT {column} FROM sync_runs WHERE kind = 'replay' ORDER BY run_id"
        return [value for (value,) in self.run(query)]

    def held(self) -> int:
        return int(self.run("SELECT count(*) FROM balances")[0][0])

    def is_quiet(self) -> bool:
        """Return whether there is no lease, nothing running, and no open run."""
        return not any(count for _, count in under_way(self.database))

    def make_due(self) -> None:
        self.run("UPDATE webhooks SET next_attempt_at = ? WHERE next_attempt_at > ?", now(), now())

    def expire_leases(self) -> None:
        """Let the leases be as after 20 s."""
        self.run("UPDATE leases SET expires_at = ?", in_time(-1))

    def config(self, routes: Routes | None = None, **more: Any) -> ReplayConfig:
        """Configure routes and timing, and fields of `ReplayConfig` and `ClientConfig`."""
        own = {name: more.pop(name) for name in [*more] if name in ReplayConfig.__annotations__}
        client = {"base_url": self.url, "attempts": 2, "timeout": 5.0, "first_wait": 0.01, **more}
        config = ClientConfig(**client)
        made = {name: Route(**fields) for name, fields in (routes or {}).items()}
        fields = {
            "access": access_to(config),
            "run_sync": lambda stopped: sync_wallets(
                self.database, config, SyncRequest(), progress=False, stopped=stopped
            ),
            "concurrency": 8,
            **own,
            "timing": Timing(**own.get("timing", {})),
        }
        return ReplayConfig(client=config, routes=merge_routes(made), **fields)

    def replay(self, routes: Routes | None = None, **more: Any) -> ReplayResult:
        config = self.config(routes, **more)
        return worker.replay_once(self.database, config, threading.Event(), progress=False)

    @contextmanager
    def following(self, routes: Routes | None = None, **more: Any) -> Iterator[Following]:
        """Run a worker as `serve` has one; an error that ends it is raised."""
        stopped, following = threading.Event(), Following(self)
        arguments = (stopped, following.wake, following.counts.update)
        config = self.config(routes, **more)
        with ThreadPoolExecutor(1) as pool:
            work = worker.replay_continuously
            following.running = pool.submit(work, self.database, config, *arguments)
            try:
                yield following
            finally:
                stopped.set()
                following.wake.set()
                following.running.result(PATIENCE)


class Following:
    """A worker in a thread."""

    running: Future[None]

    def __init__(self, place: Place) -> None:
        self.place, self.wake, self.counts = place, threading.Event(), Counter[str]()

    def until(self, met: Callable[[], object]) -> None:
        """Wait until a condition is met."""
        wait_until(lambda: met() or self.running.done())
        if self.running.done():
            self.running.result()

    def until_states(self, **states: int) -> None:
        self.until(lambda: self.place.states() == states)
