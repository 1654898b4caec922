"""Replacements of `threading`, `time`, `sqlite3` and `filelock` on a simulated machine.

They have the parts that the package uses.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, tzinfo
from types import SimpleNamespace
from typing import Any

import filelock
import pytest

from tests.model import simulated


class Lock:
    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._held and blocking:
            simulated.MACHINE.pause(lambda: not self._held, None if timeout < 0 else timeout)
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
    """A waiter for a condition."""

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
            simulated.MACHINE.pause(lambda: waiter.told, timeout)
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if not self._lock.acquire():
                raise AssertionError("a condition's lock is free where threads give way")
        return waiter.told

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        end = None if timeout is None else simulated.MACHINE.now + timeout
        while not predicate():
            left = None if end is None else end - simulated.MACHINE.now
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
            simulated.MACHINE.pause(self.is_set, timeout)
        return self._set


class Thread:
    def __init__(self, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._run = lambda: target(*args)
        self._actor: simulated.Actor | None = None

    def start(self) -> None:
        self._actor = simulated.MACHINE.spawn(simulated.MACHINE.current.process, self._run)

    def is_alive(self) -> bool:
        return self._actor in simulated.MACHINE.actors

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            simulated.MACHINE.pause(lambda: not self.is_alive(), timeout)


class Local:
    """Attributes of each thread."""

    def __init__(self) -> None:
        self.__dict__["_of"] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self._of[simulated.MACHINE.current, name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._of[simulated.MACHINE.current, name] = value


class Executor:
    """Replacement of ThreadPoolExecutor with a thread for each call."""

    def __init__(self, *_: Any) -> None:
        self._calls: list[tuple[Thread, Future[Any]]] = []

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args))
            except Exception as error:  # noqa: BLE001 - as an executor does
                future.set_exception(error)

        thread = Thread(run)
        self._calls.append((thread, future))
        thread.start()
        return future

    def shutdown(self, **_: bool) -> None:
        for thread, future in self._calls:
            thread.join()
            future.cancel()  # of a killed thread, which would never finish


class Connection(sqlite3.Connection):
    """Yields before it takes the write lock, and around each commit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if simulated.MACHINE.current is not None:
            simulated.MACHINE.current.process.connections.append(self)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE" and simulated.MACHINE.current is not None:
            simulated.MACHINE.pause()
        return super().execute(sql, *args)

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> Any:  # noqa: PYI036
        commits = kind is None and self.in_transaction and simulated.MACHINE.current is not None
        if commits:
            simulated.MACHINE.committing()
        result = super().__exit__(kind, *rest)
        if commits:
            simulated.MACHINE.committed()
        return result


class FileLock(filelock.FileLock):
    """A real lock that yields while it waits."""

    def acquire(self) -> Any:
        end = simulated.MACHINE.now + self.timeout
        while True:
            try:
                return super().acquire(timeout=0)
            except filelock.Timeout:
                if simulated.MACHINE.now >= end:
                    raise
            simulated.MACHINE.pause(None, 0.05)


class _Datetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime.fromtimestamp(simulated.MACHINE.wall(), tz)


def _sleep(seconds: float) -> None:
    if simulated.MACHINE.current:
        simulated.MACHINE.pause(None, seconds)


def _connect(*args: Any, **more: Any) -> sqlite3.Connection:
    return sqlite3.connect(*args, **{"factory": Connection, **more})


def with_parts(module: Any, **parts: Any) -> Any:
    """Return a module of Python with some replaced names."""
    return SimpleNamespace(**{**vars(module), **parts})


_OURS: dict[str, tuple[Any, Any]] = {
    "time": (
        time,
        with_parts(
            time,
            monotonic=lambda: simulated.MACHINE.monotonic(),
            perf_counter=lambda: simulated.MACHINE.monotonic(),
            monotonic_ns=lambda: int(simulated.MACHINE.monotonic() * 1e9),
            time=lambda: simulated.MACHINE.wall(),
            time_ns=lambda: int(simulated.MACHINE.wall() * 1e9),
            sleep=_sleep,
        ),
    ),
    "threading": (
        threading,
        with_parts(
            threading,
            Lock=Lock,
            RLock=Lock,
            Condition=Condition,
            Event=Event,
            Thread=Thread,
            local=Local,
            current_thread=lambda: None,
        ),
    ),
    "sqlite3": (sqlite3, with_parts(sqlite3, connect=_connect)),
    "filelock": (filelock, with_parts(filelock, FileLock=FileLock)),
    "datetime": (datetime, _Datetime),
}


@contextmanager
def installed(machine: simulated.Machine, *more: tuple[Any, str, Any]) -> Iterator[None]:
    """Run all loaded modules of the package on a machine.

    Args:
        machine: the machine.
        more: further replacements: the module, the name and the new value.
    """
    package = [each for name, each in sys.modules.items() if name.partition(".")[0] == "nftsync"]
    state = random.getstate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated, "MACHINE", machine)
        for module in package:
            for name, (real, ours) in _OURS.items():
                if getattr(module, name, None) is real:
                    patch.setattr(module, name, ours)
        for change in more:
            patch.setattr(*change)
        try:
            yield
        finally:
            for process in machine.processes:
                machine.kill(process)
            random.setstate(state)
