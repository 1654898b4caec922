"""Notes on the fields of a Parquet file: what a column holds that its type alone does not say."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["FieldKind", "kind_of", "note", "noted"]

#: `amount`: as the provider sent it. The others are columns of Python objects: integers of any
#: size, decimals, text, truth values, floats. `category`: text of categories, which stand in
#: `nftsync.categories`.
FieldKind: TypeAlias = Literal[
    "amount", "category", "decimal", "flag", "integer", "object", "real", "text", "time"
]

_KIND = b"nftsync.kind"
_COMMENTS: dict[FieldKind, str] = {
    "amount": "exact decimal text as sent; uint256 fits no machine type",
    "integer": "exact integers as decimal text; uint256 fits no machine type",
    "decimal": "exact decimal numbers as text",
}


def note(kind: FieldKind, **more: str) -> dict[bytes, bytes]:
    """The metadata of a field.

    Args:
        kind: what the column holds.
        more: what else is to be known of it, by name.
    """
    made = {_KIND: kind.encode()}
    if kind in _COMMENTS:
        made[b"comment"] = _COMMENTS[kind].encode()
    return made | {f"nftsync.{name}".encode(): text.encode() for name, text in more.items()}


def kind_of(metadata: dict[bytes, bytes] | None) -> str | None:
    """The kind that a field's metadata notes; None: it notes none."""
    kind = (metadata or {}).get(_KIND)
    return None if kind is None else kind.decode(errors="replace")


def noted(metadata: dict[bytes, bytes], name: str) -> str:
    """What else a field's metadata notes.

    Raises:
        KeyError: nothing of that name.
    """
    return metadata[f"nftsync.{name}".encode()].decode()
