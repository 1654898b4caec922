"""Files that the steps of a run hand over to later steps, in a folder of the run.

Drivers learn the names from the tasks' reports, or after a takeover from the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from pyarrow.fs import FileSelector

if TYPE_CHECKING:
    from pyarrow import Buffer
    from pyarrow.fs import FileSystem

#: The folder of all runs, beside the tables, and the table that earlier releases used.
STEPS = "steps"
EARLIER_STEPS = "staged"
#: Bytes per write; Delta needs a buffer larger than each.
_AT_ONCE = 1 << 19
_BUFFER = 2 * _AT_ONCE


def write_whole(files: FileSystem, path: str, content: bytes | Buffer) -> None:
    """Write a file, which appears once it is complete."""
    view = memoryview(content)
    with files.open_output_stream(path, buffer_size=_BUFFER) as file:
        for start in range(0, len(view), _AT_ONCE):
            file.write(view[start : start + _AT_ONCE])


class StagedPart(NamedTuple):
    """A part of a staged file: its first byte and its length in bytes."""

    file: str
    start: int
    length: int


class StagedFiles:
    """The staged files of one run."""

    def __init__(self, files: FileSystem, run: str) -> None:
        self.folder = f"{STEPS}/{run}"
        self._files = files

    def write(self, name: str, content: bytes | Buffer) -> None:
        """Write a file, which appears once it is complete."""
        write_whole(self._files, f"{self.folder}/{name}", content)

    def read(self, name: str) -> bytes:
        """Return a file, checked if its name has a CRC-32: KIND-BUCKET-ID-CRC."""
        with self._files.open_input_file(f"{self.folder}/{name}") as file:
            content: bytes = file.read()
        _, *rest = name.split("-")
        if len(rest) == 3 and crc32(content) != int(rest[2]):
            raise EOFError(f"{name} is damaged")
        return content

    def read_part(self, part: StagedPart) -> bytes:
        """Return a part of a file."""
        with self._files.open_input_file(f"{self.folder}/{part.file}") as file:
            file.seek(part.start)
            content: bytes = file.read(part.length)
            return content

    def names(self) -> list[str]:
        """Return the names of all files."""
        selector = FileSelector(self.folder, allow_not_found=True)
        return sorted(info.base_name for info in self._files.get_file_info(selector))
