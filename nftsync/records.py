"""Results of reads, for the mirror to apply."""

from __future__ import annotations

import re
import threading
import time
import unicodedata
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from nftsync.errors import InputError
from nftsync.times import now

#: The whole numbers that SQLite can store.
INTEGERS = range(-(2**63), 2**63)
Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=INTEGERS[0], le=INTEGERS[-1])]


class TokenMetadata(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """Fields of a token's metadata, each with a column (provider's document, TokenMetadata)."""

    name: str | None = None
    description: str | None = None
    image: str | None = None
    animation_url: str | None = None
    external_url: str | None = None
    background_color: str | None = None
    edition_id: Integer | None = None
    total_edition: Integer | None = None
    creator_name: str | None = None
    creator_image_url: str | None = None
    creator_external_page_url: str | None = None


_METADATA_FIELDS = msgspec.structs.fields(TokenMetadata)

#: The provider's field of each column, as settings and messages name it: `metadata.editionId`.
FIELD_PATHS = {
    "organization_id": "organizationId",
    "contract_address": "contractAddress",
    "blockchain_token_id": "blockchainTokenId",
    **{field.name: f"metadata.{field.encode_name}" for field in _METADATA_FIELDS},
}
#: Columns of a token that the provider fills, in the order of a `Content` tuple.
CONTENT_COLUMNS = (*FIELD_PATHS, "extra")
#: Columns of whole numbers; all others have text.
INTEGER_COLUMNS = frozenset(field.name for field in _METADATA_FIELDS if field.type != str | None)

#: Positions of the name and of all metadata.
NAME = CONTENT_COLUMNS.index("name")
METADATA = slice(NAME, len(FIELD_PATHS))

#: A token's content: a value per column of CONTENT_COLUMNS; None if the response lacks it. If parts
#: of the record are unreadable, one more value follows: a JSON object of their paths and reasons.
Content: TypeAlias = tuple[str | int | None, ...]

#: An entry of a wallet's list: token id, amount as sent, and the content, if sent.
Entry: TypeAlias = tuple[str, str, Content | None]

#: `incomplete`: the list is correct, but may have more pages. `unchanged`: the mirror has already
#: applied the same response. `failed`: the read has no data.
Outcome: TypeAlias = Literal["ok", "unchanged", "incomplete", "failed"]

#: An outcome, or `stale`: a newer read was applied, or the mirror no longer has the state that an
#: `unchanged` response confirmed; repeat the read unconditionally. `staged`: it has removals, and
#: nothing is applied yet. `held`: applied, except its removals, which are held for review.
#: `left out`: a failed read that a replay does not apply.
Result: TypeAlias = Literal[
    "ok", "unchanged", "incomplete", "failed", "stale", "staged", "held", "left out"
]

#: How to treat a read with removals: apply it, apply nothing yet, or hold its removals for review
#: and apply the rest.
OnRemovals: TypeAlias = Literal["apply", "stage", "hold"]

_HEX = "[0-9A-Fa-f]"
_UUID = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_ONE_UUID = re.compile(_UUID)
#: Hex digits of any width, with separators of any kind.
_RESEMBLES = re.compile(r"[\W_\da-fA-F]{32,60}")
_UUIDS = re.compile(rf"(?:{_UUID},)*{_UUID}")


class NewField(msgspec.Struct, frozen=True, gc=False):
    """A field that the provider's document does not have, or has as `documented_type`.

    `field` begins with `token.`, `metadata.`, `balance.` (an entry of a wallet's list) or
    `webhook.`. `example_id` is a token or webhook that shows it.
    """

    field: str
    type: str
    documented_type: str | None
    example_id: str
    first_seen_at: str = ""

    @property
    def news(self) -> str:
        """What is new: `metadata.rarity (text)`."""
        instead = f"is {self.type} instead of {self.documented_type}"
        return f"{self.field} {instead if self.documented_type else f'({self.type})'}"


class Effort(msgspec.Struct, array_like=True):
    """Counts of a read's HTTP requests and retries, updated during the read."""

    requests: int = 0
    retries: int = 0

    def sending(self) -> None:
        """Record that a request is about to be sent."""


class NumberedEffort(Effort, kw_only=True):
    """Effort with the sequence number and time of the last request."""

    numbers: SequenceNumbers
    sequence: int = 0
    started_at: str = ""

    def sending(self) -> None:
        """Take the sequence number of the next request."""
        self.sequence, self.started_at = self.numbers.take(), now()

    def counts(self) -> Effort:
        return Effort(self.requests, self.retries)


class _Read(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Fields of all reads.

    `sequence` is the number of the last request (for a list, of its first page); the greater number
    is the newer read. `started_at` is that request's time. `volatile` is the setting
    `volatile_fields`. See `ReadError` for `provider_down` and `passing`.
    """

    sequence: int
    started_at: str
    outcome: Outcome
    error: str | None = None
    effort: Effort = msgspec.field(default_factory=Effort)
    webhook_id: str | None = None
    volatile: list[str] = []
    provider_down: bool = False
    passing: bool = False
    status: int | None = None
    new_fields: list[NewField] = []


class WalletRead(_Read, frozen=True, kw_only=True, gc=False, tag="wallet"):
    """Read of a wallet's balances; `digest` is the SHA-256 of the body, or of all pages.

    `entries` has each token once, and is empty unless `ok` or `incomplete`.
    """

    wallet_id: str
    entries: list[Entry] = []
    digest: str | None = None
    etag: str | None = None


class TokenRead(_Read, frozen=True, kw_only=True, gc=False, tag="token"):
    """Read of a single token; its outcome is `ok` or `failed`."""

    token_id: str
    content: Content | None = None


class ObjectRead(_Read, frozen=True, kw_only=True, gc=False, tag="object"):
    """Read of another object, its body JSON as sent; `ok` or `failed`.

    Source: provider's document, Follow-up read of a webhook's object.
    """

    resource_type: str
    resource_id: str
    body: str | None = None


#: A read of any kind.
Read: TypeAlias = WalletRead | TokenRead | ObjectRead


class SequenceNumbers:
    """Sequence numbers of requests; one object per process and database.

    A number is the monotonic clock plus `offset` (nanoseconds), which the database's processes
    share. So it orders their reads, whatever the wall clock does.
    """

    def __init__(self, offset: int, last: int) -> None:
        """Start after `last`, the greatest sequence number so far."""
        self.offset = offset
        self._last = last
        self._lock = threading.Lock()

    def take(self) -> int:
        """Return a number greater than every earlier one."""
        with self._lock:
            self._last = max(time.monotonic_ns() + self.offset, self._last + 1)
            return self._last


class Removals(NamedTuple):
    """A read's removals by token, and its wallet's gains (old and new amount).

    `lost` are missing (None), or fell below half. `renamed` has contract, old name and new name.
    `wallet_id` is blank for a read of a single token.
    """

    wallet_id: str
    group: str | None
    lost: dict[str, tuple[str, str | None]]
    gained: dict[str, tuple[str | None, str]]
    emptied: list[str]
    renamed: dict[str, tuple[str | None, str, str]]


class Applied(NamedTuple):
    """A read, its result, and the rows that it changed.

    Only a `staged` or `held` read has `removals`.
    """

    read: Read
    result: Result
    tokens_added: int = 0
    tokens_changed: int = 0
    balances_added: int = 0
    balances_changed: int = 0
    balances_removed: int = 0
    objects_changed: int = 0
    removals: Removals | None = None

    @property
    def changed_nothing(self) -> bool:
        return not any(self[2:8])

    @property
    def is_finished(self) -> bool:
        """Whether neither a repeat nor a decision follows."""
        return self.result not in {"stale", "staged"}


def are_uuids(joined: str) -> bool:
    return _UUIDS.fullmatch(joined) is not None


def is_uuid(text: str) -> bool:
    return _ONE_UUID.fullmatch(text) is not None


def normalize_uuid(value: str, kind: str) -> str:
    """Return a UUID in lower case; `kind` names it in messages ("wallet id")."""
    if not is_uuid(value):
        shown = repr(value if len(value) <= 80 else value[:77] + "...") + look_alike(value)
        raise InputError(f"{shown} is not a {kind}: expected a UUID of 8-4-4-4-12 hex digits")
    return value.lower()


def look_alike(text: str) -> str:
    """Return a remark on the first odd character of what only resembles a UUID."""
    odd = re.search(r"[^\x00-\x7f]", text)
    if not (odd and _RESEMBLES.fullmatch(unicodedata.normalize("NFKC", text[:80]))):
        return ""
    name = unicodedata.name(odd[0], "no name")
    return f" (character {odd.start() + 1} is U+{ord(odd[0]):04X}, {name})"
