"""The sandbox's state: in memory, or in a file that survives a restart and `kill -9`.

It is the sandbox's own, and one sandbox at a time holds a file. What is changed in a transaction
is there whole or not at all. Only the file's owner may read it, as the secret is in it.
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

#: In the header of state files (SQLite's application_id).
_MARK = 0x6E667473
_VERSION = 4

# Ids are in lower case; `shown` is how a world file wrote one. The rowids (`place`) keep the order
# of wallets, of what they list and of webhooks. The `record` of a holding is NULL where the list
# does not carry one. `due` is NULL while an attempt is made, and once there is to be none.
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
    """An open state, for many threads.

    Args:
        path: the file; one is begun where there is none, or an empty one. None keeps all in memory.

    Raises:
        OtherVersion: it is of another version.
        InputError: it is something else, in use, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = Path(":memory:" if path is None else path)
        self._lock = threading.RLock()
        self._kept = path is not None
        try:
            if self._kept:
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
                f"the state file {path} cannot be used: {error}; it must be a sandbox's own, and "
                "no other sandbox may be using it: name another with --state"
            ) from error

    @property
    def facts(self) -> dict[str, str]:
        """Single values by their names; none in a new state."""
        return dict(self.run("SELECT name, value FROM facts"))

    def note(self, **facts: str) -> None:
        """Note single values."""
        self.run_many("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def run(self, statement: str, *values: object) -> list[Any]:
        """Run a statement, and give its rows; changes that belong together are a transaction.

        Raises:
            StoreError: it cannot be read, or not be written.
        """
        with self._lock, self._explained():
            return self._connection.execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[Any]) -> None:
        """Run a statement with each of some rows of values; see `run`."""
        with self.transaction():
            self._connection.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold other threads off; what is changed inside is kept when the outermost block ends.

        Raises:
            StoreError: it cannot be written, and nothing has changed.
        """
        with self._lock, self._explained():
            if self._connection.in_transaction:
                yield
                return
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield

    def copy_into(self, other: State) -> None:
        """Make another state one like this, whole or not at all.

        Raises:
            StoreError: it cannot be written.
        """
        with self._lock, other._explained():
            self._connection.backup(other._connection)

    def close(self) -> None:
        """Close the file, for another sandbox to open; what is in memory stays."""
        if self._kept:
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
        """Make sure that the file is one of ours, or empty, and hold it."""
        connection = self._connection
        # One sandbox at a time, and no shared memory beside the file.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        header = (
            "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version"
        )
        [found] = connection.execute(header)
        new = found == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
        if not new and found != (_MARK, _VERSION):
            if found[0] != _MARK:
                raise sqlite3.DatabaseError("it is another database")
            raise OtherVersion(
                f"{self._path} is a sandbox state of version {found[1]}, and this nftsync reads "
                f"{_VERSION}; name another file with --state (`nftsync demo` makes its own anew)"
            )
        if new and self._kept:
            self._path.chmod(0o600)  # an empty file that was there already
        # A write, so that the file is held from now on.
        change = _SCHEMA if new else f"PRAGMA user_version = {_VERSION};"
        connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            f" BEGIN IMMEDIATE; {change} COMMIT;"
        )
