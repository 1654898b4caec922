"""Tokens whose metadata is missing or broken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.errors import InputError
from nftsync.frames._columns import INTEGER, TEXT, coded, frame_of, text
from nftsync.frames._field_problems import (
    ADDRESSES,
    INTEGERS,
    PAGES,
    Found,
    TextKind,
    text_problems,
)
from nftsync.frames._kept_values import kept_problems
from nftsync.frames._source import Source, Store, need_database, reading
from nftsync.frames._tokens import Tokens, read_tokens
from nftsync.image_address import origin
from nftsync.models import CONTENT_COLUMNS

__all__ = ["quality"]

_FIELDS = tuple(name for name in CONTENT_COLUMNS if name not in {"organization_id", "extra"})
#: Fields of a record that have no column, and stand in `extra` only where they are broken.
_WITHOUT_COLUMN = ("organization_id", "id", "metadata", "token", "extra")
_SHOWN = 200


def quality(
    db: Store = None,
    *,
    required: Iterable[str] = ("name", "image"),
    base_url: str | None = None,
    held: bool = False,
) -> pd.DataFrame:
    """Missing and broken metadata: a row per token and field, the tokens in the order first seen.

    Args:
        db: a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for the configured
            database.
        required: the fields that every token should have; others may be missing.
        base_url: the provider's address, whose own images are fine too, also by `http:`.
        held: only tokens of which a wallet holds more than zero; else all that were ever seen.

    Returns:
        `token_id`, `contract_address`, `name`, `field` (a column of `frames.tokens`; `id`,
        `metadata` or `token` where the record itself is broken), `reason`, `value` (what stands
        there, its first 200 characters; JSON text where it is of the wrong type).

        `reason` is the first of these that holds: `wrong type`, `too large` (an integer beyond 64
        bits) or `another token's id`, which all keep the value in `extra`; `missing`; `blank`
        (nothing but white space); of image, animation and creator's image why they are not shown,
        of the pages why they are no link (`http:` and `https:` are); `control characters` (line
        ends and tabs are fine in a description); `turns the direction of text`; `negative`;
        `edition beyond its total`.

        Source: provider's document, sections Token and TokenMetadata, which says types only.

    Raises:
        InputError: a required field is none, `base_url` is no URL, or `db` is neither a path nor
            a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.quality looks at all tokens of a database, held or not")
    needed = _checked(required)
    if base_url is not None:
        origin(base_url)
    with reading(db) as source:
        tokens = read_tokens(source, (*_FIELDS, "extra"))
        if held:
            tokens = _held(source, tokens)
    return _frame(tokens, _first_of_each(_problems(tokens, needed, base_url)))


def _checked(required: Iterable[str]) -> set[str]:
    needed = {required} if isinstance(required, str) else set(required)
    for name in needed.difference(_FIELDS):
        near = get_close_matches(str(name), _FIELDS, n=1, cutoff=0)
        raise InputError(f"{name!r} is not a field of a token; the nearest one is {near[0]!r}")
    return needed


def _held(source: Source, tokens: Tokens) -> Tokens:
    (numbers,) = source.columns(
        "SELECT DISTINCT token_no FROM balance_rows WHERE held_since IS NOT NULL", [INTEGER]
    )
    kept = np.isin(tokens.numbers, numbers.to_numpy())
    mask = pa.array(kept)
    return Tokens(
        tokens.numbers[kept],
        tokens.token_ids.filter(mask),
        {name: column.filter(mask) for name, column in tokens.content.items()},
        tokens.updated_at[kept],
    )


def _problems(tokens: Tokens, needed: set[str], base_url: str | None) -> Iterator[Found]:
    """All that is wrong; of one token and field, the reason that counts comes first."""
    yield from kept_problems(tokens.content["extra"])
    for name in _FIELDS:
        column = tokens.content[name]
        if name in needed:
            missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            yield Found.alike(name, missing, "missing")
        if name not in INTEGERS:
            yield text_problems(name, column, _kind(name), base_url)
    yield from _numbers(tokens)


def _kind(name: str) -> TextKind:
    if name in ADDRESSES:
        return "image"
    return "page" if name in PAGES else "text"


def _numbers(tokens: Tokens) -> Iterator[Found]:
    edition, total = (tokens.content[name] for name in INTEGERS)
    for name in INTEGERS:
        column = tokens.content[name]
        yield Found.alike(name, _where(pc.less(column, 0)), "negative", column)
    yield Found.alike(
        "edition_id", _where(pc.greater(edition, total)), "edition beyond its total", edition
    )


def _where(mask: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))


def _first_of_each(problems: Iterable[Found]) -> Found:
    """Put what was found together, the first of each token and field, by token and then field."""
    every = Found.together(problems)
    fields = [*_FIELDS, *_WITHOUT_COLUMN]
    codes, distinct = coded(every.fields)
    field = np.array([fields.index(name) for name in distinct.to_pylist()], dtype=np.int64)[codes]
    _, first = np.unique(every.rows * len(fields) + field, return_index=True)
    return every.chosen(first)


def _frame(tokens: Tokens, found: Found) -> pd.DataFrame:
    token = pa.array(found.rows)
    values = found.values
    shortened = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(values, 0, _SHOWN),
        pc.if_else(pc.greater(pc.utf8_length(values), _SHOWN), "…", "").cast(TEXT),
        pa.scalar("", TEXT),
    )
    return frame_of(
        {
            "token_id": text(tokens.token_ids.take(token)),
            "contract_address": text(tokens.content["contract_address"].take(token)),
            "name": text(tokens.content["name"].take(token)),
            "field": text(found.fields),
            "reason": text(found.reasons),
            "value": text(shortened),
        }
    )
