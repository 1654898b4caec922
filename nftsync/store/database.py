"""Opening the database: one way to write it, one way to read it, one meaning for each failure.

Only Python's own `sqlite3` opens a live database: a second copy of SQLite in the same process
would drop its file locks (https://sqlite.org/howtocorrupt.html, section 2.2.1).
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

from nftsync.errors import StoreError, SyncRunning

__all__ = [
    "Check",
    "Checkpoints",
    "begin_immediate",
    "connect_reader",
    "connect_writer",
    "create_private_file",
    "damage",
    "explained",
    "file_at",
    "is_syncing",
    "over_keys",
    "refuse_what_is_no_file",
    "sync_lock",
    "write_rows",
]


#: How long a writer waits for another's transaction; each of ours ends within a fraction of this.
BUSY_SECONDS = 30.0

#: SQLite's own busy handler sleeps up to 100 ms between tries, and so misses the short room that
#: one writer leaves the others.
_TRY_EVERY = 0.003


_creating = threading.Lock()


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """Turn an error of SQLite or of the file system into one line that names the database.

    Raises:
        StoreError: what happened, to which file, and what to do next.
    """
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        meaning = next(meaning for part, meaning in _MEANINGS.items() if part in text)
        said = meaning.format(path=path, text=text, seconds=BUSY_SECONDS)
        raise StoreError(said) from error
    except OSError as error:
        raise StoreError(f"cannot use {path}: {error.strerror or error}") from error


#: By a part of SQLite's message, what it means; the first that fits.
_MEANINGS = {
    "not a database": "{path} is not a SQLite database; name another file with --database",
    "malformed": "{path} is damaged ({text}); restore a copy, or begin afresh with another"
    " --database",
    "full": "no room left to write {path} ({text}); nothing of the last step was kept: make room"
    " and run again",
    "disk I/O": "the disk refused a write or read of {path} ({text}); is it full or failing?",
    "readonly": "{path} cannot be written ({text}); check its permissions and its folder's",
    "read-only": "{path} cannot be written ({text}); check its permissions and its folder's",
    "locked": "{path} stayed locked by another program for {seconds:.0f} s; try again later",
    "unable to open": "cannot open {path}; check that its folder exists and may be written",
    "": "{path}: {text}",
}


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner may read, unless it is there already.

    SQLite gives the files beside it (WAL, shared memory) the same permissions. A database that is
    there is not even opened: closing any descriptor of it would drop the locks that other
    connections of this process hold (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    refuse_what_is_no_file(path)
    with _creating:  # or another thread might connect before the descriptor here is closed
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process has just made it
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def refuse_what_is_no_file(path: Path) -> None:
    """Raise a StoreError where something else is, which would be waited for or written into.

    Raises:
        StoreError: it is a folder, a pipe or a device.
        OSError: nobody can tell, as with links that lead in a circle.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise StoreError(f"{path} is {what}, not a database; name a file with --database")


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open a database to write it, in WAL mode, creating the file where it is missing.

    The connection leaves transactions to its user (`isolation_level=None`) and may be handed from
    one thread to another, but used by one at a time.
    """
    create_private_file(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # Synchronous normal: a commit survives the end of the process at once, and of the machine
        # from the next checkpoint on; what a power cut takes from the mirror the next sync reads.
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
    """Begin a write transaction as soon as another writer leaves room.

    Args:
        connection: not in a transaction.
        patience: seconds to wait for the write lock.

    Raises:
        sqlite3.OperationalError: the database stayed locked, or cannot be written.
    """
    deadline = time.monotonic() + patience
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() >= deadline:
                    raise
            else:
                return
            time.sleep(_TRY_EVERY)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def connect_reader(path: Path | str) -> sqlite3.Connection:
    """Open an existing database to read it; nothing is created, migrated or written.

    Raises:
        StoreError: there is no such file, or it cannot be read.
    """
    path = Path(path)
    with explained(path):
        refuse_what_is_no_file(path)
        if not path.exists():
            raise StoreError(
                f"there is no database at {path.absolute()}; `nftsync sync` or `serve` makes one, "
                "`--database` names another"
            )
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=ro",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            if "unable to open" in str(error) and not os.access(path.parent, os.W_OK):
                raise StoreError(
                    f"{path} lies in a folder that cannot be written, which reading a live "
                    "database needs; make a copy to read there with `nftsync snapshot`"
                ) from error
            raise
        except BaseException:
            connection.close()
            raise
    return connection


#: How SQLite looks at a database: the quick one does not compare tables with their indexes.
Check: TypeAlias = Literal["integrity_check", "quick_check"]


def damage(
    path: Path,
    check: Check = "integrity_check",
    *,
    busy_seconds: float = BUSY_SECONDS,
) -> str | None:
    """What SQLite's own check finds wrong with a database, the first of it; None: it is whole.

    Nothing is written. Others may write meanwhile: it looks at one moment.

    Raises:
        sqlite3.OperationalError: the database cannot be opened, or stayed locked.
    """
    # Not mode=ro: there SQLite's check passes over broken constraints.
    address = f"file:{quote(str(path.absolute()))}?mode=rw"
    with closing(
        sqlite3.connect(address, uri=True, timeout=busy_seconds, isolation_level=None)
    ) as connection:
        try:
            (report,) = connection.execute(f"PRAGMA {check}(1)").fetchone()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            return str(error)
    return None if report == "ok" else str(report)


def file_at(path: Path) -> tuple[int, int] | None:
    """Which file is there, if any; only looks at the path and opens nothing."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a receiver asks this twice for each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


#: Rows that a writer changes before what it wrote is moved out of the log: some 60 MB in a database
#: of millions, where many lie on a page of their own, and a tenth of that in a small one.
_ROWS_BEFORE_CHECKPOINT = 32_000
#: Should the thread not keep up, the writer's commits move it all, as SQLite does it: 256 MB.
_MOST_PAGES = 64_000


class Checkpoints:
    """Moves what a busy writer's log holds into the database, mostly in a thread beside it.

    New rows lie all over the indexes of their ids, so in a database of millions a checkpoint moves
    nearly as many pages as were written. It needs no write lock, yet the commit that sets it off
    waits for it, and for the disk. A log begins anew only when all of it has been moved, and the
    writer adds to it meanwhile: so a thread moves most, and the writer, between two transactions,
    the little that is left.

    Args:
        path: the database.
        writer: the connection that writes it.
        rows: how many it changes between two checkpoints.
    """

    def __init__(
        self, path: Path, writer: sqlite3.Connection, *, rows: int = _ROWS_BEFORE_CHECKPOINT
    ) -> None:
        self._writer = writer
        self._rows = rows
        # Opened now, while this name is surely the database that the writer has opened.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._thread: threading.Thread | None = None
        self._moved = writer.total_changes
        writer.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")

    def after_commit(self) -> None:
        """Begin or complete a checkpoint where one is due."""
        if self._thread is None:
            if self._writer.total_changes - self._moved >= self._rows:
                self._moved = self._writer.total_changes
                thread = threading.Thread(target=self._move_most, name="nftsync-checkpoint")
                with suppress(RuntimeError):  # no room for a thread: then SQLite does it, later
                    thread.start()
                    self._thread = thread
        elif not self._thread.is_alive():
            self._thread = None
            _checkpoint(self._writer)

    def close(self) -> None:
        """Wait for the thread; the writer's connection stays open."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._connection.close()

    def _move_most(self) -> None:
        _checkpoint(self._connection)
        _checkpoint(self._connection)  # what came during the first


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Move what the log holds, without waiting for anybody."""
    with suppress(sqlite3.Error):  # what cannot be moved now is safe in the log
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


#: A look at whether a sync runs holds its lock for an instant, which a sync that begins waits for.
_LOOK_SECONDS = 1.0


@contextmanager
def sync_lock(database: Path, patience: float = _LOOK_SECONDS) -> Iterator[None]:
    """Hold the database's sync lock during a block.

    Args:
        database: the database.
        patience: seconds to wait for the lock.

    Raises:
        SyncRunning: another sync holds it.
        StoreError: the lock file beside the database cannot be written.
    """
    with explained(database):
        refuse_what_is_no_file(database)
        path = database.resolve()
        lock = filelock.FileLock(_sync_lock_of(path), timeout=patience, mode=0o600)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except filelock.Timeout:
            if not Path(lock.lock_file).exists():
                raise StoreError(
                    f"cannot make {lock.lock_file}; name a --database where files may be made"
                ) from None
            raise SyncRunning(
                f"another sync holds {database}; wait for it to end, or use another --database"
            ) from None
    try:
        yield
    finally:
        lock.release()


def is_syncing(database: Path) -> bool:
    """Whether a sync holds the database's lock; nothing is made.

    Raises:
        StoreError: the lock file beside the database cannot be opened.
    """
    if not _sync_lock_of(database.resolve()).exists():
        return False
    try:
        with sync_lock(database, patience=0):
            return False
    except SyncRunning:
        return True


def _sync_lock_of(database: Path) -> Path:
    return database.with_name(database.name + ".sync-lock")


def over_keys(
    connection: sqlite3.Connection, query: str, keys: Iterable[Any], *more: Any
) -> sqlite3.Cursor:
    """Run a statement over a list of keys.

    Args:
        connection: any connection.
        query: finds the keys in `json_each(?1)`, in their order.
        keys: numbers, texts, or tuples of them.
        more: its further parameters, from `?2` on.
    """
    return connection.execute(query, (msgspec.json.encode(list(keys)).decode(), *more))


#: Values per statement; SQLite takes 32,766, and the gain is had long before.
_VALUES = 4_000


def write_rows(connection: sqlite3.Connection, rows: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Run statements, each for all of its rows of values.

    Args:
        connection: in a transaction.
        rows: by statement; one that inserts ends before its `VALUES`.
    """
    for statement, values in rows.items():
        if not statement.startswith("INSERT"):
            connection.executemany(statement, values)
            continue
        # Many rows at once: for each statement the thread gives the interpreter's lock away and
        # waits for it, and a row at a time, inserts took three times as long under load.
        step = max(1, _VALUES // len(values[0])) if values else 1
        for start in range(0, len(values), step):
            some = values[start : start + step]
            places = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            connection.execute(f"{statement} VALUES {places}", list(chain.from_iterable(some)))
