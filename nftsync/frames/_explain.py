"""Descriptions of the columns of each frame, from the catalog of public columns."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, NamedTuple

import pandas as pd
import pyarrow as pa

from nftsync.columnar.columns import TEXT, Readable, text
from nftsync.columnar.filters import shown
from nftsync.errors import InputError
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
    """The description of a column: the rows of `explain`."""

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
_LOGGED = "when the read that found it was stored; never decreases"
_COUNTED_LOG = f"{MIRROR}counted in the change log"
_COUNTED = f"{MIRROR}counted in the frame or database that was given"


def _wallet(side: str, meaning: str, source: str) -> dict[str, Note]:
    label = _text("that wallet's label; missing: it has none", f"{MIRROR}as wallet_label")
    return {f"{side}_wallet_id": _text(meaning, source, "UUID"), f"{side}_label": label}


def _side(name: str, at: str) -> dict[str, Note]:
    exact = _exact(f"held at `{at}`, exact; missing: nothing, or no whole number")
    sent = f"listed at `{at}`, {_AS_SENT}; missing: not listed"
    return {name: exact, f"{name}_text": _text(sent, f"{BALANCE}amount", "tokens")}


def _count(unit: str, meaning: str, source: str = _COUNTED, kind: str = _COUNT) -> Note:
    return Note(kind, unit, meaning, source)


def _notes_of(name: str, column: Column) -> dict[str, Note]:
    """Return the columns of a frame for a database column; an amount has several."""
    kind, unit, meaning, source, always = column
    if kind == "bytes":
        return {}
    if kind != "amount":
        return {name: Note(_COUNT if always else _TYPES[kind], unit, meaning, source)}
    exact = f"{meaning} (exact; missing also: not 1 to 100 ASCII digits)"
    notes = {
        name: Note(_EXACT, unit, exact, source),
        f"{name}_text": Note(_STR, unit, f"{meaning} ({_AS_SENT})", source),
    }
    if name == "amount":
        about = f"{meaning} (about; for plots, never for sums)"
        notes["amount_float"] = Note(_REAL, unit, about, source)
    return notes


def _as_in(frame: str, names: str) -> dict[str, Note]:
    notes: dict[str, Note] = {}
    for name, column in columns_of(_TABLES.get(frame, frame), as_of=True).items():
        notes |= _notes_of(name, column)
    return {name: notes[name] for name in names.split() or notes}


#: The frames that show a table or view of the database, and those that have another name there.
_SHOWN: Final = ("holdings", "wallets", "token_changes", "wallet_states", "runs", "webhooks")
_TABLES: Final = {"changes": "balance_changes", "runs": "sync_runs"}

_CONTRACT = _as_in("holdings", "contract_address contract collection")
_WHICH_TOKEN = _as_in("holdings", "token_id contract_address contract collection name")
_WHOSE = _as_in("holdings", "wallet_id wallet_label")
_CALLED = _CONTRACT["collection"].source
_NAMES = f"{MIRROR}wallets, contracts and tokens"
_INFERRED = (
    f"{MIRROR}inferred: the only loss and gain of the same amount that were observed within"
    " overlapping times; the provider's document names no transfers"
)
_TOKENS = _count("tokens", "distinct tokens that are held")
_HOLDERS = _count("wallets", "wallets that hold more than zero of one")
_UNKNOWN = _count("holdings", "holdings whose amount is no whole number")

#: The columns of the other frames, in order.
_MEASURED: Final[dict[str, dict[str, Note]]] = {
    "tokens": {
        **_as_in("tokens", "token_id organization_id contract_address contract"),
        **_as_in("holdings", "collection"),
        **_as_in("tokens", ""),
    },
    "collections": {
        **_CONTRACT,
        **_as_in("contracts", "name_source"),
        "tokens": _count("tokens", "tokens of the contract that are known", f"{MIRROR}tokens"),
        "held": _count("tokens", "of those, how many a wallet holds", f"{MIRROR}balances"),
        "holders": _HOLDERS,
        "amount": _exact("sum of the known amounts, exact", f"sum of {BALANCE}amount"),
        "first_seen_at": _time("when its first token became known", "table tokens"),
        "updated_at": _time("the latest change of a token's metadata", "table tokens"),
    },
    "changes": {
        **_as_in("changes", "change_id"),
        **_WHOSE,
        **_WHICH_TOKEN,
        **_as_in("changes", "old_amount old_amount_text new_amount new_amount_text"),
        **_as_in("changes", "observed_at baseline run_id webhook_id"),
    },
    "diff": {
        **_WHOSE,
        **_WHICH_TOKEN,
        "name": _text("the token's name at `end`", f"{METADATA}name"),
        **_side("before", "start"),
        **_side("after", "end"),
        "kind": _text(
            "arrived, first_seen (initial holding, start date unknown), left or changed",
            f"{MIRROR}the change log between the two times",
        ),
        **_wallet(
            "counterparty",
            "the other wallet, if a single transfer explains the row; missing: unknown",
            f"{MIRROR}the wallet's only movement of the token between the two times, as in"
            " `frames.transfers`",
        ),
        "changed_at": _time("the last change until `end`", _LOGGED),
    },
    "transfers": {
        "observed_at": _time(
            "when the movement was first observed: it happened until then",
            "when the change was stored; of the two sides of a transfer the earlier time",
        ),
        "observed_after": _time(
            "the observation before it: it happened after that; missing: unknown",
            "start of the wallet's last complete read before the change; of the two sides of a"
            " transfer the later time",
        ),
        **_WHICH_TOKEN,
        "amount": _exact("how much moved, exact; missing: an amount is not usable"),
        **_wallet("from", "the wallet that sent it; missing: unknown", _INFERRED),
        **_wallet("to", "the wallet that received it; missing: unknown", _INFERRED),
        "kind": _text(
            "transfer (both sides are known), received or sent (the other side is unknown, or has"
            " more than one candidate)",
            _INFERRED,
        ),
        "webhook_id": _text(
            "a webhook that led to the observation; missing: a sync made it",
            _as_in("changes", "webhook_id")["webhook_id"].source,
            "UUID",
        ),
    },
    "holdings_over_time": {
        "at": _time("when something changed, or a period's end", _LOGGED),
        "holdings": _count("holdings", "how many there were then", _COUNTED_LOG),
        "amount": _exact("their known amounts together, exact", f"sum of {BALANCE}amount"),
        "arrived": _count("holdings", "began since the row before, not first seen", _COUNTED_LOG),
        "left": _count("holdings", "ended since the row before", _COUNTED_LOG),
        "first_seen": _count("holdings", "initial ones, start date unknown", _COUNTED_LOG),
        "unknown_amounts": _UNKNOWN,
    },
    "concentration": {
        **_CONTRACT,
        "tokens": _TOKENS,
        "holders": _HOLDERS,
        "amount": _exact("all that the holders have, exact", f"sum of {BALANCE}amount"),
        "top1_share": _share("what the greatest holder has of the amount"),
        "top10_share": _share("what the ten greatest have of the amount"),
        "hhi": _share("Herfindahl-Hirschman index: sum of the squared shares"),
        "gini": _share("Gini coefficient, amounts x ascending: 2Σi·xᵢ/(nΣx) − (n+1)/n"),
        "nakamoto": _count("wallets", "fewest holders with more than half", kind=_INT),
        "unknown_amounts": _UNKNOWN,
    },
    "overlap": {
        "contract_a": _text("one contract, spelled as `contract`", f"{RECORD}contractAddress"),
        "contract_b": _text("the other contract, the same way", f"{RECORD}contractAddress"),
        "collection_a": _text("what the one is called", _CALLED),
        "collection_b": _text("what the other is called", _CALLED),
        "wallets_a": _count("wallets", "holders of the one"),
        "wallets_b": _count("wallets", "holders of the other"),
        "both": _count("wallets", "holders of both"),
        "jaccard": _share("Jaccard index: `both` over the holders of at least one", "divided once"),
    },
    "editions": {
        **_CONTRACT,
        "series": _text("the common name, without the token's own number", f"{METADATA}name"),
        "numbered": Note(_BOOL, "", "whether its tokens have numbers", f"{METADATA}editionId"),
        "total": _count("tokens", "editions, as claimed", f"{METADATA}totalEdition", _INT),
        "held": _exact("distinct numbers held; without numbers, the sum of amounts", _COUNTED),
        "share": _share("`held` over `total`", "divided once", "over 1 is possible"),
        "lowest": _count("", "the least number held", f"{METADATA}editionId", _INT),
        "highest": _count("", "the greatest number held", f"{METADATA}editionId", _INT),
        "gaps": _count("tokens", "numbers between those two that are not held", kind=_INT),
        "gap_ranges": _text("those numbers, as `3-5, 9`, cut off at 200 characters", _COUNTED),
        "beyond_total": _count("tokens", "held numbers that the total cannot have", kind=_INT),
        "holders": _HOLDERS,
        "unknown_amounts": _UNKNOWN,
    },
    "holding_ages": {
        **_WHOSE,
        **_WHICH_TOKEN,
        **_as_in("holdings", "amount held_since"),
        "age": _age("from `held_since` until now, or until `at`"),
        "bucket": Note(
            "category",
            "",
            "the age's group: under a day, a week, a month (30 days), 3 months (91), "
            "a year (365), or more; in this order",
            f"{MIRROR}from `age`",
        ),
        "censored": Note(
            _BOOL,
            "",
            "held since before the wallet's first read: the age is a least one",
            f"{MIRROR}the change that began the stretch was of the wallet's first read",
        ),
    },
    "quality": {
        **_WHICH_TOKEN,
        "field": _text("what is missing or broken", "provider's document, Token and TokenMetadata"),
        "reason": _text("what is wrong with it", f"{MIRROR}see frames.quality"),
        "value": _text("what stands there, its first 200 characters", f"{MIRROR}{_AS_SENT}"),
    },
    "find": {
        "kind": _text("wallet, collection or token", f"{MIRROR}where it was found"),
        "name": _text("what it is called: a wallet's label", _NAMES),
        "id": _text("the wallet, the collection's contract in one spelling, or the token", _NAMES),
        "collection": _text("only of a token: what its collection is called", _CALLED),
        "holders": _count("wallets", "that hold one; missing of a wallet", kind=_INT),
        "tokens": _count("tokens", "known ones of a collection, held ones of a wallet", kind=_INT),
    },
    "freshness": {
        "what": _text("what the line is about", f"{MIRROR}see frames.freshness"),
        "count": _count("runs: wallets; else what is named", "how many", kind=_INT),
        "at": _time("the end, last read or arrival; the oldest of several", "see frames.freshness"),
        "age": _age("from `at` until now, whole seconds"),
        "detail": _text("run, wallets or errors, in short", f"{MIRROR}see frames.freshness"),
    },
}

_FRAMES: Final = [*_SHOWN, *_MEASURED]


def explain(name: str | Callable[..., pd.DataFrame] | None = None) -> pd.DataFrame:
    """Return the type, unit, meaning and source of each column of a frame.

    Args:
        name: a function of `nftsync.frames`, or its name, such as `"holdings"`. None: list all
            frames.

    Returns:
        A row per column, in the frame's order: `column`, `type` (in pandas), `unit`, `meaning`
        (with a note if only some calls return the column), `source` (section and field of the
        provider's document, or how nftsync derived the value). The grouping column of
        `concentration` (first) and `holdings_over_time` (second) depends on `by`. Without a name, a
        row per frame: `name` and `columns` (their number).

    Raises:
        InputError: `name` is not the name of a frame; the message lists similar names.
    """
    if name is None:
        counts = [len(_explained(frame)) for frame in _FRAMES]
        return Readable.of({"name": text(pa.array(_FRAMES, TEXT)), "columns": counts})
    explained = _explained(_checked(name))
    told = zip(*((name, *note) for name, note in explained.items()), strict=True)
    columns = ("column", *Note._fields)
    return Readable.of(
        {key: text(pa.array(values, TEXT)) for key, values in zip(columns, told, strict=True)}
    )


def _explained(frame: str) -> dict[str, Note]:
    return _MEASURED[frame] if frame in _MEASURED else _as_in(frame, "")


def _checked(name: object) -> str:
    if callable(name):
        name = getattr(name, "__name__", name)
    if not isinstance(name, str):
        raise InputError(
            f"{shown(name)} is not the name of a frame; give the name of the function that returns"
            " it, as in frames.explain('holdings')"
        )
    if name not in _FRAMES:
        near = get_close_matches(name, _FRAMES, n=2)
        instead = f"; near ones are {', '.join(map(repr, near))}" if near else ""
        raise InputError(
            f"there is no frame {shown(name)} to explain{instead}; frames.explain() lists all"
        )
    return name
