"""How far time has come for a database, whose writer's clock may be ahead of ours."""

from __future__ import annotations

import sqlite3

from nftsync.times import begun

__all__ = ["known_time"]

#: The latest times that were stored, each of a log in which they never decrease, or of few rows.
_LATEST = """
    SELECT (SELECT observed_at FROM balance_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT observed_at FROM token_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT observed_at FROM wallet_state_rows ORDER BY state_id DESC LIMIT 1),
        (SELECT max(finished_at) FROM sync_runs), (SELECT max(synced_at) FROM wallets)
"""


def known_time(database: sqlite3.Connection | sqlite3.Cursor, moment: str) -> str:
    """Make sure that a time is not still to come, by our clock or by that of what was stored.

    Args:
        database: an open one, whose rows are tuples.
        moment: a time as `parse_time` returns it.

    Returns:
        The time; of a day that has begun but not ended, the present in place of its end.

    Raises:
        InputError: it is still to come.
    """

    def latest() -> str | None:
        return max((time for time in database.execute(_LATEST).fetchone() if time), default=None)

    return begun(moment, latest)
