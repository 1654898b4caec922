"""Tables of the database as frames."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nftsync.columnar.amounts import AmountKind, Amounts, sums_in_each
from nftsync.columnar.columns import INTEGER, TEXT, distinct_in_each, frame_of, read_table
from nftsync.columnar.contracts import contract_groups, most_held, named_contracts, names_contract
from nftsync.columnar.filters import filters_of
from nftsync.columnar.source import Store, positions, reading
from nftsync.columnar.times import Moment, moments, times
from nftsync.store.wallets import GroupNames, WalletIds


def wallets(
    db: Store = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
) -> pd.DataFrame:
    """Return the known wallets, in the order they became known.

    Args:
        db: what to read, as `nftsync.frames` tells.
        wallet: only these wallets.
        group: only wallets of these groups.

    Returns:
        A row per wallet: `wallet_id`, `label`, `wallet_group`, `tracked` (bool),
        `first_seen_at`, `synced_at` (start of the last complete read), `status` (`never`, `ok`,
        `incomplete`, `failed`), `error`.

    Raises:
        InputError: there is no such wallet label or group, or `db` is neither a path nor a
            connection.
    """
    with reading(db) as source:
        return read_table(source, "wallets", filters_of(source, wallet=wallet, group=group))


def wallet_states(
    db: Store = None,
    wallet: WalletIds | None = None,
    *,
    group: GroupNames | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> pd.DataFrame:
    """Return the distinct states that reads of wallets showed, in the order they were stored.

    Args:
        db: what to read, as `nftsync.frames` tells.
        wallet: only states of these wallets.
        group: only states of wallets of these groups.
        since: only states whose last read was at this time or later.
        until: only states whose first read was at this time or earlier.

    Returns:
        A row per state: `wallet_id`, `first_read_at` and `last_read_at` (between which each read
        showed the same), `reads`, `body_sha256`, `run_id` (`Int64`).

    Raises:
        InputError: there is no such wallet label, group or time; or `db` is neither a path nor a
            connection.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, since=since, until=until)
        times = ("last_read_at", "first_read_at")
        return read_table(source, "wallet_states", filters, times=times)


def runs(
    db: Store = None, *, since: Moment | None = None, until: Moment | None = None
) -> pd.DataFrame:
    """Return the runs of sync and replay, the oldest first.

    Args:
        db: what to read, as `nftsync.frames` tells.
        since: only runs that began at this time or later.
        until: only runs that began at this time or earlier.

    Returns:
        A row per run: `run_id`, `kind`, `status`, `started_at`, `finished_at` (NaT while it
        runs), what it did (`wallets_total` to `retries`), `seconds`, `error`.

    Raises:
        InputError: a time is none, `since` is after `until`, or `db` is neither a path nor a
            connection.
    """
    with reading(db) as source:
        return read_table(source, "sync_runs", filters_of(source, since=since, until=until))


def webhooks(
    db: Store = None, *, since: Moment | None = None, until: Moment | None = None
) -> pd.DataFrame:
    """Return the stored webhooks without their bodies, in the order they came.

    The raw bytes (up to 256 KiB each) stay in the database: `SELECT body FROM webhooks`.

    Args:
        db: what to read, as `nftsync.frames` tells.
        since: only webhooks that came at this time or later.
        until: only webhooks that came at this time or earlier.

    Returns:
        A row per webhook: `webhook_id`, `organization_id`, `action`, `resource_type`,
        `resource_id`, `created_at_utc` (text, as sent), `changes` (JSON text), `received_at`,
        `state`, `attempts`, `next_attempt_at`, `last_error`, `finished_at`, `deliveries`,
        `run_id` (`Int64`).

    Raises:
        InputError: a time is none, `since` is after `until`, or `db` is neither a path nor a
            connection.
    """
    with reading(db) as source:
        return read_table(source, "webhooks", filters_of(source, since=since, until=until))


def token_changes(
    db: Store = None,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    contract: str | None = None,
) -> pd.DataFrame:
    """Return the changes of token metadata, the oldest first; a token's first sight is no change.

    Args:
        db: what to read, as `nftsync.frames` tells.
        since: only changes observed at this time or later.
        until: only changes observed at this time or earlier.
        contract: only changes of tokens that are of this contract today.

    Returns:
        `change_id`, `token_id`, `before` and `after` (JSON text: objects of just the changed
        columns), `observed_at`, `run_id` (`Int64`), `webhook_id`.

    Raises:
        InputError: there is no such time or contract, `since` is after `until`, or `db` is neither
            a path nor a connection.
    """
    with reading(db) as source:
        filters = filters_of(source, since=since, until=until, contract=contract)
        return read_table(source, "token_changes", filters)


def collections(
    db: Store = None, *, contract: str | None = None, amounts: AmountKind = None
) -> pd.DataFrame:
    """Return a row per contract, the one with the most holders first.

    Addresses of `0x` and 40 hex digits are one contract whatever their case, and show as first
    spelled; tokens without a contract have a row of their own, whose address is missing.

    Args:
        db: what to read, as `nftsync.frames` tells.
        contract: only this contract.
        amounts: what `amount` is to be, as `nftsync.frames` tells.

    Returns:
        `contract_address`, `contract` (the same in one spelling), `collection` (what it is called,
        else its short address), `name_source` (`given`, of the collections `file`, or `guessed`
        from its tokens' names; missing: it has no name), `tokens` (known ones), `held` (tokens of
        which a wallet holds more than zero), `holders` (wallets that hold one), `amount` (exact
        sum; amounts that are not 1 to 100 ASCII digits are left out), `first_seen_at` (of its first
        token), `updated_at` (the latest change of a token's metadata).

    Raises:
        InputError: there is no such contract, the amounts do not fit the `amounts` that was asked
            for, or `db` is neither a path nor a connection.
    """
    with reading(db) as source:
        numbers, (addresses, first_seen, updated) = source.numbered(
            "tokens",
            "token_no",
            [("contract_address", TEXT), ("first_seen_at", TEXT), ("updated_at", TEXT)],
        )
        filters = filters_of(source, contract=contract)
        condition, parameters = filters.where(key="no")
        wallet_no, token_no, amount = source.columns(
            f"SELECT wallet_no, token_no, amount FROM balance_rows WHERE {condition}",
            [INTEGER, INTEGER, TEXT],
            parameters,
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
    rows = frame["tokens"] > 0
    if filters.contract is not None:
        rows &= names_contract(contracts, filters.contract)
    return most_held(frame[rows], amounts)
