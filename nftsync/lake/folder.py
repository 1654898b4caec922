"""Lakes in local folders.

Delta does not sync its files, so a power cut may damage them. nftsync syncs versions before the
ledger pins them, so a power cut damages only unpinned versions.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nftsync.whole_files import descriptor_of, sync_to_disk


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


def set_aside(log: Path, version: int) -> None:
    """Set aside a log's entries after a version, and checkpoints, which Delta does without."""
    entries = (path for path in log.glob("*.json") if path.stem.isdigit())
    gone = [path for path in entries if int(path.stem) > version]
    gone += [*log.glob("*.checkpoint*.parquet"), *log.glob("_last_checkpoint")]
    for path in sorted(gone, reverse=True):  # newest first, to leave no gap
        path.rename(f"{path}.damaged")
    sync_to_disk(log)


def make_folder(path: Path) -> None:
    """Create a private folder and its parents, and wait until they are on disk."""
    if path.is_dir():
        return
    missing = [path, *(above for above in path.parents if not above.exists())]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync_to_disk(folder.parent)
