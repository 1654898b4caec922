"""Contracts and tokens hidden from views: entries of a person, and of `hidden_file`."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from nftsync.errors import InputError
from nftsync.records import is_uuid
from nftsync.store.contracts import contract_key, unknown_contract
from nftsync.store.database import named_rows, over_keys
from nftsync.store.filters import contract_named
from nftsync.text import quoted

#: The known tokens that are hidden, by their contract or their id. This is not a view, because
#: integrity_check of SQLite 3.40 finds no unused pages if a view is the first object that it meets.
HIDDEN_TOKENS = """(
    SELECT token_no, token_id FROM tokens
    WHERE contract IN (SELECT contract FROM hidden WHERE contract IS NOT NULL)
        OR token_id IN (SELECT token_id FROM hidden WHERE token_id IS NOT NULL))"""


class Hidden(NamedTuple):
    """A hidden contract (in one spelling) or token; the other is None."""

    contract: str | None
    token_id: str | None


#: Entries and their reasons.
Reasons: TypeAlias = "Mapping[Hidden, str | None]"

#: An entry that exists keeps its time; a given one also keeps its reason if none is given now.
_STORE: Final = """
    INSERT INTO hidden (contract, token_id, reason, source, hidden_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET
        reason = iif(source = 'given', coalesce(excluded.reason, reason), excluded.reason)
"""
_REMOVE: Final = "DELETE FROM hidden WHERE contract IS ? AND token_id IS ? AND source = ?"


def hide(
    connection: sqlite3.Connection, entries: Iterable[Hidden], reason: str | None, at: str
) -> None:
    connection.executemany(_STORE, [(*entry, reason, "given", at) for entry in entries])


def unhide(connection: sqlite3.Connection, entry: Hidden, named: str, file: Path | None) -> bool:
    """Remove an entry; return whether its contract still hides the token.

    Without `file`, the hidden file, also removes the file's entry.
    """
    by_person, by_file = (
        connection.execute(_REMOVE, (*entry, source)).rowcount for source in ("given", "file")
    )
    if by_file and file is not None:
        raise InputError(
            f"{quoted(named)} is listed in hidden_file ({file}); remove its line, then run"
            " `nftsync sync`"
        )
    query = f"SELECT 1 FROM {HIDDEN_TOKENS} WHERE token_id = ?"
    by_contract = any(connection.execute(query, (entry.token_id,)))
    if not (by_person or by_file):
        raise InputError(
            f"{quoted(named)} is hidden through its contract. Unhide the contract:"
            " `nftsync unhide CONTRACT`; to find it: `nftsync hidden`"
            if by_contract
            else f"{quoted(named)} is not hidden; to list hidden contracts and tokens:"
            " `nftsync hidden`"
        )
    return by_contract


def file_entries(connection: sqlite3.Connection) -> dict[Hidden, str | None]:
    """Return the stored entries of the hidden file, with their reasons."""
    rows = connection.execute("SELECT contract, token_id, reason FROM hidden WHERE source = 'file'")
    return {Hidden(*entry): reason for *entry, reason in rows}


def store_hidden_file(connection: sqlite3.Connection, file: Reasons, at: str) -> None:
    before = file_entries(connection)
    connection.executemany(_REMOVE, [(*entry, "file") for entry in before if entry not in file])
    differing = [
        (*entry, reason, "file", at)
        for entry, reason in file.items()
        if entry not in before or before[entry] != reason
    ]
    connection.executemany(_STORE, differing)


def note_unknown(connection: sqlite3.Connection, entries: Collection[Hidden]) -> str:
    """Return a note on entries that name nothing in the database, if any."""
    (count,) = over_keys(
        connection,
        "SELECT count(*) FROM json_each(?) e WHERE e.value ->> 0 IN"
        " (SELECT contract FROM sampled_tokens) OR e.value ->> 1 IN (SELECT token_id FROM tokens)",
        entries,
    ).fetchone()
    if count == len(entries):
        return ""
    unknown = f"{len(entries) - count:,} of {len(entries):,}"
    return f"entries that name nothing in the database yet: {unknown}; they hide it when it appears"


_KNOWN: Final = """
    SELECT 1 FROM tokens WHERE token_id = ?2 OR contract = ?1
    UNION ALL SELECT 1 FROM hidden WHERE token_id = ?2 OR contract = ?1
    LIMIT 1
"""


def entry_named(connection: sqlite3.Connection, named: str) -> Hidden:
    """Return the known contract (by address or name) or token (by id)."""
    entry = Hidden(None, named.lower()) if is_uuid(named) else Hidden(contract_key(named), None)
    if any(connection.execute(_KNOWN, entry)):
        return entry
    if entry.contract is None:
        raise InputError(
            f"token {quoted(named)} is not in the database; find its id: `nftsync find NAME`"
        )
    entry = Hidden(contract_key(contract_named(connection, named)), None)
    if not any(connection.execute(_KNOWN, entry)):
        raise unknown_contract(connection, named)
    return entry


#: The entries in their order, with the number of tokens and of holdings that each one hides.
_LIST = f"""
    WITH affected AS MATERIALIZED (
        SELECT t.contract, token_id, t.name, (
            SELECT count(*) FROM balance_rows b
            WHERE b.token_no = t.token_no AND b.held_since IS NOT NULL) AS holdings
        FROM {HIDDEN_TOKENS} JOIN tokens t USING (token_no, token_id)
    ), by_contract AS MATERIALIZED (
        SELECT contract, count(*) AS tokens, sum(holdings) AS holdings
        FROM affected WHERE contract IS NOT NULL GROUP BY contract
    )
    SELECT iif(h.contract IS NULL, t.name, c.name) AS name, h.contract, h.token_id,
        coalesce(a.tokens, t.token_id IS NOT NULL) AS tokens,
        coalesce(a.holdings, t.holdings, 0) AS holdings,
        h.reason, h.source, h.hidden_at
    FROM hidden h
    LEFT JOIN by_contract a ON a.contract = h.contract
    LEFT JOIN affected t ON t.token_id = h.token_id
    LEFT JOIN contracts c ON c.contract = h.contract
    ORDER BY h.hidden_at, h.rowid
"""


def list_hidden(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return all entries, oldest first, with the tokens and holdings they hide."""
    return named_rows(connection.execute(_LIST))
