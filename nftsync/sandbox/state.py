"""The sandbox's database: in memory, or in the state file that survives a restart and `kill -9`.

It is the sandbox's own, and one sandbox at a time holds a file. What is changed in a transaction
is there whole or not at all. Only the file's owner may read it, as the secret is in it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nftsync.errors import InputError, StoreError

__all__ = ["State"]

#: In the header of state files (SQLite's application_id).
_MARK = 0x6E667473
_VERSION = 2

# Records are kept once each, under their SHA-256; a digest of NULL is a record that is not there.
# The rowids (`place`) keep the order in which things are listed.
_WORLD = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE records (digest BLOB PRIMARY KEY, record BLOB NOT NULL) STRICT;
CREATE TABLE tokens (token TEXT PRIMARY KEY, digest BLOB) STRICT;
CREATE TABLE wallets (
    place INTEGER PRIMARY KEY, wallet TEXT NOT NULL UNIQUE, shown TEXT NOT NULL
) STRICT;
CREATE TABLE holdings (
    place INTEGER PRIMARY KEY, wallet TEXT NOT NULL, token TEXT NOT NULL,
    shown TEXT NOT NULL, amount TEXT NOT NULL, digest BLOB, UNIQUE (wallet, token)
) STRICT;
"""

# `due` is NULL while an attempt is made, and once there is to be none. A webhook that waits for
# another one has that one's id in `waits_for`, or an empty text as long as there is no other.
_DELIVERIES = """
CREATE TABLE deliveries (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, body BLOB NOT NULL,
    fault TEXT NOT NULL DEFAULT 'null', state TEXT NOT NULL DEFAULT 'pending',
    attempts TEXT NOT NULL DEFAULT '[]', due TEXT, waits_for TEXT
) STRICT;
CREATE INDEX deliveries_due ON deliveries (due) WHERE due IS NOT NULL;
"""

_FROM_VERSION_1 = f"""
ALTER TABLE deliveries RENAME TO before;
{_DELIVERIES}
INSERT INTO deliveries (place, id, type, body, attempts)
SELECT place, id, json_extract(CAST(delivery AS TEXT), '$.type'), body,
    json_extract(CAST(delivery AS TEXT), '$.attempts')
FROM before;
DROP TABLE before;
"""  # noqa: S608


class State:
    """An open state, for many threads.

    Args:
        path: the file; one is begun where there is none, or an empty one. None keeps all in memory.

    Raises:
        InputError: it is something else, of another version, in use, or cannot be opened.
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
        except sqlite3.Error as error:
            self._connection.close()
            raise InputError(_refusal(self._path, error)) from error
        except BaseException:
            self._connection.close()
            raise

    @property
    def facts(self) -> dict[str, str]:
        """Single values by their names; none in a new state."""
        return dict(self.run("SELECT name, value FROM facts"))

    def note(self, **facts: str) -> None:
        """Note single values."""
        self.run_many("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def run(self, statement: str, *values: object) -> list[Any]:
        """Run a statement, and give its rows; a change belongs into a transaction.

        Raises:
            StoreError: it cannot be read, or not be written.
        """
        with self._lock, self._explained():
            return self._connection.execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Run a change for each row; see `run`."""
        with self._lock, self._explained():
            self._connection.executemany(statement, rows)

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
        mark = run("PRAGMA application_id").fetchone()[0]
        version = run("PRAGMA user_version").fetchone()[0]
        if mark == 0 and run("SELECT 1 FROM sqlite_schema").fetchone() is None:
            change = f"{_WORLD}{_DELIVERIES}PRAGMA application_id = {_MARK};"
        elif mark != _MARK:
            raise InputError(_other(self._path))
        elif version not in {1, _VERSION}:
            raise InputError(
                f"{self._path} is a sandbox state of version {version}, and this nftsync reads "
                f"{_VERSION}; name another file with --state"
            )
        else:
            change = _FROM_VERSION_1 if version == 1 else ""
        run("PRAGMA journal_mode = WAL").fetchone()
        run("PRAGMA synchronous = NORMAL")
        self._connection.executescript(
            f"BEGIN IMMEDIATE; {change} PRAGMA user_version = {_VERSION}; COMMIT;"
        )


def _make_private(path: Path) -> None:
    """Create the file for its owner alone, or make an empty one theirs alone."""
    try:
        if path.is_file() and path.stat().st_size:
            return
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise InputError(
            f"the state file {path} cannot be opened: {error.strerror or error}"
        ) from error


def _other(path: Path) -> str:
    return f"{path} is no state of a sandbox and is left as it is; name another file with --state"


def _refusal(path: Path, error: sqlite3.Error) -> str:
    text = str(error)
    if "not a database" in text:
        return _other(path)
    if "locked" in text:
        return (
            f"another sandbox is using the state file {path}; end it or name another with --state"
        )
    return f"the state file {path} cannot be used: {text}"
