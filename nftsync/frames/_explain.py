"""Descriptions of the columns of frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import TEXT, Readable, text
from nftsync.columnar.filters import one_of
from nftsync.store.catalog import BALANCE, METADATA, MIRROR, RECORD, Column, ColumnKind, columns_of

_STR, _TIME, _EXACT = "str", "datetime64[us, UTC]", "Int64 or object"
_INT, _COUNT, _REAL, _BOOL = "Int64", "int64", "float64", "bool"

_TYPES: dict[ColumnKind, str] = {
    "text": _STR,
    "time": _TIME,
    "integer": _INT,
    "flag": _BOOL,
    "real": _REAL,
}


class Note(NamedTuple):
    """A row of `explain`, without the name of the column."""

    type: str
    unit: str
    meaning: str
    source: str


def _text(meaning: str, source: str, unit: str = "") -> Note:
    return Note(_STR, unit, meaning, source)


def _time(meaning: str, how: str) -> Note:
    return Note(_TIME, "UTC", meaning, MIRROR + how)


def _exact(meaning: str, source: str = f"{BALANCE}amount") -> Note:
    return Note(_EXACT, "tokens", meaning, source)


def _share(meaning: str, how: str = "integers, divided once", unit: str = "0 to 1") -> Note:
    return Note(_REAL, unit, meaning, MIRROR + how)


def _age(meaning: str) -> Note:
    return Note("timedelta64[us]", "time", meaning, f"{MIRROR}the difference")


_AS_SENT = "as the provider sent it"
_STORED = "when the read that showed it was stored; never decreases"
_COUNTED_FEED = f"{MIRROR}counted in the change feed"
_SUMMED = f"sum of {BALANCE}amount"
_ATTRIBUTES = f"{MIRROR}`attributes` in the metadata, a field that the document does not name"
_COUNTED = f"{MIRROR}counted in the given frame or database"


def _wallet(side: str, meaning: str, source: str) -> dict[str, Note]:
    return {
        f"{side}_wallet_id": _text(meaning, source, "UUID"),
        f"{side}_label": _text("its label; missing: no label", f"{MIRROR}as wallet_label"),
        f"{side}_group": _text("its group; missing: no group", f"{MIRROR}as wallet_group"),
        f"{side}_wallet": _text("its name; missing: unknown", f"{MIRROR}as wallet"),
    }


def _side(name: str, at: str) -> dict[str, Note]:
    exact = _exact(f"amount at `{at}`, exact; missing: not held, or not a whole number")
    sent = f"amount at `{at}`, {_AS_SENT}; missing: not listed"
    return {name: exact, f"{name}_text": _text(sent, f"{BALANCE}amount", "tokens")}


_WALLET_NAME = _text(
    "the wallet's name, never missing: its label (and short id, if other wallets share it), or its"
    " short id",
    f"{MIRROR}made from all labels",
)
_NFT_NAME = _text(
    "the NFT's name, never missing: `name` without control characters, or else `collection` and"
    " `#` with the on-chain id",
    f"{MIRROR}made from the token's columns",
)


def _count(unit: str, meaning: str, source: str = _COUNTED, kind: str = _COUNT) -> Note:
    return Note(kind, unit, meaning, source)


def _notes_of(name: str, column: Column) -> dict[str, Note]:
    kind, unit, meaning, source, always = column
    if kind == "bytes":
        return {}
    if kind != "amount":
        return {name: Note(_COUNT if always else _TYPES[kind], unit, meaning, source)}
    exact = f"{meaning} (exact; also missing if not 1 to 100 ASCII digits)"
    notes = {
        name: Note(_EXACT, unit, exact, source),
        f"{name}_text": Note(_STR, unit, f"{meaning} ({_AS_SENT})", source),
    }
    if name == "amount":
        about = f"{meaning} (approximate; for plots, not for sums)"
        notes["amount_float"] = Note(_REAL, unit, about, source)
    return notes


def _copy_of(frame: str, names: str) -> dict[str, Note]:
    notes: dict[str, Note] = {}
    columns = columns_of(_TABLES.get(frame, frame), as_of=True)
    wallet = "wallet_group" if "wallet_group" in columns else "wallet_id"
    token = "name" if "name" in columns else "token_id"
    for name, column in columns.items():
        notes |= _notes_of(name, column)
        notes |= {"wallet": _WALLET_NAME} if name == wallet else {}
        notes |= {"nft": _NFT_NAME} if name == token and "token_id" in columns else {}
    return {name: notes[name] for name in names.split() or notes}


#: Frames of a single table or view, and the tables with another name.
_TABLE_FRAMES: Final = (
    *("holdings", "wallets", "token_changes", "wallet_states", "runs", "webhooks", "messages"),
)
_TABLES: Final = {"changes": "balance_changes", "runs": "sync_runs"}

_CONTRACT = _copy_of("holdings", "contract_address contract collection")
_TOKEN = _copy_of("holdings", "token_id contract_address contract collection name nft")
_WALLET = _copy_of("holdings", "wallet_id wallet_label wallet_group wallet")
_COLLECTION = _CONTRACT["collection"].source
_NAMES = f"{MIRROR}wallets, contracts and tokens"
_INFERRED = (
    f"{MIRROR}inferred: the only decrease and increase of the same amount, observed within"
    " overlapping times; the provider's document names no transfers"
)
_TOKENS = _count("tokens", "distinct tokens held")
_HOLDERS = _count("wallets", "wallets that hold any of the tokens")
_UNKNOWN = _count("holdings", "holdings with an amount that is not a whole number")

#: Columns of the other frames, in order.
_OTHER_FRAMES: Final[dict[str, dict[str, Note]]] = {
    "tokens": {
        **_copy_of("tokens", "token_id organization_id contract_address contract"),
        **_copy_of("holdings", "collection"),
        **_copy_of("tokens", ""),
    },
    "collections": {
        **_CONTRACT,
        **_copy_of("contracts", "name_source"),
        "tokens": _count("tokens", "known tokens of the contract", f"{MIRROR}tokens"),
        "held": _count("tokens", "known tokens that a wallet holds", f"{MIRROR}balances"),
        "holders": _HOLDERS,
        "amount": _exact("exact sum of the known amounts", _SUMMED),
        "first_seen_at": _time("when the contract's first token became known", "table tokens"),
        "updated_at": _time("latest change of a token's metadata", "table tokens"),
    },
    "changes": {
        **_copy_of("changes", "change_id"),
        **_WALLET,
        **_TOKEN,
        **_copy_of("changes", "old_amount old_amount_text new_amount new_amount_text"),
        **_copy_of("changes", "observed_at baseline run_id webhook_id"),
    },
    "diff": {
        **_WALLET,
        **_TOKEN,
        "name": _text("the token's name at `end`", f"{METADATA}name"),
        **_side("before", "start"),
        **_side("after", "end"),
        "kind": _text(
            "arrived, first_seen (initial holding, start date unknown), left or changed",
            f"{MIRROR}the change feed between the two times",
        ),
        **_wallet(
            "counterparty",
            "the other wallet, if a single transfer explains the row; missing: unknown",
            f"{MIRROR}the wallet's only movement of the token between the two times, as in"
            " `frames.transfers`",
        ),
        "changed_at": _time("last change until `end`", _STORED),
    },
    "transfers": {
        "observed_at": _time(
            "first observation of the movement, which happened at or before this time",
            "when the change was stored; for a transfer, the earlier of the two sides",
        ),
        "observed_after": _time(
            "previous observation: the movement happened after it; missing: unknown",
            "start of the wallet's last complete read before the change; for a transfer, the"
            " later of the two sides",
        ),
        **_TOKEN,
        "amount": _exact("amount transferred, exact; missing: an amount is unusable"),
        **_wallet("from", "the wallet that sent it; missing: unknown", _INFERRED),
        **_wallet("to", "the wallet that received it; missing: unknown", _INFERRED),
        "kind": _text(
            "transfer (both sides are known), received or sent (the other side is unknown, or has"
            " more than one candidate)",
            _INFERRED,
        ),
        "webhook_id": _text(
            "a webhook that led to the observation; missing: a sync observed it",
            _copy_of("changes", "webhook_id")["webhook_id"].source,
            "UUID",
        ),
    },
    "holdings_over_time": {
        "at": _time("time of a change, or end of a period", _STORED),
        "holdings": _count("holdings", "holdings at that time", _COUNTED_FEED),
        "amount": _exact("exact sum of their known amounts", _SUMMED),
        "arrived": _count("holdings", "begun since the previous row, not initial", _COUNTED_FEED),
        "left": _count("holdings", "ended since the previous row", _COUNTED_FEED),
        "first_seen": _count("holdings", "initial holdings, start date unknown", _COUNTED_FEED),
        "unknown_amounts": _UNKNOWN,
    },
    "statement": {
        "wallet_group": _copy_of("holdings", "wallet_group")["wallet_group"],
        "opening": _count("holdings", "holdings at `start`", _COUNTED_FEED),
        "initial": _count("holdings", "holdings in the first reads of wallets", _COUNTED_FEED),
        "received": _count("holdings", "other holdings that began", _COUNTED_FEED),
        "sent": _count("holdings", "holdings that ended", _COUNTED_FEED),
        "closing": _count("holdings", "holdings at `end`", _COUNTED_FEED),
        "opening_amount": _exact("exact sum of their known amounts at `start`", _SUMMED),
        "initial_amount": _exact("exact sum of the amounts in first reads", _SUMMED),
        "received_amount": _exact("exact sum of the other increases", _SUMMED),
        "sent_amount": _exact("exact sum of the decreases", _SUMMED),
        "closing_amount": _exact("exact sum of their known amounts at `end`", _SUMMED),
        "unknown_amounts": _UNKNOWN,
    },
    "concentration": {
        **_CONTRACT,
        "tokens": _TOKENS,
        "holders": _HOLDERS,
        "amount": _exact("exact sum of the known amounts", _SUMMED),
        "top1_share": _share("the largest holder's share of the amount"),
        "top10_share": _share("the ten largest holders' share of the amount"),
        "hhi": _share("Herfindahl-Hirschman index: sum of the squared shares"),
        "gini": _share("Gini coefficient, amounts x ascending: 2Σi·xᵢ/(nΣx) − (n+1)/n"),
        "nakamoto": _count("wallets", "fewest holders with over half the amount", kind=_INT),
        "unknown_amounts": _UNKNOWN,
    },
    "overlap": {
        "contract_a": _text("first contract, spelled like `contract`", f"{RECORD}contractAddress"),
        "contract_b": _text("second contract, spelled like `contract`", f"{RECORD}contractAddress"),
        "collection_a": _text("name of the first contract", _COLLECTION),
        "collection_b": _text("name of the second contract", _COLLECTION),
        "wallets_a": _count("wallets", "holders of the first contract"),
        "wallets_b": _count("wallets", "holders of the second contract"),
        "both": _count("wallets", "holders of both contracts"),
        "jaccard": _share("Jaccard index: `both` over the holders of either", "divided once"),
    },
    "editions": {
        **_CONTRACT,
        "series": _text("common name, without the token's own number", f"{METADATA}name"),
        "numbered": Note(_BOOL, "", "whether the tokens have numbers", f"{METADATA}editionId"),
        "total": _count("tokens", "total of editions, as claimed", f"{METADATA}totalEdition", _INT),
        "held": _exact("distinct numbers held; without numbers, the sum of amounts", _COUNTED),
        "share": _share("`held` over `total`", "divided once", "can exceed 1"),
        "lowest": _count("", "lowest number held", f"{METADATA}editionId", _INT),
        "highest": _count("", "highest number held", f"{METADATA}editionId", _INT),
        "gaps": _count("tokens", "missing numbers between lowest and highest", kind=_INT),
        "gap_ranges": _text("those numbers, such as `3-5, 9`, cut off at 200 characters", _COUNTED),
        "beyond_total": _count("tokens", "held numbers outside the total", kind=_INT),
        "holders": _HOLDERS,
        "unknown_amounts": _UNKNOWN,
    },
    "holding_ages": {
        **_WALLET,
        **_TOKEN,
        **_copy_of("holdings", "amount held_since"),
        "age": _age("time from `held_since` until now, or until `at`"),
        "bucket": Note(
            "category",
            "",
            "age group: under a day, a week, a month (30 days), 3 months (91 days), "
            "a year (365 days), or more; in this order",
            f"{MIRROR}from `age`",
        ),
        "censored": Note(
            _BOOL,
            "",
            "initial holding: start date unknown, so `age` is a minimum",
            f"{MIRROR}the holding began with the wallet's first read",
        ),
    },
    "quality": {
        **_TOKEN,
        "field": _text("missing or broken field", "provider's document, Token and TokenMetadata"),
        "reason": _text("problem with the field", f"{MIRROR}see frames.quality"),
        "value": _text("first 200 characters of the field's value", f"{MIRROR}{_AS_SENT}"),
    },
    "traits": {
        **_CONTRACT,
        **_copy_of("holdings", "token_id name nft"),
        "trait_type": _text("type of the trait; missing: the attribute has none", _ATTRIBUTES),
        "value": _text("value of the trait; numbers exactly as sent", _ATTRIBUTES),
        "tokens": _count("tokens", "known tokens of the contract with it", f"{MIRROR}tokens"),
        "share": _share("`tokens` divided by the known tokens of the contract", "divided once"),
    },
    "find": {
        "kind": _text("wallet, collection or token", f"{MIRROR}the table of the match"),
        "name": _text("name of the wallet, collection or NFT, never missing", _NAMES),
        "id": _text("wallet id, token id, or the contract in one spelling", _NAMES),
        "collection": _text("a token's collection; missing for other kinds", _COLLECTION),
        "holders": _count("wallets", "wallets that hold it; missing for a wallet", kind=_INT),
        "tokens": _count("tokens", "known in the collection, or held by the wallet", kind=_INT),
    },
    "freshness": {
        "what": _text("subject of the row", f"{MIRROR}see frames.freshness"),
        "count": _count(
            "wallets or webhooks", "number for the subject; of a run, wallets read", kind=_INT
        ),
        "at": _time("end, last read or arrival; the oldest of several", "see frames.freshness"),
        "age": _age("time from `at` until now, in whole seconds"),
        "detail": _text("run, wallets or errors, abridged", f"{MIRROR}see frames.freshness"),
    },
}

_FRAMES: Final = [*_TABLE_FRAMES, *_OTHER_FRAMES]


def explain(name: str | Callable[..., pd.DataFrame] | None = None) -> pd.DataFrame:
    """Return the type, unit, meaning and source of each column of a frame.

    Args:
        name: a function of `nftsync.frames`, or its name, such as `"holdings"`. None: all frames.

    Returns:
        A row per column, in the frame's order: `column`, `type` (in pandas), `unit`, `meaning`
        (with a note if only some calls return the column), `source` (section and field of the
        provider's document, or how nftsync derived the value). The grouping column of
        `concentration` (first) and `holdings_over_time` (second) depends on `by`. Without a name, a
        row per frame: `name` and `columns` (their number).
    """
    if name is None:
        counts = [len(_notes(frame)) for frame in _FRAMES]
        return Readable({"name": text(pa.array(_FRAMES, TEXT)), "columns": counts}, copy=False)
    notes = _notes(one_of(getattr(name, "__name__", name), "name", _FRAMES))
    values = zip(*((name, *note) for name, note in notes.items()), strict=True)
    cells = zip(("column", *Note._fields), values, strict=True)
    return Readable({name: text(pa.array(column, TEXT)) for name, column in cells}, copy=False)


def _notes(frame: str) -> dict[str, Note]:
    return _OTHER_FRAMES[frame] if frame in _OTHER_FRAMES else _copy_of(frame, "")
