"""What a public column is, the kinds that there are, and the columns that several tables have."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

#: What a column holds. `time` is text in the stored form, `amount` an exact decimal as sent.
ColumnKind: TypeAlias = Literal["text", "time", "amount", "integer", "flag", "real", "bytes"]


class Column(NamedTuple):
    """A public column.

    Attributes:
        kind: what it holds.
        unit: what is counted or measured; blank for a name or text.
        meaning: what it says.
        source: the section and field of the provider's document, or how nftsync came to it.
        always: it is never missing; said of integers only.
    """

    kind: ColumnKind
    unit: str
    meaning: str
    source: str
    always: bool = False


BALANCE = "provider's document, NFT token balance: "
RECORD = "provider's document, Token: "
METADATA = "provider's document, TokenMetadata: "
WEBHOOK = "provider's document, Webhook: "
MIRROR = "nftsync: "


def text(meaning: str, source: str, unit: str = "") -> Column:
    """Text of the provider's."""
    return Column("text", unit, meaning, source)


def ours(meaning: str, how: str, unit: str = "") -> Column:
    """Text of our own."""
    return Column("text", unit, meaning, MIRROR + how)


def _metadata(field: str, meaning: str, unit: str = "", kind: ColumnKind = "text") -> Column:
    return Column(kind, unit, meaning, METADATA + field)


def flag(meaning: str, how: str) -> Column:
    """0 or 1."""
    return Column("flag", "", meaning, MIRROR + how)


def uuid(meaning: str, source: str) -> Column:
    """An id."""
    return Column("text", "UUID", meaning, source)


def time(meaning: str, how: str) -> Column:
    """A time, in the stored form."""
    return Column("time", "UTC", meaning, MIRROR + how)


def amount(meaning: str) -> Column:
    """An amount as it was sent."""
    return Column("amount", "tokens", meaning, f"{BALANCE}amount")


def count(unit: str, meaning: str, how: str) -> Column:
    """How many of something; never missing."""
    return Column("integer", unit, meaning, MIRROR + how, always=True)


LOGGED = "when the read that found it was stored; never decreases"
SENT = "the clock when the request was sent"
LEDGER = "the run's own count"
COMPARED = f"{MIRROR}compared with the read before"
LAST_READ = "how the last read went: never, ok, incomplete or failed"

WALLET_ID = uuid("the wallet", "provider's document, GET nft-balances: walletId")
LABEL = ours("a name of the wallet for people", "the wallets file, or `nftsync wallets label`")
GROUP = ours("a group of wallets for people", "the wallets file")
TOKEN_ID = uuid("the token", f"{BALANCE}tokenId, {RECORD}id")
AMOUNT = amount("how much is held")
RUN_ID = Column("integer", "", "the run whose read found it", f"{MIRROR}row of sync_runs")
WEBHOOK_ID = uuid("one of the webhooks that caused the read; missing: a sync did", f"{WEBHOOK}id")

ADDRESS = text(
    "the token's contract; `0x` and 40 hex digits are one whatever their case",
    f"{RECORD}contractAddress",
)
CONTRACT = text(
    "the contract in one spelling, to group by: `0x` and 40 hex digits in lower case",
    f"{RECORD}contractAddress",
)
COLLECTION = ours(
    "what the contract is called; its short address where it has no name", "table contracts"
)
CHAIN_ID = text(
    "the token's id on the chain; text, as it may be too long for a number",
    f"{RECORD}blockchainTokenId",
)
METADATA_COLUMNS = {
    "name": _metadata("name", "the token's name"),
    "description": _metadata("description", "the token's description"),
    "image": _metadata("image", "address of its image", "URL"),
    "animation_url": _metadata("animationUrl", "address of a film, sound or page", "URL"),
    "external_url": _metadata("externalUrl", "address of a page about it", "URL"),
    "background_color": _metadata(
        "backgroundColor", "a color; the document does not say how it is written"
    ),
    "edition_id": _metadata(
        "editionId", "the token's number in its series, 0 included", kind="integer"
    ),
    "total_edition": _metadata(
        "totalEdition", "how many the series has, as claimed", "tokens", "integer"
    ),
    "creator_name": _metadata("creatorName", "who made it, as claimed"),
    "creator_image_url": _metadata("creatorImageUrl", "address of the maker's image", "URL"),
    "creator_external_page_url": _metadata(
        "creatorExternalPageUrl", "address of the maker's page", "URL"
    ),
}
