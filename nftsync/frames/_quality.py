"""Tokens whose metadata is missing or broken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
from nftsync.frames._source import Numbers, Source, Store, reading
from nftsync.frames._tokens import Tokens, read_tokens
from nftsync.provider.images import image_address, origin
from nftsync.records import CONTENT_COLUMNS

__all__ = [
    "ADDRESSES",
    "INTEGERS",
    "PAGES",
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


def kept_problems(extra: pa.Array) -> Iterator[pa.Table]:
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
    yield _problems_at(
        order[np.repeat(starts, counts) + within],
        *(pa.array(column, TEXT).take(take) for column in (fields, reasons, values)),
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


def _problems_at(
    rows: Numbers, field: str | pa.Array, reason: str | pa.Array, values: pa.Array | None = None
) -> pa.Table:
    """Problems, a row each: the token's position, the field, what is wrong, what stands there."""

    def column(value: str | pa.Array) -> pa.Array:
        return pa.repeat(pa.scalar(value, TEXT), len(rows)) if isinstance(value, str) else value

    value = pa.nulls(len(rows), TEXT) if values is None else values.cast(TEXT)
    columns = {"row": rows, "field": column(field), "reason": column(reason), "value": value}
    return pa.table(columns)


def text_problems(field: str, column: pa.Array, kind: TextKind, base_url: str | None) -> pa.Table:
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
    return _problems_at(rows, field, reasons.take(which), distinct.take(which))


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


def _problems(tokens: Tokens, needed: set[str], base_url: str | None) -> Iterator[pa.Table]:
    """All that is wrong; of one token and field, the reason that counts comes first."""
    yield from kept_problems(tokens.content["extra"])
    for name in _FIELDS:
        column = tokens.content[name]
        if name in needed:
            missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            yield _problems_at(missing, name, "missing")
        if name not in INTEGERS:
            yield text_problems(name, column, _kind(name), base_url)
    yield from _numbers(tokens)


def _kind(name: str) -> TextKind:
    if name in ADDRESSES:
        return "image"
    return "page" if name in PAGES else "text"


def _numbers(tokens: Tokens) -> Iterator[pa.Table]:
    edition, total = (tokens.content[name] for name in INTEGERS)
    for name, mask, reason in (
        *((name, pc.less(tokens.content[name], 0), "negative") for name in INTEGERS),
        ("edition_id", pc.greater(edition, total), "edition beyond its total"),
    ):
        rows = np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))
        yield _problems_at(rows, name, reason, tokens.content[name].take(pa.array(rows)))


def _first_of_each(problems: Iterable[pa.Table]) -> pa.Table:
    """Put what was found together, the first of each token and field, by token and then field."""
    every = pa.concat_tables(problems).combine_chunks()
    fields = pa.array([*_FIELDS, *_WITHOUT_COLUMN], TEXT)
    field = pc.index_in(every["field"], fields).to_numpy()
    _, first = np.unique(every["row"].to_numpy() * len(fields) + field, return_index=True)
    return every.take(pa.array(first)).combine_chunks()


def _frame(tokens: Tokens, found: pa.Table) -> pd.DataFrame:
    field, reason, values = (found[name].combine_chunks() for name in ("field", "reason", "value"))
    shortened = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(values, 0, _SHOWN),
        pc.if_else(pc.greater(pc.utf8_length(values), _SHOWN), "…", "").cast(TEXT),
        pa.scalar("", TEXT),
    )
    return frame_of(
        {
            **tokens.named(found["row"].combine_chunks()),
            "field": text(field),
            "reason": text(reason),
            "value": text(shortened),
        }
    )
