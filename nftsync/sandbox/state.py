"""The sandbox's state, in memory or in a file.

One sandbox at a time uses a file. Only the owner can read it, as it contains the secret.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nftsync.errors import InputError, StoreError

#: SQLite's application_id in state files.
_MARK = 0x6E667473
_VERSION = 4

# Ids are in lower case; `shown` has the original spelling. The rowids (`place`) keep the order of
# wallets, holdings and webhooks. A holding's `record` is NULL if the list has none. `due` is NULL
# during an attempt, and after the last one.
_SCHEMA = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE tokens (token TEXT PRIMARY KEY, record TEXT) STRICT;
CREATE TABLE wallets (
    place INTEGER PRIMARY KEY, wallet TEXT NOT NULL UNIQUE, shown TEXT NOT NULL
) STRICT;
CREATE TABLE holdings (
    place INTEGER PRIMARY KEY, wallet TEXT NOT NULL, token TEXT NOT NULL, shown TEXT NOT NULL,
    amount TEXT NOT NULL, record TEXT, UNIQUE (wallet, token)
) STRICT;
CREATE INDEX holdings_token ON holdings (token);
CREATE TABLE deliveries (
    place INTEGER PRIMARY KEY, event TEXT NOT NULL, body BLOB NOT NULL, fault TEXT,
    state TEXT NOT NULL, attempts TEXT NOT NULL DEFAULT '[]', due TEXT
) STRICT;
CREATE INDEX deliveries_due ON deliveries (due) WHERE due IS NOT NULL;
PRAGMA application_id = {_MARK};
PRAGMA user_version = {_VERSION};
"""


class OtherVersion(InputError):
    """A state file of another version of nftsync."""


class State:
    """An open state, for many threads; without a path, in memory.

    A missing or empty file becomes a new state. All methods raise StoreError if the file cannot be
    read or written.

    Raises:
        OtherVersion: the file is from another version.
        InputError: the file is not a state, is in use, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = Path(":memory:" if path is None else path)
        self._lock = threading.RLock()
        self._is_file = path is not None
        try:
            if self._is_file:
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(
                self._path, timeout=1, isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, self._connection.close)
            with ExitStack() as undo:
                undo.callback(self._connection.close)
                self._prepare()
                undo.pop_all()
        except (OSError, sqlite3.Error) as error:
            raise InputError(
                f"the state file {path} cannot be used: {error}. It must be a sandbox state that "
                "no other sandbox is using; name another file with --state"
            ) from error

    @property
    def facts(self) -> dict[str, str]:
        """Single values by name; a new state has none."""
        return dict(self.run("SELECT name, value FROM facts"))

    def note(self, **facts: str) -> None:
        """Store single values."""
        self.run_many("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def run(self, statement: str, *values: object) -> list[Any]:
        """Run a statement and return its rows."""
        with self._lock, self._explained():
            return self._connection.execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[Any]) -> None:
        """Run a statement for each row of values; see `run`."""
        with self.transaction():
            self._connection.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block as one transaction, alone; nested blocks join the outer one."""
        with self._lock, self._explained():
            if self._connection.in_transaction:
                yield
                return
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield

    def copy_into(self, other: State) -> None:
        """Copy everything into another state, or nothing."""
        with self._lock, other._explained():
            self._connection.backup(other._connection)

    def close(self) -> None:
        """Close the file for other sandboxes; a state in memory stays."""
        if self._is_file:
            with self._lock:
                self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"the state file {self._path} cannot be written or read: {error}"
            ) from error

    def _prepare(self) -> None:
        connection = self._connection
        # One sandbox at a time, without a file for shared memory.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        query = (
            "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version"
        )
        [header] = connection.execute(query)
        new = header == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
        if not new and header != (_MARK, _VERSION):
            if header[0] != _MARK:
                raise sqlite3.DatabaseError("it is not a sandbox state")
            raise OtherVersion(
                f"{self._path} is a sandbox state of version {header[1]}, but this nftsync reads "
                f"{_VERSION}. Name another file with --state (`nftsync demo` recreates its own)"
            )
        if new and self._is_file:
            self._path.chmod(0o600)  # for an existing empty file
        # A write takes the lock.
        change = _SCHEMA if new else f"PRAGMA user_version = {_VERSION};"
        connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            f" BEGIN IMMEDIATE; {change} COMMIT;"
        )
