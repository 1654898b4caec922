"""Files and directories that appear under their name only when they are complete."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nftsync.errors import InputError, StoreError

_PARTIAL = re.compile(r"\..+\.\w{8}\.nftsync-partial")


@contextmanager
def whole_file(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """An empty private file, which takes a path's place once the block is through.

    Args:
        path: the place; its folder is made where it is missing.
        replace: over what is there; else nothing may be, not even a link.

    Raises:
        InputError: something is there already, or came meanwhile.
        StoreError: it cannot be written.
    """
    if not replace:
        _refuse_existing(path)
    with _folder_beside(path) as folder:
        partial = folder / path.name
        create_private(partial)
        yield partial
        sync_to_disk(partial)
        if replace:
            partial.replace(path)
        else:
            _put_in_place(partial, path)
        sync_to_disk(path.parent)


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """An empty private directory, which takes a path's place once the block is through.

    Raises:
        InputError: `path` is there and not empty, or no directory.
        StoreError: it cannot be written.
    """
    _refuse_in_use(path)
    with _folder_beside(path) as partial:
        yield partial
        for each in (*partial.iterdir(), partial):
            sync_to_disk(each)
        try:
            partial.rename(path)  # over an empty directory, but over nothing else
            sync_to_disk(path.parent)
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                _refuse_in_use(path)
            if error.errno == errno.EBUSY:
                raise StoreError(
                    f"cannot write {path}: a mount point cannot be replaced, so name a new "
                    "directory in it"
                ) from error
            raise


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read.

    Raises:
        FileExistsError: something is there.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def sync_to_disk(path: Path) -> None:
    """Wait until what a file holds, or which names a directory has, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """A private folder on the same file system, gone in the end with whatever is left in it.

    Those that killed processes have left beside it are removed: who works in one holds a lock.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.iterdir():
            if _PARTIAL.fullmatch(left.name) and not left.is_symlink():
                with suppress(OSError), _locked(left):
                    if any(left.iterdir()):  # else somebody may have made it just now
                        shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(".nftsync-partial", f".{path.name}.", path.parent))
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            with suppress(OSError):  # a file system without locks: then nobody removes it
                stack.enter_context(_locked(folder))
            yield folder
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, which ends with the process.

    Raises:
        BlockingIOError: another process holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _put_in_place(partial: Path, path: Path) -> None:
    """Give a finished file its name, unless something has taken it meanwhile."""
    try:
        os.link(partial, path)
    except FileExistsError:
        _refuse_existing(path)
        raise
    except OSError:
        # A file system without links: an empty file takes the name first.
        with suppress(FileExistsError):
            create_private(path)
            partial.replace(path)
            return
        _refuse_existing(path)


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise InputError(f"{path} is there already; name a file that isn't, or remove it first")


def _refuse_in_use(directory: Path) -> None:
    """Refuse what would have to be written over, or pulled away under someone's feet."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise InputError(f"{directory} is there and is no directory; name a new one")
    if directory == Path.cwd():
        raise InputError("the working directory cannot be exported to; name a new one in it")
    if any(directory.iterdir()):
        raise InputError(
            f"{directory} is not empty; name a new directory, so that no other export's files"
            " are mixed with this one's"
        )
