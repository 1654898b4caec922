"""Contracts and tokens hidden from views: entries of a person, and of `hidden_file`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from nftsync.errors import InputError
from nftsync.records import is_uuid
from nftsync.store.contracts import contract_key, near_contracts
from nftsync.store.filters import contract_named
from nftsync.text import quoted
from nftsync.times import now

#: The origin of an entry: `nftsync hide`, or the hidden file.
HiddenSource: TypeAlias = Literal["given", "file"]


#: The known tokens that are hidden, by their contract or their id. This is not a view, because
#: integrity_check of SQLite 3.40 finds no unused pages if a view is the first object that it meets.
HIDDEN_TOKENS = """(
    SELECT token_no, token_id FROM tokens
    WHERE contract IN (SELECT contract FROM hidden WHERE contract IS NOT NULL)
        OR token_id IN (SELECT token_id FROM hidden WHERE token_id IS NOT NULL))"""


class Hidden(NamedTuple):
    """A hidden contract (its address in one spelling) or a hidden token; the other is None."""

    contract: str | None
    token_id: str | None


#: An entry and its reason.
Reasons: TypeAlias = "Mapping[Hidden, str | None]"
#: An entry of the hidden file, its reason, and whether to keep it.
FileEntry: TypeAlias = "tuple[Hidden, str | None, bool]"

_IS_ENTRY = "contract IS ? AND token_id IS ? AND source = ?"


def hide(
    connection: sqlite3.Connection, entries: Iterable[Hidden], reason: str | None, at: str
) -> None:
    """Store given entries, in a write transaction; an entry that exists keeps its time.

    It also keeps its reason, if `reason` is None.
    """
    for entry in entries:
        _store(connection, entry, reason, "given", at)


def unhide(connection: sqlite3.Connection, entry: Hidden, named: str, file: Path | None) -> bool:
    """Remove an entry, in a write transaction.

    Args:
        named: how the caller names the entry.
        file: the hidden file; None removes its entries, too.

    Returns:
        Whether its contract still hides the token.

    Raises:
        InputError: the contract or token is not hidden, or the hidden file has its entry.
    """
    removed = _remove(connection, entry, "given")
    in_file = any(connection.execute(f"SELECT 1 FROM hidden WHERE {_IS_ENTRY}", (*entry, "file")))
    if in_file and file is not None:
        raise InputError(
            f"{quoted(named)} is listed in hidden_file ({file}); remove its line, then run"
            " `nftsync sync`"
        )
    if in_file:
        _remove(connection, entry, "file")
    query = f"SELECT 1 FROM {HIDDEN_TOKENS} WHERE token_id = ?"
    by_contract = any(connection.execute(query, (entry.token_id,)))
    if not (in_file or removed):
        raise InputError(
            f"{quoted(named)} is hidden through its contract. Unhide the contract:"
            " `nftsync unhide CONTRACT`; to find it: `nftsync hidden`"
            if by_contract
            else f"{quoted(named)} is not hidden; to list hidden contracts and tokens:"
            " `nftsync hidden`"
        )
    return by_contract


def _remove(connection: sqlite3.Connection, entry: Hidden, source: HiddenSource) -> bool:
    deleted = connection.execute(f"DELETE FROM hidden WHERE {_IS_ENTRY}", (*entry, source))
    return deleted.rowcount > 0


def _store(
    connection: sqlite3.Connection, entry: Hidden, reason: str | None, source: HiddenSource, at: str
) -> None:
    new = "coalesce(?, reason)" if source == "given" else "?"
    changed = connection.execute(
        f"UPDATE hidden SET reason = {new} WHERE {_IS_ENTRY}", (reason, *entry, source)
    )
    if not changed.rowcount:
        connection.execute(
            "INSERT INTO hidden (contract, token_id, reason, source, hidden_at)"
            " VALUES (?, ?, ?, ?, ?)",
            (*entry, reason, source, at),
        )


def entries_that_differ(connection: sqlite3.Connection, file: Reasons) -> list[FileEntry]:
    """Return what the hidden file adds, changes or removes, for `store_file_entries`."""
    rows = connection.execute(
        "SELECT contract, token_id, reason FROM hidden WHERE source = 'file'"
    ).fetchall()
    before = {Hidden(contract, token_id): reason for contract, token_id, reason in rows}
    new = [
        (entry, reason, True)
        for entry, reason in file.items()
        if entry not in before or before[entry] != reason
    ]
    return new + [(entry, None, False) for entry in before if entry not in file]


def store_file_entries(connection: sqlite3.Connection, entries: Iterable[FileEntry]) -> None:
    """Store or remove entries of the hidden file, in a write transaction."""
    for entry, reason, keep in entries:
        if keep:
            _store(connection, entry, reason, "file", now())
        else:
            _remove(connection, entry, "file")


_KNOWN: Final = """
    SELECT EXISTS (SELECT 1 FROM tokens WHERE token_id = ?2 OR contract = ?1)
        OR EXISTS (SELECT 1 FROM hidden WHERE token_id = ?2 OR contract = ?1)
"""


def entry_named(connection: sqlite3.Connection, named: str) -> Hidden:
    """Return the contract, by address or name, or the token, by id, that a caller names.

    Raises:
        InputError: neither the tokens nor the entries have it.
    """
    entry = Hidden(None, named.lower()) if is_uuid(named) else Hidden(contract_key(named), None)
    if not connection.execute(_KNOWN, entry).fetchone()[0]:
        if entry.contract is None:
            raise InputError(
                f"token {quoted(named)} is not in the database; find its id: `nftsync find NAME`"
            )
        entry = Hidden(contract_key(contract_named(connection, named)), None)
    if not connection.execute(_KNOWN, entry).fetchone()[0]:
        contracts = connection.execute("SELECT contract, contract_address, NULL FROM contracts")
        raise InputError(
            f"contract {quoted(named)} is not in the database{near_contracts(contracts, named)};"
            " to list contracts: `nftsync collections`"
        )
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
_LISTED: Final = (
    "name",
    "contract",
    "token_id",
    "tokens",
    "holdings",
    "reason",
    "source",
    "hidden_at",
)


def list_hidden(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return all entries, oldest first, with their names and the tokens and holdings they hide."""
    return [dict(zip(_LISTED, row, strict=True)) for row in connection.execute(_LIST)]
