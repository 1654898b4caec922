"""Documented fields that came with a value no column can hold: they stand in `extra`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.frames._columns import TEXT, coded
from nftsync.frames._field_problems import INTEGERS, Found
from nftsync.models import CONTENT_COLUMNS

__all__ = ["kept_problems"]

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
        for problem in _problems(text)
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


def _problems(text: str) -> Iterator[tuple[str, str, str]]:
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
