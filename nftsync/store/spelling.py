"""Whether two contents of a token differ, apart from spelling and volatile fields.

Some providers sign addresses for each response, so signing parameters do not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import msgspec

from nftsync.records import CONTENT_COLUMNS, FIELD_PATHS, Content

#: An address with a query, as a whole JSON text that is not a key.
_ADDRESS = re.compile(r'"(https?://[^"\s\\?#]*)\?([^"\s\\#]*)([^"\s\\]*)"(?!:)', re.IGNORECASE)
#: Required parameters of a signature, and all its parameters: S3 (version 4 and 2), Google (the
#: same), CloudFront, and Azure (with an end, or with a stored policy).
_AZURE = "s[evtpri]|ss|sig|spr|sip|srt|ses|sdd|sk(?:oid|tid|[tesv])|saoid|suoid|scid"
_SIGNATURES = (
    ({"x-amz-signature"}, "x-amz-.*"),
    ({"awsaccesskeyid", "signature"}, "awsaccesskeyid|signature|expires|x-amz-security-token"),
    ({"x-goog-signature"}, "x-goog-.*"),
    ({"googleaccessid", "signature"}, "googleaccessid|signature|expires"),
    ({"key-pair-id", "signature"}, "key-pair-id|signature|expires|policy|hash-algorithm"),
    ({"sig", "sv", "se"}, _AZURE),
    ({"sig", "sv", "si"}, _AZURE),
)


def differing(before: Content, after: Content, volatile: Collection[str] = ()) -> list[str]:
    """Return the columns that changed in more than spelling and `volatile` fields."""
    return [
        column
        for column, old, new in zip(CONTENT_COLUMNS, before, after, strict=False)
        if old != new and _essence(column, old, volatile) != _essence(column, new, volatile)
    ]


def _essence(column: str, value: str | int | None, volatile: Collection[str]) -> Any:
    if column in FIELD_PATHS:
        *place, name = FIELD_PATHS[column].split(".")
        text = msgspec.json.encode({place[0]: {name: value}} if place else {name: value}).decode()
    else:
        text = str(value or "{}")
    text = _ADDRESS.sub(_unsigned, text)
    record = json.loads(text, parse_int=_number, parse_float=_number)
    for path in volatile:
        _drop(record, path.split("."))
    metadata = record.pop("metadata", {})
    return record, metadata


def _unsigned(match: re.Match[str]) -> str:
    address, query, fragment = match.groups()
    parts = [(part.partition("=")[0].lower(), part) for part in query.split("&")]
    parameters = {name for name, part in parts if part.partition("=")[2]}
    for needed, belongs in _SIGNATURES:
        if needed <= parameters:
            parts = [(name, part) for name, part in parts if not re.fullmatch(belongs, name)]
    rest = "&".join(part for _, part in parts)
    return f'"{address}{"?" * bool(rest)}{rest}{fragment}"'


def _number(text: str) -> Any:
    """Return a value that equals only the same number in another spelling."""
    try:
        return "number", Decimal(text)
    except ArithmeticError:  # an exponent beyond 10**18
        return "number", text


def _drop(value: Any, path: list[str]) -> None:
    if isinstance(value, list):
        for one in value:
            _drop(one, path)
    elif isinstance(value, dict):
        if len(path) == 1:
            value.pop(path[0], None)
        else:
            _drop(value.get(path[0]), path[1:])
