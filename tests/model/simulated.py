"""A machine of its own: processes, threads, clocks and commits, one at a time and by a seed alone.

Each thread of the package is a greenlet here. It gives way where a thread would wait: for a lock,
an event, a time, an answer, the write lock, and before and after each commit. Who goes on is drawn
from the seed; so are the moments at which a process is killed. The package's modules get this
`threading`, `time` and `sqlite3` in place of Python's while `installed` lasts.
"""

from __future__ import annotations

import random
import sqlite3 as real_sqlite3
import sys
import threading as real_threading
import time as real_time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime, tzinfo
from typing import Any

from greenlet import greenlet

_EPOCH = 1_767_225_600.0  # 2026-01-01


class Killed(BaseException):
    """The process is no more: none of its code does anything from here on."""


class Process:
    """Some threads, and what they have opened."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.actors: list[Actor] = []
        self.connections: list[Any] = []
        self.result: Any = None
        self.error: BaseException | None = None

    def close_files(self) -> None:
        """As the system does it for a process that has ended."""
        for connection in self.connections:
            with suppress(real_sqlite3.Error):
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
    """All processes, the clocks, and the draw of who goes on.

    Attributes:
        steps: how often anybody went on.
        wall_offset: how wrong the wall clock is, in seconds.
        on_commit: is told of each commit, and of who made it.
        kills: the chance that a process ends at a commit.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.hub = greenlet.getcurrent()
        self.now = 1_000.0
        self.wall_offset = 0.0
        self.boots = 0.0
        self.steps = 0
        self.kills = 0.0
        self.processes: list[Process] = []
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self.on_commit: Callable[[Process], None] = lambda _: None
        self.broken: Exception | None = None

    # Processes -----------------------------------------------------------------------------------

    def start(self, name: str, run: Callable[[Process], Any]) -> Process:
        """A process that makes one call."""
        process = Process(name)
        self.processes.append(process)

        def main() -> None:
            try:
                process.result = run(process)
            except Exception as error:  # noqa: BLE001 - the driver raises it
                if not process.is_dead:
                    process.error = error
            process.is_dead = True  # as its other threads are daemons

        self.spawn(process, main)
        return process

    def spawn(self, process: Process, target: Callable[[], Any]) -> Actor:
        """One more thread of a process."""

        def run() -> None:
            try:
                target()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - the driver raises it
                if not process.is_dead:
                    process.error = error
            finally:
                self._gone(actor)

        actor = Actor(process, run, self.hub)
        process.actors.append(actor)
        self.actors.append(actor)
        return actor

    def kill(self, process: Process) -> None:
        """End a process as `kill -9` does: what it had not committed is gone."""
        process.is_dead = True
        process.close_files()
        while process.actors:
            actor = self.current = process.actors[-1]
            with suppress(Killed):  # raised here by one that had not begun
                actor.green.throw(Killed)
            self._gone(actor)
        self.current = None

    def _gone(self, actor: Actor) -> None:
        if actor in self.actors:
            self.actors.remove(actor)
            actor.process.actors.remove(actor)

    def running(self, name: str) -> list[Process]:
        return [x for x in self.processes if x.name == name and x.actors and not x.is_dead]

    # Who goes on ---------------------------------------------------------------------------------

    def pause(self, ready: Callable[[], bool] | None = None, seconds: float | None = 0.0) -> None:
        """Give way, until `ready` says so or the time is over (None: never)."""
        actor = self.current
        assert actor is not None, "only a thread waits"
        if actor.process.is_dead:
            raise Killed
        actor.ready = ready
        actor.until = float("inf") if seconds is None else self.now + max(0.0, seconds)
        self.hub.switch()
        if actor.process.is_dead:
            raise Killed

    def step(self) -> None:
        """Let somebody go on; where nobody can, time passes."""
        self.steps += 1
        self.now += self.rng.random() * 0.002
        able = [x for x in self.actors if x.until <= self.now or (x.ready and x.ready())]
        if not able:
            self.now = min([x.until for x in self.actors], default=self.now + 1.0)
            if self.now == float("inf"):
                raise AssertionError("everybody waits for ever")
            able = [x for x in self.actors if x.until <= self.now]
        actor = self.rng.choice(able)
        self.current = actor
        actor.green.switch()
        self.current = None
        if self.broken is not None:
            raise self.broken

    def committing(self) -> None:
        """Before a commit: others find the database locked, and the process may end here."""
        if self.rng.random() < 0.3:
            self.pause()
        self._may_end()

    def committed(self) -> None:
        """After a commit: the rules hold, and the process may end before it does anything else."""
        assert self.current is not None
        try:
            self.on_commit(self.current.process)
        except Exception as error:  # noqa: BLE001 - not for the package to catch
            self.broken = self.broken or error
        self._may_end()
        self.pause()

    def _may_end(self) -> None:
        assert self.current is not None
        if self.rng.random() < self.kills:
            process = self.current.process
            process.is_dead = True  # the rest of it is ended by `bury`
            process.close_files()
            raise Killed

    def bury(self) -> None:
        """End what is left of processes that ended at a commit."""
        for process in self.processes:
            if process.is_dead:
                self.kill(process)
        self.processes = [x for x in self.processes if not x.is_dead]

    # Clocks --------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now - self.boots

    def wall(self) -> float:
        return _EPOCH + self.now + self.wall_offset


MACHINE: Machine = None  # type: ignore[assignment]  # the one that is installed


# What the package's modules get ---


class Lock:
    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._held and blocking:
            MACHINE.pause(lambda: not self._held, None if timeout < 0 else timeout)
        if self._held:
            return False
        self._held = True
        return True

    def release(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Waiter:
    """Who waits for a condition; equal to nobody else."""

    told = False


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or Lock()
        self._waiting: list[_Waiter] = []

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        waiter = _Waiter()
        self._waiting.append(waiter)
        self._lock.release()
        try:
            MACHINE.pause(lambda: waiter.told, timeout)
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if not self._lock.acquire():
                raise AssertionError("a condition's lock is free where threads give way")
        return waiter.told

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        end = None if timeout is None else MACHINE.now + timeout
        while not predicate():
            left = None if end is None else end - MACHINE.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return predicate()

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._waiting.pop(0).told = True

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            MACHINE.pause(self.is_set, timeout)
        return self._set


class Thread:
    def __init__(self, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._run = lambda: target(*args)
        self._actor: Actor | None = None

    def start(self) -> None:
        assert MACHINE.current is not None
        self._actor = MACHINE.spawn(MACHINE.current.process, self._run)

    def is_alive(self) -> bool:
        return self._actor in MACHINE.actors

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            MACHINE.pause(lambda: not self.is_alive(), timeout)


class Local:
    """Attributes that each thread has of its own."""

    def __init__(self) -> None:
        self.__dict__["_of"] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self._of[MACHINE.current, name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._of[MACHINE.current, name] = value


class Executor:
    """In place of a ThreadPoolExecutor of one thread."""

    def __init__(self, *_: Any) -> None:
        self._threads: list[Thread] = []

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args))
            except Exception as error:  # noqa: BLE001 - as an executor does
                future.set_exception(error)

        self._threads.append(Thread(run))
        self._threads[-1].start()
        return future

    def shutdown(self) -> None:
        for thread in self._threads:
            thread.join()


class Connection(real_sqlite3.Connection):
    """Gives way before the write lock is taken, and around each commit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if MACHINE.current is not None:
            MACHINE.current.process.connections.append(self)

    def execute(self, sql: str, *args: Any) -> real_sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE" and MACHINE.current is not None:
            MACHINE.pause()
        return super().execute(sql, *args)

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> Any:  # noqa: PYI036
        commits = kind is None and self.in_transaction and MACHINE.current is not None
        if commits:
            MACHINE.committing()
        result = super().__exit__(kind, *rest)
        if commits:
            MACHINE.committed()
        return result


class Module:
    """A module of Python's, with some names of ours."""

    def __init__(self, real: Any, **ours: Any) -> None:
        self.__dict__.update(ours)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Datetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime.fromtimestamp(MACHINE.wall(), tz)


_TIME = Module(
    real_time,
    monotonic=lambda: MACHINE.monotonic(),
    perf_counter=lambda: MACHINE.monotonic(),
    monotonic_ns=lambda: int(MACHINE.monotonic() * 1e9),
    time=lambda: MACHINE.wall(),
    time_ns=lambda: int(MACHINE.wall() * 1e9),
    sleep=lambda seconds: MACHINE.pause(None, seconds) if MACHINE.current else None,
)
_THREADING = Module(
    real_threading,
    Lock=Lock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    local=Local,
    current_thread=lambda: None,
)
_SQLITE = Module(
    real_sqlite3,
    connect=lambda *args, **more: real_sqlite3.connect(*args, **{"factory": Connection, **more}),
)
_OURS: dict[str, tuple[Any, Any]] = {
    "time": (real_time, _TIME),
    "threading": (real_threading, _THREADING),
    "sqlite3": (real_sqlite3, _SQLITE),
    "datetime": (datetime, _Datetime),
}


@contextmanager
def installed(machine: Machine, **more: tuple[Any, str, Any]) -> Iterator[Machine]:
    """Let the package run on a machine: each module that it has loaded.

    Args:
        machine: the machine.
        more: further replacements: of which module, which name, and by what.
    """
    global MACHINE
    changes = [
        (module, name, ours)
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] == "nftsync"
        for name, (real, ours) in _OURS.items()
        if getattr(module, name, None) is real
    ]
    changes += [*more.values()]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    state = random.getstate()
    try:
        MACHINE = machine
        for module, name, ours in changes:
            setattr(module, name, ours)
        yield machine
    finally:
        for process in machine.processes:
            machine.kill(process)
        for module, name, was in before:
            setattr(module, name, was)
        random.setstate(state)
        MACHINE = None  # type: ignore[assignment]
