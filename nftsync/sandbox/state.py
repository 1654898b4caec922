"""The sandbox's data, in memory and optionally in a file.

After its first line, a file has a line of JSON per transaction: paths and their new values. One
sandbox at a time uses a file. Only the owner can read it, as it contains the secret.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from nftsync.errors import InputError, StoreError

_Change: TypeAlias = tuple[list[str], Any]

_VERSION = 5
_FIRST_LINE = b"nftsync sandbox state %d\n" % _VERSION
#: Until version 4, states were SQLite databases with this application_id.
_OLD_MARK = b"nfts"

_changes = msgspec.json.Decoder(list[_Change])


class OtherVersion(InputError):
    """A state file of another version of nftsync."""


class InUse(InputError):
    """A state file that another sandbox is using."""


class State:
    """Tables of JSON values, for many threads; a missing or empty file becomes a new state."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.lock = threading.RLock()
        self._tables: dict[str, Any] = {}
        self._transaction: list[_Change] | None = None
        self._file: FileIO | None = None
        self._path = path
        if path is None:
            return
        try:
            self._file = self._opened(Path(path))
        except (OSError, ValueError) as error:
            refusal = InUse if isinstance(error, BlockingIOError) else InputError
            problem = "it is locked" if refusal is InUse else error
            raise refusal(
                f"the state file {path} cannot be used: {problem}. It must be a sandbox state that "
                "no other sandbox is using; name another file with --state"
            ) from error

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Return a table to read, with the lock if it may change meanwhile."""
        table: dict[str, Any] = self._tables.get(name, {})
        return table

    def put(self, *path: str, value: Any) -> None:
        """Set the value at a path of names; None deletes it."""
        with self.transaction() as changes:
            changes.append(([*path], value))

    @contextmanager
    def transaction(self) -> Iterator[list[_Change]]:
        """Store a block's changes together, or none; nested blocks join the outer one."""
        with self.lock:
            if self._transaction is not None:
                yield self._transaction
                return
            changes: list[_Change] = []
            self._transaction = changes
            try:
                yield changes
            finally:
                self._transaction = None
            if changes:
                self._write(msgspec.json.encode(changes) + b"\n")
            self._apply(changes)

    def copy_into(self, other: State) -> None:
        """Copy everything into a new state, or nothing."""
        with self.lock, other.transaction():
            for name, table in msgspec.json.decode(msgspec.json.encode(self._tables)).items():
                other.put(name, value=table)

    def close(self) -> None:
        """Close the file for other sandboxes; the data in memory stays."""
        if self._file is not None:
            self._file.close()

    def _apply(self, changes: list[_Change]) -> None:
        for (*parents, name), value in changes:
            table = self._tables
            for parent in parents:
                table = table.setdefault(parent, {})
            if value is None:
                table.pop(name, None)
            else:
                table[name] = value

    def _write(self, line: bytes) -> None:
        if self._file is None:
            return
        problem: object = "no space is left"
        try:
            end = self._file.tell()
            if self._file.write(line) == len(line):
                return
            self._file.truncate(end)
            self._file.seek(end)
        except (OSError, ValueError) as error:
            problem = error
        raise StoreError(f"the state file {self._path} cannot be written: {problem}")

    def _opened(self, path: Path) -> FileIO:
        file = FileIO(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+")
        with ExitStack() as undo:
            undo.callback(file.close)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lines = BufferedReader(file)
            version = _version_of(lines.peek(100))
            if version not in {None, _VERSION}:
                raise OtherVersion(
                    f"{path} is a sandbox state of version {version}, but this nftsync reads "
                    f"{_VERSION}. Name another file with --state (`nftsync demo` recreates its own)"
                )
            end = len(lines.readline())
            for line in lines:
                if line.endswith(b"\n"):  # a kill may have cut off the last one
                    self._apply(_changes.decode(line))
                    end += len(line)
            lines.detach()
            file.seek(end)
            file.truncate()
            if not end:
                os.fchmod(file.fileno(), 0o600)  # for an existing empty file
                file.write(_FIRST_LINE)
            undo.pop_all()
        return file


def _version_of(start: bytes) -> int | None:
    if start[68:72] == _OLD_MARK:
        return int.from_bytes(start[60:64])
    match = re.match(rb"nftsync sandbox state (\d+)\n", start)
    if start and match is None:
        raise ValueError("it is not a sandbox state")
    return match and int(match[1])
