"""Exact arithmetic on amounts in SQL: functions added to a SQLite connection.

An amount is text, as it can be as large as 2**256 - 1; SQLite's own `sum` would make a float of it,
and `CAST(amount AS INTEGER)` would cut it off at 2**63 - 1 without a word. Datasette and
sqlite-utils find this module by its entry points, so queries there have the functions too.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from pluggy import HookimplMarker

#: What SQLite hands to a function.
_Value: TypeAlias = str | int | float | bytes | None

_MOST_DIGITS = 100
#: What `exact` cannot read, as a condition on a column `amount` of text.
NOT_EXACT = (
    "(length(amount) NOT BETWEEN 1 AND 100 OR amount GLOB '*[^0-9]*' OR instr(amount, char(0)))"
)


def exact(amount: _Value) -> int | None:
    """The integer that a text of 1 to 100 ASCII digits names, or that it is; else None."""
    if isinstance(amount, str):
        if len(amount) <= _MOST_DIGITS and amount.isascii() and amount.isdigit():
            return int(amount)
        return None
    return amount if isinstance(amount, int) else None


def is_zero(amount: str) -> bool:
    """Whether a balance of this amount is no holding: one or more `0` and nothing else."""
    return amount != "" and not amount.strip("0")


class ExactSum:
    """The aggregate `exact_sum(amount)`, which is a window function too.

    The sum, as text, of all amounts of 1 to 100 ASCII digits, as in frames; what is no such text is
    passed over. NULL where there is nothing to add, like SQLite's own `sum`.
    """

    def __init__(self) -> None:
        self._total = 0
        self._count = 0

    def step(self, amount: _Value) -> None:
        """Take a row into the sum."""
        if (number := exact(amount)) is not None:
            self._total += number
            self._count += 1

    def inverse(self, amount: _Value) -> None:
        """Take a row that left the window out of the sum."""
        if (number := exact(amount)) is not None:
            self._total -= number
            self._count -= 1

    def value(self) -> str | None:
        """The sum of the rows in the window."""
        return str(self._total) if self._count else None

    finalize = value


def amount_key(amount: _Value) -> str | None:
    """The scalar `amount_key(amount)`: text that sorts and compares as the amount's number does.

    It takes sums of `exact_sum` too. NULL of what is not 1 to 999 ASCII digits.
    """
    if isinstance(amount, int):
        amount = str(amount)
    if not isinstance(amount, str) or not (amount.isascii() and amount.isdigit()):
        return None
    digits = amount.lstrip("0") or "0"
    return f"{len(digits):03}{digits}" if len(digits) < 1_000 else None


def register(connection: sqlite3.Connection) -> None:
    """Give a connection `exact_sum(amount)` and `amount_key(amount)`.

    Args:
        connection: any connection of Python's `sqlite3`; it is not read or written.
    """
    connection.create_window_function("exact_sum", 1, ExactSum)
    connection.create_function("amount_key", 1, amount_key, deterministic=True)


@HookimplMarker("datasette")
@HookimplMarker("sqlite_utils")
def prepare_connection(conn: sqlite3.Connection) -> None:
    """Give each connection that Datasette or sqlite-utils opens the functions."""
    register(conn)
