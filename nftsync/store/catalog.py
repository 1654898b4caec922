"""The public tables and views, with the meaning of each column.

What the tables hold beyond these columns (sequence numbers, validators, plans) is nftsync's own and
may change; nothing of it is printed or exported.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class PublicTable(NamedTuple):
    """A public table or view.

    Attributes:
        columns: the public columns, in order.
        order: what orders its rows as they came.
        rows: what follows FROM to read it.
        base: the table that has a row for each of its rows, if that is not `rows`.
        since: the column of `base` that says when a row came to be; None: there is none.
        names: the expression of each column that `rows` does not simply call by its name.
    """

    columns: Mapping[str, Column]
    order: str
    rows: str
    base: str | None = None
    since: str | None = None
    names: Mapping[str, str] = {}

    def select(self, *, until: bool = False) -> str:
        """A query for all public columns.

        Args:
            until: only rows that had come to be at the time that is its one parameter.
        """
        expressions = ", ".join(self.names.get(name, name) for name in self.columns)
        where = self._where(until=until)
        return f"SELECT {expressions} FROM {self.rows}{where} ORDER BY {self.order}"

    def select_count(self, *, until: bool = False) -> str:
        """A query for how many rows `select` gives."""
        return f"SELECT count(*) FROM {self.base or self.rows}{self._where(until=until)}"

    def _where(self, *, until: bool) -> str:
        return f" WHERE {self.since} <= ?" if until and self.since else ""


# Joined here and not through the views, so that SQLite reads the narrow table in the order in which
# it lies on disk.
_BY_WALLET = "balance_rows b JOIN wallets w USING (wallet_no) JOIN tokens t USING (token_no)"
_WITH_NAMES = f"{_BY_WALLET} LEFT JOIN contracts c ON c.contract = t.contract"

#: The public tables and views by name (contract, section 3).
TABLES: dict[str, PublicTable] = {
    "wallets": PublicTable(
        {
            "wallet_id": WALLET_ID,
            "label": LABEL,
            "wallet_group": GROUP,
            "tracked": flag("whether syncs read the wallet", "`nftsync wallets`"),
            "first_seen_at": time("when it became known", "when it was first stored"),
            "synced_at": time("start of the last complete read", SENT),
            "status": ours(LAST_READ, "the last read"),
            "error": ours("why it failed or is incomplete; missing: neither", "the last read"),
        },
        order="wallet_no",
        rows="wallets",
    ),
    "tokens": PublicTable(
        {
            "token_id": TOKEN_ID,
            "organization_id": uuid(
                "the organization that owns the token", f"{RECORD}organizationId"
            ),
            "contract_address": ADDRESS,
            "contract": CONTRACT,
            "blockchain_token_id": CHAIN_ID,
            **METADATA_COLUMNS,
            "extra": text(
                "every field without a column, and values of a wrong type, as a JSON object;"
                " metadata's under `metadata`",
                "provider's document, Token and TokenMetadata: fields beyond those shown",
                "JSON",
            ),
            "first_seen_at": time("when it became known", "when it was first stored"),
            "updated_at": time("when the metadata last changed", LOGGED),
        },
        order="token_no",
        rows="tokens",
    ),
    "contracts": PublicTable(
        {
            "contract": CONTRACT,
            "contract_address": text("the same, as it was first sent", f"{RECORD}contractAddress"),
            "name": ours("what it is called; missing: nobody knows", "see `name_source`"),
            "name_source": ours(
                "given (`nftsync collections label`), file (the collections file) or guessed (what"
                " nearly all its tokens' names share); missing: it has no name",
                "the first of these that there is",
            ),
        },
        order="rowid",
        rows="contracts",
    ),
    "balances": PublicTable(
        {
            "wallet_id": WALLET_ID,
            "token_id": TOKEN_ID,
            "amount": AMOUNT,
            "first_seen_at": time("since when the wallet lists the token", LOGGED),
            "updated_at": time("when the amount last changed", LOGGED),
        },
        order="b.wallet_no, b.token_no",
        base="balance_rows",
        rows=_BY_WALLET,
        names={"first_seen_at": "b.first_seen_at", "updated_at": "b.updated_at"},
    ),
    "balance_changes": PublicTable(
        {
            "change_id": count("", "number of the change; grows", "given when it was stored"),
            "wallet_id": WALLET_ID,
            "token_id": TOKEN_ID,
            "old_amount": amount("how much was held before; missing: it was not listed"),
            "new_amount": amount("how much is held since; missing: it is no longer listed"),
            "observed_at": time("when the change was seen, at the latest", LOGGED),
            "baseline": flag(
                "whether it comes of the wallet's first read, so is nothing that happened then",
                "the first read of the wallet that was stored",
            ),
            "run_id": RUN_ID,
            "webhook_id": WEBHOOK_ID,
        },
        order="change_id",
        base="balance_change_rows",
        rows="balance_changes",
        since="observed_at",
    ),
    "token_changes": PublicTable(
        {
            "change_id": count("", "number of the change; grows", "given when it was stored"),
            "token_id": TOKEN_ID,
            "before": text("the columns that changed, as they were", COMPARED, "JSON"),
            "after": text("the columns that changed, as they became", COMPARED, "JSON"),
            "observed_at": time("when the change was seen, at the latest", LOGGED),
            "run_id": RUN_ID,
            "webhook_id": WEBHOOK_ID,
        },
        order="change_id",
        base="token_change_rows",
        rows="token_changes",
        since="observed_at",
    ),
    "wallet_states": PublicTable(
        {
            "wallet_id": WALLET_ID,
            "first_read_at": time("first read that found this state", SENT),
            "last_read_at": time("last read that found the same", SENT),
            "reads": count("reads", "how many reads found this state", "counted when stored"),
            "body_sha256": ours(
                "digest of the first of those answers", "SHA-256 of the body", "hex"
            ),
            "run_id": RUN_ID,
        },
        order="state_id",
        base="wallet_state_rows",
        rows="wallet_states",
        since="observed_at",
    ),
    "sync_runs": PublicTable(
        {
            "run_id": count("", "number of the run; grows", "given when it began"),
            "kind": ours("sync or replay", "the command that ran"),
            "status": ours(
                "running, ok, partial (some failed or were incomplete), failed or interrupted",
                "how it ended; running may also mean that it was killed",
            ),
            "started_at": time("when the run began", "the clock"),
            "finished_at": time("when it ended; missing: it has not", "the clock"),
            "wallets_total": count("wallets", "how many it is done with", LEDGER),
            "wallets_ok": count("wallets", "read wholly", LEDGER),
            "wallets_unchanged": count("wallets", "of those, with nothing new", LEDGER),
            "wallets_failed": count("wallets", "not read, or not wholly", LEDGER),
            "tokens_added": count("tokens", "seen for the first time", LEDGER),
            "tokens_changed": count("tokens", "whose metadata changed", LEDGER),
            "balances_added": count("balances", "newly listed", LEDGER),
            "balances_changed": count("balances", "listed with another amount", LEDGER),
            "balances_removed": count("balances", "no longer listed", LEDGER),
            "requests": count("requests", "HTTP requests, retries included", LEDGER),
            "retries": count("requests", "of those, repeats", LEDGER),
            "seconds": Column("real", "seconds", "how long it took", f"{MIRROR}the clock"),
            "error": ours("why the whole run ended early; missing: it did not", "the run itself"),
        },
        order="run_id",
        rows="sync_runs",
        since="started_at",
    ),
    "webhooks": PublicTable(
        {
            "webhook_id": uuid(
                "the webhook; of a quarantined one `q-` and a digest", f"{WEBHOOK}id"
            ),
            "organization_id": uuid("the organization it was sent to", f"{WEBHOOK}organizationId"),
            "action": text("what happened to the object", f"{WEBHOOK}action"),
            "resource_type": text("the kind of the object", f"{WEBHOOK}resourceType"),
            "resource_id": uuid("the object", f"{WEBHOOK}resourceId"),
            "created_at_utc": text(
                "when the provider made it, as the provider sent it", f"{WEBHOOK}createdAtUtc"
            ),
            "changes": text(
                "what changed, if the provider says; a hint, never taken for a fact",
                f"{WEBHOOK}changes",
                "JSON",
            ),
            "body": Column("bytes", "", "the raw bytes; missing: emptied", f"{MIRROR}as it came"),
            "received_at": time("when it first came", "the receiver's clock"),
            "state": ours(
                "pending, running, done, failed (tried again), dead (attempts used up), unrouted or"
                " quarantined",
                "replay decides",
            ),
            "attempts": count("attempts", "failed reads of its object", "counted by replay"),
            "next_attempt_at": time("when it is due; missing: not any more", "set by replay"),
            "last_error": ours(
                "why the last attempt failed, or why it is quarantined", "replay, or the receiver"
            ),
            "finished_at": time("when it was settled", "the clock"),
            "deliveries": count("deliveries", "how often it came", "counted by the receiver"),
            "run_id": Column("integer", "", "the run that settled it", f"{MIRROR}row of sync_runs"),
        },
        order="rowid",
        rows="webhooks",
        since="received_at",
    ),
    "resources": PublicTable(
        {
            "resource_type": text("the kind of the object", f"{WEBHOOK}resourceType"),
            "resource_id": uuid("the object", f"{WEBHOOK}resourceId"),
            "body": ours("what the read returned", "the follow-up read", "JSON"),
            "fetched_at": time("start of that read", SENT),
        },
        order="rowid",
        rows="resources",
        since="fetched_at",
    ),
    "holdings": PublicTable(
        {
            "wallet_id": WALLET_ID,
            "wallet_label": LABEL,
            "wallet_group": GROUP,
            "token_id": TOKEN_ID,
            "contract_address": ADDRESS,
            "contract": CONTRACT,
            "collection": COLLECTION,
            "blockchain_token_id": CHAIN_ID,
            "amount": AMOUNT,
            **METADATA_COLUMNS,
            "held_since": time(
                "start of the present stretch of amounts above zero; missing: none is held",
                "when the change that began it was stored",
            ),
            "balance_updated_at": time("when the amount last changed", LOGGED),
            "token_updated_at": time("when the token's metadata last changed", LOGGED),
            "wallet_synced_at": time(
                "start of the wallet's last complete read; with `as_of`, as `confirmed_before`",
                SENT,
            ),
            "wallet_status": ours(LAST_READ, "the row of `wallets`, as it is today"),
        },
        order="b.wallet_no, b.token_no",
        base="balance_rows",
        rows=_WITH_NAMES,
        names={
            "contract_address": "t.contract_address",
            "contract": "coalesce(c.contract, t.contract)",
            "collection": "coalesce(c.collection, t.contract_short)",
            "name": "t.name",
            "wallet_label": "w.label",
            "balance_updated_at": "b.updated_at",
            "token_updated_at": "t.updated_at",
            "wallet_synced_at": "w.synced_at",
            "wallet_status": "w.status",
        },
    ),
}

#: What holdings as of a time have besides.
AS_OF_COLUMNS: dict[str, Column] = {
    "confirmed_before": time(
        "only with `as_of`: the read before that time that shows this state", "wallet_states"
    ),
    "confirmed_after": time(
        "only with `as_of`: the read after that time; missing: none yet", "wallet_states"
    ),
    "certainty": ours(
        "only with `as_of`: bracketed (the same was read before and after), gap (it changed in"
        " between) or open (no read since)",
        "wallet_states",
    ),
}


def columns_of(name: str, *, as_of: bool = False) -> dict[str, Column]:
    """The public columns of a table; with `as_of`, those that it has as of a time."""
    columns = dict(TABLES[name].columns)
    return columns | AS_OF_COLUMNS if as_of and name == "holdings" else columns
