"""World files: a wallet a line as JSON, plain or gzip, read to the character.

A line is `{"walletId": …, "nftTokenBalances": […]}`, the list in the form that the provider answers
(provider's document, section NFT token balance). Other keys are ignored. Token records are not
taken apart, so what their source has, messy or not, is what the sandbox serves.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, cast

import msgspec

from nftsync.errors import InputError
from nftsync.records import normalize_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

__all__ = ["Holding", "Record", "WalletLine", "has_record", "read_world_file"]

#: A token record as JSON text; UNSET where the list does not carry the key at all.
Record: TypeAlias = msgspec.Raw | msgspec.UnsetType

_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"


class Holding(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of a wallet's list, as it is answered.

    Attributes:
        token_id: the id, in the case that the world file writes it.
        amount: the amount's text.
        token: the record, `null`, or UNSET.
    """

    token_id: str
    amount: str
    token: Record = msgspec.UNSET


class WalletLine(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One line of a world file.

    Attributes:
        wallet_id: the id, in the case that the file writes it.
        nft_token_balances: what the wallet holds.
    """

    wallet_id: str
    nft_token_balances: list[Holding]


_LINE = msgspec.json.Decoder(WalletLine)


def has_record(record: Record) -> bool:
    """Tell whether an entry shows a token record, neither `null` nor nothing."""
    return isinstance(record, msgspec.Raw) and bytes(record) != b"null"


def read_world_file(path: str | PathLike[str]) -> Iterator[WalletLine]:
    """Read a world file line by line; equal records and texts are one object in memory.

    Args:
        path: the file; whether it is gzip is told by its first bytes, not by its name.

    Raises:
        InputError: the file cannot be read, or a line is wrong; the text names file and line.
    """
    place = Path(path)
    reader = _Reader()
    number = 0
    try:
        with _open(place) as lines:
            for number, line in enumerate(lines, start=1):
                text = line.removeprefix(_UTF8_MARK) if number == 1 else line
                if text.strip():
                    yield reader.read(text)
    except InputError as error:
        raise InputError(f"{place}, line {number}: {error}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{place}, after line {number}: damaged gzip data ({error})") from error
    except OSError as error:
        raise InputError(f"{place} cannot be read: {error.strerror or error}") from error


def _open(place: Path) -> BinaryIO:
    with place.open("rb") as file:
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    return cast("BinaryIO", gzip.open(place, "rb")) if packed else place.open("rb")


class _Reader:
    """Checks the lines of one file and shares what they have in common."""

    def __init__(self) -> None:
        self._wallets: set[str] = set()
        self._texts: dict[str, str] = {}
        self._records: dict[bytes, msgspec.Raw] = {}

    def read(self, text: bytes) -> WalletLine:
        line = _decode(text)
        key = normalize_uuid(line.wallet_id, "wallet id")
        if key in self._wallets:
            raise InputError(f"wallet {key} has a line already")
        self._wallets.add(key)
        holdings: dict[str, Holding] = {}
        for listed in line.nft_token_balances:
            token = normalize_uuid(listed.token_id, "token id")
            if token in holdings:
                raise InputError(f"token {token} is listed twice")
            holdings[token] = self._shared(listed)
        return WalletLine(line.wallet_id, list(holdings.values()))

    def _shared(self, holding: Holding) -> Holding:
        return Holding(
            self._texts.setdefault(holding.token_id, holding.token_id),
            self._texts.setdefault(holding.amount, holding.amount),
            self._record(holding.token_id, holding.token),
        )

    def _record(self, token_id: str, record: Record) -> Record:
        if not isinstance(record, msgspec.Raw):
            return record
        data = bytes(record)
        known = self._records.get(data)
        if known is None:
            if not data.startswith((b"{", b"null")):
                raise InputError(f"the record of token {token_id} is no object")
            known = self._records[data] = msgspec.Raw(data)
        return known


def _decode(text: bytes) -> WalletLine:
    try:
        # msgspec skips over a raw record without checking its UTF-8.
        text.decode()
        return _LINE.decode(text)
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise InputError("nested too deeply") from error
    except msgspec.MsgspecError as error:
        raise InputError(str(error)) from error
