"""Counts what SQLite does: statements, rows written, and steps of its virtual machine.

Steps are what a plan costs. They are the same on a fast and on a slow machine, and grow with the
table where a statement scans it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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
