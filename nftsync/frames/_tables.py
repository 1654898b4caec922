"""The contents of the database as frames."""

from __future__ import annotations

import operator
import warnings
from typing import Any, SupportsIndex

import numpy as np
import pandas as pd

from nftsync.columnar.amounts import AmountKind, Amounts, amounts_as_sent, sums_by_group
from nftsync.columnar.balances import GREATEST, change_log, change_span
from nftsync.columnar.columns import (
    INTEGER,
    TEXT,
    distinct_by_group,
    frame_columns,
    frame_of,
    integers,
    moments,
    read_table,
    text,
    times,
)
from nftsync.columnar.filters import Moment, filters_of, state_time
from nftsync.columnar.freshness import freshness_frame
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.holders import sort_groups
from nftsync.columnar.holdings import explain_empty, read_holdings
from nftsync.columnar.source import Store, positions, reading
from nftsync.columnar.tokens import (
    NAMING,
    contract_groups,
    matches_contract,
    named_contracts,
    read_token_frame,
    read_tokens,
    wallet_columns,
)
from nftsync.errors import InputError, NftsyncWarning
from nftsync.store.freshness import wallet_groups
from nftsync.store.history import from_history
from nftsync.store.names import Names
from nftsync.store.wallets import GroupNames, WalletIds


def holdings(
    db: Store = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    as_of: Moment | None = None,
    hidden: bool = False,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return the balances of all wallets: a row per wallet and token, amounts of 0 included.

    Shared parameters: see `nftsync.frames`. With `as_of`, balances and metadata are those known at
    that time; labels, groups and status of wallets and names of collections are today's.

    Returns:
        The columns of `frames.explain("holdings")`; `confirmed_before`, `confirmed_after` and
        `certainty` only with `as_of`.

    Warns:
        NftsyncWarning: the frame is empty because the wallet or contract is unknown, or was not
            read by then.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        moment = None if as_of is None else state_time(source, as_of)
        frame = read_holdings(source, filters, as_of=moment, amounts=amounts, hidden=hidden)
        reason = explain_empty(source, filters, moment) if frame.empty else None
    if reason is not None:
        warnings.warn(reason, NftsyncWarning, stacklevel=3)
    return frame


def tokens(
    db: Store = None, as_of: Moment | None = None, *, contract: str | None = None
) -> pd.DataFrame:
    """Return all tokens ever seen, held or not, in the order in which they were first seen.

    Shared parameters: see `nftsync.frames`. With `as_of`, the tokens and metadata are those known
    at that time, and `updated_at` is the last change until then.

    Returns:
        A row per token; columns: `frames.explain("tokens")`.
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
    """Return the changes of balances, oldest first.

    Shared parameters: see `nftsync.frames`. `since` and `until` bound `observed_at`. `after`
    selects greater `change_id` values, to continue from an earlier call. Tokens have today's names.

    Returns:
        A row per change; columns: `frames.explain("changes")`.

    Warns:
        NftsyncWarning: `since` is before the history, whose changes are unknown.
    """
    next_id = 0 if after is None else _next_change_id(after)
    with reading(db) as source:
        filters = filters_of(
            source, wallet=wallet, group=group, contract=contract, since=since, until=until
        )
        if filters.since is not None:
            from_history(source.cursor, filters.since)
        first, last = change_span(source, filters.since, filters.until)
        change, wallet_no, token_no, old, new, observed, baseline, run, webhook = change_log(
            source, first=max(first, next_id), last=last, filters=filters
        )
        wallets, token_numbers = wallet_no.to_numpy(), token_no.to_numpy()
        names = wallet_columns(source, wallets)
        tokens = read_tokens(source, NAMING, wanted=np.unique(token_numbers))
    sides = {"old_amount": Amounts(old), "new_amount": Amounts(new)}
    return frame_of(
        {
            "change_id": change.to_numpy().copy(),
            **names,
            **tokens.named(token_numbers),
            **amounts_as_sent(sides, amounts),
            "observed_at": times(moments(observed)),
            "baseline": baseline.to_numpy() != 0,
            "run_id": integers(run),
            "webhook_id": text(webhook),
        }
    )


def _next_change_id(after: SupportsIndex) -> int:
    try:
        number = operator.index(after)
    except TypeError as error:
        raise InputError(f"after={after!r} is not an integer; give a change_id") from error
    return max(min(number, GREATEST - 1), -1) + 1


def wallets(
    db: Store = None, *, wallet: WalletIds | None = None, group: GroupNames | None = None
) -> pd.DataFrame:
    """Return the known wallets, in the order in which they became known.

    Shared parameters: see `nftsync.frames`.

    Returns:
        A row per wallet; columns: `frames.explain("wallets")`.
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
    """Return the distinct states that reads of wallets showed, in the order of storage.

    Shared parameters: see `nftsync.frames`. A state matches `since` and `until` if the time between
    its first and last read overlaps that span.

    Returns:
        A row per state, which all reads from `first_read_at` to `last_read_at` showed; columns:
        `frames.explain("wallet_states")`.
    """
    times = ("last_read_at", "first_read_at")
    return _table(db, "wallet_states", times, wallet=wallet, group=group, since=since, until=until)


def runs(
    db: Store = None, *, since: Moment | None = None, until: Moment | None = None
) -> pd.DataFrame:
    """Return the runs of sync and replay, oldest first.

    Shared parameters: see `nftsync.frames`. `since` and `until` bound `started_at`.

    Returns:
        A row per run; columns: `frames.explain("runs")`.
    """
    return _table(db, "sync_runs", since=since, until=until)


def webhooks(
    db: Store = None, *, since: Moment | None = None, until: Moment | None = None
) -> pd.DataFrame:
    """Return the received webhooks without their bodies, in the order of their receipt.

    Shared parameters: see `nftsync.frames`. `since` and `until` bound `received_at`. The bodies
    stay in the database: `SELECT body FROM webhooks`.

    Returns:
        A row per webhook; columns: `frames.explain("webhooks")`.
    """
    return _table(db, "webhooks", since=since, until=until)


def messages(
    db: Store = None, *, since: Moment | None = None, until: Moment | None = None
) -> pd.DataFrame:
    """Return the messages to destinations without their bodies, in the order of storage.

    Shared parameters: see `nftsync.frames`. `since` and `until` bound `created_at`. The bodies stay
    in the database: `SELECT body FROM messages`.

    Returns:
        A row per message; columns: `frames.explain("messages")`.
    """
    return _table(db, "messages", since=since, until=until)


def token_changes(
    db: Store = None,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    contract: str | None = None,
) -> pd.DataFrame:
    """Return the changes of token metadata, oldest first, without the first read of each token.

    Shared parameters: see `nftsync.frames`. `since` and `until` bound `observed_at`.

    Returns:
        A row per change; columns: `frames.explain("token_changes")`.
    """
    return _table(db, "token_changes", since=since, until=until, contract=contract)


def _table(
    db: Store, name: str, times: tuple[str, str] | None = None, **filters: Any
) -> pd.DataFrame:
    with reading(db) as source:
        frame = read_table(source, name, filters_of(source, **filters), times=times)
        names = Names(source.cursor)
        for key, column, of in (
            ("wallet_id", "wallet", names.of_wallets),
            ("token_id", "nft", names.of_nfts),
        ):
            if key in frame:
                frame[column] = frame[key].map(of(frame[key].unique())).astype(frame[key].dtype)
    return frame[[*frame_columns(name)]]


def collections(
    db: Store = None,
    *,
    contract: str | None = None,
    hidden: bool = False,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Return a row per contract, the contract with the most holders first.

    Shared parameters: see `nftsync.frames`. Hidden tokens count nowhere; `frame.attrs["hidden"]` is
    the number of such tokens. Tokens without a contract share one row, whose address is missing.
    Spellings of one hex address are one contract, with the first spelling seen.

    Returns:
        The columns of `frames.explain("collections")`.
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
        left_out = hidden_rows(source, numbers, include=hidden)
        named = named_contracts(source, contracts)
    count = len(contracts)
    place = positions(numbers, token_no.to_numpy())
    balances = Amounts(amount)
    is_held = balances.nonzero() & (place >= 0) & ~np.append(left_out, False)[place]
    place, wallets = place[is_held], wallet_no.to_numpy()[is_held]
    group = groups[place]
    shown = groups[~left_out]
    first, latest = (
        pd.Series(moments(column)[~left_out]).groupby(shown) for column in (first_seen, updated)
    )
    all_groups = range(count)
    sums = sums_by_group(group, balances.exact().objects()[is_held], count)
    frame = frame_of(
        {
            **named,
            "tokens": np.bincount(shown, minlength=count),
            "held": distinct_by_group(group, place, count),
            "holders": distinct_by_group(group, wallets, count),
            "amount": sums,
            "first_seen_at": times(first.min().reindex(all_groups).to_numpy("M8[us]")),
            "updated_at": times(latest.max().reindex(all_groups).to_numpy("M8[us]")),
        }
    )
    rows = frame["tokens"] > 0
    if filters.contract is not None:
        named_so = matches_contract(contracts, filters.contract)
        rows &= named_so
        left_out &= named_so[groups]
    return marked(sort_groups(frame[rows], "contract_address", amounts), left_out)


def freshness(
    db: Store = None, *, wallet: WalletIds | None = None, group: GroupNames | None = None
) -> pd.DataFrame:
    """Return the last runs, wallet counts by read status, and the webhook backlog.

    Shared parameters: see `nftsync.frames`. Filters apply to wallets; runs and webhooks always
    cover the whole database.

    Returns:
        A row per `what`, always in this order; columns: `frames.explain("freshness")`.

        - `running sync`, only during a sync: wallets read so far; start time.
        - `last sync`, `last successful sync`, `last replay`: wallets read successfully; end time.
        - `oldest wallet read`: number of tracked wallets ever read; time of the least recent read,
          and its wallet.
        - `wallets never read`, `failed wallets`, `incomplete wallets`: number of such tracked
          wallets; when the first became known, or the least recent complete read; the first few
          names.
        - `webhooks pending` to `webhooks quarantined`: number of such webhooks; arrival of the
          oldest.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group)
        return freshness_frame(source, wallet_groups(source.cursor, filters))
