"""The contents of the database as frames: holdings, tokens, changes, wallets, runs and more."""

from __future__ import annotations

import operator
import warnings
from typing import Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.columnar.amounts import AmountKind, Amounts, amount_columns, sums_in_each
from nftsync.columnar.balances import GREATEST, change_log, change_span
from nftsync.columnar.columns import (
    INTEGER,
    TEXT,
    distinct_in_each,
    frame_of,
    integers,
    moments,
    read_table,
    text,
    times,
)
from nftsync.columnar.filters import Moment, filters_of
from nftsync.columnar.freshness import freshness_with, wallet_groups
from nftsync.columnar.holdings import read_holdings, why_nothing
from nftsync.columnar.source import Store, positions, reading
from nftsync.columnar.tokens import (
    NAMING,
    contract_groups,
    most_held,
    named_contracts,
    names_contract,
    read_token_frame,
    read_tokens,
    wallet_columns,
)
from nftsync.errors import InputError, NftsyncWarning
from nftsync.store.wallets import GroupNames, WalletIds


def holdings(
    db: Store = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    as_of: Moment | None = None,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return who holds what: a row per wallet and token that is listed, amounts of 0 included.

    Args:
        db: what to read, as `nftsync.frames` tells.
        wallet: only what these wallets hold.
        group: only what wallets of these groups hold.
        contract: only tokens of this contract.
        as_of: the balances and metadata that were known at this time; labels, groups and status
            of wallets and names of collections are today's. Text, a date (its end) or a
            datetime.
        amounts: what `amount` is to be, as `nftsync.frames` tells.

    Returns:
        `wallet_id`, `wallet_label`, `wallet_group`, `token_id`, `contract_address` (as sent),
        `contract` (the same in one spelling, to group by), `collection` (what the contract is
        called, else its short address), `blockchain_token_id`, `amount` (exact; missing where the
        text is not 1 to 100 ASCII digits), `amount_text` (as sent), `amount_float` (an
        approximation for plots; NaN of what is no plain decimal number), the token's `name` to
        `creator_external_page_url`, `held_since` (start of the present stretch of non-zero
        amounts; NaT when it is zero), `balance_updated_at`, `token_updated_at`,
        `wallet_synced_at`, `wallet_status`. With `as_of` also `confirmed_before` and
        `confirmed_after`, the reads around that time, and `certainty`: `bracketed` (the same
        state was read before and after), `gap` (it changed in between) or `open` (no read
        since); `wallet_synced_at` is then `confirmed_before`.

    Warns:
        NftsyncWarning: there are no rows because the wallet or the contract is not known, or was
            not read by then: nobody knows whether something was held.

    Raises:
        InputError: there is no such wallet label, group, contract or time; the amounts do not fit
            the `amounts` that was asked for; or `db` is neither a path nor a connection.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        found = read_holdings(source, filters, as_of=as_of, amounts=amounts)
        unknown = why_nothing(source, filters, as_of) if found.empty else None
    if unknown is not None:
        warnings.warn(unknown, NftsyncWarning, stacklevel=2)
    return found


def tokens(
    db: Store = None, as_of: Moment | None = None, *, contract: str | None = None
) -> pd.DataFrame:
    """Return the tokens that were ever seen, held or not, in the order they were first seen.

    Args:
        db: what to read, as `nftsync.frames` tells.
        as_of: only tokens that were known at this time, with the metadata known then;
            `updated_at` is the last change until then. Text, a date (its end) or a datetime.
        contract: only tokens of this contract.

    Returns:
        A row per token: `token_id`, `organization_id`, `contract_address` (as sent), `contract`
        (the same in one spelling, to group by), `collection` (what the contract is called today,
        else its short address), `blockchain_token_id`, `name` to `creator_external_page_url`,
        `extra` (JSON text), `first_seen_at`, `updated_at`. `edition_id` and `total_edition` are
        `Int64`.

    Raises:
        InputError: `as_of` is no time, there is no such contract, or `db` is neither a path nor a
            connection.
    """
    return read_token_frame(db, as_of, contract=contract)


def changes(
    db: Store = None,
    since: Moment | None = None,
    after: SupportsIndex | None = None,
    *,
    until: Moment | None = None,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the changes of balances, the oldest first.

    Args:
        db: what to read, as `nftsync.frames` tells.
        since: only changes observed at this time or later.
        after: only changes with a greater `change_id`, to go on where the last call ended.
        until: only changes observed at this time or earlier.
        wallet: only changes of these wallets.
        group: only changes of wallets of these groups.
        contract: only changes of tokens that are of this contract today.
        amounts: what `old_amount` and `new_amount` are to be, as `nftsync.frames` tells.

    Returns:
        `change_id`, `wallet_id`, `wallet_label`, `token_id`, its `contract_address`, `contract`,
        `collection` and `name` (as they are today), `old_amount` and `new_amount` (exact; missing
        where the text is not 1 to 100 ASCII digits), each followed by its text as sent
        (`old_amount_text`, missing: was not listed; `new_amount_text`, missing: no longer listed),
        `observed_at`, `baseline` (bool: by the wallet's first read), `run_id` (`Int64`),
        `webhook_id`.

    Raises:
        InputError: there is no such time, wallet label, group or contract; `after` is no integer;
            `since` is after `until`; the amounts do not fit the `amounts` that was asked for; or
            `db` is neither a path nor a connection.
    """
    following = 0 if after is None else _following(after)
    with reading(db) as source:
        filters = filters_of(
            source, wallet=wallet, group=group, contract=contract, since=since, until=until
        )
        first, last = change_span(source, filters.since, filters.until)
        change, wallet_no, token_no, old, new, observed, baseline, run, webhook = change_log(
            source, first=max(first, following), last=last, filters=filters
        )
        wallets, token_numbers = wallet_no.to_numpy(), token_no.to_numpy()
        names = wallet_columns(source, wallets)
        tokens = read_tokens(source, NAMING, wanted=np.unique(token_numbers))
    old_amounts, new_amounts = Amounts(old), Amounts(new)
    exact = amount_columns(
        {"old_amount": old_amounts.exact(), "new_amount": new_amounts.exact()}, amounts
    )
    return frame_of(
        {
            "change_id": change.to_numpy().copy(),
            **names,
            **tokens.named(token_numbers),
            "old_amount": exact["old_amount"],
            "old_amount_text": old_amounts.text(),
            "new_amount": exact["new_amount"],
            "new_amount_text": new_amounts.text(),
            "observed_at": times(moments(observed)),
            "baseline": baseline.to_numpy() != 0,
            "run_id": integers(run),
            "webhook_id": text(webhook),
        }
    )


def _following(after: SupportsIndex) -> int:
    try:
        number = operator.index(after)
    except TypeError as error:
        raise InputError(f"{after!r} is not a change_id; give an integer") from error
    return max(min(number, GREATEST - 1), -1) + 1


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
    return _table(db, "wallets", wallet=wallet, group=group)


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
    times = ("last_read_at", "first_read_at")
    return _table(db, "wallet_states", times, wallet=wallet, group=group, since=since, until=until)


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
    return _table(db, "sync_runs", since=since, until=until)


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
    return _table(db, "webhooks", since=since, until=until)


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
    return _table(db, "token_changes", since=since, until=until, contract=contract)


def _table(
    db: Store, name: str, times: tuple[str, str] | None = None, **filters: Any
) -> pd.DataFrame:
    with reading(db) as source:
        return read_table(source, name, filters_of(source, **filters), times=times)


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
            "token", ("contract_address", "first_seen_at", "updated_at")
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


def freshness(
    db: Store = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
) -> pd.DataFrame:
    """Return how fresh the data is: the last runs, wallets by how they were read, pending webhooks.

    Args:
        db: what to read, as `nftsync.frames` tells.
        wallet: count only these wallets; runs and webhooks are always those of the whole database.
        group: count only wallets of these groups.

    Returns:
        A row per `what`, always in this order, with `count` (`Int64`), `at` (a time, or NaT),
        `age` (from `at` until now, in whole seconds) and `detail` (text):

        - `running sync`, only if there is one: wallets read so far, since when.
        - `last sync`, `last successful sync`, `last replay`: wallets read well, when it ended.
        - `oldest wallet read`: how many tracked wallets were ever read, and when the least
          recently read one was; which one it is.
        - `wallets never read`, `failed wallets`, `incomplete wallets`: of the tracked ones, how
          many; since when the first was known, or when the least recent of them was last read
          wholly; the first few by name.
        - `webhooks pending` to `webhooks quarantined`: how many, and when the oldest came.

    Raises:
        InputError: there is no such wallet label or group, or `db` is neither a path nor a
            connection.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group)
        return freshness_with(source, wallet_groups(source, filters))
