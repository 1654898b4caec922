"""A simulated machine: processes, threads, clocks and commits, controlled by a seed.

Each thread of the package is a greenlet. It yields where a thread would wait: for a lock, an event,
a time, a response or the write lock, and before and after each commit. The seed decides which
thread continues, and when a process is killed.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from greenlet import greenlet

_EPOCH = 1_767_225_600.0  # 2026-01-01


class Killed(BaseException):
    """The process was killed: its code has no further effect."""


class Process:
    """Threads and their open files."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.actors: list[Actor] = []
        self.connections: list[Any] = []
        self.result: Any = None
        self.error: BaseException | None = None

    def end(self) -> None:
        """Close all files, as the system does; the threads are still to be killed."""
        self.is_dead = True
        for connection in self.connections:
            with suppress(sqlite3.Error):
                connection.close()
        self.connections.clear()


class Actor:
    """A thread."""

    def __init__(self, process: Process, run: Callable[[], Any], hub: greenlet) -> None:
        self.process = process
        self.until = 0.0
        self.ready: Callable[[], bool] | None = None
        self.green = greenlet(run, parent=hub)


class Machine:
    """All processes, the clocks, and the choice of the next thread.

    Attributes:
        steps: the number of steps of all threads.
        wall_offset: the error of the wall clock, in seconds.
        on_commit: called with the process after each commit.
        kills: the chance that a process ends at a commit.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.hub = greenlet.getcurrent()
        self.now = 1_000.0
        self.wall_offset = self.boots = self.kills = 0.0
        self.steps = 0
        self.processes: list[Process] = []
        self.actors: list[Actor] = []
        self.current: Any = None
        self.on_commit: Callable[[Process], None] = lambda _: None
        self.broken: Exception | None = None
        self.guards: list[Any] = []

    def start(self, name: str, run: Callable[[Process], Any]) -> Process:
        """Start a process that makes one call."""
        process = Process(name)
        self.processes.append(process)

        def main() -> None:
            process.result = run(process)

        self.spawn(process, main, is_main=True)
        return process

    def spawn(self, process: Process, target: Callable[[], Any], *, is_main: bool = False) -> Actor:
        """Start a thread of a process, which ends with its main thread."""

        def run() -> None:
            try:
                target()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - the driver raises it
                if not process.is_dead:
                    process.error = error
            finally:
                process.is_dead |= is_main
                self._gone(actor)

        actor = Actor(process, run, self.hub)
        process.actors.append(actor)
        self.actors.append(actor)
        return actor

    def kill(self, process: Process) -> None:
        """End a process as `kill -9` does: uncommitted changes are lost."""
        process.end()
        while process.actors:
            actor = self.current = process.actors[-1]
            with suppress(Killed):  # raised by a thread that had not started
                actor.green.throw(Killed)
            self._gone(actor)
        self.current = None

    def _gone(self, actor: Actor) -> None:
        if actor in self.actors:
            self.actors.remove(actor)
            actor.process.actors.remove(actor)

    def running(self, name: str) -> list[Process]:
        return [x for x in self.processes if x.name == name and x.actors and not x.is_dead]

    def pause(self, ready: Callable[[], bool] | None = None, seconds: float | None = 0.0) -> None:
        """Yield until `ready` returns True or the time is over (None: never)."""
        actor = self.current
        if actor.process.is_dead:
            raise Killed
        actor.ready = ready
        actor.until = float("inf") if seconds is None else self.now + max(0.0, seconds)
        self.hub.switch()
        if actor.process.is_dead:
            raise Killed

    def step(self) -> None:
        """Continue a random thread; if none can continue, time passes."""
        self.steps += 1
        self.now += self.rng.random() * 0.002
        able = [x for x in self.actors if x.until <= self.now or (x.ready and x.ready())]
        if not able:
            self.now = min([x.until for x in self.actors], default=self.now + 1.0)
            if self.now == float("inf"):
                raise AssertionError("all threads wait forever")
            able = [x for x in self.actors if x.until <= self.now]
        actor = self.rng.choice(able)
        self.current = actor
        actor.green.switch()
        self.current = None
        if self.broken is not None:
            raise self.broken

    def committing(self) -> None:
        """Before a commit, the database is locked for others, and the process may end."""
        if self.rng.random() < 0.3:
            self.pause()
        self._may_end()

    def committed(self) -> None:
        """After a commit, check the rules; the process may end."""
        try:
            self.on_commit(self.current.process)
        except Exception as error:  # noqa: BLE001 - not for the package to catch
            self.broken = self.broken or error
        self._may_end()
        self.pause()

    def _may_end(self) -> None:
        if self.rng.random() < self.kills:
            self.current.process.end()  # `bury` ends its threads
            raise Killed

    def bury(self) -> None:
        """End all threads of processes that ended at a commit."""
        for process in self.processes:
            if process.is_dead:
                self.kill(process)
        self.processes = [x for x in self.processes if not x.is_dead]

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now - self.boots

    def wall(self) -> float:
        return _EPOCH + self.now + self.wall_offset


#: The installed machine.
MACHINE: Any = None
