"""Tables of the database as frames, and wallets by number: their ids and what they are called."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.frames._amounts import AmountKind, Amounts, Exact, amount_columns, sums_in_each
from nftsync.frames._columns import (
    INTEGER,
    TEXT,
    distinct_in_each,
    frame_of,
    moments,
    read_table,
    text,
    times,
)
from nftsync.frames._contracts import contract_columns, contract_groups, name_sources
from nftsync.frames._source import (
    IN_JSON,
    Numbers,
    Source,
    Store,
    positions,
    reading,
)
from nftsync.store.labels import LABELLED, WalletIds, given_wallets, ids_named

__all__ = [
    "WalletIds",
    "WalletNames",
    "collections",
    "most_held",
    "named_contracts",
    "runs",
    "token_changes",
    "wallet_ids",
    "wallet_names",
    "wallet_numbers",
    "wallet_states",
    "wallets",
    "webhooks",
]


@dataclass(frozen=True)
class WalletNames:
    """Ids and labels of wallets, in the order of their numbers."""

    numbers: Numbers
    ids: pa.Array
    labels: pa.Array

    def id_column(self, wallets: Numbers) -> Any:
        """A frame's column of ids; missing where a number is no wallet's."""
        return self._column(self.ids, wallets)

    def label_column(self, wallets: Numbers) -> Any:
        """A frame's column of labels; missing where a wallet has none."""
        return self._column(self.labels, wallets)

    def _column(self, values: pa.Array, wallets: Numbers) -> Any:
        place = positions(self.numbers, wallets)
        return text(values.take(pa.array(place, mask=place < 0)))


def wallet_names(source: Source, wanted: Numbers) -> WalletNames:
    """Read what wallets are called.

    Args:
        source: where to read.
        wanted: numbers of wallets, in any order and as often as they come.
    """
    columns = [("wallet_id", TEXT), ("label", TEXT)]
    numbers, (ids, labels) = source.numbered("wallets", "wallet_no", columns, np.unique(wanted))
    return WalletNames(numbers, ids, labels)


def wallet_numbers(source: Source, wallet: WalletIds) -> Numbers:
    """Look up the numbers of wallets that are named; ids that are not known have none.

    Raises:
        InputError: what is no id is not the label of one wallet.
    """
    if not (ids := wallet_ids(source, wallet)):
        return np.empty(0, dtype=np.int64)
    (numbers,) = source.columns(
        f"SELECT wallet_no FROM wallets WHERE wallet_id {IN_JSON}",  # noqa: S608 - our own names
        [INTEGER],
        (json.dumps(ids),),
    )
    return np.asarray(numbers.to_numpy())


def wallet_ids(source: Source, wallet: WalletIds) -> list[str]:
    """The ids of one wallet or several, each named by its id or label; see `ids_named`."""
    return ids_named(given_wallets(wallet), lambda: source.rows(LABELLED))


def wallets(db: Store = None) -> pd.DataFrame:
    """All known wallets, in the order they became known.

    Args:
        db: what to read, as `nftsync.frames` tells.

    Returns:
        A row per wallet: `wallet_id`, `label`, `wallet_group`, `tracked` (bool),
        `first_seen_at`, `synced_at` (start of the last complete read), `status` (`never`, `ok`,
        `incomplete`, `failed`), `error`.

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(db) as source:
        return read_table(source, "wallets")


def wallet_states(db: Store = None, wallet: WalletIds | None = None) -> pd.DataFrame:
    """The distinct states that wallets were found in, in the order they were stored.

    Args:
        db: what to read, as `nftsync.frames` tells.
        wallet: one wallet or several, by id or label; None is all.

    Returns:
        A row per state: `wallet_id`, `first_read_at` and `last_read_at` (between which each read
        found the same), `reads`, `body_sha256`, `run_id` (`Int64`).

    Raises:
        InputError: no wallet is called so, or several are; or `db` is neither a path nor a
            connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(db) as source:
        if wallet is None:
            return read_table(source, "wallet_states")
        ids = json.dumps(wallet_ids(source, wallet))
        return read_table(source, "wallet_states", f"WHERE wallet_id {IN_JSON}", (ids,))


def runs(db: Store = None) -> pd.DataFrame:
    """All runs of sync and replay, the oldest first.

    Args:
        db: what to read, as `nftsync.frames` tells.

    Returns:
        A row per run: `run_id`, `kind`, `status`, `started_at`, `finished_at` (NaT while it
        runs), what it did (`wallets_total` to `retries`), `seconds`, `error`.

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(db) as source:
        return read_table(source, "sync_runs")


def webhooks(db: Store = None) -> pd.DataFrame:
    """All webhooks that were stored, in the order they came; without their bodies.

    The raw bytes (up to 256 KiB each) stay in the database: `SELECT body FROM webhooks`.

    Args:
        db: what to read, as `nftsync.frames` tells.

    Returns:
        A row per webhook: `webhook_id`, `organization_id`, `action`, `resource_type`,
        `resource_id`, `created_at_utc` (text, as sent), `changes` (JSON text), `received_at`,
        `state`, `attempts`, `next_attempt_at`, `last_error`, `finished_at`, `deliveries`,
        `run_id` (`Int64`).

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(db) as source:
        return read_table(source, "webhooks")


def token_changes(db: Store = None) -> pd.DataFrame:
    """The log of token metadata, the oldest change first; a token's first sight is no change.

    Args:
        db: what to read, as `nftsync.frames` tells.

    Returns:
        `change_id`, `token_id`, `before` and `after` (JSON text: objects of just the changed
        columns), `observed_at`, `run_id` (`Int64`), `webhook_id`.

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(db) as source:
        return read_table(source, "token_changes")


def collections(db: Store = None, *, amounts: AmountKind = None) -> pd.DataFrame:
    """A row per contract, the one with the most holders first.

    Addresses of `0x` and 40 hex digits are one contract whatever their case, and show as first
    spelled; tokens without a contract have a row of their own, whose address is missing.

    Args:
        db: what to read, as `nftsync.frames` tells.
        amounts: what `amount` is to be, as `nftsync.frames` tells.

    Returns:
        `contract_address`, `contract` (the same in one spelling), `collection` (what it is called,
        else its short address), `name_source` (`given`, of the collections `file`, or `guessed`
        from its tokens' names; missing: it has no name), `tokens` (known ones), `held` (tokens of
        which a wallet holds more than zero), `holders` (wallets that hold one), `amount` (exact
        sum; amounts that are not 1 to 100 ASCII digits are left out), `first_seen_at` (of its first
        token), `updated_at` (the latest change of a token's metadata).

    Raises:
        InputError: the amounts do not fit the `amounts` that was asked for, or `db` is neither a
            path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(db) as source:
        numbers, (addresses, first_seen, updated) = source.numbered(
            "tokens",
            "token_no",
            [("contract_address", TEXT), ("first_seen_at", TEXT), ("updated_at", TEXT)],
        )
        wallet_no, token_no, amount = source.columns(
            "SELECT wallet_no, token_no, amount FROM balance_rows", [INTEGER, INTEGER, TEXT]
        )
        groups, contracts = contract_groups(addresses)
        named = named_contracts(source, contracts)
    count = len(contracts)
    place = positions(numbers, token_no.to_numpy())
    known = Amounts(amount)
    held = known.nonzero() & (place >= 0)
    place, wallets = place[held], wallet_no.to_numpy()[held]
    group = groups[place]
    first, latest = (pd.Series(moments(each)).groupby(groups) for each in (first_seen, updated))
    some = range(count)
    sums = sums_in_each(group, known.exact().objects()[held], count)
    frame = frame_of(
        {
            **named,
            "tokens": np.bincount(groups, minlength=count),
            "held": distinct_in_each(group, place, count),
            "holders": distinct_in_each(group, wallets, count),
            "amount": sums,
            "first_seen_at": times(first.min().reindex(some).to_numpy("M8[us]")),
            "updated_at": times(latest.max().reindex(some).to_numpy("M8[us]")),
        }
    )
    return most_held(frame[frame["tokens"] > 0], amounts)


def named_contracts(source: Source, contracts: pa.Array) -> dict[str, Any]:
    """The columns of `collections` that tell which contract a row is of, by its address."""
    called = contract_columns(source, contracts)
    columns = {
        "contract_address": contracts,
        **called,
        "name_source": name_sources(source, called["contract"]),
    }
    return {name: text(column) for name, column in columns.items()}


def most_held(frame: pd.DataFrame, amounts: AmountKind) -> pd.DataFrame:
    """Finish what `collections` returns: its `amount` of exact integers, and the order of rows.

    Raises:
        InputError: the amounts do not fit the `amounts` that was asked for.
    """
    exact = Exact.of(frame["amount"].to_numpy(dtype=object))
    return frame.assign(**amount_columns({"amount": exact}, amounts)).sort_values(
        ["holders", "contract_address"], ascending=[False, True], ignore_index=True
    )
