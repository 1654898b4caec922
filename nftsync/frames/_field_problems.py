"""What may be wrong with a field of a token's metadata, by distinct value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.frames._columns import TEXT, coded
from nftsync.frames._source import Numbers
from nftsync.image_address import image_address

__all__ = ["ADDRESSES", "INTEGERS", "PAGES", "Found", "TextKind", "text_problems"]

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
    return _where(blank, "blank", reasons)


def _hidden(distinct: pa.Array, *, lines: bool) -> pa.Array:
    reasons = pa.nulls(len(distinct), TEXT)
    turning = pc.match_substring_regex(distinct, _TURNING)
    reasons = _where(turning, "turns the direction of text", reasons)
    control = pc.match_substring_regex(distinct, _CONTROL if lines else f"{_CONTROL}|{_LINE_ENDS}")
    return _where(control, "control characters", reasons)


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


def _where(mask: pa.Array, reason: str, others: pa.Array) -> pa.Array:
    return pc.if_else(mask, pa.scalar(reason, TEXT), others)


def _all(value: str, count: int) -> pa.Array:
    return pa.array([value], TEXT).take(pa.array(np.zeros(count, dtype=np.int64)))
