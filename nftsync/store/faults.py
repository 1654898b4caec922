"""Unreadable parts of tokens, with the reasons."""

from __future__ import annotations

import sqlite3

import msgspec

from nftsync.records import CONTENT_COLUMNS, Content

_WHOLE = len(CONTENT_COLUMNS)


class Unreadable(msgspec.Struct, frozen=True):
    """An unreadable part of a token: a dotted field, or `token` for the whole record."""

    token_id: str
    field: str
    reason: str


def faults_of(content: Content | None) -> str | None:
    """Return a record's unreadable parts as a JSON object with reasons, or None."""
    return str(content[-1]) if content is not None and len(content) > _WHOLE else None


def unreadable_parts(connection: sqlite3.Connection) -> list[Unreadable]:
    """Return the unreadable parts of all tokens."""
    rows = connection.execute(
        "SELECT DISTINCT t.token_id, j.key, j.value FROM token_faults f JOIN tokens t"
        " USING (token_no), json_each(f.faults) j ORDER BY f.token_no, j.key"
    )
    return [Unreadable(*row) for row in rows]
