"""Objects other than wallets and tokens, as the follow-up reads returned them."""

from __future__ import annotations

import sqlite3

from nftsync.models import ObjectRead

__all__ = ["store_object"]


def store_object(connection: sqlite3.Connection, read: ObjectRead) -> bool:
    """Keep what a read of an object returned, unless a later read was kept before.

    Args:
        connection: in a write transaction.
        read: one whose outcome is `ok`.

    Returns:
        Whether the object is new, or other than it was.
    """
    before = connection.execute(
        "SELECT body, ticket FROM resources WHERE resource_type = ? AND resource_id = ?",
        (read.resource_type, read.resource_id),
    ).fetchone()
    if before is not None and before[1] >= read.ticket:
        return False
    connection.execute(
        "INSERT INTO resources (resource_type, resource_id, body, fetched_at, ticket)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT (resource_type, resource_id) DO UPDATE SET"
        " body = excluded.body, fetched_at = excluded.fetched_at, ticket = excluded.ticket",
        (read.resource_type, read.resource_id, read.body, read.started_at, read.ticket),
    )
    return before is None or before[0] != read.body
