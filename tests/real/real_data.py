"""Real holdings beside the checkout, read in plain Python."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
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


def read_blocks(some: slice, together: int) -> dict[int, list[Change]]:
    """The changes of some blocks, several together, by the last of them, in the file's order."""
    blocks: dict[int, list[Change]] = {}
    for line in lines("changes.jsonl.gz"):
        change = msgspec.json.decode(line, type=Change)
        blocks.setdefault(change.block, []).append(change)
    numbers = list(blocks)[some]
    return {
        these[-1]: [change for block in these for change in blocks[block]]
        for these in (numbers[at : at + together] for at in range(0, len(numbers), together))
    }


def read_records(wanted: set[tuple[str, str]]) -> dict[tuple[str, str], msgspec.Raw]:
    """The token records of some (contract, chain id), as the provider would send them."""
    found = {}
    for line in lines("tokens.jsonl.gz"):
        record: dict[str, Any] = msgspec.json.decode(line)
        key = (record["contractAddress"], record["blockchainTokenId"])
        if key in wanted:
            found[key] = msgspec.Raw(line.strip())
    return found
