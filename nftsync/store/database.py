"""Open a database for writing or reading, check its files while in use, checkpoint its log.

Only Python's own `sqlite3` opens a live database: a second copy of SQLite in the same process
would drop its file locks (https://sqlite.org/howtocorrupt.html, section 2.2.1).
"""

from __future__ import annotations

import logging
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

from nftsync.errors import DamagedDatabase, StoreError, SyncRunning
from nftsync.threads import start_thread
from nftsync.whole_files import create_private

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
        DamagedDatabase: SQLite finds the database damaged.
    """
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        meaning = next(meaning for part, meaning in _MEANINGS.items() if part in text)
        said = meaning.format(path=path, text=text, seconds=BUSY_SECONDS)
        damaged = kind_of(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
        raise (DamagedDatabase if damaged else StoreError)(said) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # what SQLite's check cannot see
        said = _MEANINGS["malformed"].format(path=path, text=f"it holds what nobody wrote: {error}")
        raise DamagedDatabase(said) from error
    except OSError as error:
        other = error.filename not in {None, path, str(path)}
        which = f" ({error.filename})" if other else ""
        raise StoreError(f"cannot use {path}: {error.strerror or error}{which}") from error


def kind_of(error: Exception) -> int:
    """SQLite's code of an error (`sqlite3.SQLITE_FULL`, ...), without its details; else -1."""
    code = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else int(code) & 0xFF


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
                create_private(path)


def log_of(path: Path) -> Path:
    """Where SQLite writes ahead what is not yet in a database: beside the file, not a link to it.

    Raises:
        OSError: nobody can tell, as with links that lead in a circle.
    """
    real = path.resolve()
    return real.with_name(f"{real.name}-wal")


def refuse_what_is_no_file(path: Path) -> None:
    """Raise a StoreError where something else is, or a file was emptied under its log.

    Raises:
        StoreError: it is a folder, a pipe or a device, which would be waited for or written into;
            or SQLite would take the log away that is all that is left of it.
        OSError: nobody can tell, as with links that lead in a circle.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    with suppress(FileNotFoundError):
        if found.st_size == 0 and stat.S_ISREG(found.st_mode) and log_of(path).stat().st_size > 0:
            log = log_of(path).name
            raise DamagedDatabase(
                f"{path} is empty and {log} is not: it was emptied while it was in use; restore a"
                f" copy, and keep {log} elsewhere: webhooks may be in it"
            )
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
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
                if kind_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            else:
                return
            time.sleep(_TRY_EVERY)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def connect_reader(path: Path | str) -> sqlite3.Connection:
    """Open an existing database to read it; nothing is migrated or written, and no file stays.

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
        # Whoever reads in WAL mode makes a log where there is none, and only one who may write
        # takes it away again. A log that is there belongs to a writer, or is left by a killed one.
        mode = "ro" if log_of(path).exists() else "rw"
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        except BaseException as error:
            connection.close()
            if "unable to open" in str(error) and not os.access(path.parent, os.W_OK):
                raise StoreError(
                    f"{path} lies in a folder that cannot be written, which reading a live "
                    "database needs; make a copy to read there with `nftsync snapshot`"
                ) from error
            raise
    return connection


#: How SQLite looks at a database: the quick one does not compare tables with their indexes.
Check: TypeAlias = Literal["integrity_check", "quick_check"]


def damage(
    path: Path, check: Check = "integrity_check", *, busy_seconds: float = BUSY_SECONDS
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


def named_rows(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    """Return the rows of a query, each under the names of its columns."""
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


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


# Files in use -----------------------------------------------------------------------------------

_log = logging.getLogger("nftsync.store")

#: Rows that a writer changes before what it wrote is moved out of the log: some 60 MB in a database
#: of millions, where many lie on a page of their own, and a tenth of that in a small one.
_ROWS_BEFORE_CHECKPOINT = 32_000
_ROWS_ON_A_SMALL_DISK = 64
#: Bytes of a log that is called long.
LONG_LOG = 256_000_000
_PAGE = 4_096
#: Should the thread not keep up, the writer's commits move it all, as SQLite does it: 256 MB.
_MOST_PAGES = 64_000


class FilesInUse:
    """Which file is a database, and which its log, since somebody opened them; opens nothing.

    SQLite goes on writing to a file that was moved or removed, where nobody finds what it writes.
    Nor may another file be opened instead while this process has the first one open: the files
    beside a database (log, shared memory) go by its name, so the two would share them
    (https://sqlite.org/howtocorrupt.html, section 2.5). So nothing is written until the first file
    is back at its path, or a new process begins with what is there.

    Args:
        path: the database, which is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = log_of(path)
        self._file = _file_at(path)
        self._log_file: tuple[int, int] | None = None
        self._size = self._pages = 0

    def opened(self) -> None:
        """Remember the log, too, now that a connection has read the database."""
        self._log_file = _file_at(self._log)

    def closed(self) -> None:
        """Forget the log: who closes a database last takes it away."""
        self._log_file = None

    @property
    def in_place(self) -> bool:
        """Whether they are where they were."""
        try:
            self.check()
        except StoreError:
            return False
        return True

    def check(self, connection: sqlite3.Connection | None = None) -> None:
        """Make sure that all files are where they were.

        Args:
            connection: of the database; with it, also that the file was not cut off.

        Raises:
            StoreError: the database was moved, removed or replaced.
            DamagedDatabase: its log was, or the database was cut off.
        """
        name = self._path.name
        if self._file is None or _file_at(self._path) != self._file:
            raise StoreError(
                f"{self._path} was moved, removed or replaced while it was in use; put it back,"
                f" or stop nftsync, move {name}-wal and {name}-shm away too, and start it again"
            )
        if self._log_file is not None and _file_at(self._log) != self._log_file:
            raise DamagedDatabase(
                f"{self._log} was moved, removed or replaced while it was in use; stop nftsync,"
                " which saves what that held, and start it again"
            )
        if connection is None:
            return
        size = self._path.stat().st_size
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        # VACUUM makes it smaller, too, but then it counts fewer pages.
        if size < self._size and pages >= self._pages:
            raise DamagedDatabase(
                f"{self._path} is damaged (it was cut off while it was in use); restore a copy,"
                " or begin afresh with another --database"
            )
        self._size, self._pages = size, pages


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a receiver asks this twice for each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
        long_log: bytes that may wait in the log because others read an old state, before it is
            said.
    """

    def __init__(
        self,
        path: Path,
        writer: sqlite3.Connection,
        *,
        rows: int = _ROWS_BEFORE_CHECKPOINT,
        long_log: int = LONG_LOG,
    ) -> None:
        self._writer = writer
        self._rows = rows
        self._log = log_of(path)
        # Opened now, while this name is surely the database that the writer has opened.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._thread: threading.Thread | None = None  # noqa: TID251 - its type alone
        self._moved = writer.total_changes
        self._long_log = long_log
        self._warned_at = long_log // 2
        writer.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")

    def after_commit(self) -> None:
        """Begin or complete a checkpoint where one is due."""
        if self._thread is None:
            rows = self._writer.total_changes - self._moved
            if rows >= self._rows or (rows >= _ROWS_ON_A_SMALL_DISK and self._is_short_of_room()):
                self._moved = self._writer.total_changes
                with suppress(RuntimeError):  # no room for a thread: then SQLite does it, later
                    self._thread = start_thread("checkpoint", self._move_most)
        elif not self._thread.is_alive():
            self._thread = None
            _checkpoint(self._writer)

    def _is_short_of_room(self) -> bool:
        """Whether the database might find no room for what is in the log."""
        disk = os.statvfs(self._log)
        return disk.f_bavail * disk.f_frsize < self._log.stat().st_size

    def empty_log(self) -> None:
        """Move all that the log holds into the file that was opened, and empty the log.

        Where that file was moved or replaced, its log stays behind under its old name, and would be
        laid over what is put there. On a full disk it holds the room that its content needs.
        """
        with suppress(sqlite3.Error):  # what cannot be moved now is safe in the log
            self._writer.execute("PRAGMA busy_timeout = 500")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self, *, empty_log: bool = False) -> None:
        """Wait for the thread, and empty the log if told to; the writer's connection stays open."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if empty_log:
            self.empty_log()
        self._connection.close()

    def _move_most(self) -> None:
        _checkpoint(self._connection)
        self._warn(_checkpoint(self._connection))  # what came during the first

    def _warn(self, left: int) -> None:
        """Say that the log grows, and again whenever it is twice as long."""
        if left < self._long_log:
            self._warned_at = self._long_log // 2
        elif left >= 2 * self._warned_at:
            self._warned_at = left
            _log.warning(
                "the database's log grows, as a program reads an old state of it; end that",
                extra={"log_bytes": left},
            )


def _checkpoint(connection: sqlite3.Connection) -> int:
    """Move what the log holds, without waiting for anybody; the bytes that stay there."""
    with suppress(sqlite3.Error):  # what cannot be moved now is safe in the log
        _, pages, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(pages - moved) * _PAGE
    return 0


def log_bytes(path: Path) -> int:
    """The size of the log's file: what is not yet in the database, and room to be used again."""
    try:
        return log_of(path).stat().st_size
    except OSError:
        return 0
