"""The public tables and views: their columns, and a database opened to read them at one moment.

What the tables hold beyond these columns (tickets, validators, plans) is nftsync's own and may
change; nothing of it is printed or exported.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from nftsync.store.database import explained
from nftsync.store.schema import opened

__all__ = [
    "AS_OF_COLUMNS",
    "TABLES",
    "ColumnKind",
    "Table",
    "columns_of",
    "reading",
]

#: What a column holds. `time` is text in the stored form, `amount` an exact decimal as sent.
ColumnKind: TypeAlias = Literal["text", "time", "amount", "integer", "flag", "real", "bytes"]


class Table(NamedTuple):
    """A public table or view.

    Attributes:
        columns: the public columns, in order, and what each holds.
        base: the table that has a row for each of its rows.
        rows: what follows FROM to read it.
        order: what orders its rows as they came.
        since: the column of `base` that says when a row came to be; None: there is none.
        names: the expression of each column that `rows` does not simply call by its name.
    """

    columns: Mapping[str, ColumnKind]
    base: str
    rows: str
    order: str
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
        return f"SELECT count(*) FROM {self.base}{self._where(until=until)}"  # noqa: S608

    def _where(self, *, until: bool) -> str:
        return f" WHERE {self.since} <= ?" if until and self.since else ""


_TOKEN: dict[str, ColumnKind] = {
    "name": "text",
    "description": "text",
    "image": "text",
    "animation_url": "text",
    "external_url": "text",
    "background_color": "text",
    "edition_id": "integer",
    "total_edition": "integer",
    "creator_name": "text",
    "creator_image_url": "text",
    "creator_external_page_url": "text",
}

# Joined here and not through the views, so that SQLite reads the narrow table in the order in which
# it lies on disk.
_BY_WALLET = "balance_rows b JOIN wallets w USING (wallet_no) JOIN tokens t USING (token_no)"

#: The public tables and views by name (contract, section 3).
TABLES: dict[str, Table] = {
    "wallets": Table(
        {
            "wallet_id": "text",
            "label": "text",
            "wallet_group": "text",
            "tracked": "flag",
            "first_seen_at": "time",
            "synced_at": "time",
            "status": "text",
            "error": "text",
        },
        base="wallets",
        rows="wallets",
        order="wallet_no",
    ),
    "tokens": Table(
        {
            "token_id": "text",
            "organization_id": "text",
            "contract_address": "text",
            "blockchain_token_id": "text",
            **_TOKEN,
            "extra": "text",
            "first_seen_at": "time",
            "updated_at": "time",
        },
        base="tokens",
        rows="tokens",
        order="token_no",
    ),
    "balances": Table(
        {
            "wallet_id": "text",
            "token_id": "text",
            "amount": "amount",
            "first_seen_at": "time",
            "updated_at": "time",
        },
        base="balance_rows",
        rows=_BY_WALLET,
        order="b.wallet_no, b.token_no",
        names={"first_seen_at": "b.first_seen_at", "updated_at": "b.updated_at"},
    ),
    "balance_changes": Table(
        {
            "change_id": "integer",
            "wallet_id": "text",
            "token_id": "text",
            "old_amount": "amount",
            "new_amount": "amount",
            "observed_at": "time",
            "baseline": "flag",
            "run_id": "integer",
            "webhook_id": "text",
        },
        base="balance_change_rows",
        rows="balance_changes",
        order="change_id",
        since="observed_at",
    ),
    "token_changes": Table(
        {
            "change_id": "integer",
            "token_id": "text",
            "before": "text",
            "after": "text",
            "observed_at": "time",
            "run_id": "integer",
            "webhook_id": "text",
        },
        base="token_change_rows",
        rows="token_changes",
        order="change_id",
        since="observed_at",
    ),
    "wallet_states": Table(
        {
            "wallet_id": "text",
            "first_read_at": "time",
            "last_read_at": "time",
            "reads": "integer",
            "body_sha256": "text",
            "run_id": "integer",
        },
        base="wallet_state_rows",
        rows="wallet_states",
        order="state_id",
        since="observed_at",
    ),
    "sync_runs": Table(
        {
            "run_id": "integer",
            "kind": "text",
            "status": "text",
            "started_at": "time",
            "finished_at": "time",
            "wallets_total": "integer",
            "wallets_ok": "integer",
            "wallets_unchanged": "integer",
            "wallets_failed": "integer",
            "tokens_added": "integer",
            "tokens_changed": "integer",
            "balances_added": "integer",
            "balances_changed": "integer",
            "balances_removed": "integer",
            "requests": "integer",
            "retries": "integer",
            "seconds": "real",
            "error": "text",
        },
        base="sync_runs",
        rows="sync_runs",
        order="run_id",
        since="started_at",
    ),
    "webhooks": Table(
        {
            "webhook_id": "text",
            "organization_id": "text",
            "action": "text",
            "resource_type": "text",
            "resource_id": "text",
            "created_at_utc": "text",
            "changes": "text",
            "body": "bytes",
            "received_at": "time",
            "state": "text",
            "attempts": "integer",
            "next_attempt_at": "time",
            "last_error": "text",
            "finished_at": "time",
            "deliveries": "integer",
            "run_id": "integer",
        },
        base="webhooks",
        rows="webhooks",
        order="rowid",
        since="received_at",
    ),
    "resources": Table(
        {
            "resource_type": "text",
            "resource_id": "text",
            "body": "text",
            "fetched_at": "time",
        },
        base="resources",
        rows="resources",
        order="rowid",
        since="fetched_at",
    ),
    "holdings": Table(
        {
            "wallet_id": "text",
            "wallet_label": "text",
            "wallet_group": "text",
            "token_id": "text",
            "contract_address": "text",
            "blockchain_token_id": "text",
            "amount": "amount",
            **_TOKEN,
            "held_since": "time",
            "balance_updated_at": "time",
            "token_updated_at": "time",
            "wallet_synced_at": "time",
            "wallet_status": "text",
        },
        base="balance_rows",
        rows=_BY_WALLET,
        order="b.wallet_no, b.token_no",
        names={
            "wallet_label": "w.label",
            "balance_updated_at": "b.updated_at",
            "token_updated_at": "t.updated_at",
            "wallet_synced_at": "w.synced_at",
            "wallet_status": "w.status",
        },
    ),
}

#: What holdings as of a time have besides.
AS_OF_COLUMNS: dict[str, ColumnKind] = {
    "confirmed_before": "time",
    "confirmed_after": "time",
    "certainty": "text",
}


def columns_of(name: str, *, as_of: bool = False) -> dict[str, ColumnKind]:
    """The public columns of a table; with `as_of`, those that it has as of a time."""
    columns = dict(TABLES[name].columns)
    return columns | AS_OF_COLUMNS if as_of and name == "holdings" else columns


@contextmanager
def reading(path: Path | str) -> Iterator[sqlite3.Connection]:
    """Open a database and read it at one moment, whatever is written beside.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    with opened(path) as connection, explained(path):
        connection.execute("BEGIN DEFERRED")
        yield connection
