"""Real holdings beside the checkout, as plain Python sees them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the real holdings are not beside the project (../shared/data)"
)

#: (wallet id, token id) -> amount.
State = dict[tuple[str, str], int]

PUNKS = "0xb47e3cd837ddf8e4c57f05d70ab865de6e193bbb"
ART_BLOCKS = "0xa7d8d9ef8d8ce8992df33d8b8cf4aebabd5bd270"
ART_BLOCKS_FIRST = "0x059edd72cd353df5106d2b9cc5ab83a52287ac3a"
GOTCHIS = "0x86935f11c86623dec8a25696e1c19a8659cbf95d"

#: As the metadata spells him.
REAS = "Casey REAS"


class Change(msgspec.Struct, rename="camel"):
    """A line of the changes: what an owner has of a token from a block on."""

    block: int
    contract: str
    token_id: str
    owner: str
    amount: str


def lines(name: str) -> Iterator[bytes]:
    with gzip.open(DATA / name, "rb") as file:
        yield from file


def wallet_of(owner: str) -> str:
    """The wallet of a chain address, which has no UUID of its own."""
    return str(uuid5(NAMESPACE_URL, owner))


def read_blocks() -> dict[int, list[Change]]:
    """The changes of each block, in the order of the file."""
    blocks: dict[int, list[Change]] = {}
    for line in lines("changes.jsonl.gz"):
        change = msgspec.json.decode(line, type=Change)
        blocks.setdefault(change.block, []).append(change)
    return blocks


def read_records(wanted: set[tuple[str, str]]) -> dict[tuple[str, str], msgspec.Raw]:
    """The token records of some (contract, chain id), as the provider would send them."""
    found = {}
    for line in lines("tokens.jsonl.gz"):
        record: dict[str, Any] = msgspec.json.decode(line)
        key = (record["contractAddress"], record["blockchainTokenId"])
        if key in wanted:
            found[key] = msgspec.Raw(line.strip())
    return found


def read_wallets() -> Iterator[dict[str, Any]]:
    """The wallets, with all that the file says of them."""
    for line in lines("wallets.jsonl.gz"):
        yield msgspec.json.decode(line)


def write_slice(path: Path, texts: list[str]) -> None:
    """Write a world file of the wallets whose lines have one of some texts, in any case."""
    wanted = [text.lower().encode() for text in texts]
    with path.open("wb") as file:
        for line in lines("wallets.jsonl.gz"):
            low = line.lower()
            if any(text in low for text in wanted):
                file.write(line)


@dataclass(frozen=True)
class Slice:
    """Some real wallets, mirrored.

    Attributes:
        database: the mirror.
        wallets: the lines of the file, decoded.
    """

    database: Path
    wallets: list[dict[str, Any]]
