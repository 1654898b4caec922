"""Holdings now or at a time, and the explanation when there are none."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, amount_columns
from nftsync.columnar.balances import (
    balances_at,
    read_balances,
    read_confirmations,
)
from nftsync.columnar.columns import frame_of, moments, text, times
from nftsync.columnar.filters import Moment, shown, stored_time, wallet_numbers
from nftsync.columnar.source import IN_JSON, Parameters, Source, Store, positions, reading
from nftsync.columnar.tokens import CONTRACT_COLUMNS, finished, read_tokens
from nftsync.records import CONTENT_COLUMNS
from nftsync.store.catalog import TABLES
from nftsync.store.filters import Filters, is_contract
from nftsync.text import counted

#: All columns in their order; an amount shows as three.
_COLUMNS = [
    column
    for name in TABLES["holdings"].columns
    for column in ((name, "amount_text", "amount_float") if name == "amount" else (name,))
]
_WALLET_COLUMNS = ("wallet_id", "label", "wallet_group", "synced_at", "status")


def read_holdings(
    db: Store | Source = None,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
    *,
    as_of: Moment | None = None,
    amounts: AmountKind = None,
    needs: Collection[str] | None = None,
) -> pd.DataFrame:
    """Read `holdings`, or just some of its columns, which takes less time.

    Args:
        db: see `holdings`.
        filters: the wallets and the contract that are needed.
        as_of: see `holdings`.
        amounts: see `holdings`.
        needs: names of the columns that are needed; None, or a name that `holdings` has not, is
            all.

    Raises:
        InputError: see `holdings`.
        StoreError: see `holdings`.
    """
    if needs is None or not set(_COLUMNS).issuperset(needs):
        needs = _COLUMNS
    content = [name for name in (*CONTENT_COLUMNS, *CONTRACT_COLUMNS) if name in needs]
    contract, ids = filters.contract, filters.wallet_ids
    if contract is not None:
        content = list(dict.fromkeys(("contract_address", *content)))
    with reading(db) as source:
        moment = None if as_of is None else stored_time(source, as_of, "end")
        some = None if ids is None else np.unique(wallet_numbers(source, ids))
        holders, columns_of_wallets = source.numbered("wallet", _WALLET_COLUMNS, some)
        about = dict(zip(_WALLET_COLUMNS, columns_of_wallets, strict=True))
        around = None
        if moment is None:
            balances = read_balances(source, filters)
        else:
            balances = balances_at(source, moment, filters)
            around = read_confirmations(source, moment, holders, everything=ids is None)
        narrow = ids is not None or (contract is not None and moment is None)
        wanted = np.unique(balances.tokens) if narrow else None
        tokens = read_tokens(source, content, wanted=wanted, as_of=moment)
    holder = positions(holders, balances.wallets)
    token = positions(tokens.numbers, balances.tokens)
    rows = (holder >= 0) & (token >= 0) & tokens.in_contract(contract, balances.tokens)
    if not rows.all():
        balances, holder, token = balances.rows(rows), holder[rows], token[rows]
    by_holder, by_token = pa.array(holder), pa.array(token)
    synced = about["synced_at"]

    def of_holder(name: str) -> Callable[[], Any]:
        return lambda: text(about[name].take(by_holder))

    def of_token(name: str) -> Callable[[], Any]:
        # Taken once, then let go: a database's texts are not held twice.
        return lambda: finished(name, tokens.content.pop(name).take(by_token))

    columns: dict[str, Callable[[], Any]] = {
        "wallet_id": of_holder("wallet_id"),
        "wallet_label": of_holder("label"),
        "wallet_group": of_holder("wallet_group"),
        "token_id": lambda: text(tokens.token_ids.take(by_token)),
        **{name: of_token(name) for name in tokens.content},
        "amount": lambda: amount_columns({"amount": balances.amounts.exact()}, amounts)["amount"],
        "amount_text": balances.amounts.text,
        "amount_float": balances.amounts.approximate,
        "held_since": lambda: times(balances.held_since),
        "balance_updated_at": lambda: times(balances.updated_at),
        "token_updated_at": lambda: times(tokens.updated_at[token]),
        "wallet_synced_at": lambda: times(
            (moments(synced) if around is None else around.before)[holder]
        ),
        "wallet_status": of_holder("status"),
    }
    made = {name: columns[name]() for name in _COLUMNS if name in needs}
    if around is not None:
        made["confirmed_before"] = times(around.before[holder])
        made["confirmed_after"] = times(around.after[holder])
        made["certainty"] = text(around.certainty.take(by_holder))
    return frame_of(made)


_FIRST = """
    SELECT min(at) FROM (
        SELECT * FROM (SELECT observed_at AS at FROM wallet_state_rows {which}
            ORDER BY state_id LIMIT 1)
        UNION ALL
        SELECT * FROM (SELECT observed_at FROM balance_change_rows {which}
            ORDER BY change_id LIMIT 1))
"""


def explain_empty(source: Source, filters: Filters, as_of: Moment | None) -> str | None:
    """Return what is not known about holdings of which there are no rows.

    Args:
        source: where to read.
        filters: the wallets and the contract that were asked for.
        as_of: the time that was asked for; None is now.

    Returns:
        A sentence that says what is not known; None: it is known that nothing was held.
    """
    which, whose = "", ""
    parameters: Parameters = ()
    ids = filters.wallet_ids
    if ids is not None:
        if not ids:
            return None
        parameters = (json.dumps(ids),)
        query = f"SELECT wallet_id, label FROM wallets WHERE wallet_id {IN_JSON}"
        known = list(source.rows(query, parameters))
        named = [label or wallet_id for wallet_id, label in known] or ids
        whose = f" of wallet {named[0]}" if len(ids) == 1 else f" of {counted(len(ids), 'wallet')}"
        if not known:
            one = ids[0] if len(ids) == 1 else "ID..."
            return (
                f"nothing is known{whose}; `nftsync wallets` lists those that are known,"
                f" `nftsync sync {one}` reads others"
            )
        which = f"WHERE wallet_no IN (SELECT wallet_no FROM wallets WHERE wallet_id {IN_JSON})"
    first = next(source.rows(_FIRST.format(which=which), parameters * 2))[0]
    if first is None:
        return f"nothing is known{whose} yet: no read has been stored; `nftsync sync` makes one"
    moment = None if as_of is None else stored_time(source, as_of, "end")
    if moment is not None and moment < first:
        return (
            f"nothing is known{whose} of {moment}: the first read that was stored is of {first},"
            " so there may have been holdings; ask for a time from then on"
        )
    if (contract := filters.contract) is not None:
        query = f"SELECT 1 FROM tokens WHERE {is_contract(contract)} LIMIT 1"
        if not any(source.rows(query, (contract,))):
            return (
                f"no token that is known is of contract {shown(contract)};"
                " `nftsync collections` lists those that are known"
            )
    return None
