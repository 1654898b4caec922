"""A response's body on its way in: unpacked, and bounded, alone and together with the others."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator

from nftsync.errors import ReadError, UnusableAnswer

#: Of the body of a response that is no success, so much is read to keep the connection.
_REFUSAL_BYTES = 64 * 1024

#: So many large answers are held at once.
_MOST_LARGE = 2


class NoRoom(ReadError):
    """As many large answers are held as may be; this one can be asked for again later."""

    def __init__(self) -> None:
        super().__init__("too many large answers came at once, and this one was not kept")


class Room:
    """Room for a few large answers at once, over all threads of a client.

    Else as many wallets as are read at once could each be as large as just one may be; and what is
    decoded takes some times as much as the bytes.
    """

    def __init__(self, large: int) -> None:
        """All of it is free; an answer of more than `large` bytes takes of it."""
        self._large = large
        self._free = threading.Semaphore(_MOST_LARGE)

    def take(self, held: int, more: int) -> int:
        """Let an answer grow; return how many bytes it holds now.

        Raises:
            NoRoom: it became large, and others hold the room.
        """
        if held <= self._large < held + more and not self._free.acquire(blocking=False):
            raise NoRoom
        return held + more

    def give_back(self, held: int) -> None:
        """Give back the room of an answer that holds so many bytes."""
        if held > self._large:
            self._free.release()


class Gunzip:
    """Unpacks gzip: any number of members, one behind the other (RFC 1952, section 2.2)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)

    @property
    def is_whole(self) -> bool:
        """A member has just ended, so what came may be all."""
        return self._member.eof

    def unpack(self, packed: bytes, most: int) -> bytes:
        """Unpack so many bytes at most; what is behind them is lost.

        Raises:
            zlib.error: it is no gzip.
        """
        parts: list[bytes] = []
        while packed and most > 0:
            if self._member.eof:
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            parts.append(self._member.decompress(packed, most))
            most -= len(parts[-1])
            packed = self._member.unused_data
        return b"".join(parts)


def gunzip(content_encoding: str) -> Gunzip | None:
    """What unpacks a body, where that is needed.

    Raises:
        UnusableAnswer: the body is packed in a way that was not asked for, or more than once.
    """
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    codings = [coding for coding in codings if coding not in {"", "identity", "utf-8"}]
    if not codings:
        return None
    if codings not in (["gzip"], ["x-gzip"]):
        raise UnusableAnswer(f"the body has the content encoding {content_encoding[:80]!r}")
    return Gunzip()


def pass_over(chunks: Iterator[bytes]) -> None:
    """Read on to the next response, unless that is too far off; then the connection is closed."""
    size = 0
    while size <= _REFUSAL_BYTES and (chunk := next(chunks, None)) is not None:
        size += len(chunk)
