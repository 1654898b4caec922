"""Who holds what, now or at a time."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.errors import NftsyncWarning
from nftsync.frames._amounts import AmountKind, amount_columns
from nftsync.frames._balances import (
    Balances,
    Confirmations,
    balances_at,
    read_balances,
    read_confirmations,
)
from nftsync.frames._columns import (
    TEXT,
    Moment,
    frame_of,
    moments,
    stored_time,
    text,
    times,
)
from nftsync.frames._contracts import CONTRACT_COLUMNS
from nftsync.frames._filters import filters_of
from nftsync.frames._nothing import why_nothing
from nftsync.frames._source import (
    IN_JSON,
    Numbers,
    Source,
    Store,
    positions,
    reading,
)
from nftsync.frames._tokens import Tokens, finished, read_tokens
from nftsync.records import CONTENT_COLUMNS
from nftsync.store.catalog import TABLES
from nftsync.store.filters import Filters
from nftsync.store.wallets import GroupNames, WalletIds


class Readable(pd.DataFrame):  # type: ignore[misc]
    """A frame of a few rows of text; what is made of it is a plain frame."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Readable:
        """Put finished columns together."""
        return cls(dict(columns), copy=False)

    def _repr_html_(self) -> str:
        """The frame as Jupyter shows it: no text is cut, and all stands on the left."""
        with pd.option_context("display.max_colwidth", None):
            page: str = self.to_html(na_rep="", justify="left", border=0)
        # Texts are escaped, so these are the tags alone.
        return page.replace("<td>", '<td style="text-align: left">')

    def __repr__(self) -> str:
        texts = [name for name, kind in self.dtypes.items() if kind == "str"]
        widths = {name: max(map(len, [name, *self[name].fillna("")])) for name in texts}
        formatters = {name: f"{{:<{width}}}".format for name, width in widths.items()}
        shown: str = self.to_string(formatters=formatters, na_rep="", justify="left")
        return shown


#: All columns in their order; an amount shows as three.
_COLUMNS = [
    shown
    for name in TABLES["holdings"].columns
    for shown in ((name, "amount_text", "amount_float") if name == "amount" else (name,))
]
_WALLET_COLUMNS = ("wallet_id", "label", "wallet_group", "synced_at", "status")


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
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group, contract=contract)
        found = read_holdings(source, filters, as_of=as_of, amounts=amounts)
        unknown = why_nothing(source, filters, as_of) if found.empty else None
    if unknown is not None:
        warnings.warn(unknown, NftsyncWarning, stacklevel=2)
    return found


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
        holders, about = _read_wallets(source, ids)
        if moment is None:
            balances = read_balances(source, filters)
            around = None
        else:
            balances = balances_at(source, moment, filters)
            around = read_confirmations(source, moment, holders, everything=ids is None)
        narrow = ids is not None or (contract is not None and moment is None)
        tokens = read_tokens(
            source,
            content,
            wanted=np.unique(balances.tokens) if narrow else None,
            as_of=moment,
        )
    return _joined(balances, holders, about, tokens, contract, around, needs, amounts)


def _read_wallets(source: Source, ids: list[str] | None) -> tuple[Numbers, dict[str, pa.Array]]:
    if ids is None:
        wanted = [(name, TEXT) for name in _WALLET_COLUMNS]
        numbers, columns = source.numbered("wallets", "wallet_no", wanted)
        return numbers, dict(zip(_WALLET_COLUMNS, columns, strict=True))
    first, *columns = source.columns(
        f"SELECT wallet_no, {', '.join(_WALLET_COLUMNS)} FROM wallets"
        f" WHERE wallet_id {IN_JSON} ORDER BY wallet_no",
        [pa.int64(), *[TEXT] * len(_WALLET_COLUMNS)],
        (json.dumps(ids),),
    )
    return first.to_numpy(), dict(zip(_WALLET_COLUMNS, columns, strict=True))


def _joined(
    balances: Balances,
    holders: Numbers,
    about: dict[str, pa.Array],
    tokens: Tokens,
    contract: str | None,
    around: Confirmations | None,
    needs: Collection[str],
    amounts: AmountKind,
) -> pd.DataFrame:
    holder = positions(holders, balances.wallets)
    token = positions(tokens.numbers, balances.tokens)
    rows = (holder >= 0) & (token >= 0)
    if contract is not None:
        rows &= tokens.of_contract(contract)[token]
    balances, holder, token = balances.chosen(rows), holder[rows], token[rows]
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
