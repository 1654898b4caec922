"""Lakes in local folders.

Delta does not sync its files, so a power cut may damage them. nftsync syncs versions before the
ledger pins them, so a power cut damages only unpinned versions.
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

from nftsync.whole_files import descriptor_of, sync_to_disk

_log = logging.getLogger(__name__)
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")
_HINT = "_last_checkpoint"
#: Versions from one checkpoint to the next.
CHECKPOINT_INTERVAL = 10
#: Disks sync many files faster in parallel.
_SYNCS_AT_ONCE = 16


def is_folder(root: str) -> bool:
    """Tell whether a lake is in a folder, not in an object store."""
    return "://" not in root


@contextmanager
def private_files() -> Iterator[None]:
    """Make new files of this process and its children readable only by their owner."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for a block; a killed process leaves no lock."""
    with descriptor_of(folder) as descriptor:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


class TableLog:
    """Delta's log of a table in a folder: an entry per version, and checkpoints."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self._folder = table / "_delta_log"

    def versions(self) -> list[int]:
        """Return the versions with an entry, oldest first."""
        return sorted(self._numbered(_ENTRY))

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of an entry, or None if it is damaged or missing."""
        try:
            lines = self._entry(version).read_bytes().splitlines()
            actions = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        kinds = {kind for action in actions for kind in action}
        needed = {"protocol", "metaData"} if version == 0 else {"commitInfo"}
        return actions if kinds >= needed else None

    def confirms(self, version: int, key: str, digest: str) -> bool:
        """Tell whether an intact entry has a digest in its metadata.

        Earlier releases wrote none: then the entries since the last checkpoint must be intact.
        """
        if (actions := self.actions(version)) is None:
            return False
        digests = [x["commitInfo"][key] for x in actions if key in x.get("commitInfo", ())]
        earlier = range(max(0, version - CHECKPOINT_INTERVAL), version)
        return digests == [digest] if digests else None not in map(self.actions, earlier)

    def files_since(self, since: int, until: int) -> set[Path]:
        """Return the files that versions after `since` up to `until` added and still contain."""
        files = {self._entry(version) for version in range(since + 1, until + 1)}
        for version in range(since + 1, until + 1):
            for action in self.actions(version) or ():
                if "add" in action:
                    files.add(self.table / unquote(action["add"]["path"]))
                elif "remove" in action:
                    files.discard(self.table / unquote(action["remove"]["path"]))
        for version, path in self._numbered(_CHECKPOINT).items():
            if since < version <= until:
                files.add(path)
        if (self._folder / _HINT).exists():
            files.add(self._folder / _HINT)
        return files

    def newest_checkpoint(self) -> int:
        """Return the version of the newest readable checkpoint, or -1."""
        checkpoints = sorted(self._numbered(_CHECKPOINT).items(), reverse=True)
        return next((version for version, path in checkpoints if _can_read(path)), -1)

    def mend(self, floor: int) -> None:
        """Set aside the first damaged entry after version `floor`, and all later entries."""
        until = max([floor, *self.versions()])
        cut = next((v for v in range(floor + 1, until + 1) if self.actions(v) is None), until + 1)
        self.set_aside(cut, floor)

    def set_aside(self, cut: int, floor: int) -> None:
        """Set aside entries from version `cut`, and unreadable checkpoints after `floor`."""
        gone = [path for version, path in self._numbered(_ENTRY).items() if version >= cut]
        readable = set()
        for version, path in self._numbered(_CHECKPOINT).items():
            if version >= cut or (version > floor and not _can_read(path)):
                gone.append(path)
            else:
                readable.add(version)
        hint = self._folder / _HINT
        if hint.exists() and _hinted(hint) not in readable:
            gone.append(hint)
        for path in sorted(gone, reverse=True):  # newest first, to leave no gap
            path.rename(f"{path}.damaged")
        if gone:
            sync_to_disk(self._folder)

    def _entry(self, version: int) -> Path:
        return self._folder / f"{version:020}.json"

    def _numbered(self, form: re.Pattern[str]) -> dict[int, Path]:
        if not self._folder.is_dir():
            return {}
        matches = ((form.fullmatch(path.name), path) for path in self._folder.iterdir())
        return {int(match[1]): path for match, path in matches if match}


def _can_read(checkpoint: Path) -> bool:
    try:
        pq.read_table(checkpoint)
    except (OSError, pa.ArrowException):
        return False
    return True


def _hinted(hint: Path) -> int:
    try:
        version = msgspec.json.decode(hint.read_bytes(), type=dict[str, Any])["version"]
    except (KeyError, msgspec.DecodeError):
        return -1
    return version if isinstance(version, int) else -1


def sync_table(table: Path, since: int, until: int) -> None:
    """Wait until a table's versions after `since` up to `until` are on disk."""
    files = TableLog(table).files_since(since, until)
    folders = {folder for file in files for folder in file.parents if table in folder.parents}
    folders |= {table, table.parent}
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as threads:
        list(threads.map(sync_to_disk, files))
        # Folders come after the files in them.
        list(threads.map(sync_to_disk, folders))


def make_folder(path: Path) -> None:
    """Create a private folder and its parents, and wait until they are on disk."""
    if path.is_dir():
        return
    missing = [path, *(above for above in path.parents if not above.exists())]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync_to_disk(folder.parent)
