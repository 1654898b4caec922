"""What the demo keeps: its database, and beside it the state and the address of its provider."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nftsync.errors import InputError, StoreError
from nftsync.sandbox.statefile import StateFile
from nftsync.store.connection import connect_reader, explained
from nftsync.store.schema import open_store

__all__ = ["address_file", "begin_afresh", "create", "in_use", "is_demo", "state_file"]

#: In the header of the demo's databases (SQLite's application_id): they may be begun afresh.
_MARK = 0x6E667464


def state_file(database: Path) -> Path:
    """Where the provider's state is kept: `demo-provider.state` beside `demo.db`."""
    return database.with_name(f"{database.stem}-provider.state")


def address_file(database: Path) -> Path:
    """Where the provider's base URL is kept: `demo-provider.url` beside `demo.db`."""
    return database.with_name(f"{database.stem}-provider.url")


def is_demo(database: Path) -> bool:
    """Whether a demo has made this database; False where there is none that can be read."""
    try:
        with closing(connect_reader(database)) as connection, explained(database):
            return _mark(connection) == _MARK
    except StoreError:
        return False


def create(database: Path) -> None:
    """Make the empty database of a demo.

    Raises:
        StoreError: it cannot be written.
    """
    with closing(open_store(database)) as connection:
        connection.execute(f"PRAGMA application_id = {_MARK}")


@contextmanager
def in_use(database: Path) -> Iterator[None]:
    """Keep the demo from being begun afresh during a block; any number of programs may.

    The lock is on the file of the provider's address, and goes with the process, however that ends.

    Raises:
        InputError: it is being begun afresh just now.
        StoreError: the file cannot be opened or locked.
    """
    with explained(address_file(database)):
        held = os.open(address_file(database), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with explained(address_file(database)):
            fcntl.flock(held, fcntl.LOCK_SH)
        if os.fstat(held).st_nlink == 0:
            raise InputError(f"{database} is being made anew by `nftsync demo`; wait for its end")
        yield
    finally:
        os.close(held)


@contextmanager
def _alone(database: Path) -> Iterator[None]:
    """Go on only where nobody uses the demo, and let nobody begin to during the block."""
    try:
        held = os.open(address_file(database), os.O_RDWR)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InputError(
            f"{database} cannot be begun afresh: notebooks use it; "
            "end `nftsync notebook`, or name another file with --database"
        ) from error
    finally:
        os.close(held)


def begin_afresh(database: Path) -> None:
    """Remove the demo's database, what SQLite keeps beside it, and its provider's state.

    Raises:
        InputError: there is a file that no demo has made, its provider is running, or somebody
            uses it; see `in_use`.
        StoreError: the file of the provider's address cannot be opened.
    """
    if database.exists():
        with closing(connect_reader(database)) as connection, explained(database):
            if _mark(connection) != _MARK:
                raise InputError(
                    f"{database} was not made by a demo and is left as it is; "
                    "name another file with --database"
                )
    with explained(address_file(database)), _alone(database):
        _remove(database)


def _remove(database: Path) -> None:
    state = state_file(database)
    if state.exists():
        try:
            StateFile(state).close()
        except InputError as error:
            raise InputError(
                f"{state} cannot be begun afresh: another program uses it, or no demo has made it; "
                "end `nftsync notebook`, or name another file with --database"
            ) from error
    for path, suffixes in (
        (database, ("", "-wal", "-shm", ".sync-lock")),
        (state, ("", "-wal", "-shm")),
        (address_file(database), ("",)),
    ):
        for suffix in suffixes:
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _mark(connection: sqlite3.Connection) -> int:
    mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
    return mark
