"""Level two: the whole engine on a simulated machine, with a provider that changes meanwhile.

    python -m tests.model.engine --steps 1000000       # a step: one thread continues, or one event
    python -m tests.model.engine --seed 17             # one seed alone, the one that failed

Receivers, replays and syncs run as processes on one database, with the package's own code, threads,
retries and transactions. Webhooks are lost, repeated, late and out of order; the provider is slow,
down, refuses reads or sends incomplete lists; clocks jump; the machine reboots; and processes are
killed, mostly around a commit. In half of the seeds, removals are soon held for review, and an
operator approves them. `rules` checks the database after each commit. In the end, without faults,
the inbox drains, and a sync makes the mirror equal to the provider.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from nftsync.errors import StoreError, SyncRunning
from nftsync.provider import client, transport  # noqa: F401 - else imported meanwhile
from nftsync.provider.client import Access, access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import Route, merge_routes, read_webhook
from nftsync.pull.guard import RemovalLimits
from nftsync.pull.plan import SyncRequest
from nftsync.pull.run import sync_wallets
from nftsync.receiver import committer
from nftsync.replay import requested_sync
from nftsync.replay import worker as replay
from nftsync.replay.config import ReplayConfig, Timing
from nftsync.store.inbox import Delivery
from nftsync.store.mirror import Mirror
from nftsync.store.removals import numbers_held
from nftsync.store.wallets import WalletLine
from nftsync.watch import service
from tests.kit.inbox import ORGANIZATION
from tests.kit.worlds import mirrored
from tests.model import seeds
from tests.model.provider_world import WALLETS, Sent, Transport, World
from tests.model.rules import Broken, Rules, hold, is_as, lines_of
from tests.model.simulated import Machine, Process
from tests.model.stand_ins import Event, Executor, installed, with_parts
from tests.model.watching import STAND_INS, Watching
from tests.model.whole_states import Waiting, begin_span

STEPS_OF_A_SEED = 2_500
_ROUTES = merge_routes(
    {"Everything": Route(kind="sync", at_most_every=timedelta(minutes=1)), "Nft": Route()}
)


def _raise(error: Exception) -> None:
    raise error


class Engine:
    """One seed."""

    def __init__(self, machine: Machine, folder: Path, *, watches: bool) -> None:
        self.machine = machine
        self.rng = machine.rng
        self.database = Path(shutil.copy(seeds.template(), folder))
        self.world = World(self.rng)
        Transport.world = self.world
        self.rules = Rules(self.database, machine, self.world)
        machine.on_commit = self.rules.check
        self.committers: dict[Process, Any] = {}
        self.stops: dict[Process, Any] = {}
        self.figures: Counter[str] = Counter()
        self.watching = Watching(self.database, self.rng) if watches else None
        self.trouble = True
        rows = self.rng.choice([0, 100])  # there are fewer than 100 holdings
        self.limits = RemovalLimits(share=0.05, rows=rows)
        rate = self.rng.choice([None, 20.0])
        url = "http://provider.example"
        self.client = ClientConfig(base_url=url, attempts=3, proxy="", rate_limit=rate)

    def _config(self, access: Access) -> ReplayConfig:
        return ReplayConfig(
            client=self.client,
            access=access,
            routes=_ROUTES,
            run_sync=lambda stopped: self._sync(SyncRequest(limits=self.limits), access, stopped),
            organization_id=ORGANIZATION,
            concurrency=2,
            limits=self.limits,
            timing=Timing(poll=self.rng.choice([0.5, 2.0]) if self.trouble else 10.0),
        )

    def _sync(self, request: SyncRequest, access: Access | None, stopped: Any) -> Any:
        options = {"concurrency": 2, "progress": False, "access": access, "stopped": stopped}
        return sync_wallets(self.database, self.client, request, **options)

    def _start(self, name: str, run: Callable[[Any], Any]) -> Process:
        """Start a process whose call gets the event that a SIGTERM sets."""
        stopped = Event()
        process = self.machine.start(name, lambda _: run(stopped))
        self.stops[process] = stopped
        return process

    def start_serve(self) -> None:
        """A receiver and a replay in one process."""

        def run(stopped: Any) -> None:
            wake, process = Event(), self.machine.current.process
            receiver = committer.Committer(self.database, on_stored=wake.set, on_broken=_raise)
            self.committers[process] = receiver
            config = self._config(access_to(self.client, at_once=2))
            threads = self.watching.start(stopped) if self.watching and self.trouble else []
            replay.replay_continuously(self.database, config, stopped, wake, self.figures.update)
            for thread in threads:
                thread.join()
            del self.committers[process]
            receiver.close()

        self._start("serve", run)

    def start_replay(self) -> None:
        once, access = partial(replay.replay_once, self.database), access_to(self.client)
        self._start("replay", lambda stopped: once(self._config(access), stopped))

    def start_sync(self, *, tokens: bool | None = None) -> Process:
        resume, some = self.rng.random() < 0.5, self.rng.random() < 0.2
        tokens = self.rng.random() < 0.3 if tokens is None else tokens
        wallets = self.rng.sample(WALLETS, 2) if some and self.trouble else WALLETS
        allowed = self.rng.random() < 0.1

        def run(stopped: Any) -> Any:
            request = SyncRequest(
                [*map(WalletLine, wallets)],
                tokens=tokens,
                resume=resume and self.trouble,
                allow_removals=allowed or not self.trouble,
                limits=self.limits,
            )
            try:
                result = self._sync(request, None, stopped)
            except SyncRunning:
                return None
            if result.status == "ok" and not request.resume:
                self._check_all_read(result.run_id, wallets)
            self.figures[f"sync {result.status}"] += 1
            return result

        return self._start("sync", run)

    def start_watch(self) -> Process:
        """`nftsync watch`: alerts that are sent once."""
        run = partial(service.watch_once, self.database, self.watching.config)
        return self._start("watch", run)

    def start_accept(self) -> Process:
        """Approve the held removals."""

        def run(_: object) -> None:
            with Mirror(self.database) as mirror:
                numbers = numbers_held(mirror.connection)
                mirror.accept_held(numbers)
                self.figures["wallets approved"] += len(numbers)

        return self._start("accept", run)

    def _check_all_read(self, run_id: int, wallets: list[str]) -> None:
        """Check that a run is `ok` only if it has read each planned wallet."""
        rows = self.rules.query(
            "SELECT wallet_id FROM wallets JOIN sync_runs ON sequence >= first_sequence"
            f" WHERE run_id = {run_id}"
        )
        if missing := set(wallets) - {row[0] for row in rows.fetchall()}:
            self.machine.broken = Broken(f"run {run_id} is ok, and {missing} were not read")

    def deliver(self) -> None:
        """Deliver a webhook to a receiver, if one runs."""
        due = [sent for sent in self.world.sent if sent.due <= self.machine.now]
        if not due:
            return
        sent = self.rng.choice(due)
        self.world.sent.remove(sent)
        alive = [(process, x) for process, x in self.committers.items() if not process.is_dead]
        if alive:
            process, receiver = self.rng.choice(alive)
            self.machine.spawn(process, lambda: self._deliver(receiver, sent))
        else:
            self.world.refused(sent)

    def _deliver(self, receiver: committer.Committer, sent: Sent) -> None:
        answered = False
        try:
            content = read_webhook(sent.body, ORGANIZATION)
            outcome = receiver.submit(Delivery(sent.body, content))
            answered = outcome != "not stored"
        finally:
            self.figures["webhooks " + ("acknowledged" if answered else "refused")] += 1
            if answered:
                self.world.acknowledged[sent.webhook_id] += 1
            elif not self.trouble:
                self.machine.broken = Broken(f"{sent} was refused without trouble")
            if not answered or self.rng.random() < 0.03:  # the answer is lost on its way
                self.world.refused(sent)

    def kill(self) -> None:
        if self.machine.processes:
            self.machine.kill(self.rng.choice(self.machine.processes))
            self.figures["kills between commits"] += 1

    def stop(self) -> None:
        """SIGTERM."""
        for event in self.rng.sample([*self.stops.values()], bool(self.stops)):
            event.set()

    def jump(self) -> None:
        self.machine.wall_offset += self.rng.choice([-7_200.0, -30.0, -1.0, 1.0, 30.0, 7_200.0])

    def boot(self) -> None:
        """All processes end, and the monotonic clock restarts."""
        for process in list(self.machine.processes):
            self.machine.kill(process)
        self.machine.boots = self.machine.now - self.rng.random() * 10.0
        self.figures["boots"] += 1

    def start(self) -> None:
        if len(self.machine.running("serve")) < 2:
            self.start_serve()

    def pass_time(self) -> None:
        self.machine.now += self.rng.choice([0.1, 1.0, 25.0]) * self.rng.random()

    def event(self) -> None:
        """Trigger a random event."""
        events: dict[Callable[[], Any], float] = {
            self.world.change: 27,
            self.deliver: 25,
            self.start: 14,
            self.start_replay: 5,
            self.start_sync: 8,
            self.start_accept: 1,
            self.kill: 2,
            self.stop: 2,
            self.jump: 4,
            self.boot: 1,
            self.pass_time: 3.3,
            self.world.announce_all: 3,
            self.world.change_mood: 4.7,
            self.start_watch: 3 * bool(self.watching),
        }
        self.rng.choices([*events], [*events.values()])[0]()

    def run(self, steps: int) -> Counter[str]:
        """Run steps with faults, then drain and compare without faults."""
        self.machine.kills = 0.01
        while self.machine.steps < steps:
            if not self.machine.actors or self.rng.random() < 0.08:
                self.machine.steps += 1
                self.event()
            else:
                self.machine.step()
            self._bury()
        self._calm()
        self._end()
        return self.figures + Counter(
            {
                "steps": self.machine.steps,
                "commits": self.rules.commits,
                "commits with held removals": self.rules.commits_while_held,
                "changes of the provider": self.world.changes,
                "past states": self.rules.states.compared,
                "of these within runs": self.rules.states.within_runs,
            }
        )

    def _bury(self) -> None:
        for process in self.machine.processes:
            if process.error is not None and not isinstance(process.error, StoreError):
                raise process.error
            if process.is_dead:
                self.figures[f"ends of {process.name}"] += 1
        self.machine.bury()
        self.committers = {x: c for x, c in self.committers.items() if not x.is_dead}
        self.stops = {x: e for x, e in self.stops.items() if not x.is_dead}

    def _calm(self) -> None:
        """End all faults."""
        self.machine.kills = 0.0
        self.world.mood = "well"
        self.world.losing = 0.0
        for sent in self.world.sent:
            sent.due = min(sent.due, self.machine.now + 60.0 * self.rng.random())
        for process in list(self.machine.processes):
            self.machine.kill(process)
        self._bury()
        if self.rng.random() < 0.3:
            self.boot()
        self.trouble = False
        self.start_serve()

    def _wait(self, over: Callable[[], bool], what: str) -> None:
        for _ in range(200_000):
            if over():
                return
            self.machine.step()
            self._bury()
            if self.rng.random() < 0.1:
                self.deliver()
            # Otherwise, a requested sync fails repeatedly if each wallet has removals.
            if self.rng.random() < 0.002 and not self.machine.running("accept"):
                self.start_accept()
        raise Broken(f"{what} was not reached")

    def _end(self) -> None:
        waiting = "SELECT 1 FROM webhooks WHERE state IN ('pending', 'running', 'failed') LIMIT 1"
        self._wait(
            lambda: not self.world.sent and self.rules.query(waiting).fetchone() is None,
            "the end of the inbox",
        )
        self._finish(self.start_accept)
        self._check_webhooks()
        sync = self._finish(lambda: self.start_sync(tokens=True))
        hold(sync.result is not None and sync.result.status == "ok", f"{sync.result}")
        self.rules.check_end()
        if watching := self.watching:
            for process in self.machine.processes:
                self.machine.kill(process)
            watching.calm()
            self._start("alerts", lambda stopped: watching.start(stopped)[0].join())
            self._finish(self.start_watch)  # it plans all that is left
            self._wait(watching.is_drained, "the end of the outbox")
            self.figures += watching.check_end()

    def _finish(self, start: Callable[[], Process]) -> Process:
        """Run a process to its end."""
        process = start()
        self._wait(lambda: process.is_dead or not process.actors, f"the end of {process.name}")
        if process.error is not None:
            raise process.error
        return process

    def _check_webhooks(self) -> None:
        """Check that a wallet whose last change had a webhook is correct without a sync."""
        rows = self.rules.query("SELECT webhook_id FROM webhooks WHERE state = 'done'")
        done = {webhook_id for (webhook_id,) in rows.fetchall()}
        state = mirrored(self.database)
        for (kind, object_id), webhook_id in self.world.last_webhook.items():
            if kind == "Wallet" and webhook_id in done:
                found, held = lines_of(state, object_id), self.world.held[object_id]
                self.figures["wallets right by webhooks alone"] += 1
                hold(is_as(found, held), f"{object_id} is {found}, and {held} since a webhook")


def run_seed(seed: int, steps: int = STEPS_OF_A_SEED) -> tuple[Counter[str], str]:
    """Run one seed; return its figures and a digest of the database."""
    seeds.template()  # made without the machine
    machine = Machine(seed)
    logging.disable(logging.CRITICAL)
    with (
        seeds.place("engine", seed, steps) as folder,
        installed(
            machine,
            (transport, "httpx", with_parts(httpx, HTTPTransport=Transport)),
            (requested_sync, "ThreadPoolExecutor", Executor),
            (replay, "WaitingReads", Waiting),
            (replay, "begin_span", begin_span),
            *STAND_INS,
        ),
    ):
        random.seed(seed)
        engine = Engine(machine, folder, watches=seed % 2 == 1)
        try:
            return engine.run(steps), seeds.digest(engine.database)
        finally:
            engine.rules.close()
            logging.disable(logging.NOTSET)


if __name__ == "__main__":
    seeds.main(__doc__, run_seed, unit="steps", steps=50_000, of=STEPS_OF_A_SEED)
