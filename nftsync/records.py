"""`WalletRead`, `TokenRead` and `ObjectRead`: the results of reads that the mirror applies."""

from __future__ import annotations

import re
import threading
import time
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from nftsync.errors import InputError
from nftsync.times import now

#: The columns of a token that the provider's answers fill, in the order of a `Content` tuple
#: (provider's document, sections Token and TokenMetadata).
CONTENT_COLUMNS = (
    "organization_id",
    "contract_address",
    "blockchain_token_id",
    "name",
    "description",
    "image",
    "animation_url",
    "external_url",
    "background_color",
    "edition_id",
    "total_edition",
    "creator_name",
    "creator_image_url",
    "creator_external_page_url",
    "extra",
)

#: The place of the name among them, and the places of all metadata.
NAME = CONTENT_COLUMNS.index("name")
METADATA = slice(NAME, CONTENT_COLUMNS.index("extra"))

#: A token's content, one value per entry of CONTENT_COLUMNS; None where the answer shows nothing.
Content: TypeAlias = tuple[str | int | None, ...]

#: One line of a wallet's list: token id, amount as sent, and the content where a record came.
Entry: TypeAlias = tuple[str, str, Content | None]

#: `incomplete`: what it shows is true, but it may not show all. `unchanged`: the answer is the
#: very one that the mirror has already applied. `failed`: nothing is known from it.
Outcome: TypeAlias = Literal["ok", "unchanged", "incomplete", "failed"]

#: An outcome, or `stale`: a later read has been applied, or what an `unchanged` response was
#: compared with is no longer what the mirror holds; the read must be made again, unconditionally.
#: `staged`: it has removals, and nothing of it was applied yet. `held`: all of it was applied but
#: its removals, which are held for review.
Result: TypeAlias = Literal["ok", "unchanged", "incomplete", "failed", "stale", "staged", "held"]

#: What to do with reads that have removals: apply them, apply nothing of them yet, or hold their
#: removals for review and apply the rest.
OnRemovals: TypeAlias = Literal["apply", "stage", "hold"]

_HEX = "[0-9A-Fa-f]"
_UUID = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_ONE_UUID = re.compile(_UUID)
_UUIDS = re.compile(rf"(?:{_UUID},)*{_UUID}")


class Effort(msgspec.Struct, array_like=True):
    """What a read cost, counted while it goes on.

    Attributes:
        requests: HTTP requests sent, repeated ones included.
        retries: how many of them were repeats.
    """

    requests: int = 0
    retries: int = 0

    def sending(self) -> None:
        """Note that a request is about to be sent."""


class NumberedEffort(Effort, kw_only=True):
    """Effort of a read that has a place in the order of reads.

    Attributes:
        numbers: where the sequence number is taken.
        sequence: the number taken when the last request was sent.
        started_at: when that was, in the stored form.
    """

    numbers: SequenceNumbers
    sequence: int = 0
    started_at: str = ""

    def sending(self) -> None:
        """Take the number of the request that is about to be sent."""
        self.sequence, self.started_at = self.numbers.take(), now()

    def counts(self) -> Effort:
        """Return the counts alone."""
        return Effort(self.requests, self.retries)


class _Read(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What reads of all kinds have in common.

    Attributes:
        sequence: the number taken when the request was sent: of the attempt that succeeded, else
            of the last one; of a list of pages, when the first page was requested. Of two reads,
            the one with the greater number is newer.
        started_at: when that request was sent, in the stored form.
        outcome: see `Outcome`.
        error: why it is `failed` or `incomplete`.
        effort: what it cost.
        webhook_id: a webhook that caused it.
        provider_down: it failed because the provider is unreachable or refuses everybody.
        passing: it failed in a way that may pass: another try may go well.
        status: the HTTP status of the response that it failed with, if one came.
    """

    sequence: int
    started_at: str
    outcome: Outcome
    error: str | None = None
    effort: Effort = msgspec.field(default_factory=Effort)
    webhook_id: str | None = None
    provider_down: bool = False
    passing: bool = False
    status: int | None = None


class WalletRead(_Read, frozen=True, kw_only=True, gc=False, tag="wallet"):
    """One read of a wallet's balances.

    Attributes:
        wallet_id: the wallet that was asked for, lower case.
        entries: the list, each token once; empty unless `ok` or `incomplete`.
        digest: SHA-256 of the body (of all pages), hexadecimal.
        etag: the validator the response came with.
    """

    wallet_id: str
    entries: list[Entry] = []
    digest: str | None = None
    etag: str | None = None


class TokenRead(_Read, frozen=True, kw_only=True, gc=False, tag="token"):
    """One read of a single token; its outcome is `ok` or `failed`.

    Attributes:
        token_id: the token that was asked for, lower case.
        content: what the response shows.
    """

    token_id: str
    content: Content | None = None


class ObjectRead(_Read, frozen=True, kw_only=True, gc=False, tag="object"):
    """One read of an object that is neither a wallet nor a token; `ok` or `failed`.

    Source: provider's document, Follow-up read of a webhook's object.

    Attributes:
        resource_type: the type of the object, as webhooks name it.
        resource_id: the object that was asked for, lower case.
        body: the response, a JSON object as it was sent.
    """

    resource_type: str
    resource_id: str
    body: str | None = None


class SequenceNumbers:
    """Sequence numbers of requests; one object per process and database.

    They follow the machine's monotonic clock, shifted by an offset that the database keeps. So the
    reads of all processes on one machine are ordered as their requests were sent, whatever happens
    to the wall clock.

    Attributes:
        offset: nanoseconds between the monotonic clock and the sequence numbers; what another
            process needs to hand out numbers of the same order.
    """

    def __init__(self, offset: int, last: int) -> None:
        """Begin after `last`, the greatest sequence number so far."""
        self.offset = offset
        self._last = last
        self._lock = threading.Lock()

    def take(self) -> int:
        """The next sequence number, greater than each that was taken or applied before."""
        with self._lock:
            self._last = max(time.monotonic_ns() + self.offset, self._last + 1)
            return self._last


class Removals(NamedTuple):
    """The removals of a read, by the numbers of the tokens, and what its wallet gained.

    Attributes:
        wallet_id: the wallet; blank where the token was read by its id.
        group: the wallet's group, if it has one.
        balances: tokens that are no longer listed, or whose amount fell below half.
        before: the amount of each of them so far.
        after: the amount that is left, if any, by token.
        gained: the amounts before and after of tokens of which the wallet has got more.
        emptied: tokens whose metadata becomes empty.
        renamed: tokens that get another name: their contract, and the name before and after.
    """

    wallet_id: str
    group: str | None
    balances: list[str]
    before: list[str]
    after: dict[str, str]
    gained: dict[str, tuple[str | None, str]]
    emptied: list[str]
    renamed: dict[str, tuple[str | None, str, str]]


class Applied(NamedTuple):
    """What became of a read.

    Attributes:
        read: the read.
        result: see `Result`.
        tokens_added: tokens seen for the first time.
        tokens_changed: tokens whose content it changed.
        balances_added: tokens newly listed for the wallet.
        balances_changed: tokens listed with another amount.
        balances_removed: tokens no longer listed.
        removals: its removals, if they wait for a decision (`staged`) or are held for review
            (`held`).
    """

    read: WalletRead | TokenRead
    result: Result
    tokens_added: int = 0
    tokens_changed: int = 0
    balances_added: int = 0
    balances_changed: int = 0
    balances_removed: int = 0
    removals: Removals | None = None

    @property
    def changed_nothing(self) -> bool:
        """No token or balance was added, changed or removed."""
        return not any(self[2:7])


def are_uuids(joined: str) -> bool:
    """Tell whether a comma-joined text holds nothing but UUIDs (8-4-4-4-12 hexadecimal digits)."""
    return _UUIDS.fullmatch(joined) is not None


def is_uuid(text: str) -> bool:
    """Tell whether a text is one UUID, whatever its case."""
    return _ONE_UUID.fullmatch(text) is not None


def normalize_uuid(value: str, what: str) -> str:
    """Check one id and lower-case it.

    Args:
        value: the id as it was given.
        what: what it names, for the message ("wallet id").

    Raises:
        InputError: the text is no UUID.
    """
    if not is_uuid(value):
        shown = value if len(value) <= 80 else value[:77] + "..."
        raise InputError(f"{shown!r} is not a {what}: expected a UUID of 8-4-4-4-12 hex digits")
    return value.lower()
