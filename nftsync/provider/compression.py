"""Decompression of responses, within a bound."""

from __future__ import annotations

import zlib

from nftsync.errors import UnusableResponse


class Gunzip:
    """Decompressor for gzip of any number of members (RFC 1952, section 2.2)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)

    @property
    def is_whole(self) -> bool:
        """Whether the data so far ends with a complete member."""
        return self._member.eof

    def unpack(self, packed: bytes, most: int) -> bytes:
        """Decompress up to `most` bytes, and drop the rest."""
        parts: list[bytes] = []
        while packed and most > 0:
            if self._member.eof:
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            parts.append(self._member.decompress(packed, most))
            most -= len(parts[-1])
            packed = self._member.unused_data
        return b"".join(parts)


def decompressor(content_encoding: str) -> Gunzip | None:
    """Return a body's decompressor, or None if it is not compressed."""
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    codings = [coding for coding in codings if coding not in {"", "identity", "utf-8"}]
    if not codings:
        return None
    if codings not in (["gzip"], ["x-gzip"]):
        raise UnusableResponse(
            f"the body has an unusable content encoding {content_encoding[:80]!r}"
        )
    return Gunzip()
