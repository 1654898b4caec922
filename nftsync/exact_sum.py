"""Exact arithmetic on amounts in SQL: functions for a SQLite connection.

Amounts reach 2**256 - 1; SQLite's `sum` returns a float, and `CAST` caps them at 2**63 - 1.
Datasette and sqlite-utils load these functions by entry points.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from pluggy import HookimplMarker

#: An argument of an SQL function.
_Value: TypeAlias = str | int | float | bytes | None

_MAX_DIGITS = 100
#: SQL condition on a text column `amount` for amounts that `exact` cannot read.
NOT_EXACT = (
    "(length(amount) NOT BETWEEN 1 AND 100 OR amount GLOB '*[^0-9]*' OR instr(amount, char(0)))"
)


def exact(amount: _Value) -> int | None:
    """Return an integer, or that in 1 to 100 ASCII digits, or None."""
    if isinstance(amount, str):
        if len(amount) <= _MAX_DIGITS and amount.isascii() and amount.isdigit():
            return int(amount)
        return None
    return amount if isinstance(amount, int) else None


def is_zero(amount: str) -> bool:
    """Return whether an amount is one or more `0`."""
    return amount != "" and not amount.strip("0")


class ExactSum:
    """Aggregate and window function `exact_sum(amount)`: the sum as text.

    It ignores all but integers and 1 to 100 ASCII digits; without any, it returns NULL.
    """

    def __init__(self) -> None:
        self._total = 0
        self._count = 0

    def step(self, amount: _Value) -> None:
        if (number := exact(amount)) is not None:
            self._total += number
            self._count += 1

    def inverse(self, amount: _Value) -> None:
        if (number := exact(amount)) is not None:
            self._total -= number
            self._count -= 1

    def value(self) -> str | None:
        return str(self._total) if self._count else None

    finalize = value


def amount_key(amount: _Value) -> str | None:
    """Return a text that sorts as the amount, or a sum of up to 999 digits, does."""
    if isinstance(amount, int):
        amount = str(amount)
    if not isinstance(amount, str) or not (amount.isascii() and amount.isdigit()):
        return None
    digits = amount.lstrip("0") or "0"
    return f"{len(digits):03}{digits}" if len(digits) < 1_000 else None


def register(connection: sqlite3.Connection) -> None:
    connection.create_window_function("exact_sum", 1, ExactSum)
    connection.create_function("amount_key", 1, amount_key, deterministic=True)


@HookimplMarker("datasette")
@HookimplMarker("sqlite_utils")
def prepare_connection(conn: sqlite3.Connection) -> None:
    register(conn)
