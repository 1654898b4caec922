"""Counts what SQLite does: statements, rows written, and steps of its virtual machine.

Steps are what a plan costs. They are the same on a fast and on a slow machine, and grow with the
table where a statement scans it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nftsync.store.mirror import Mirror

#: How many steps SQLite counts at once.
_STEPS = 10


@dataclass
class SqlWork:
    """What one connection did in a block.

    Attributes:
        statements: the text of each, as often as it ran.
        rows: rows inserted, updated or deleted.
        steps: steps of SQLite's virtual machine.
    """

    statements: list[str] = field(default_factory=list)
    rows: int = 0
    steps: int = 0

    @property
    def transactions(self) -> int:
        """How many were committed."""
        return self.statements.count("COMMIT")


@contextmanager
def counted(connection: sqlite3.Connection) -> Iterator[SqlWork]:
    """Count the work of a connection for the length of a block."""
    work = SqlWork()

    def step() -> int:
        work.steps += _STEPS
        return 0

    before = connection.total_changes
    connection.set_trace_callback(work.statements.append)
    connection.set_progress_handler(step, _STEPS)
    try:
        yield work
    finally:
        connection.set_trace_callback(None)
        connection.set_progress_handler(None, _STEPS)
        work.rows = connection.total_changes - before


def count_mirrors(monkeypatch: pytest.MonkeyPatch, module: str) -> list[SqlWork]:
    """The work of each mirror that a module opens from now on, in their order."""
    works: list[SqlWork] = []

    class CountedMirror(Mirror):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self._counting = ExitStack()
            works.append(self._counting.enter_context(counted(self.connection)))

        def close(self) -> None:
            self._counting.close()
            super().close()

    monkeypatch.setattr(f"{module}.Mirror", CountedMirror)
    return works
