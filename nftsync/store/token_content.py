"""A token's content out of two sources: the lists of wallets, and reads of the single token.

For most tokens only lists speak, and the token's row is what they say. Once a token has been read
by its id, both sources are kept beside the row (`token_sources`) as fields with a value each, and
the row is their sum: a field that only one source shows is that source's; where both show it, the
newer wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from nftsync.models import CONTENT_COLUMNS, Content

__all__ = ["Fields", "changed_columns", "compose", "fields_of", "merge", "pack", "unpack"]

#: A source's fields: a column's name, or `extra/NAME` and `metadata/NAME`, with the JSON value.
Fields: TypeAlias = dict[str, msgspec.Raw]

_EXTRA = len(CONTENT_COLUMNS) - 1
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def fields_of(content: Content) -> Fields:
    """Take content apart into the fields it shows."""
    fields = {
        column: msgspec.Raw(msgspec.json.encode(value))
        for column, value in zip(CONTENT_COLUMNS[:_EXTRA], content, strict=False)
        if value is not None
    }
    extra = content[_EXTRA]
    if isinstance(extra, str):
        for name, raw in _object.decode(extra).items():
            if name == "metadata" and bytes(raw)[:1] == b"{":
                inner = _object.decode(bytes(raw))
                fields |= {f"metadata/{key}": value for key, value in inner.items()}
            else:
                fields[f"extra/{name}"] = raw
    return fields


def compose(fields: Mapping[str, msgspec.Raw]) -> Content:
    """Put fields together again."""
    extra: dict[str, Any] = {}
    metadata: dict[str, msgspec.Raw] = {}
    for name, raw in fields.items():
        place, _, key = name.partition("/")
        if place == "extra":
            extra[key] = raw
        elif place == "metadata":
            metadata[key] = raw
    if metadata:
        extra["metadata"] = metadata
    columns = [
        msgspec.json.decode(fields[column]) if column in fields else None
        for column in CONTENT_COLUMNS[:_EXTRA]
    ]
    text = msgspec.json.encode(extra, order="sorted").decode() if extra else None
    return (*columns, text)


def merge(in_list: Fields, list_ticket: int, in_detail: Fields, detail_ticket: int) -> Fields:
    """The sum of both sources: where both show a field, the one read later wins."""
    if list_ticket > detail_ticket:
        return {**in_detail, **in_list}
    return {**in_list, **in_detail}


def pack(fields: Fields) -> str:
    """Write fields as JSON, the same text for the same fields."""
    return msgspec.json.encode(fields, order="sorted").decode()


def unpack(text: str) -> Fields:
    """Read what `pack` wrote."""
    return _object.decode(text)


def changed_columns(before: Content, after: Content) -> tuple[str, str]:
    """Two JSON objects of just the columns that differ: as they were, and as they are."""
    names = [
        (column, old, new)
        for column, old, new in zip(CONTENT_COLUMNS, before, after, strict=True)
        if old != new
    ]
    return (
        msgspec.json.encode({column: old for column, old, _ in names}).decode(),
        msgspec.json.encode({column: new for column, _, new in names}).decode(),
    )
