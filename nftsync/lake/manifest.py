"""Manifests of a lake: the files and facts that a run pins.

The ledger has the SHA-256 of each manifest, and a manifest has the SHA-256 of its bucket files.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from nftsync.lake.storage import Lake, StoredFile
from nftsync.store.freshness import WalletGroup

#: The folder of manifests.
MANIFESTS = "manifests"
#: The largest manifest, in bytes: millions of held removals.
_LARGEST = 1 << 30


class BucketRows(msgspec.Struct, kw_only=True):
    """Numbers of a bucket's rows; `held` counts holdings, without balances that ended."""

    wallets: int = 0
    tracked: int = 0
    balances: int = 0
    held: int = 0
    tokens: int = 0
    changes: int = 0


class Published(msgspec.Struct, frozen=True):
    """What the published tables have of a bucket: its file, greatest ids, and number of tokens."""

    file: str = ""
    change: int = 0
    token_change: int = 0
    tokens: int = 0


class BucketEntry(msgspec.Struct, kw_only=True):
    """A bucket in a manifest.

    Attributes:
        file: its database; None: no wallets yet.
        change, state, token_change: the greatest ids.
        confirmed_at, confirmed_sequence, confirmations: of the runs since `file` that read all
            wallets unchanged, the last start time, its sequence number, and their number.
        holdings: by wallet group.
        losses, losing: upper bounds for balances lowered in the 24 hours before `changed_at`, and
            their wallets.
        removals: the rows of `nftsync lake removals`.
        free: unused bytes.
    """

    file: StoredFile | None = None
    rows: BucketRows = msgspec.field(default_factory=BucketRows)
    change: int = 0
    state: int = 0
    token_change: int = 0
    confirmed_at: str = ""
    confirmed_sequence: int = 0
    confirmations: int = 0
    changed_at: str = ""
    holdings: list[tuple[str | None, int]] = []
    losses: int = 0
    losing: int = 0
    freshness: list[WalletGroup] = []
    removals: list[dict[str, Any]] = []
    published: Published = Published()
    free: int = 0

    def publish(self) -> None:
        """Note that the published tables have the bucket's rows."""
        file = self.file.name if self.file is not None else ""
        self.published = Published(file, self.change, self.token_change, self.rows.tokens)

    @property
    def is_published(self) -> bool:
        """Whether the published tables have the bucket's rows."""
        return self.file is None or self.file.name == self.published.file


class PublishedTable(msgspec.Struct, kw_only=True):
    """A published Delta table: version, rows, files and their bytes, and a digest of the files."""

    version: int
    rows: int
    files: int
    bytes: int
    digest: str


class Names(msgspec.Struct):
    """Address of a contract as sent, and its names from labels, the collections file, a guess."""

    address: str
    given: str | None = None
    file: str | None = None
    guessed: str | None = None


#: Names by contract, in the spelling of `tokens.contract`.
NamesByContract: TypeAlias = dict[str, Names]


class Manifest(msgspec.Struct, kw_only=True):
    """Files and facts that a finished run pins.

    Attributes:
        sequence, change, state, token_change, changed_at: the greatest of the lake.
        approved_at: earlier removals no longer count.
        known_tokens: digests of all tokens' ids.
        samples: the tokens whose names suggest names of contracts.
        webhooks: imported webhooks that are not done.
    """

    buckets: list[BucketEntry]
    names: NamesByContract = {}
    samples: StoredFile | None = None
    sequence: int = 0
    change: int = 0
    state: int = 0
    token_change: int = 0
    changed_at: str = ""
    approved_at: str = ""
    known_tokens: StoredFile | None = None
    tables: dict[str, PublishedTable] = {}
    webhooks: list[dict[str, Any]] = []

    @property
    def tokens(self) -> int:
        return self.known_tokens.content_size // _DIGEST.itemsize if self.known_tokens else 0


_decode = msgspec.json.Decoder(Manifest).decode
#: A digest of a token's id, as a number.
_DIGEST = np.dtype("<u8")


def digests_of(token_ids: Iterable[str]) -> bytes:
    """Return digests of tokens' ids, 8 bytes each."""
    digests = bytearray()  # a list of them would take five times as much
    for token_id in token_ids:
        digests += blake2b(token_id.encode(), digest_size=8).digest()
    return bytes(digests)


def distinct(digests: Iterable[bytes]) -> np.ndarray[Any, Any]:
    """Return the distinct digests, sorted."""
    return np.unique(np.frombuffer(b"".join(digests), _DIGEST))


def add_tokens(lake: Lake, manifest: Manifest, digests: Iterable[bytes]) -> int:
    """Add tokens to a lake's known tokens, and return the number of new ones."""
    new = distinct(digests)
    if not len(new):
        return 0
    known = distinct([] if manifest.known_tokens is None else [lake.read(manifest.known_tokens)])
    new = np.setdiff1d(new, known, assume_unique=True)
    if len(new):
        content = np.union1d(known, new).tobytes()
        manifest.known_tokens = lake.write(f"{MANIFESTS}/tokens-{uuid4().hex}", content)
    return len(new)


def write_manifest(lake: Lake, manifest: Manifest, run_id: int) -> StoredFile:
    body = msgspec.json.encode(manifest)
    packed = pa.compress(body, codec="zstd", asbytes=True)
    return lake.write(f"{MANIFESTS}/{run_id}-{uuid4().hex}.json.zst", packed, len(body))


def read_manifest(lake: Lake, file: StoredFile) -> Manifest:
    """Read a manifest; StoreError if it is damaged."""
    packed = lake.read(file)
    if not 0 <= file.content_size <= _LARGEST:
        raise lake.damaged(file.name)
    try:
        body = pa.decompress(packed, file.content_size, codec="zstd", asbytes=True)
        return _decode(body)
    except (OSError, pa.ArrowException, msgspec.MsgspecError) as error:
        raise lake.damaged(file.name) from error
