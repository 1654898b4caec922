"""Holdings, and the reason for an empty frame."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, amount_columns
from nftsync.columnar.balances import Confirmations, read_balances, read_confirmations
from nftsync.columnar.columns import frame_columns, frame_of, moments, text, times
from nftsync.columnar.filters import shown, wallet_numbers
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.source import IN_JSON, Numbers, Parameters, Source, Store, positions, reading
from nftsync.columnar.tokens import MADE_COLUMNS, finished, names_of_wallets, read_tokens
from nftsync.records import CONTENT_COLUMNS
from nftsync.store.catalog import AS_OF_COLUMNS
from nftsync.store.contracts import contract_key
from nftsync.store.filters import Filters
from nftsync.store.history import FIRST_READ
from nftsync.text import counted

#: The keys in a frame's `attrs` with the time of the state that it shows, and its database's path.
AS_OF, DATABASE = "as_of", "database"
#: The columns of the present state, in order.
_COLUMNS = [name for name in frame_columns("holdings") if name not in AS_OF_COLUMNS]
_WALLET_COLUMNS = ("wallet_id", "label", "wallet_group", "synced_at", "status")


def read_holdings(
    db: Store | Source = None,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
    *,
    as_of: str | None = None,
    amounts: AmountKind = None,
    needs: Collection[str] | None = None,
    hidden: bool = True,
) -> pd.DataFrame:
    """Read `frames.holdings`, or only the columns in `needs`, which takes less time.

    A name in `needs` that `holdings` does not have reads all columns. `as_of` is the time of a
    whole state.
    """
    if needs is None or not set(_COLUMNS).issuperset(needs):
        needs = _COLUMNS
    contract, ids = filters.contract, filters.wallet_ids
    content = _content_columns(needs, filters)
    with reading(db) as source:
        holders, about = _read_wallets(source, ids, named="wallet" in needs)
        balances = read_balances(source, filters, as_of)
        confirmations = None
        if as_of is not None:
            confirmations = read_confirmations(source, as_of, holders, everything=ids is None)
        narrow = ids is not None or (contract is not None and as_of is None)
        wanted = np.unique(balances.tokens) if narrow else None
        tokens = read_tokens(source, content, wanted=wanted, as_of=as_of)
        left_out = hidden_rows(source, balances.tokens, include=hidden)
        attrs = {DATABASE: source.file, AS_OF: as_of}
    holder = positions(holders, balances.wallets)
    token = positions(tokens.numbers, balances.tokens)
    rows = (holder >= 0) & (token >= 0) & tokens.in_contract(contract, balances.tokens)
    hidden_holdings = rows & left_out & balances.amounts.nonzero()
    rows &= ~left_out
    if not rows.all():
        balances, holder, token = balances.rows(rows), holder[rows], token[rows]
    by_holder, by_token = pa.array(holder), pa.array(token)

    def of_holder(name: str) -> Callable[[], Any]:
        return lambda: text(about[name].take(by_holder))

    def of_token(name: str) -> Callable[[], Any]:
        # Popped, so that memory never holds a database's texts twice.
        return lambda: finished(name, tokens.content.pop(name).take(by_token))

    columns: dict[str, Callable[[], Any]] = {
        "wallet_id": of_holder("wallet_id"),
        "wallet_label": of_holder("label"),
        "wallet_group": of_holder("wallet_group"),
        "wallet": of_holder("wallet"),
        "token_id": lambda: text(tokens.token_ids.take(by_token)),
        **{name: of_token(name) for name in tokens.content},
        "amount": lambda: amount_columns({"amount": balances.amounts.exact()}, amounts)["amount"],
        "amount_text": balances.amounts.text,
        "amount_float": balances.amounts.approximate,
        "held_since": lambda: times(balances.held_since),
        "balance_updated_at": lambda: times(balances.updated_at),
        "token_updated_at": lambda: times(tokens.updated_at[token]),
        "wallet_synced_at": lambda: times(
            (moments(about["synced_at"]) if confirmations is None else confirmations.before)[holder]
        ),
        "wallet_status": of_holder("status"),
    }
    finished_columns = {name: columns[name]() for name in _COLUMNS if name in needs}
    if confirmations is not None:
        finished_columns |= _confirmed(confirmations, holder)
    frame = frame_of(finished_columns)
    frame.attrs |= {name: value for name, value in attrs.items() if value}
    return marked(frame, hidden_holdings)


def _content_columns(needs: Collection[str], filters: Filters) -> list[str]:
    wanted = {*needs} if filters.contract is None else {*needs, "contract_address"}
    return [name for name in (*CONTENT_COLUMNS, *MADE_COLUMNS) if name in wanted]


def _confirmed(confirmations: Confirmations, holder: Numbers) -> dict[str, Any]:
    return {
        "confirmed_before": times(confirmations.before[holder]),
        "confirmed_after": times(confirmations.after[holder]),
        "certainty": text(confirmations.certainty.take(pa.array(holder))),
    }


def _read_wallets(
    source: Source, ids: Collection[str] | None, *, named: bool
) -> tuple[Numbers, dict[str, pa.Array]]:
    some = None if ids is None else np.unique(wallet_numbers(source, ids))
    holders, columns = source.numbered("wallet", _WALLET_COLUMNS, some)
    about = dict(zip(_WALLET_COLUMNS, columns, strict=True))
    if named:
        labels = about["label"] if some is None else None
        about["wallet"] = names_of_wallets(source, about["wallet_id"], labels)
    return holders, about


def explain_empty(source: Source, filters: Filters, as_of: str | None) -> str | None:
    """Return why a frame has no holdings; None: there were none."""
    which, whose = "", ""
    parameters: Parameters = ()
    ids = filters.wallet_ids
    if ids is not None:
        if not ids:
            return None
        parameters = (json.dumps(ids),)
        query = f"SELECT wallet_id, label FROM wallets WHERE wallet_id {IN_JSON}"
        wallets = list(source.rows(query, parameters))
        named = [label or wallet_id for wallet_id, label in wallets] or ids
        whose = f" on wallet {named[0]}" if len(ids) == 1 else f" on {counted(len(ids), 'wallet')}"
        if not wallets:
            one = ids[0] if len(ids) == 1 else "ID..."
            return (
                f"no data{whose}; list the known wallets with `nftsync wallets`,"
                f" or read another with `nftsync sync {one}`"
            )
        which = f"WHERE wallet_no IN (SELECT wallet_no FROM wallets WHERE wallet_id {IN_JSON})"
    first = next(source.rows(FIRST_READ.format(which=which), parameters * 2))[0]
    if first is None:
        return f"no data{whose} yet: no read has been stored; run `nftsync sync`"
    if as_of is not None and as_of < first:
        return (
            f"no data{whose} at {as_of}: the first stored read is from {first}."
            " Holdings before it are unknown; choose a later time"
        )
    if (contract := filters.contract) is not None:
        query = "SELECT 1 FROM tokens WHERE contract = ? LIMIT 1"
        if not any(source.rows(query, (contract_key(contract),))):
            return (
                f"no known token has the contract {shown(contract)};"
                " list the known contracts with `nftsync collections`"
            )
    return None
