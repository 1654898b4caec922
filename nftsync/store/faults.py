"""What responses show besides readable content: unreadable parts of tokens, and new fields."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from nftsync.records import CONTENT_COLUMNS, Content, NewField
from nftsync.store.database import over_keys, write_rows
from nftsync.times import shifted

_WHOLE = len(CONTENT_COLUMNS)


class Unreadable(msgspec.Struct, frozen=True):
    """An unreadable part of a token: a dotted field, or `token` for the whole record."""

    token_id: str
    field: str
    reason: str


def faults_of(content: Content | None) -> str | None:
    """Return a record's unreadable parts as a JSON object with reasons, or None."""
    return str(content[-1]) if content is not None and len(content) > _WHOLE else None


class TokenFaults:
    """The unreadable parts of a batch's tokens, in lists and in reads by id.

    Attributes:
        exist: a stored token or a read of the batch has any.
    """

    def __init__(self, connection: sqlite3.Connection, observed_at: str) -> None:
        self.exist = False
        self._connection = connection
        self._at = observed_at
        self._faults: dict[tuple[int, int], str | None] = {}
        self._changed: dict[tuple[int, int], str | None] = {}

    def load(self, token_numbers: Sequence[int]) -> None:
        if self._connection.execute("SELECT 1 FROM token_faults LIMIT 1").fetchone():
            rows = over_keys(
                self._connection,
                "SELECT f.* FROM json_each(?) k JOIN token_faults f ON f.token_no = k.value",
                token_numbers,
            )
            self._faults |= {(no, by_id): faults for no, by_id, faults, _ in rows}
            self.exist |= bool(self._faults)

    def note(self, token_no: int, content: Content | None, *, by_id: bool) -> None:
        """Note the unreadable parts of a record, or that they are readable again."""
        faults = faults_of(content)
        key = token_no, int(by_id)
        changes = faults or (self._faults and content is not None)
        if changes and faults != self._faults.get(key):
            self._faults[key] = self._changed[key] = faults

    def rows(self) -> dict[str, Sequence[Sequence[Any]]]:
        return {
            "DELETE FROM token_faults WHERE token_no = ? AND by_id = ?": [*self._changed],
            "INSERT INTO token_faults": [
                (*key, faults, self._at)
                for key, faults in self._changed.items()
                if faults is not None
            ],
        }


def unreadable_parts(connection: sqlite3.Connection) -> list[Unreadable]:
    rows = connection.execute(
        "SELECT DISTINCT t.token_id, j.key, j.value FROM token_faults f JOIN tokens t"
        " USING (token_no), json_each(f.faults) j ORDER BY f.token_no, j.key"
    )
    return [Unreadable(*row) for row in rows]


#: Limit of stored fields: a provider may send random names.
_MOST_NEW_FIELDS = 200
#: How long `nftsync status` shows a new field, and rules report it.
_NEW_FOR = timedelta(days=30)


def note_new_fields(connection: sqlite3.Connection, fields: Iterable[NewField], at: str) -> None:
    """Store fields that no earlier response or webhook has shown, if there is room."""
    by_path = {one.field: one for one in fields}
    if by_path:
        stored = {*connection.execute("SELECT field FROM new_fields").fetchall()}
        new = [one for path, one in by_path.items() if (path,) not in stored]
        del new[max(0, _MOST_NEW_FIELDS - len(stored)) :]
        rows = [(x.field, x.type, x.documented_type, x.example_id, at) for x in new]
        write_rows(connection, {"INSERT INTO new_fields": rows})


def new_since(at: str) -> str:
    """Return the time from which on fields are new."""
    return shifted(at, -_NEW_FOR)


def new_fields(connection: sqlite3.Connection, at: str) -> list[NewField]:
    """Return the fields that are new at a time, the newest first."""
    query = "SELECT * FROM new_fields WHERE first_seen_at >= ? ORDER BY first_seen_at DESC, field"
    return [NewField(*row) for row in connection.execute(query, (new_since(at),))]
