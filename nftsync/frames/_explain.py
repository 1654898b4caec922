"""Descriptions of the columns of frames."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import TEXT, Readable, frame_columns
from nftsync.columnar.columns import text as text_column
from nftsync.columnar.filters import one_of
from nftsync.store.catalog import (
    BALANCE,
    METADATA,
    MIRROR,
    RECORD,
    Column,
    ColumnKind,
    amount,
    count,
    flag,
    ours,
    text,
    time,
)

#: The types in pandas, by kind; integers that are never missing are `int64`.
_TYPES: Final[dict[ColumnKind, str]] = {
    "text": "str",
    "time": "datetime64[us, UTC]",
    "amount": "Int64 or object",
    "integer": "Int64",
    "flag": "bool",
    "real": "float64",
    "duration": "timedelta64[us]",
    "category": "category",
}
_STORED = "when the read that showed it was stored; never decreases"
_FEED = "counted in the change feed"
_COUNTED = "counted in the given frame or database"
_SUMMED = f"sum of {BALANCE}amount"
_RECORDS = "provider's document, Token and TokenMetadata"
_DIVIDED = "integers, divided once"
_ATTRIBUTES = f"{MIRROR}`attributes` in the metadata, a field that the document does not name"


def _share(meaning: str, how: str = "divided once", unit: str = "0 to 1") -> Column:
    return Column("real", unit, meaning, MIRROR + how)


def _counted(unit: str, meaning: str, *, always: bool = True) -> Column:
    return count(unit, meaning, _COUNTED, always=always)


def _number(unit: str, meaning: str) -> Column:
    return _counted(unit, meaning, always=False)


def _age(meaning: str) -> Column:
    return Column("duration", "time", meaning, f"{MIRROR}the difference")


def _sent(meaning: str, field: str, unit: str = "", kind: ColumnKind = "integer") -> Column:
    return Column(kind, unit, meaning, METADATA + field)


def _wallet(side: str, meaning: str, source: str) -> dict[str, Column]:
    return {
        f"{side}_wallet_id": text(meaning, source, "UUID"),
        f"{side}_label": ours("its label; missing: no label", "as wallet_label"),
        f"{side}_group": ours("its group; missing: no group", "as wallet_group"),
        f"{side}_wallet": ours("its name; missing: unknown", "as wallet"),
    }


def _side(name: str, at: str) -> dict[str, Column]:
    sent = f"amount at `{at}`, as the provider sent it; missing: not listed"
    return {
        name: amount(f"amount at `{at}`, exact; missing: not held, or not a whole number"),
        f"{name}_text": amount(sent)._replace(kind="text"),
    }


def _some(table: str, names: str) -> dict[str, Column]:
    columns = frame_columns(table)
    return {name: columns[name] for name in names.split()}


_CONTRACT = _some("holdings", "contract_address contract collection")
_TOKEN = _some("holdings", "token_id contract_address contract collection name nft")
_WALLET = _some("holdings", "wallet_id wallet_label wallet_group wallet")
_COLLECTION = _CONTRACT["collection"].source
_NAMES = "wallets, contracts and tokens"
_DATABASE = ours(
    "name of the database, only in frames of several", "the mapping's key, or the file's name"
)
_INFERRED = (
    f"{MIRROR}inferred: the only decrease and increase of the same amount, observed within"
    " overlapping times; the provider's document names no transfers"
)
_TOKENS = _counted("tokens", "distinct tokens held")
_HOLDERS = _counted("wallets", "wallets that hold any of the tokens")
_UNKNOWN = _counted("holdings", "holdings with an amount that is not a whole number")

#: The columns of each frame, in order.
FRAMES: Final[dict[str, dict[str, Column]]] = {
    "holdings": frame_columns("holdings"),
    "wallets": frame_columns("wallets"),
    "token_changes": frame_columns("token_changes"),
    "wallet_states": frame_columns("wallet_states"),
    "runs": frame_columns("sync_runs"),
    "webhooks": frame_columns("webhooks"),
    "messages": frame_columns("messages"),
    "tokens": frame_columns("tokens"),
    "collections": {
        **_CONTRACT,
        **_some("contracts", "name_source"),
        "tokens": count("tokens", "known tokens of the contract", "tokens"),
        "held": count("tokens", "known tokens that a wallet holds", "balances"),
        "holders": _HOLDERS,
        "amount": amount("exact sum of the known amounts", _SUMMED),
        "first_seen_at": time("when the contract's first token became known", "table tokens"),
        "updated_at": time("latest change of a token's metadata", "table tokens"),
    },
    "changes": {
        **_some("balance_changes", "change_id"),
        **_WALLET,
        **_TOKEN,
        **_some("balance_changes", "old_amount old_amount_text new_amount new_amount_text"),
        **_some("balance_changes", "observed_at baseline run_id webhook_id"),
    },
    "diff": {
        **_WALLET,
        **_TOKEN,
        "name": text("the token's name at `end`", f"{METADATA}name"),
        **_side("before", "start"),
        **_side("after", "end"),
        "kind": ours(
            "arrived, first_seen (initial holding, start date unknown), left or changed",
            "the change feed between the two times",
        ),
        **_wallet(
            "counterparty",
            "the other wallet, if a single transfer explains the row; missing: unknown",
            f"{MIRROR}the wallet's only movement of the token between the two times, as in"
            " `frames.transfers`",
        ),
        "changed_at": time("last change until `end`", _STORED),
    },
    "transfers": {
        "observed_at": time(
            "first observation of the movement, which happened at or before this time",
            "when the change was stored; for a transfer, the earlier of the two sides",
        ),
        "observed_after": time(
            "previous observation: the movement happened after it; missing: unknown",
            "start of the wallet's last complete read before the change; for a transfer, the"
            " later of the two sides",
        ),
        **_TOKEN,
        "amount": amount("amount transferred, exact; missing: an amount is unusable"),
        **_wallet("from", "the wallet that sent it; missing: unknown", _INFERRED),
        **_wallet("to", "the wallet that received it; missing: unknown", _INFERRED),
        "kind": text(
            "transfer (both sides are known), received or sent (the other side is unknown, or has"
            " more than one candidate)",
            _INFERRED,
        ),
        **_some("balance_changes", "webhook_id"),
    },
    "holdings_over_time": {
        "at": time("time of a change, or end of a period", _STORED),
        "holdings": count("holdings", "holdings at that time", _FEED),
        "amount": amount("exact sum of their known amounts", _SUMMED),
        "arrived": count("holdings", "begun since the group's previous row, not initial", _FEED),
        "left": count("holdings", "ended since the group's previous row", _FEED),
        "first_seen": count("holdings", "initial holdings, start date unknown", _FEED),
        "unknown_amounts": _UNKNOWN,
    },
    "statement": {
        **_some("holdings", "wallet_group"),
        "opening": count("holdings", "holdings at `start`", _FEED),
        "initial": count("holdings", "initial holdings, start date unknown", _FEED),
        "received": count("holdings", "other holdings that began", _FEED),
        "sent": count("holdings", "holdings that ended", _FEED),
        "closing": count("holdings", "holdings at `end`", _FEED),
        "opening_amount": amount("exact sum of their known amounts at `start`", _SUMMED),
        "initial_amount": amount("exact sum of the amounts in first reads", _SUMMED),
        "received_amount": amount("exact sum of the other increases", _SUMMED),
        "sent_amount": amount("exact sum of the decreases", _SUMMED),
        "closing_amount": amount("exact sum of their known amounts at `end`", _SUMMED),
        "unknown_amounts": _UNKNOWN,
    },
    "concentration": {
        **_CONTRACT,
        "tokens": _TOKENS,
        "holders": _HOLDERS,
        "amount": amount("exact sum of the known amounts", _SUMMED),
        "top1_share": _share("the largest holder's share of the amount", _DIVIDED),
        "top10_share": _share("the ten largest holders' share of the amount", _DIVIDED),
        "hhi": _share("Herfindahl-Hirschman index: sum of the squared shares", _DIVIDED),
        "gini": _share("Gini coefficient, amounts x ascending: 2Σi·xᵢ/(nΣx) − (n+1)/n", _DIVIDED),
        "nakamoto": _number("wallets", "fewest holders with over half the amount"),
        "unknown_amounts": _UNKNOWN,
    },
    "overlap": {
        "contract_a": text("first contract, spelled like `contract`", f"{RECORD}contractAddress"),
        "contract_b": text("second contract, spelled like `contract`", f"{RECORD}contractAddress"),
        "collection_a": text("name of the first contract", _COLLECTION),
        "collection_b": text("name of the second contract", _COLLECTION),
        "wallets_a": _counted("wallets", "holders of the first contract"),
        "wallets_b": _counted("wallets", "holders of the second contract"),
        "both": _counted("wallets", "holders of both contracts"),
        "jaccard": _share("Jaccard index: `both` over the holders of either; 1: the same wallets"),
    },
    "editions": {
        **_CONTRACT,
        "series": text("common name, without the token's own number", f"{METADATA}name"),
        "numbered": _sent("whether they have numbers; 0 is a number", "editionId", kind="flag"),
        "total": _sent("total of editions as sent, even if implausible", "totalEdition", "tokens"),
        "held": amount("distinct numbers; without them, the sum of amounts", MIRROR + _COUNTED),
        "share": _share("`held` over `total`; NaN: unknown", unit="can exceed 1"),
        "lowest": _sent("lowest number held", "editionId"),
        "highest": _sent("highest number held", "editionId"),
        "gaps": _number("tokens", "numbers between these two that are not held"),
        "gap_ranges": ours("those numbers, such as `3-5, 9`, cut off at 200 characters", _COUNTED),
        "beyond_total": _number(
            "tokens", "held numbers beyond the total: outside 0 to total - 1, or 1 to total"
        ),
        "holders": _HOLDERS,
        "unknown_amounts": _UNKNOWN,
    },
    "holding_ages": {
        **_WALLET,
        **_TOKEN,
        **_some("holdings", "amount held_since"),
        "age": _age("time from `held_since` until now, or until `at`"),
        "bucket": Column(
            "category",
            "",
            "age group: under a day, a week, a month (30 days), 3 months (91 days), a year (365"
            " days), or more; in this order",
            f"{MIRROR}from `age`",
        ),
        "censored": flag("initial, so `age` is a minimum", "began with the wallet's first read"),
    },
    "compare": {
        **_WALLET,
        **_TOKEN,
        **_some("holdings", "blockchain_token_id"),
        "amount": amount("amount held, exact; missing: not held, or not a whole number"),
        "other_amount": amount(
            "amount in the list, exact; missing: not in it", f"{MIRROR}the list"
        ),
        "verdict": ours("whether and how the two differ", "see frames.compare"),
        "line": Column("integer", "", "first line (of a frame, row) with it", f"{MIRROR}the list"),
    },
    "quality": {
        **_TOKEN,
        "field": text("column of `frames.tokens`, or see frames.quality", _RECORDS),
        "reason": ours("the first problem that applies", "see frames.quality"),
        "value": ours("first 200 characters of the value", "as the provider sent it"),
    },
    "traits": {
        **_CONTRACT,
        **_some("holdings", "token_id name nft"),
        "trait_type": text("type of the trait; missing: the attribute has none", _ATTRIBUTES),
        "value": text("value of the trait; numbers exactly as sent", _ATTRIBUTES),
        "tokens": count("tokens", "known tokens of the contract with this trait", "tokens"),
        "share": _share("`tokens` over all known tokens of the contract, held or not"),
    },
    "find": {
        "kind": ours("wallet, collection or token", "the table of the match"),
        "name": ours("as `wallet`, `collection` and `nft` in other frames, never missing", _NAMES),
        "id": ours("wallet id, token id, or the contract in one spelling", _NAMES),
        "collection": text("a token's collection; missing for other kinds", _COLLECTION),
        "holders": _number("wallets", "wallets that hold it; missing for a wallet"),
        "tokens": _number("tokens", "known in the collection, or held by the wallet"),
    },
    "freshness": {
        "what": ours("subject of the row", "see frames.freshness"),
        "count": _number("wallets or webhooks", "number for the subject; of a run, wallets read"),
        "at": time("end, last read or arrival; the oldest of several", "see frames.freshness"),
        "age": _age("time from `at` until now, in whole seconds"),
        "detail": ours("run, wallets or errors, abridged", "see frames.freshness"),
    },
}


def explain(name: str | Callable[..., pd.DataFrame] | None = None) -> pd.DataFrame:
    """Return the type, unit, meaning and source of each column of a frame.

    Args:
        name: a function of `nftsync.frames`, or its name, such as `"holdings"`. None: all frames.

    Returns:
        A row per column, in the frame's order: `column`, `type` (in pandas), `unit`, `meaning`,
        `source` (section and field of the provider's document, or how nftsync derived the value).
        The column `database` is only in frames of several databases. The grouping columns of
        `concentration` and `statement` (first) and of `holdings_over_time` (second) depend on `by`.
        Without a name, a row per frame: `name`, number of `columns`.
    """
    if name is None:
        counts = [len(columns) for columns in FRAMES.values()]
        names = text_column(pa.array(FRAMES, TEXT))
        return Readable({"name": names, "columns": counts}, copy=False)
    columns = FRAMES[one_of(getattr(name, "__name__", name), "name", [*FRAMES])]
    if columns is not FRAMES["compare"]:  # of one database only
        columns = {"database": _DATABASE, **columns}
    rows = [
        (column, "int64" if always else _TYPES[kind], unit, meaning, source)
        for column, (kind, unit, meaning, source, always) in columns.items()
    ]
    heads = ("column", "type", "unit", "meaning", "source")
    cells = zip(heads, zip(*rows, strict=True), strict=True)
    return Readable({head: text_column(pa.array(cell, TEXT)) for head, cell in cells}, copy=False)


def add_columns(functions: Mapping[str, Any]) -> None:
    """Append the columns of each frame to the docstring of its function, for help and tooltips."""
    for name, columns in FRAMES.items():
        lines = [f"    {column}: {about.meaning}" for column, about in columns.items()]
        written = inspect.cleandoc(functions[name].__doc__ or "")
        functions[name].__doc__ = "\n".join([written, "", "Columns:", *lines])
