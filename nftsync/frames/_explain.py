"""What the columns of a frame mean."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, NamedTuple

import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.frames._columns import TEXT, shown, text
from nftsync.frames._holdings import Readable
from nftsync.store.catalog import BALANCE, METADATA, MIRROR, RECORD, Column, ColumnKind, columns_of

__all__ = ["NOTES", "Note", "explain"]


_STR, _TIME, _EXACT = "str", "datetime64[us, UTC]", "object"
_INT, _COUNT, _REAL, _BOOL = "Int64", "int64", "float64", "bool"

_TYPES: dict[ColumnKind, str] = {
    "text": _STR,
    "time": _TIME,
    "integer": _INT,
    "flag": _BOOL,
    "real": _REAL,
}


class Note(NamedTuple):
    """What a column is.

    Attributes:
        type: its type in pandas.
        unit: what is counted or measured; blank for a name or text.
        meaning: what it says.
        source: the section and field of the provider's document, or how nftsync came to it.
    """

    type: str
    unit: str
    meaning: str
    source: str


def _text(meaning: str, source: str, unit: str = "") -> Note:
    return Note(_STR, unit, meaning, source)


def _time(meaning: str, how: str) -> Note:
    return Note(_TIME, "UTC", meaning, MIRROR + how)


def _count(unit: str, meaning: str, how: str) -> Note:
    return Note(_COUNT, unit, meaning, MIRROR + how)


def _share(meaning: str, how: str) -> Note:
    return Note(_REAL, "0 to 1", meaning, MIRROR + how)


_AS_SENT = "as the provider sent it"
_LOGGED = "when the read that found it was stored; never decreases"
_COUNTED = "counted in the frame or database that was given"


def _notes_of(name: str, column: Column) -> dict[str, Note]:
    """What a frame makes of a column of the database: several columns of an amount."""
    kind, unit, meaning, source, always = column
    if kind == "bytes":
        return {}
    if kind != "amount":
        return {name: Note(_COUNT if always else _TYPES[kind], unit, meaning, source)}
    exact = f"{meaning} (exact; None also: not 1 to 100 ASCII digits)"
    notes = {
        name: Note(_EXACT, unit, exact, source),
        f"{name}_text": Note(_STR, unit, f"{meaning} ({_AS_SENT})", source),
    }
    if name == "amount":
        about = f"{meaning} (about; for plots, never for sums)"
        notes["amount_float"] = Note(_REAL, unit, about, source)
    return notes


#: Of columns that are no table's: by name, or by `frame.column` where a frame means something else.
NOTES: Final[dict[str, Note]] = {
    "tokens": _count("tokens", "distinct tokens that are held", _COUNTED),
    "collections.tokens": _count("tokens", "tokens of the contract that are known", "table tokens"),
    "held": _count(
        "tokens", "of those, how many a wallet holds more than zero of", "table balances"
    ),
    "holders": _count("wallets", "wallets that hold more than zero of one", _COUNTED),
    "collections.amount": Note(
        _EXACT,
        "tokens",
        "all amounts together, exact; what is no whole number is left out",
        f"sum of {BALANCE}amount",
    ),
    "collections.first_seen_at": _time("when its first token became known", "table tokens"),
    "collections.updated_at": _time("the latest change of a token's metadata", "table tokens"),
    "diff.name": _text("the token's name at `end`", f"{METADATA}name"),
    "diff.before": Note(
        _EXACT,
        "tokens",
        "held at `start`, exact; None: nothing, or no whole number",
        f"{BALANCE}amount",
    ),
    "before_text": _text(
        f"listed at `start`, {_AS_SENT}; missing: not listed", f"{BALANCE}amount", "tokens"
    ),
    "diff.after": Note(
        _EXACT,
        "tokens",
        "held at `end`, exact; None: nothing, or no whole number",
        f"{BALANCE}amount",
    ),
    "after_text": _text(
        f"listed at `end`, {_AS_SENT}; missing: not listed", f"{BALANCE}amount", "tokens"
    ),
    "diff.kind": _text(
        "arrived, first_seen (by the wallet's first read, so nobody knows since when), left or "
        "changed",
        MIRROR + "the change log between the two times",
    ),
    "counterparty_wallet_id": _text(
        "the only other wallet whose amount of the token moved by just as much the other way",
        MIRROR + "inferred; the provider's document names no transfers",
        "UUID",
    ),
    "changed_at": _time("the last change until `end`", _LOGGED),
    "concentration.amount": Note(
        _EXACT, "tokens", "all that the holders have, exact", f"sum of {BALANCE}amount"
    ),
    "top1_share": _share("what the greatest holder has of the amount", "integers, divided once"),
    "top10_share": _share("what the ten greatest have of the amount", "integers, divided once"),
    "hhi": _share(
        "Herfindahl-Hirschman index: sum of the squared shares", "integers, divided once"
    ),
    "gini": _share(
        "Gini coefficient of the n holders' amounts x, ascending: 2Σi·xᵢ/(nΣx) − (n+1)/n",
        "integers, divided once",
    ),
    "nakamoto": Note(
        _INT,
        "wallets",
        "Nakamoto coefficient: fewest holders with more than half",
        MIRROR + _COUNTED,
    ),
    "unknown_amounts": _count("holdings", "holdings whose amount is no whole number", _COUNTED),
    "contract_a": _text("one contract, the lesser text", f"{RECORD}contractAddress"),
    "contract_b": _text("the other", f"{RECORD}contractAddress"),
    "wallets_a": _count("wallets", "holders of the one", _COUNTED),
    "wallets_b": _count("wallets", "holders of the other", _COUNTED),
    "both": _count("wallets", "holders of both", _COUNTED),
    "jaccard": _share("Jaccard index: `both` over the holders of at least one", "divided once"),
    "series": _text("the common name, without the token's own number", f"{METADATA}name"),
    "numbered": Note(_BOOL, "", "whether its tokens have edition numbers", f"{METADATA}editionId"),
    "total": Note(_INT, "tokens", "how many the series has, as claimed", f"{METADATA}totalEdition"),
    "editions.held": Note(
        _EXACT,
        "tokens",
        "distinct numbers held; where there are none, the exact sum of amounts",
        MIRROR + _COUNTED,
    ),
    "share": Note(_REAL, "over 1 is possible", "`held` over `total`", MIRROR + "divided once"),
    "lowest": Note(_INT, "", "the least number held", f"{METADATA}editionId"),
    "highest": Note(_INT, "", "the greatest number held", f"{METADATA}editionId"),
    "gaps": Note(_INT, "tokens", "numbers between those two that are not held", MIRROR + _COUNTED),
    "gap_ranges": _text("those numbers, as `3-5, 9`, cut off at 200 characters", MIRROR + _COUNTED),
    "beyond_total": Note(
        _INT, "tokens", "held numbers that the total cannot have", MIRROR + _COUNTED
    ),
    "age": Note(
        "timedelta64[us]",
        "time",
        "from `held_since` until now, or until `at`",
        MIRROR + "the difference",
    ),
    "bucket": Note(
        "category",
        "",
        "the age's group: under a day, a week, a month (30 days), 3 months (91), "
        "a year (365), or more; in this order",
        MIRROR + "from `age`",
    ),
    "censored": Note(
        _BOOL,
        "",
        "held since before the wallet's first read: the age is a least one",
        MIRROR + "the change that began the stretch was of the wallet's first read",
    ),
    "field": _text(
        "the field that is missing or broken", "provider's document, Token and TokenMetadata"
    ),
    "reason": _text("what is wrong with it", MIRROR + "see the documentation of frames.quality"),
    "value": _text("what stands there, its first 200 characters", f"{MIRROR}{_AS_SENT}"),
    "what": _text("what the line is about", MIRROR + "see the documentation of frames.freshness"),
    "count": Note(_INT, "runs: wallets; else what is named", "how many", MIRROR + _COUNTED),
    "at": _time(
        "when it ended, was last read, or came; of several the oldest", "see frames.freshness"
    ),
    "freshness.age": Note(
        "timedelta64[us]", "time", "from `at` until now, whole seconds", MIRROR + "the difference"
    ),
    "detail": _text("run, wallets or errors, in short", MIRROR + "see frames.freshness"),
}


#: The frames that show a table or view of the database.
_SHOWN: Final[dict[str, str]] = {
    "holdings": "holdings",
    "wallets": "wallets",
    "tokens": "tokens",
    "changes": "balance_changes",
    "token_changes": "token_changes",
    "wallet_states": "wallet_states",
    "runs": "sync_runs",
    "webhooks": "webhooks",
}

#: The columns of the other frames, in order.
_COLUMNS: Final[dict[str, str]] = {
    "collections": "contract_address tokens held holders amount first_seen_at updated_at",
    "diff": "wallet_id wallet_label token_id contract_address name before before_text after"
    " after_text kind counterparty_wallet_id changed_at",
    "concentration": "contract_address tokens holders amount top1_share top10_share hhi gini"
    " nakamoto unknown_amounts",
    "overlap": "contract_a contract_b wallets_a wallets_b both jaccard",
    "editions": "contract_address series numbered total held share lowest highest gaps gap_ranges"
    " beyond_total holders unknown_amounts",
    "holding_ages": "wallet_id wallet_label token_id contract_address name amount held_since age"
    " bucket censored",
    "quality": "token_id contract_address name field reason value",
    "freshness": "what count at age detail",
}

_FRAMES: Final = [*_SHOWN, *_COLUMNS]


def explain(name: str | Callable[..., pd.DataFrame] | None = None) -> pd.DataFrame:
    """What each column of a frame means, its unit, and where it comes from.

    Args:
        name: a function of `nftsync.frames` that returns a frame, by name, such as `holdings`, or
            itself; None lists them all.

    Returns:
        A row per column of that frame, in its order: `column`, `type` (in pandas; `object` are
        exact Python integers), `unit`, `meaning`, `source` (section and field of the provider's
        document, or how nftsync came to it). Columns that only some calls return say so. Of
        `concentration`, the first column is the one that `by` names. Without a name, a row per
        frame: `name` and `columns` (how many).

    Raises:
        InputError: there is no such frame; near names are given. Or it is no name, but a frame.
    """
    if name is None:
        counts = [len(_explained(frame)) for frame in _FRAMES]
        return Readable.of({"name": text(pa.array(_FRAMES, TEXT)), "columns": counts})
    explained = _explained(_checked(name))
    notes = explained.values()
    told = {
        "column": list(explained),
        "type": [note.type for note in notes],
        "unit": [note.unit for note in notes],
        "meaning": [note.meaning for note in notes],
        "source": [note.source for note in notes],
    }
    return Readable.of({key: text(pa.array(values, TEXT)) for key, values in told.items()})


def _explained(frame: str) -> dict[str, Note]:
    """The columns of a frame, in order."""
    notes: dict[str, Note] = {}
    for name, column in columns_of(_SHOWN.get(frame, "holdings"), as_of=True).items():
        notes |= _notes_of(name, column)
    if frame in _SHOWN:
        return notes
    notes |= NOTES
    return {name: NOTES.get(f"{frame}.{name}") or notes[name] for name in _COLUMNS[frame].split()}


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
