"""Files and directories that appear under their name only when complete."""

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
    """Yield an empty private file that becomes `path` at the end of the block.

    Without `replace`, nothing may exist at `path`, not even a link; with it, no directory.
    """
    if not replace:
        _refuse_existing(path)
    elif path.is_dir():
        raise InputError(f"{path} is a directory; name a file")
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
    """Yield a private directory that becomes `path`, missing or empty, at the end of the block."""
    _refuse_in_use(path)
    with _folder_beside(path) as partial:
        yield partial
        for written in (*partial.iterdir(), partial):
            sync_to_disk(written)
        try:
            partial.rename(path)  # replaces an empty directory, and nothing else
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
    """Create an empty file that only its owner can read; refuse an existing one."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def sync_to_disk(path: Path) -> None:
    """Make a file's content, or a directory's names, survive a power cut."""
    with descriptor_of(path) as descriptor:
        os.fsync(descriptor)


@contextmanager
def descriptor_of(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """Yield a locked temporary folder; remove folders of killed processes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.iterdir():
            if _PARTIAL.fullmatch(leftover.name) and not leftover.is_symlink():
                with suppress(OSError), _locked(leftover):
                    if any(leftover.iterdir()):  # an empty one may be new, and not yet locked
                        shutil.rmtree(leftover, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(".nftsync-partial", f".{path.name}.", path.parent))
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            with suppress(OSError):  # without locks on this file system, no process removes it
                stack.enter_context(_locked(folder))
            yield folder
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with descriptor_of(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _put_in_place(partial: Path, path: Path) -> None:
    try:
        os.link(partial, path)
    except FileExistsError:
        _refuse_existing(path)
        raise
    except OSError:
        # Without links on this file system, reserve the name with an empty file.
        with suppress(FileExistsError):
            create_private(path)
            partial.replace(path)
            return
        _refuse_existing(path)


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise InputError(f"{path} already exists; name a new file, or remove it first")


def _refuse_in_use(directory: Path) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise InputError(f"{directory} already exists and is not a directory; name a new one")
    if directory == Path.cwd():
        raise InputError("cannot export to the working directory; name a new directory in it")
    if any(directory.iterdir()):
        raise InputError(
            f"{directory} is not empty; name a new directory, so that no other export's files"
            " are mixed with this one's"
        )
