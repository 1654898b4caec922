"""The public tables and views: each of their columns written down once.

What the tables hold beyond these columns (sequence numbers, validators, plans) is nftsync's own and
may change; nothing of it is printed or exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "AS_OF_COLUMNS",
    "TABLES",
    "Column",
    "ColumnKind",
    "Table",
    "columns_of",
]

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


def _text(meaning: str, source: str, unit: str = "") -> Column:
    return Column("text", unit, meaning, source)


def _ours(meaning: str, how: str, unit: str = "") -> Column:
    return Column("text", unit, meaning, MIRROR + how)


def _metadata(field: str, meaning: str, unit: str = "", kind: ColumnKind = "text") -> Column:
    return Column(kind, unit, meaning, METADATA + field)


def _flag(meaning: str, how: str) -> Column:
    return Column("flag", "", meaning, MIRROR + how)


def _id(meaning: str, source: str) -> Column:
    return Column("text", "UUID", meaning, source)


def _time(meaning: str, how: str) -> Column:
    return Column("time", "UTC", meaning, MIRROR + how)


def _amount(meaning: str) -> Column:
    return Column("amount", "tokens", meaning, f"{BALANCE}amount")


def _count(unit: str, meaning: str, how: str) -> Column:
    return Column("integer", unit, meaning, MIRROR + how, always=True)


_LOGGED = "when the read that found it was stored; never decreases"
_SENT = "the clock when the request was sent"
_LEDGER = "the run's own count"
_COMPARED = f"{MIRROR}compared with the read before"
_LAST_READ = "how the last read went: never, ok, incomplete or failed"

_WALLET_ID = _id("the wallet", "provider's document, GET nft-balances: walletId")
_LABEL = _ours("a name of the wallet for people", "the wallets file, or `nftsync wallets label`")
_GROUP = _ours("a group of wallets for people", "the wallets file")
_TOKEN_ID = _id("the token", f"{BALANCE}tokenId, {RECORD}id")
_AMOUNT = _amount("how much is held")
_RUN_ID = Column("integer", "", "the run whose read found it", f"{MIRROR}row of sync_runs")
_WEBHOOK_ID = _id("one of the webhooks that caused the read; missing: a sync did", f"{WEBHOOK}id")

_ADDRESS = _text(
    "the token's contract; `0x` and 40 hex digits are one whatever their case",
    f"{RECORD}contractAddress",
)
_CONTRACT = _text(
    "the contract in one spelling, to group by: `0x` and 40 hex digits in lower case",
    f"{RECORD}contractAddress",
)
_COLLECTION = _ours(
    "what the contract is called; its short address where it has no name", "table contracts"
)
_CHAIN_ID = _text(
    "the token's id on the chain; text, as it may be too long for a number",
    f"{RECORD}blockchainTokenId",
)
_METADATA = {
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


class Table(NamedTuple):
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
        return f"SELECT {expressions} FROM {self.rows}{where} ORDER BY {self.order}"  # noqa: S608

    def select_count(self, *, until: bool = False) -> str:
        """A query for how many rows `select` gives."""
        return f"SELECT count(*) FROM {self.base or self.rows}{self._where(until=until)}"  # noqa: S608

    def _where(self, *, until: bool) -> str:
        return f" WHERE {self.since} <= ?" if until and self.since else ""


# Joined here and not through the views, so that SQLite reads the narrow table in the order in which
# it lies on disk.
_BY_WALLET = "balance_rows b JOIN wallets w USING (wallet_no) JOIN tokens t USING (token_no)"
_WITH_NAMES = f"{_BY_WALLET} LEFT JOIN contracts c ON c.contract = t.contract"

#: The public tables and views by name (contract, section 3).
TABLES: dict[str, Table] = {
    "wallets": Table(
        {
            "wallet_id": _WALLET_ID,
            "label": _LABEL,
            "wallet_group": _GROUP,
            "tracked": _flag("whether syncs read the wallet", "`nftsync wallets`"),
            "first_seen_at": _time("when it became known", "when it was first stored"),
            "synced_at": _time("start of the last complete read", _SENT),
            "status": _ours(_LAST_READ, "the last read"),
            "error": _ours("why it failed or is incomplete; missing: neither", "the last read"),
        },
        order="wallet_no",
        rows="wallets",
    ),
    "tokens": Table(
        {
            "token_id": _TOKEN_ID,
            "organization_id": _id(
                "the organization that owns the token", f"{RECORD}organizationId"
            ),
            "contract_address": _ADDRESS,
            "contract": _CONTRACT,
            "blockchain_token_id": _CHAIN_ID,
            **_METADATA,
            "extra": _text(
                "every field without a column, and values of a wrong type, as a JSON object;"
                " metadata's under `metadata`",
                "provider's document, Token and TokenMetadata: fields beyond those shown",
                "JSON",
            ),
            "first_seen_at": _time("when it became known", "when it was first stored"),
            "updated_at": _time("when the metadata last changed", _LOGGED),
        },
        order="token_no",
        rows="tokens",
    ),
    "contracts": Table(
        {
            "contract": _CONTRACT,
            "contract_address": _text("the same, as it was first sent", f"{RECORD}contractAddress"),
            "name": _ours("what it is called; missing: nobody knows", "see `name_source`"),
            "name_source": _ours(
                "given (`nftsync collections label`), file (the collections file) or guessed (what"
                " nearly all its tokens' names share); missing: it has no name",
                "the first of these that there is",
            ),
        },
        order="rowid",
        rows="contracts",
    ),
    "balances": Table(
        {
            "wallet_id": _WALLET_ID,
            "token_id": _TOKEN_ID,
            "amount": _AMOUNT,
            "first_seen_at": _time("since when the wallet lists the token", _LOGGED),
            "updated_at": _time("when the amount last changed", _LOGGED),
        },
        order="b.wallet_no, b.token_no",
        base="balance_rows",
        rows=_BY_WALLET,
        names={"first_seen_at": "b.first_seen_at", "updated_at": "b.updated_at"},
    ),
    "balance_changes": Table(
        {
            "change_id": _count("", "number of the change; grows", "given when it was stored"),
            "wallet_id": _WALLET_ID,
            "token_id": _TOKEN_ID,
            "old_amount": _amount("how much was held before; missing: it was not listed"),
            "new_amount": _amount("how much is held since; missing: it is no longer listed"),
            "observed_at": _time("when the change was seen, at the latest", _LOGGED),
            "baseline": _flag(
                "whether it comes of the wallet's first read, so is nothing that happened then",
                "the first read of the wallet that was stored",
            ),
            "run_id": _RUN_ID,
            "webhook_id": _WEBHOOK_ID,
        },
        order="change_id",
        base="balance_change_rows",
        rows="balance_changes",
        since="observed_at",
    ),
    "token_changes": Table(
        {
            "change_id": _count("", "number of the change; grows", "given when it was stored"),
            "token_id": _TOKEN_ID,
            "before": _text("the columns that changed, as they were", _COMPARED, "JSON"),
            "after": _text("the columns that changed, as they became", _COMPARED, "JSON"),
            "observed_at": _time("when the change was seen, at the latest", _LOGGED),
            "run_id": _RUN_ID,
            "webhook_id": _WEBHOOK_ID,
        },
        order="change_id",
        base="token_change_rows",
        rows="token_changes",
        since="observed_at",
    ),
    "wallet_states": Table(
        {
            "wallet_id": _WALLET_ID,
            "first_read_at": _time("first read that found this state", _SENT),
            "last_read_at": _time("last read that found the same", _SENT),
            "reads": _count("reads", "how many reads found this state", "counted when stored"),
            "body_sha256": _ours(
                "digest of the first of those answers", "SHA-256 of the body", "hex"
            ),
            "run_id": _RUN_ID,
        },
        order="state_id",
        base="wallet_state_rows",
        rows="wallet_states",
        since="observed_at",
    ),
    "sync_runs": Table(
        {
            "run_id": _count("", "number of the run; grows", "given when it began"),
            "kind": _ours("sync or replay", "the command that ran"),
            "status": _ours(
                "running, ok, partial (some failed or were incomplete), failed or interrupted",
                "how it ended; running may also mean that it was killed",
            ),
            "started_at": _time("when the run began", "the clock"),
            "finished_at": _time("when it ended; missing: it has not", "the clock"),
            "wallets_total": _count("wallets", "how many it is done with", _LEDGER),
            "wallets_ok": _count("wallets", "read wholly", _LEDGER),
            "wallets_unchanged": _count("wallets", "of those, with nothing new", _LEDGER),
            "wallets_failed": _count("wallets", "not read, or not wholly", _LEDGER),
            "tokens_added": _count("tokens", "seen for the first time", _LEDGER),
            "tokens_changed": _count("tokens", "whose metadata changed", _LEDGER),
            "balances_added": _count("balances", "newly listed", _LEDGER),
            "balances_changed": _count("balances", "listed with another amount", _LEDGER),
            "balances_removed": _count("balances", "no longer listed", _LEDGER),
            "requests": _count("requests", "HTTP requests, retries included", _LEDGER),
            "retries": _count("requests", "of those, repeats", _LEDGER),
            "seconds": Column("real", "seconds", "how long it took", f"{MIRROR}the clock"),
            "error": _ours("why the whole run ended early; missing: it did not", "the run itself"),
        },
        order="run_id",
        rows="sync_runs",
        since="started_at",
    ),
    "webhooks": Table(
        {
            "webhook_id": _id(
                "the webhook; of a quarantined one `q-` and a digest", f"{WEBHOOK}id"
            ),
            "organization_id": _id("the organization it was sent to", f"{WEBHOOK}organizationId"),
            "action": _text("what happened to the object", f"{WEBHOOK}action"),
            "resource_type": _text("the kind of the object", f"{WEBHOOK}resourceType"),
            "resource_id": _id("the object", f"{WEBHOOK}resourceId"),
            "created_at_utc": _text(
                "when the provider made it, as the provider sent it", f"{WEBHOOK}createdAtUtc"
            ),
            "changes": _text(
                "what changed, if the provider says; a hint, never taken for a fact",
                f"{WEBHOOK}changes",
                "JSON",
            ),
            "body": Column("bytes", "", "the raw bytes; missing: emptied", f"{MIRROR}as it came"),
            "received_at": _time("when it first came", "the receiver's clock"),
            "state": _ours(
                "pending, running, done, failed (tried again), dead (attempts used up), unrouted or"
                " quarantined",
                "replay decides",
            ),
            "attempts": _count("attempts", "failed reads of its object", "counted by replay"),
            "next_attempt_at": _time("when it is due; missing: not any more", "set by replay"),
            "last_error": _ours(
                "why the last attempt failed, or why it is quarantined", "replay, or the receiver"
            ),
            "finished_at": _time("when it was settled", "the clock"),
            "deliveries": _count("deliveries", "how often it came", "counted by the receiver"),
            "run_id": Column("integer", "", "the run that settled it", f"{MIRROR}row of sync_runs"),
        },
        order="rowid",
        rows="webhooks",
        since="received_at",
    ),
    "resources": Table(
        {
            "resource_type": _text("the kind of the object", f"{WEBHOOK}resourceType"),
            "resource_id": _id("the object", f"{WEBHOOK}resourceId"),
            "body": _ours("what the read returned", "the follow-up read", "JSON"),
            "fetched_at": _time("start of that read", _SENT),
        },
        order="rowid",
        rows="resources",
        since="fetched_at",
    ),
    "holdings": Table(
        {
            "wallet_id": _WALLET_ID,
            "wallet_label": _LABEL,
            "wallet_group": _GROUP,
            "token_id": _TOKEN_ID,
            "contract_address": _ADDRESS,
            "contract": _CONTRACT,
            "collection": _COLLECTION,
            "blockchain_token_id": _CHAIN_ID,
            "amount": _AMOUNT,
            **_METADATA,
            "held_since": _time(
                "start of the present stretch of amounts above zero; missing: none is held",
                "when the change that began it was stored",
            ),
            "balance_updated_at": _time("when the amount last changed", _LOGGED),
            "token_updated_at": _time("when the token's metadata last changed", _LOGGED),
            "wallet_synced_at": _time(
                "start of the wallet's last complete read; with `as_of`, as `confirmed_before`",
                _SENT,
            ),
            "wallet_status": _ours(_LAST_READ, "the row of `wallets`, as it is today"),
        },
        order="b.wallet_no, b.token_no",
        base="balance_rows",
        rows=_WITH_NAMES,
        names={
            "contract_address": "t.contract_address",
            "contract": "t.contract",
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
    "confirmed_before": _time(
        "only with `as_of`: the read before that time that shows this state", "wallet_states"
    ),
    "confirmed_after": _time(
        "only with `as_of`: the read after that time; missing: none yet", "wallet_states"
    ),
    "certainty": _ours(
        "only with `as_of`: bracketed (the same was read before and after), gap (it changed in"
        " between) or open (no read since)",
        "wallet_states",
    ),
}


def columns_of(name: str, *, as_of: bool = False) -> dict[str, Column]:
    """The public columns of a table; with `as_of`, those that it has as of a time."""
    columns = dict(TABLES[name].columns)
    return columns | AS_OF_COLUMNS if as_of and name == "holdings" else columns
