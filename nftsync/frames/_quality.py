"""Tokens whose metadata is missing or broken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.errors import InputError
from nftsync.frames._columns import INTEGER, TEXT, coded, frame_of, text
from nftsync.frames._source import Numbers, Source, Store, need_database, reading
from nftsync.frames._tokens import Tokens, read_tokens
from nftsync.provider.images import image_address, origin
from nftsync.records import CONTENT_COLUMNS

__all__ = [
    "ADDRESSES",
    "INTEGERS",
    "PAGES",
    "Found",
    "TextKind",
    "kept_problems",
    "quality",
    "text_problems",
]


_INTEGER = re.compile(rb"-?[0-9]+")
_RECORD = ("organization_id", "contract_address", "blockchain_token_id")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


@cache
def _names(*, metadata: bool) -> dict[str, str]:
    """From the provider's names of fields to those of the columns."""
    columns = [name for name in CONTENT_COLUMNS if name != "extra" and name not in _RECORD]
    names = {_camel(name): name for name in (columns if metadata else _RECORD)}
    return names if metadata else {**names, "id": "id", "token": "token"}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _telling() -> str:
    """What the text of `extra` holds somewhere if there is a problem, and seldom else."""
    names = "|".join([*_names(metadata=False), *_names(metadata=True)])
    return rf'"(?:{names})":|"metadata":[^{{]|\A[^{{]'


def kept_problems(extra: pa.Array) -> Iterator[Found]:
    """Find documented fields in a column of `extra`.

    Source: provider's document, sections Token and TokenMetadata, which give each field's type.
    """
    codes, distinct = coded(extra)
    closer = np.flatnonzero(
        pc.match_substring_regex(distinct, _telling()).to_numpy(zero_copy_only=False)
    )
    found = [
        (int(place), *problem)
        for place, text in zip(closer, distinct.take(pa.array(closer)).to_pylist(), strict=True)
        for problem in _kept_problems(text)
    ]
    if not found:
        return
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    places, fields, reasons, values = (list(column) for column in zip(*found, strict=True))
    starts = np.searchsorted(sorted_codes, places, side="left")
    counts = np.searchsorted(sorted_codes, places, side="right") - starts
    # Each problem of a distinct text is one of every token that has this text.
    which = np.repeat(np.arange(len(places)), counts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    take = pa.array(which)
    yield Found(
        order[np.repeat(starts, counts) + within],
        pa.array(fields, TEXT).take(take),
        pa.array(reasons, TEXT).take(take),
        pa.array(values, TEXT).take(take),
    )


def _kept_problems(text: str) -> Iterator[tuple[str, str, str]]:
    """Field, reason and value of each problem that one text of `extra` shows."""
    try:
        fields = _object.decode(text)
    except msgspec.DecodeError:
        yield "extra", "not a JSON object", text
        return
    metadata = fields.get("metadata", msgspec.Raw(b"{}"))
    if bytes(metadata)[:1] != b"{":
        yield "metadata", "wrong type", bytes(metadata).decode()
        metadata = msgspec.Raw(b"{}")
    inner = _object.decode(metadata)
    for names, values in ((_names(metadata=False), fields), (_names(metadata=True), inner)):
        for shown, name in names.items():
            if shown in values:
                raw = bytes(values[shown])
                yield name, _reason(name, raw), raw.decode()


def _reason(name: str, raw: bytes) -> str:
    if name in INTEGERS and _INTEGER.fullmatch(raw):
        return "too large"
    if name == "id" and raw[:1] == b'"':
        return "another token's id"
    return "wrong type"


ADDRESSES: Final = ("image", "animation_url", "creator_image_url")
PAGES: Final = ("external_url", "creator_external_page_url")
INTEGERS: Final = ("edition_id", "total_edition")

#: `image`: the address of something to show. `page`: a link. `text`: anything.
TextKind: TypeAlias = Literal["image", "page", "text"]

#: Addresses that need no closer look, which most are: a host by name and a plain path.
_PLAIN_URL = r"\Ahttps://(?:[a-z0-9-]{1,50}\.){1,3}[a-z]{2,50}(?:/[A-Za-z0-9._~/-]{0,1000})?\z"
_PLAIN_IPFS = (
    r"\Aipfs://(?:Qm[1-9A-HJ-NP-Za-km-z]{44}|b[a-z2-7]{58})"
    r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,250}){0,3}/?\z"
)
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}]"
_LINE_ENDS = r"[\t\n\r]"
_TURNING = r"[\x{202a}-\x{202e}\x{2066}-\x{2069}]"
_HTTP = re.compile("http:", re.IGNORECASE)
_HTTPS = re.compile("https?:", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """Problems, a row each.

    Attributes:
        rows: positions of the tokens.
        fields: names of the fields.
        reasons: what is wrong.
        values: what stands there.
    """

    rows: Numbers
    fields: pa.Array
    reasons: pa.Array
    values: pa.Array

    @classmethod
    def alike(cls, field: str, rows: Numbers, reason: str, column: pa.Array | None = None) -> Found:
        """The same problem of several tokens, whose values stand in a column."""
        values = pa.nulls(len(rows), TEXT)
        if column is not None:
            values = column.take(pa.array(rows)).cast(TEXT)
        return cls(rows, _all(field, len(rows)), _all(reason, len(rows)), values)

    @classmethod
    def together(cls, parts: Iterable[Found]) -> Found:
        """All problems of several."""
        every = list(parts)
        return cls(
            np.concatenate([part.rows for part in every]),
            pa.concat_arrays([part.fields for part in every]),
            pa.concat_arrays([part.reasons for part in every]),
            pa.concat_arrays([part.values for part in every]),
        )

    def chosen(self, places: Numbers) -> Found:
        """Some of them, by position."""
        take = pa.array(places)
        return Found(
            self.rows[places],
            self.fields.take(take),
            self.reasons.take(take),
            self.values.take(take),
        )


def text_problems(field: str, column: pa.Array, kind: TextKind, base_url: str | None) -> Found:
    """Find what is wrong with a field of text.

    Args:
        field: its name.
        column: its values.
        kind: what it should be.
        base_url: the provider's address, or None.
    """
    codes, distinct = coded(column)
    reasons = _reasons(distinct, kind, base_url, lines=field == "description")
    broken = np.append(reasons.is_valid().to_numpy(zero_copy_only=False), False)
    rows = np.flatnonzero(broken[codes])
    which = pa.array(codes[rows])
    return Found(rows, _all(field, len(rows)), reasons.take(which), distinct.take(which))


def _reasons(distinct: pa.Array, kind: TextKind, base_url: str | None, *, lines: bool) -> pa.Array:
    """Why each distinct value is broken; null where it is not."""
    reasons = _hidden(distinct, lines=lines)
    if kind != "text":
        reasons = pc.coalesce(_not_addresses(distinct, kind, base_url), reasons)
    blank = pc.equal(pc.utf8_trim_whitespace(distinct), "")
    return _field_where(blank, "blank", reasons)


def _hidden(distinct: pa.Array, *, lines: bool) -> pa.Array:
    reasons = pa.nulls(len(distinct), TEXT)
    turning = pc.match_substring_regex(distinct, _TURNING)
    reasons = _field_where(turning, "turns the direction of text", reasons)
    control = pc.match_substring_regex(distinct, _CONTROL if lines else f"{_CONTROL}|{_LINE_ENDS}")
    return _field_where(control, "control characters", reasons)


def _not_addresses(distinct: pa.Array, kind: TextKind, base_url: str | None) -> pa.Array:
    plain = pc.match_substring_regex(distinct, _PLAIN_URL)
    if kind == "image":
        plain = pc.or_(plain, pc.match_substring_regex(distinct, _PLAIN_IPFS))
    closer = np.flatnonzero(~plain.to_numpy(zero_copy_only=False))
    reasons = np.empty(len(distinct), dtype=object)
    for place, value in zip(
        closer.tolist(), distinct.take(pa.array(closer)).to_pylist(), strict=True
    ):
        reasons[place] = (
            image_address(value, provider=base_url).problem
            if kind == "image"
            else _page_problem(value)
        )
    return pa.array(reasons, TEXT)


def _page_problem(value: str) -> str | None:
    """Why an address is no link to a page: a link may be `http:` too, but nothing else."""
    link = value.strip()
    if not _HTTPS.match(link):
        return "not an http: or https: address"
    return image_address(_HTTP.sub("https:", link, count=1)).problem


def _field_where(mask: pa.Array, reason: str, others: pa.Array) -> pa.Array:
    return pc.if_else(mask, pa.scalar(reason, TEXT), others)


def _all(value: str, count: int) -> pa.Array:
    return pa.array([value], TEXT).take(pa.array(np.zeros(count, dtype=np.int64)))


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
        db: what to read, as `nftsync.frames` tells.
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
