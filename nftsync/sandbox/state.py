"""The sandbox's database: in memory, or in the state file that survives a restart and `kill -9`.

It is the sandbox's own, and one sandbox at a time holds a file. What is changed in a transaction
is there whole or not at all. Only the file's owner may read it, as the secret is in it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nftsync.errors import InputError, StoreError

__all__ = ["OtherVersion", "State"]

#: In the header of state files (SQLite's application_id).
_MARK = 0x6E667473
_VERSION = 3

# The rowids (`place`) keep the order of wallets and webhooks. `due` is NULL while an attempt is
# made, and once there is to be none. A webhook that waits for another one has that one's id in
# `waits_for`, or an empty text as long as there is no other.
_SCHEMA = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE tokens (token TEXT PRIMARY KEY, record BLOB) STRICT;
CREATE TABLE wallets (
    place INTEGER PRIMARY KEY, wallet TEXT NOT NULL UNIQUE, shown TEXT NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE TABLE deliveries (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, body BLOB NOT NULL,
    fault TEXT NOT NULL, state TEXT NOT NULL, attempts TEXT NOT NULL DEFAULT '[]',
    due TEXT, waits_for TEXT
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
        if self._kept:
            _make_private(self._path)
        self._connection = sqlite3.connect(
            self._path, timeout=1, isolation_level=None, check_same_thread=False
        )
        weakref.finalize(self, self._connection.close)
        try:
            self._prepare()
        except BaseException as error:
            self._connection.close()
            if isinstance(error, sqlite3.Error):
                raise InputError(_refusal(self._path, str(error))) from error
            raise

    @property
    def facts(self) -> dict[str, str]:
        """Single values by their names; none in a new state."""
        return dict(self.run("SELECT name, value FROM facts"))

    def note(self, **facts: str) -> None:
        """Note single values."""
        for fact in facts.items():
            self.run("INSERT OR REPLACE INTO facts VALUES (?, ?)", *fact)

    def run(self, statement: str, *values: object) -> list[Any]:
        """Run a statement, and give its rows; changes that belong together are a transaction.

        Raises:
            StoreError: it cannot be read, or not be written.
        """
        with self._lock, self._explained():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold other threads off; what is changed inside is kept when the outermost block ends.

        Raises:
            StoreError: it cannot be written, and nothing has changed.
        """
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self.run("BEGIN IMMEDIATE")
            try:
                yield
                self.run("COMMIT")
            except BaseException:
                # SQLite itself may have rolled back already.
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

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
        run = self._connection.execute
        # One sandbox at a time, and no shared memory beside the file.
        run("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        [mark] = run("PRAGMA application_id").fetchone()
        [version] = run("PRAGMA user_version").fetchone()
        new = mark == 0 and run("SELECT 1 FROM sqlite_schema").fetchone() is None
        if not new and mark != _MARK:
            raise InputError(_refusal(self._path, "not a database of ours"))
        if not new and version != _VERSION:
            raise OtherVersion(
                f"{self._path} is a sandbox state of version {version}, and this nftsync reads "
                f"{_VERSION}; name another file with --state (`nftsync demo` makes its own anew)"
            )
        run("PRAGMA journal_mode = WAL").fetchone()
        run("PRAGMA synchronous = NORMAL")
        # A write, so that the file is held from now on.
        change = _SCHEMA if new else f"PRAGMA user_version = {_VERSION};"
        self._connection.executescript(f"BEGIN IMMEDIATE; {change} COMMIT;")


def _make_private(path: Path) -> None:
    """Create the file for its owner alone, or make an empty one theirs alone."""
    try:
        if not path.is_file() or not path.stat().st_size:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            path.chmod(0o600)
    except OSError as error:
        raise InputError(
            f"the state file {path} cannot be opened: {error.strerror or error}"
        ) from error


def _refusal(path: Path, error: str) -> str:
    if "not a database" in error:
        what = f"{path} is no state of a sandbox and is left as it is"
    elif "locked" in error:
        what = f"another sandbox is using the state file {path}"
    else:
        what = f"the state file {path} cannot be used ({error})"
    return f"{what}; name another file with --state"
