"""The public tables and views, with the meaning of each column, also in frames.

All other columns (sequence numbers, validators, plans) are internal and may change; nftsync neither
prints nor exports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

#: The type of a column. In tables, `time` is text in the stored form, and `amount` an exact decimal
#: as sent. `duration` and `category` are in frames only.
ColumnKind: TypeAlias = Literal[
    "text", "time", "amount", "integer", "flag", "real", "bytes", "duration", "category"
]


class Column(NamedTuple):
    """A public column.

    `unit` is blank for names and text. `source` is the section and field of the provider's
    document, or how nftsync derives the column. Integers with `always` are never missing.
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
DELIVERY = "provider's document, Webhook delivery: "
MIRROR = "nftsync: "


def text(meaning: str, source: str, unit: str = "") -> Column:
    return Column("text", unit, meaning, source)


def ours(meaning: str, how: str, unit: str = "") -> Column:
    return Column("text", unit, meaning, MIRROR + how)


def _metadata(field: str, meaning: str, unit: str = "", kind: ColumnKind = "text") -> Column:
    return Column(kind, unit, meaning, METADATA + field)


def flag(meaning: str, how: str) -> Column:
    return Column("flag", "", meaning, MIRROR + how)


def uuid(meaning: str, source: str) -> Column:
    return Column("text", "UUID", meaning, source)


def time(meaning: str, how: str) -> Column:
    return Column("time", "UTC", meaning, MIRROR + how)


def amount(meaning: str, source: str = f"{BALANCE}amount") -> Column:
    return Column("amount", "tokens", meaning, source)


def count(unit: str, meaning: str, how: str, *, always: bool = True) -> Column:
    return Column("integer", unit, meaning, MIRROR + how, always)


LOGGED = "time at which nftsync stored the read; never decreases (in a lake: from run to run)"
SENT = "the clock when nftsync sent the request"
LEDGER = "the run's own count"
HIDDEN = "`nftsync hide`, or the hidden file"
COMPARED = f"{MIRROR}compared with the read before"
LAST_READ = "result of the last read: never, ok, incomplete or failed"

WALLET_ID = uuid("the wallet", "provider's document, GET nft-balances: walletId")
LABEL = ours("the wallet's label", "the wallets file, or `nftsync wallets label`")
GROUP = ours("the wallet's group", "the wallets file")
TOKEN_ID = uuid("the token", f"{BALANCE}tokenId, {RECORD}id")
AMOUNT = amount("the amount held")
RUN_ID = Column("integer", "", "the run that made the read", f"{MIRROR}row of sync_runs")
WEBHOOK_ID = uuid("a webhook that caused the read; missing: a sync did", f"{WEBHOOK}id")

ADDRESS = text("the token's contract, as the provider sent it", f"{RECORD}contractAddress")
CONTRACT = text(
    "the contract in one spelling, to group by: hex addresses in lower case, and without leading"
    " zeros unless they have 40 digits",
    f"{RECORD}contractAddress",
)
COLLECTION = ours("name of the contract, or its short address", "table contracts")
CHAIN_ID = text("on-chain token id, as text because of its length", f"{RECORD}blockchainTokenId")
METADATA_COLUMNS = {
    "name": _metadata("name", "the token's name"),
    "description": _metadata("description", "the token's description"),
    "image": _metadata("image", "address of the image", "URL"),
    "animation_url": _metadata("animationUrl", "address of a video, sound or page", "URL"),
    "external_url": _metadata("externalUrl", "address of a page about the token", "URL"),
    "background_color": _metadata("backgroundColor", "a color, in an undocumented format"),
    "edition_id": _metadata("editionId", "number in the series; may be 0", kind="integer"),
    "total_edition": _metadata("totalEdition", "claimed size of the series", "tokens", "integer"),
    "creator_name": _metadata("creatorName", "name of the creator, as the creator states it"),
    "creator_image_url": _metadata("creatorImageUrl", "address of the creator's image", "URL"),
    "creator_external_page_url": _metadata("creatorExternalPageUrl", "the creator's page", "URL"),
}


class PublicTable(NamedTuple):
    """A public table or view: its FROM clause, and its ORDER BY clause for the order of storage.

    `base` is a table with the same number of rows, if `rows` is a join. `since` is the column of
    `base` with a row's creation time. `names` are the expressions of columns whose name in `rows`
    differs or is ambiguous.
    """

    columns: Mapping[str, Column]
    rows: str
    order: str = "rowid"
    base: str | None = None
    since: str | None = None
    names: Mapping[str, str] = {}

    def select(self, *, until: bool = False) -> str:
        """Return a query for all public columns; `until`: of rows created by its one parameter."""
        expressions = ", ".join(self.names.get(name, name) for name in self.columns)
        where = self._where(until=until)
        return f"SELECT {expressions} FROM {self.rows}{where} ORDER BY {self.order}"

    def select_count(self, *, until: bool = False) -> str:
        return f"SELECT count(*) FROM {self.base or self.rows}{self._where(until=until)}"

    def _where(self, *, until: bool) -> str:
        return f" WHERE {self.since} <= ?" if until and self.since else ""


# Joined here instead of through the views, so that SQLite reads the narrow table in disk order.
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
            "first_seen_at": time("when nftsync first saw it", "time of the first storage"),
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
            "organization_id": uuid("the owning organization", f"{RECORD}organizationId"),
            "contract_address": ADDRESS,
            "contract": CONTRACT,
            "blockchain_token_id": CHAIN_ID,
            **METADATA_COLUMNS,
            "extra": text(
                "all fields without a column, and values of a wrong type, as a JSON object;"
                " metadata fields are under `metadata`",
                "provider's document, Token and TokenMetadata: all other fields",
                "JSON",
            ),
            "first_seen_at": time("when nftsync first saw it", "time of the first storage"),
            "updated_at": time("when the metadata last changed", LOGGED),
        },
        order="token_no",
        rows="tokens",
    ),
    "contracts": PublicTable(
        {
            "contract": CONTRACT,
            "contract_address": text("the address as first sent", f"{RECORD}contractAddress"),
            "name": ours("name of the contract; missing: unknown", "see `name_source`"),
            "name_source": ours(
                "given (`nftsync collections label`), file (the collections file) or guessed (the"
                " common part of its tokens' names); missing: no name",
                "the first of these sources with a name",
            ),
        },
        rows="contracts",
    ),
    "hidden": PublicTable(
        {
            "contract": ours("the hidden contract, as in `contracts`; missing: a token", HIDDEN),
            "token_id": ours("the hidden token; missing: a contract", HIDDEN, "UUID"),
            "reason": ours("why it is hidden; missing: none is given", HIDDEN),
            "source": ours("given (`nftsync hide`) or file (the hidden file)", "its origin"),
            "hidden_at": time("time it was hidden", "the clock"),
        },
        rows="hidden",
    ),
    "balances": PublicTable(
        {
            "wallet_id": WALLET_ID,
            "token_id": TOKEN_ID,
            "amount": AMOUNT,
            "first_seen_at": time("when the wallet first listed the token", LOGGED),
            "updated_at": time("when the amount last changed", LOGGED),
        },
        order="b.wallet_no, b.token_no",
        base="balance_rows",
        rows=_BY_WALLET,
        names={"first_seen_at": "b.first_seen_at", "updated_at": "b.updated_at"},
    ),
    "balance_changes": PublicTable(
        {
            "change_id": count("", "number of the change, ascending", "assigned at storage"),
            "wallet_id": WALLET_ID,
            "token_id": TOKEN_ID,
            "old_amount": amount("the amount before; missing: the token was not listed"),
            "new_amount": amount("the amount after; missing: the token left the list"),
            "observed_at": time("when nftsync stored the change, which happened no later", LOGGED),
            "baseline": flag(
                "whether the wallet's first read showed it, so its real date is unknown",
                "the first stored read of the wallet",
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
            "change_id": count("", "number of the change, ascending", "assigned at storage"),
            "token_id": TOKEN_ID,
            "before": text("the changed columns with their old values", COMPARED, "JSON"),
            "after": text("the changed columns with their new values", COMPARED, "JSON"),
            "observed_at": time("when nftsync stored the change, which happened no later", LOGGED),
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
            "first_read_at": time("first read that showed this state", SENT),
            "last_read_at": time("last read that showed this state", SENT),
            "reads": count("reads", "number of reads that showed this state", "counted at storage"),
            "body_sha256": ours("digest of the first such response", "SHA-256 of the body", "hex"),
            "run_id": RUN_ID,
        },
        order="state_id",
        base="wallet_state_rows",
        rows="wallet_states",
        since="observed_at",
    ),
    "sync_runs": PublicTable(
        {
            "run_id": count("", "number of the run, ascending", "assigned at the start"),
            "kind": ours("sync or replay", "the command that ran"),
            "status": ours(
                "running, ok, partial (some failed or were incomplete), failed or interrupted",
                "the run's end; a killed run may still say running",
            ),
            "started_at": time("when the run began", "the clock"),
            "finished_at": time("when the run ended; missing: it has not ended", "the clock"),
            "wallets_total": count("wallets", "wallets processed so far", LEDGER),
            "wallets_ok": count("wallets", "read completely", LEDGER),
            "wallets_unchanged": count("wallets", "of those, without changes", LEDGER),
            "wallets_failed": count("wallets", "read failed or incomplete", LEDGER),
            "tokens_added": count("tokens", "seen for the first time", LEDGER),
            "tokens_changed": count("tokens", "with changed metadata", LEDGER),
            "balances_added": count("balances", "newly listed", LEDGER),
            "balances_changed": count("balances", "listed with another amount", LEDGER),
            "balances_removed": count("balances", "no longer listed", LEDGER),
            "requests": count("requests", "HTTP requests, retries included", LEDGER),
            "retries": count("requests", "of those, retries", LEDGER),
            "seconds": Column("real", "seconds", "duration", f"{MIRROR}the clock"),
            "error": ours("why the run ended early; missing: it did not", "the run itself"),
        },
        order="run_id",
        rows="sync_runs",
        since="started_at",
    ),
    "webhooks": PublicTable(
        {
            "webhook_id": uuid("the webhook; if quarantined, `q-` and a digest", f"{WEBHOOK}id"),
            "organization_id": uuid("the organization it is for", f"{WEBHOOK}organizationId"),
            "action": text("what happened to the object", f"{WEBHOOK}action"),
            "resource_type": text("type of the object", f"{WEBHOOK}resourceType"),
            "resource_id": uuid("the object", f"{WEBHOOK}resourceId"),
            "created_at_utc": text(
                "when the provider created it, as sent", f"{WEBHOOK}createdAtUtc"
            ),
            "changes": text("the reported changes, only a hint", f"{WEBHOOK}changes", "JSON"),
            "body": Column("bytes", "", "the raw bytes; missing: pruned", f"{MIRROR}as received"),
            "received_at": time("when the webhook was first received", "the receiver's clock"),
            "request_id": text("header of the last delivery", f"{DELIVERY}request-id"),
            "traceparent": text("header of the last delivery", f"{DELIVERY}traceparent"),
            "state": ours(
                "pending, running, done, failed (to be retried), dead (no attempts left), unrouted"
                " or quarantined",
                "set by the receiver and by replay",
            ),
            "attempts": count("attempts", "failed reads of its object", "counted by replay"),
            "next_attempt_at": time("when the next attempt is due; missing: none", "set by replay"),
            "last_error": ours("why it failed or is quarantined", "replay, or the receiver"),
            "finished_at": time("when the webhook got its final state", "the clock"),
            "deliveries": count("deliveries", "number of deliveries", "counted by the receiver"),
            "run_id": RUN_ID._replace(meaning="the run that set the final state"),
        },
        rows="webhooks",
        since="received_at",
    ),
    "new_fields": PublicTable(
        {
            "field": ours(
                "a field that is not documented, or has another type; at most 200. It begins with"
                " `token.`, `metadata.`, `balance.` (an entry of a wallet's list) or `webhook.`",
                "the name as sent, cut to 80 characters",
            ),
            "type": ours("text, integer, number, true or false, list, object, null", "its value"),
            "documented_type": ours("missing: it is not documented", "the provider's document"),
            "example_id": ours("a token or webhook that shows it", "its id", "UUID"),
            "first_seen_at": time("when nftsync first saw it", LOGGED),
        },
        order="first_seen_at, field",
        rows="new_fields",
        since="first_seen_at",
    ),
    "messages": PublicTable(
        {
            "message_id": ours("the message; also in the header `webhook-id`", "the planner"),
            "rule": ours("the rule or forward that made the message", "[watch] or [forward]"),
            "destination": ours("where the message goes", "[destinations]"),
            "created_at": time("when the message was stored", "the clock"),
            "body": Column("bytes", "", "the body; missing: pruned", f"{MIRROR}as it is sent"),
            "state": ours(
                "pending, running, done, failed (to be retried) or dead (no attempts left)",
                "set by the sender",
            ),
            "attempts": count("attempts", "refused deliveries", "counted by the sender"),
            "next_attempt_at": time("when the next attempt is due; missing: none", "the sender"),
            "last_error": ours("why the last attempt failed", "the sender"),
            "finished_at": time("when the message got its final state", "the clock"),
        },
        rows="messages",
        since="created_at",
    ),
    "resources": PublicTable(
        {
            "resource_type": text("type of the object", f"{WEBHOOK}resourceType"),
            "resource_id": uuid("the object", f"{WEBHOOK}resourceId"),
            "body": ours("the response", "the follow-up read", "JSON"),
            "fetched_at": time("start of that read", SENT),
        },
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
            "held_since": time("start of the current period above 0; missing: amount 0", LOGGED),
            "balance_updated_at": time("when the amount last changed", LOGGED),
            "token_updated_at": time("when the token's metadata last changed", LOGGED),
            "wallet_synced_at": time(
                "start of the last complete read, or `confirmed_before`", SENT
            ),
            "wallet_status": ours(LAST_READ, "the current row of `wallets`"),
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

#: Additional columns of holdings as of a time.
AS_OF_COLUMNS: dict[str, Column] = {
    "confirmed_before": time("only with `as_of`: last read of this state by then", "wallet_states"),
    "confirmed_after": time("only with `as_of`: first later read; missing: none", "wallet_states"),
    "certainty": ours(
        "only with `as_of`: bracketed (reads before and after show the same), gap (the state"
        " changed between the two) or open (no read since)",
        "wallet_states",
    ),
}


def columns_of(name: str, *, as_of: bool = False) -> dict[str, Column]:
    """Return the public columns of a table, with `AS_OF_COLUMNS` if `as_of` is set."""
    columns = dict(TABLES[name].columns)
    return columns | AS_OF_COLUMNS if as_of and name == "holdings" else columns
