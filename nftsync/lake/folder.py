"""Lakes in a local folder: private, fsynced before they count, repaired after a power cut.

Delta does not wait for the disk, so a power cut may leave part of a log entry, or an entry whose
file of rows is missing. nftsync syncs the versions that a run pins before the ledger names them,
and each entry of the ledger before anything relies on it. So a power cut damages only versions that
no run has pinned.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from nftsync.whole_files import sync_to_disk

_log = logging.getLogger(__name__)
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")
_HINT = "_last_checkpoint"
#: Disks sync many files at once in less time than one after the other.
_SYNCS_AT_ONCE = 16


def is_folder(root: str) -> bool:
    """Tell whether a lake is a folder, not an object store's."""
    return "://" not in root


@contextmanager
def private_files() -> Iterator[None]:
    """Let only their owner read the files that this process and its children create."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock for a block; it ends with the process, so no wait is for ever."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class TableLog:
    """Delta's log of a table in a folder: an entry for each version, and checkpoints.

    Attributes:
        table: the table's folder.
    """

    def __init__(self, table: Path) -> None:
        self.table = table
        self._folder = table / "_delta_log"

    def versions(self) -> list[int]:
        """Return the versions that have an entry, the oldest first."""
        return sorted(self._numbered(_ENTRY))

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return what an entry says, or None if it is damaged or missing."""
        try:
            lines = self._entry(version).read_bytes().splitlines()
            actions = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        kinds = {kind for action in actions for kind in action}
        needed = {"protocol", "metaData"} if version == 0 else {"commitInfo"}
        return actions if kinds >= needed else None

    def files_since(self, since: int, until: int) -> set[Path]:
        """Return the files that the versions after one up to another added.

        These are the files of rows that the last of them still has, log entries and checkpoints.
        """
        found = {self._entry(version) for version in range(since + 1, until + 1)}
        for version in range(since + 1, until + 1):
            for action in self.actions(version) or ():
                if "add" in action:
                    found.add(self.table / unquote(action["add"]["path"]))
                elif "remove" in action:
                    found.discard(self.table / unquote(action["remove"]["path"]))
        for version, path in self._numbered(_CHECKPOINT).items():
            if since < version <= until:
                found.add(path)
        if (self._folder / _HINT).exists():
            found.add(self._folder / _HINT)
        return found

    def newest_checkpoint(self) -> int:
        """Return the version of the newest checkpoint that can be read, or -1."""
        for version, path in sorted(self._numbered(_CHECKPOINT).items(), reverse=True):
            if _can_read(path):
                return version
        return -1

    def mend(self, floor: int) -> int | None:
        """Set aside the entries after a version from the first damaged one on.

        Returns:
            The version from which entries were set aside, or None.
        """
        versions = [version for version in self.versions() if version > floor]
        until = max(versions, default=floor)
        cut = next((v for v in range(floor + 1, until + 1) if self.actions(v) is None), None)
        self.set_aside(until + 1 if cut is None else cut, floor)
        return cut

    def set_aside(self, cut: int, floor: int) -> None:
        """Set aside the entries from a version on, and the checkpoints after another that fail."""
        gone = [path for version, path in self._numbered(_ENTRY).items() if version >= cut]
        checkpoints = self._numbered(_CHECKPOINT)
        for version, path in checkpoints.items():
            if version >= cut or (version > floor and not _can_read(path)):
                gone.append(path)
        hint = self._folder / _HINT
        if hint.exists() and checkpoints.get(_hinted(hint)) not in set(checkpoints.values()) - set(
            gone
        ):
            gone.append(hint)
        for path in sorted(gone, reverse=True):  # the newest entry first, so that no gap is left
            path.rename(f"{path}.damaged")
        if gone:
            sync_to_disk(self._folder)

    def _entry(self, version: int) -> Path:
        return self._folder / f"{version:020}.json"

    def _numbered(self, form: re.Pattern[str]) -> dict[int, Path]:
        if not self._folder.is_dir():
            return {}
        found = ((form.fullmatch(path.name), path) for path in self._folder.iterdir())
        return {int(match[1]): path for match, path in found if match}


def _can_read(checkpoint: Path) -> bool:
    try:
        pq.read_table(checkpoint)
    except (OSError, pa.ArrowException):
        return False
    return True


def _hinted(hint: Path) -> int:
    """Return the version that `_last_checkpoint` names, or -1 if it is damaged."""
    try:
        version = msgspec.json.decode(hint.read_bytes(), type=dict[str, Any])["version"]
    except (KeyError, msgspec.DecodeError):
        return -1
    return version if isinstance(version, int) else -1


def sync_table(table: Path, since: int, until: int) -> None:
    """Wait until the disk has a table's versions after one up to another."""
    files = TableLog(table).files_since(since, until)
    folders = {folder for file in files for folder in file.parents if table in folder.parents}
    folders |= {table, table.parent}
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as threads:
        list(threads.map(sync_to_disk, files))
        # Names count once the files are there.
        list(threads.map(sync_to_disk, folders))


def make_folder(path: Path) -> None:
    """Create a private folder, and those above it, on disk before it returns."""
    if path.is_dir():
        return
    missing = [path, *(above for above in path.parents if not above.exists())]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync_to_disk(folder.parent)
