"""A database with webhooks in it, and replays of them, within this process and beside it."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import Route, merge_routes, read_webhook
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.pull.run import sync_wallets
from nftsync.replay import worker
from nftsync.replay.config import COUNTS, ReplayConfig, ReplayResult, Timing
from nftsync.store.inbox import Delivery, store
from nftsync.store.mirror import Mirror
from nftsync.times import now, shifted
from tests.kit.processes import start_process
from tests.kit.provider import Peer, Provider, Sender, balances, entry, reply, token, uuid, wallet
from tests.kit.serve_process import command as command_line
from tests.kit.serve_process import query, webhook
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

OURS = uuid(1, 0xC)
THEIRS = uuid(2, 0xC)
#: Routes by resource type, and their fields.
Routes: TypeAlias = Mapping[str, Mapping[str, Any]]
#: A wallet that holds nothing.
OK = reply(balances())
#: Counts of a replay without due webhooks.
NOTHING = dict.fromkeys((*COUNTS, "held"), 0)


def path_of(number: int) -> str:
    return f"/v1/wallets/{wallet(number)}/nft-balances"


def wallets(count: int) -> list[str]:
    return [wallet(number) for number in range(count)]


class Gate:
    """An answer that comes when the test lets it."""

    def __init__(self, answer: Sender = OK) -> None:
        self._answer = answer
        self.arrived = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, peer: Peer) -> bool:
        self.arrived.set()
        while not self.go_on.wait(0.005):
            if peer.wait(0):
                return False
        return self._answer(peer)


def delivery(number: int, resource_type: str, resource_id: str, by: str = OURS) -> Delivery:
    body = webhook(resource_type, resource_id, id=uuid(number, 0xE), organizationId=by)
    return Delivery(body, read_webhook(body, None))


def settled(result: ReplayResult) -> int:
    """Webhooks that ended in any state."""
    return sum(getattr(result, state) for state in COUNTS if state != "fetches")


def in_time(after: float) -> str:
    """So many seconds from now; less than nothing is before."""
    return shifted(now(), timedelta(seconds=after))


class Place:
    """A database and the address of its provider."""

    def __init__(self, database: Path, url: str) -> None:
        self.database = database
        self.url = url
        self.numbers = 0

    # Contents ----------------------------------------------------------------------------------

    def receive(
        self, resource_type: str, *resource_ids: str, by: str = OURS, at: str | None = None
    ) -> list[str]:
        """Store a webhook on each object; returns their ids."""
        numbers = range(self.numbers, self.numbers + len(resource_ids))
        self.numbers = numbers.stop
        deliveries = [
            delivery(number, resource_type, each, by)
            for number, each in zip(numbers, resource_ids, strict=True)
        ]
        with Mirror(self.database) as mirror, mirror.transaction() as transaction:
            store(transaction.connection, deliveries, at or in_time(-1))
        return [uuid(number, 0xE) for number in numbers]

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return query(self.database, statement, *parameters)

    def states(self) -> dict[str, int]:
        return dict(self.run("SELECT state, count(*) FROM webhooks GROUP BY state"))

    def webhook(self, webhook_id: str) -> dict[str, Any]:
        (row,) = self._rows("webhooks WHERE webhook_id = ?", webhook_id)
        return row

    def runs(self) -> list[dict[str, Any]]:
        return self._rows("sync_runs WHERE kind = 'replay' ORDER BY run_id")

    def _rows(self, which: str, *parameters: object) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.database)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(f"SELECT * FROM {which}", parameters)]

    def attempts(self) -> set[int]:
        return {count for (count,) in self.run("SELECT DISTINCT attempts FROM webhooks")}

    def held(self) -> int:
        return int(self.run("SELECT count(*) FROM balances")[0][0])

    def is_quiet(self) -> bool:
        """No lease, nothing running, no run open."""
        return self.run(
            "SELECT (SELECT count(*) FROM leases),"
            " (SELECT count(*) FROM webhooks WHERE state = 'running' OR lease_no IS NOT NULL),"
            " (SELECT count(*) FROM sync_runs WHERE status = 'running')"
        ) == [(0, 0, 0)]

    def make_due(self) -> None:
        self.run("UPDATE webhooks SET next_attempt_at = ? WHERE next_attempt_at > ?", now(), now())

    def expire_leases(self) -> None:
        """As if 20 s had passed."""
        self.run("UPDATE leases SET expires_at = ?", in_time(-1))

    # Working on it ------------------------------------------------------------------------------

    def config(
        self,
        routes: Routes | None = None,
        *,
        run_sync: Callable[[threading.Event], SyncResult] | None = None,
        **more: Any,
    ) -> ReplayConfig:
        """Configure routes and timing, and fields of `ReplayConfig` and `ClientConfig`."""
        own = {name: more.pop(name) for name in [*more] if name in ReplayConfig.__annotations__}
        own["timing"] = Timing(**own.get("timing", {}))
        made = {name: Route(**fields) for name, fields in (routes or {}).items()}
        client = {"base_url": self.url, "attempts": 2, "timeout": 5.0, "first_wait": 0.01, **more}
        config = ClientConfig(**client)

        def sync(stopped: threading.Event) -> SyncResult:
            return sync_wallets(
                self.database, config, SyncRequest(), concurrency=4, progress=False, stopped=stopped
            )

        return ReplayConfig(
            client=config,
            access=access_to(config),
            routes=merge_routes(made),
            run_sync=run_sync or sync,
            **{"concurrency": 8, **own},
        )

    def replay(self, routes: Routes | None = None, **more: Any) -> ReplayResult:
        config = self.config(routes, **more)
        return worker.replay_once(self.database, config, threading.Event(), progress=False)

    @contextmanager
    def following(self, routes: Routes | None = None, **more: Any) -> Iterator[Following]:
        """A worker as `serve` has one, for the length of a block."""
        with ThreadPoolExecutor(1) as pool:
            following = Following(self, self.config(routes, **more), pool)
            try:
                yield following
            finally:
                following.end()

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """A command in a process of its own, on this database and provider."""
        where = ("-d", str(self.database), "--base-url", self.url)
        return start_process(
            command_line(*arguments, *where),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class Following:
    """`replay_continuously` in a thread; what ends it is raised at the end."""

    def __init__(self, place: Place, config: ReplayConfig, pool: ThreadPoolExecutor) -> None:
        self.counts: Counter[str] = Counter()
        self.wake = threading.Event()
        self._place = place
        self._stopped = threading.Event()
        self._running = pool.submit(
            worker.replay_continuously,
            place.database,
            config,
            self._stopped,
            self.wake,
            self.counts.update,
        )

    def until(self, met: Callable[[], object]) -> None:
        """Wait until a condition is met."""
        wait_until(lambda: met() or self._running.done())
        if self._running.done():
            self._running.result()

    def until_states(self, **states: int) -> None:
        self.until(lambda: self._place.states() == states)

    def end(self) -> None:
        self._stopped.set()
        self.wake.set()
        self._running.result(PATIENCE)


def hold(place: Place, provider: Provider, count: int) -> None:
    """So many wallets are known and hold a token each; no webhook is left."""
    for number in range(count):
        provider.holds(wallet(number), entry(token(number)))
    place.receive("Wallet", *wallets(count))
    assert place.replay().done == count
    place.run("DELETE FROM webhooks")
