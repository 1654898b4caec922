"""A plugin of Datasette and sqlite-utils: queries there can call `exact_sum` and `amount_key`.

Both find it by its entry points, and both take plugins by pluggy.
"""

from __future__ import annotations

import sqlite3

from pluggy import HookimplMarker

from nftsync import exact_sum

__all__ = ["prepare_connection"]


@HookimplMarker("datasette")
@HookimplMarker("sqlite_utils")
def prepare_connection(conn: sqlite3.Connection) -> None:
    """Give each connection that they open the functions of `nftsync.exact_sum`."""
    exact_sum.register(conn)
