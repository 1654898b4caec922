"""A consistent copy of the live database that opens anywhere, from a read-only directory too."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from nftsync.errors import InputError, StoreError
from nftsync.store.database import explained
from nftsync.store.schema import reading
from nftsync.terminal import progress_bar

__all__ = ["write_snapshot"]

#: Pages that are copied between two looks at the progress bar and at Ctrl-C; some 8 MB.
_STEP = 2_000


def write_snapshot(database: Path, file: Path, *, progress: bool | None = None) -> int:
    """Copy a database as it is at one moment, while others may go on writing it.

    The copy has no write-ahead log and is readable by its owner only. It appears under its name
    once it is whole.

    Args:
        database: what to copy.
        file: where to; its folder is made where it is missing.
        progress: show a progress bar; None shows it on a terminal.

    Returns:
        The copy's size in bytes.

    Raises:
        InputError: `file` is there already.
        StoreError: the database cannot be read, or the copy cannot be written.
    """
    file = Path(os.path.abspath(file))  # noqa: PTH100 - a link at its place is not followed
    _refuse_existing(file)
    with reading(database) as source:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".partial", f".{file.name}.", file.parent)
        except OSError as error:
            raise _unwritable(file, error) from error
        os.close(handle)
        partial = Path(name)
        try:
            with explained(file):
                _copy(source, partial, progress=progress)
                _put_in_place(partial, file)
                return file.stat().st_size
        finally:
            for left in (partial, *(Path(f"{partial}-{end}") for end in ("wal", "shm", "journal"))):
                left.unlink(missing_ok=True)


def _copy(source: sqlite3.Connection, partial: Path, *, progress: bool | None) -> None:
    bar = progress_bar("Copying", 0, unit="pages", shown=progress)

    def show(_: int, remaining: int, total: int) -> None:
        bar.total = total
        bar.update(total - remaining - bar.n)

    try:
        with closing(sqlite3.connect(partial, isolation_level=None)) as target:
            # The source's open read transaction holds the moment: however often a writer commits
            # meanwhile, the copy need not begin again.
            source.backup(target, pages=_STEP, progress=show)
            target.execute("PRAGMA journal_mode = DELETE").fetchone()
    finally:
        bar.close()


def _put_in_place(partial: Path, file: Path) -> None:
    """Give the finished copy its name, unless something has taken it meanwhile."""
    try:
        os.link(partial, file)
    except FileExistsError:
        _refuse_existing(file)
        raise
    except OSError:
        # A file system without links: an empty file takes the name first.
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            partial.replace(file)
            return
        _refuse_existing(file)


def _refuse_existing(file: Path) -> None:
    if os.path.lexists(file):
        raise InputError(f"{file} is there already; name a file that isn't, or remove it first")


def _unwritable(file: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write {file}: {error.strerror or error}")
