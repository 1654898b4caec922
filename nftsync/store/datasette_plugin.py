"""Datasette finds this by its entry point: queries there can call `exact_sum` and `amount_key`."""

from __future__ import annotations

import sqlite3

from datasette import hookimpl

from nftsync import exact_sum

__all__ = ["prepare_connection"]


@hookimpl  # type: ignore[untyped-decorator, unused-ignore]
def prepare_connection(conn: sqlite3.Connection) -> None:
    """Give each connection that Datasette opens the functions of `nftsync.exact_sum`."""
    exact_sum.register(conn)
