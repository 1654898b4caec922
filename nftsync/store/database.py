"""Connections to a database, its sync lock, and helpers for SQL.

Open a live database only with Python's own `sqlite3`: a second copy of SQLite in the same process
drops its file locks (https://sqlite.org/howtocorrupt.html, section 2.2.1).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import filelock
import msgspec

from nftsync.errors import DamagedDatabase, NoDatabase, StoreError, SyncRunning
from nftsync.whole_files import create_private

#: Longest wait of a writer for another's transaction; ours last a fraction of this.
BUSY_SECONDS = 30.0

#: SQLite's own busy handler sleeps up to 100 ms between tries, and misses the short gaps between
#: another writer's transactions.
_TRY_EVERY = 0.003


_creating = threading.Lock()


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Turn errors of SQLite and the file system into a StoreError or DamagedDatabase."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        meaning = next(meaning for part, meaning in _MEANINGS.items() if part in text)
        message = meaning.format(path=path, text=text, seconds=BUSY_SECONDS)
        damaged = kind_of(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
        raise (DamagedDatabase if damaged else StoreError)(message) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # SQLite's check misses these
        message = _MEANINGS["malformed"].format(path=path, text=f"unreadable content: {error}")
        raise DamagedDatabase(message) from error
    except OSError as error:
        other = error.filename not in {None, path, str(path)}
        which = f" ({error.filename})" if other else ""
        raise StoreError(f"cannot use {path}: {error.strerror or error}{which}") from error


def kind_of(error: Exception) -> int:
    """Return SQLite's primary code of an error (`sqlite3.SQLITE_FULL`, …), or -1."""
    code = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else int(code) & 0xFF


#: Our message for each part of SQLite's message; the first match counts.
_MEANINGS = {
    "not a database": "{path} is not a SQLite database; name another file with --database",
    "malformed": "{path} is damaged ({text}); restore a backup, or start over with another"
    " --database",
    "full": "no room left to write {path} ({text}); the last step was rolled back: free some"
    " space and run again",
    "disk I/O": "the disk failed to read or write {path} ({text}); is it full or failing?",
    "readonly": "{path} is not writable ({text}); check the permissions of file and folder",
    "read-only": "{path} is not writable ({text}); check the permissions of file and folder",
    "locked": "{path} stayed locked by another program for {seconds:.0f} s; try again later",
    "unable to open": "cannot open {path}; check that its folder exists and is writable",
    "": "{path}: {text}",
}


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless the file exists.

    An existing database is never opened here: closing it would drop this process's locks
    (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    refuse_non_file(path)
    with _creating:  # no other thread may connect before the descriptor is closed
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process has just created it
                create_private(path)


def log_of(path: Path) -> Path:
    """Return the path of a database's write-ahead log; OSError if links are circular."""
    real = path.resolve()
    return real.with_name(f"{real.name}-wal")


def refuse_non_file(path: Path) -> None:
    """Refuse a path that is not a regular file, and an empty file whose log is not empty."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    with suppress(FileNotFoundError):
        if status.st_size == 0 and stat.S_ISREG(status.st_mode) and log_of(path).stat().st_size > 0:
            log = log_of(path).name  # which SQLite would delete
            raise DamagedDatabase(
                f"{path} was emptied while it was in use. Move {log} to a safe place, as it may"
                " contain webhooks; then restore a backup"
            )
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe or a device"
        raise StoreError(f"{path} is {kind}, not a database; name a file with --database")


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open a database for writing, in WAL mode, and create a missing file.

    Threads may share the connection, but only one may use it at a time.
    """
    create_private_file(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # Synchronous normal: a commit survives the death of the process. A power cut may undo
        # commits since the last checkpoint; the next sync reads them again.
        connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            " PRAGMA wal_autocheckpoint = 8000; PRAGMA journal_size_limit = 67108864;"
            " PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def begin_immediate(connection: sqlite3.Connection, patience: float = BUSY_SECONDS) -> None:
    """Begin a write transaction, waiting up to `patience` seconds for the write lock."""
    if not patience:
        connection.execute("BEGIN IMMEDIATE")
        return
    deadline = time.monotonic() + patience
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if kind_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            else:
                return
            time.sleep(_TRY_EVERY)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}")


def connect_reader(path: Path | str) -> sqlite3.Connection:
    """Open an existing database for reading, without migrating it or leaving new files."""
    path = Path(path)
    with explained(path):
        refuse_non_file(path)
        if not path.exists():
            raise NoDatabase(
                f"there is no database at {path.absolute()}; create it with `nftsync sync`, or"
                " choose another with --database"
            )
        # A reader in WAL mode creates a missing log, and only a connection with write access can
        # delete it. An existing log belongs to a writer, or to a killed one.
        mode: Literal["ro", "rw"] = "ro" if log_of(path).exists() else "rw"
        connection = connect_existing(path, mode)
        try:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        except BaseException as error:
            connection.close()
            if "unable to open" in str(error) and not os.access(path.parent, os.W_OK):
                raise StoreError(
                    f"cannot read {path}: SQLite needs write access to its folder. Make a copy that"
                    " works in a read-only folder: `nftsync snapshot`"
                ) from error
            raise
    return connection


def connect_existing(
    path: Path, mode: Literal["ro", "rw"], busy_seconds: float = BUSY_SECONDS
) -> sqlite3.Connection:
    """Open a file, but never create it; the caller controls transactions."""
    address = f"file:{quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(
        address, uri=True, timeout=busy_seconds, isolation_level=None, check_same_thread=False
    )


#: SQLite's checks of a file; the quick one does not compare tables with their indexes.
SqliteCheck: TypeAlias = Literal["integrity_check", "quick_check"]


def damage(
    path: Path, check: SqliteCheck = "integrity_check", *, busy_seconds: float = BUSY_SECONDS
) -> str | None:
    """Return the first fault that SQLite's check reports, or None for an intact database.

    Others may write meanwhile. sqlite3.OperationalError: it cannot be opened, or stayed locked.
    """
    # In mode=ro, SQLite's check ignores broken constraints.
    with closing(connect_existing(path, "rw", busy_seconds)) as connection:
        # The report may name a damaged column, in text that is not Unicode; an error, too.
        connection.text_factory = lambda text: text.decode(errors="replace")
        try:
            (report,) = connection.execute(f"PRAGMA {check}(1)").fetchone()
        except sqlite3.OperationalError:
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            return str(error)
    return None if report == "ok" else str(report)


#: `is_syncing` holds the lock for an instant, so a starting sync waits this long.
_LOCK_SECONDS = 1.0


@contextmanager
def sync_lock(database: Path, patience: float = _LOCK_SECONDS) -> Iterator[None]:
    """Hold the database's sync lock during a block; SyncRunning if another sync holds it."""
    with explained(database):
        refuse_non_file(database)
        path = database.resolve()
        lock = filelock.FileLock(_sync_lock_of(path), timeout=patience, mode=0o600)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except filelock.Timeout:
            if not Path(lock.lock_file).exists():
                raise StoreError(
                    f"cannot create {lock.lock_file}; choose a --database in a writable folder"
                ) from None
            raise SyncRunning(
                f"another sync is using {database}; wait for it to end, or use another --database"
            ) from None
    try:
        yield
    finally:
        lock.release()


def is_syncing(database: Path) -> bool:
    """Return whether a sync holds the database's lock, without creating the lock file."""
    if not _sync_lock_of(database.resolve()).exists():
        return False
    try:
        with sync_lock(database, patience=0):
            return False
    except SyncRunning:
        return True


def _sync_lock_of(database: Path) -> Path:
    return database.with_name(database.name + ".sync-lock")


#: A connection or cursor whose rows are tuples.
Queryable: TypeAlias = sqlite3.Connection | sqlite3.Cursor


def as_json(value: Any) -> str:
    """Return JSON text, such as a list for `json_each`."""
    return msgspec.json.encode(value).decode()


def over_keys(database: Queryable, query: str, keys: Iterable[Any], *more: Any) -> sqlite3.Cursor:
    """Run a statement that reads keys from `json_each(?1)`, and `more` from `?2` on."""
    return database.execute(query, (as_json(list(keys)), *more))


def named_rows(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    """Return the rows of a query as dictionaries by column name."""
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


#: Values per statement: SQLite accepts 32,766, with no further gain.
_VALUES = 4_000


def write_rows(connection: sqlite3.Connection, rows: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Run statements, each for a list of rows; INSERT statements end before their `VALUES`."""
    for statement, values in rows.items():
        if not statement.startswith("INSERT"):
            connection.executemany(statement, values)
            continue
        # Each statement releases the interpreter's lock and waits for it: one row at a time takes
        # three times as long under load.
        step = max(1, _VALUES // len(values[0])) if values else 1
        for start in range(0, len(values), step):
            some = values[start : start + step]
            places = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            connection.execute(f"{statement} VALUES {places}", list(chain.from_iterable(some)))
