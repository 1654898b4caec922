"""Whose turn it is: what has been begun and waits for its repeat, and what is still to begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

_Task = TypeVar("_Task")
_Begun = TypeVar("_Begun")


class Turns(Generic[_Task, _Begun]):
    """Tasks in their order, and before them whatever has been begun and is due again."""

    def __init__(self, begin: Callable[[_Task], _Begun]) -> None:
        """Start with none; `begin` makes of a task what can be postponed."""
        self._begin = begin
        self._tasks: deque[_Task] = deque()
        # With a number: what is due at the same time goes in the order in which it was postponed.
        self._postponed: list[tuple[float, int, _Begun]] = []
        self._numbers = count()

    @property
    def next_due(self) -> float | None:
        """When the first that waits is due; None: nothing waits."""
        return self._postponed[0][0] if self._postponed else None

    def add(self, tasks: Iterable[_Task]) -> None:
        """Queue tasks."""
        self._tasks.extend(tasks)

    def postpone(self, begun: _Begun, due: float) -> None:
        """Let what has been begun wait until it is due."""
        heappush(self._postponed, (due, next(self._numbers), begun))

    def take(self, now: float) -> _Begun | None:
        """Take what has been due for longest, else begin the next task; None: not now."""
        if self._postponed and self._postponed[0][0] <= now:
            return heappop(self._postponed)[2]
        return self._begin(self._tasks.popleft()) if self._tasks else None

    def withdraw(self) -> list[_Task]:
        """Take back all tasks that have not been begun."""
        tasks = list(self._tasks)
        self._tasks.clear()
        return tasks

    def withdraw_postponed(self) -> list[_Begun]:
        """Take all that waits, whether it is due or not."""
        begun = [each for _, _, each in self._postponed]
        self._postponed.clear()
        return begun
