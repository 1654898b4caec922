"""Temporary file of waiting reads, to save memory."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile, gettempdir
from typing import NamedTuple

import msgspec

from nftsync.pull.reads import Read
from nftsync.store.database import explained

#: Bytes of reads in memory; beyond that, they go to an unnamed file.
_MAX_MEMORY = 16 * 1024 * 1024
_decoder: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)


class Place(NamedTuple):
    """A read's place in the file, in bytes."""

    start: int
    length: int


class ReadFile:
    """Reads in the order of their arrival, for one thread."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_MAX_MEMORY)  # noqa: SIM115 - `close` closes it
        self._end = 0

    def add(self, read: Read) -> Place:
        """Add a read, and return its place."""
        packed = msgspec.msgpack.encode(read)
        with explained(gettempdir()):
            self._file.seek(self._end)
            self._file.write(packed)
            self._file.flush()
        place = Place(self._end, len(packed))
        self._end += len(packed)
        return place

    def read(self, place: Place) -> Read:
        """Return the read at a place."""
        self._file.seek(place.start)
        return _decoder.decode(self._file.read(place.length))

    def clear(self) -> None:
        """Drop all reads."""
        self._file.truncate(0)
        self._end = 0

    def close(self) -> None:
        """Drop all reads, and close the file."""
        self._file.close()
