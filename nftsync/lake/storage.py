"""Files of a lake, in a folder or an object store.

Each file has a new name, so late workers and drivers overwrite nothing, and readers find nothing
that no manifest names.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import cached_property
from io import SEEK_END, BufferedReader, BytesIO
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from nftsync.errors import StoreError
from nftsync.lake.reasons import REMEDY, checked_address
from nftsync.whole_files import whole_file

#: Bytes per write; Delta needs a buffer larger than each.
_WRITTEN_AT_ONCE = 1 << 19
#: Bytes per read: one request to a store.
_READ_AT_ONCE = 1 << 26
_COPIED_AT_ONCE = 1 << 20


class StoredFile(msgspec.Struct, frozen=True):
    """A stored file: name, bytes, SHA-256, and the bytes of its decompressed content."""

    name: str
    size: int
    sha256: str
    content_size: int


class Lake:
    """Address of a lake, and its files."""

    def __init__(self, url: str) -> None:
        self.url = checked_address(url)
        path = unquote(urlsplit(url).path) if url.startswith("file://") else url
        self.root = url.rstrip("/") if "://" in path else str(Path(path).resolve())

    @property
    def folder(self) -> Path | None:
        """The lake's folder, unless it is in an object store."""
        return None if "://" in self.root else Path(self.root)

    @cached_property
    def files(self) -> PyFileSystem:
        """All files of the lake, with Delta's credentials, retries and timeouts."""
        return PyFileSystem(DeltaStorageHandler(self.root))

    def damaged(self, name: str) -> StoreError:
        return StoreError(f"{self.url}: {name} is damaged. {REMEDY}")

    # Writes --------------------------------------------------------------------------------------

    def write(self, name: str, content: bytes, content_size: int = -1) -> StoredFile:
        """Store a file, which appears once it is complete and, in a folder, on disk."""
        size = len(content) if content_size < 0 else content_size
        return self._put(name, BytesIO(content), size)

    def write_compressed(self, name: str, source: Path) -> StoredFile:
        packed = source.with_name(f"{source.name}.zst")
        with source.open("rb") as content, pa.CompressedOutputStream(str(packed), "zstd") as target:
            shutil.copyfileobj(content, target, _COPIED_AT_ONCE)
        with packed.open("rb") as content:
            file = self._put(name, content, source.stat().st_size)
        packed.unlink()
        return file

    def _put(self, name: str, content: BufferedReader | BytesIO, content_size: int) -> StoredFile:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        size = content.seek(0, SEEK_END)
        content.seek(0)
        with self._written(name) as target:
            shutil.copyfileobj(content, target, _WRITTEN_AT_ONCE)
        return StoredFile(name, size, digest, content_size)

    @contextmanager
    def _written(self, name: str) -> Iterator[IO[bytes]]:
        if self.folder is not None:
            with whole_file(self.folder / name) as unfinished, unfinished.open("wb") as file:
                yield file
            return
        buffer = 2 * _WRITTEN_AT_ONCE
        with self.files.open_output_stream(name, compression=None, buffer_size=buffer) as stream:
            yield stream

    # Reads ---------------------------------------------------------------------------------------

    def read(self, file: StoredFile) -> bytes:
        """Return a file's content; StoreError if it is damaged."""
        with self._open(file) as source:
            content = bytes(source.read())
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise self.damaged(file.name)
        return content

    def fetch(self, file: StoredFile, path: Path) -> None:
        """Decompress a file to a path; StoreError if it is damaged."""
        packed = path.with_name(f"{path.name}.zst")
        if self.folder is None:
            with self._open(file) as source, packed.open("wb") as target:
                shutil.copyfileobj(source, target, _READ_AT_ONCE)
        else:
            packed = self.folder / file.name
        with self._missing_explained(file.name), packed.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if digest != file.sha256:
            raise self.damaged(file.name)
        left = file.content_size
        with pa.CompressedInputStream(str(packed), "zstd") as source, path.open("wb") as target:
            while left >= 0 and (piece := source.read(_COPIED_AT_ONCE)):
                left -= len(piece)
                target.write(piece)
        if left:
            raise self.damaged(file.name)
        if self.folder is None:
            packed.unlink()

    @contextmanager
    def _open(self, file: StoredFile) -> Iterator[IO[bytes]]:
        name, files = file.name, self.files
        with self._missing_explained(name), ExitStack() as stack:
            if self.folder is not None:
                yield stack.enter_context((self.folder / name).open("rb"))
                return
            if file.size >= 0:  # saves the request for it
                known = {name: file.size}
                files = PyFileSystem(DeltaStorageHandler(self.root, known_sizes=known))
            yield stack.enter_context(files.open_input_file(name))

    @contextmanager
    def _missing_explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise StoreError(
                f"{self.url}: {name} is missing. `nftsync lake compact` may have expired its run."
                " Open the lake again"
            ) from None

    # Other files ---------------------------------------------------------------------------------

    def names(self, folder: str) -> dict[str, tuple[int, datetime]]:
        """Return the files below a folder, with sizes in bytes and times of writing."""
        selector = FileSelector(folder, allow_not_found=True, recursive=True)
        return {
            info.path: (info.size, info.mtime)
            for info in self.files.get_file_info(selector)
            if info.type == FileType.File
        }

    def drop(self, folder: str) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        else:
            with suppress(FileNotFoundError):
                self.files.delete_dir(folder)

    def delete(self, names: Collection[str]) -> None:
        """Delete files; missing ones are skipped."""
        for name in names:
            with suppress(FileNotFoundError):
                self.files.delete_file(name)
