"""Fields that the provider's document does not have, or has with another type.

Source: provider's document, section Resources and their fields.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice

import msgspec

from nftsync.records import CONTENT_COLUMNS, FIELD_PATHS, INTEGER_COLUMNS, Content, NewField

#: The type of each documented field.
_DOCUMENTED = {
    path if "." in path else f"token.{path}": "integer" if column in INTEGER_COLUMNS else "text"
    for column, path in FIELD_PATHS.items()
}
_TEXTS = """token.id balance.tokenId balance.amount webhook.organizationId webhook.action webhook.id
    webhook.resourceId webhook.resourceType webhook.createdAtUtc"""
_DOCUMENTED |= dict.fromkeys(_TEXTS.split(), "text")
_DOCUMENTED |= dict.fromkeys(("token.metadata", "balance.token", "webhook.changes"), "object")
_TYPES = {b'"': "text", b"{": "object", b"[": "list", b"n": "null"}
_TYPES |= dict.fromkeys((b"t", b"f"), "true or false")
_INTEGER = re.compile(rb"-?[0-9]+")
_LONGEST_NAME = 80
#: Fields of an object to check; only hostile ones have more.
_MOST_CHECKED = 1_000
_EXTRA = CONTENT_COLUMNS.index("extra")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def new_fields(
    place: str, fields: Mapping[str, msgspec.Raw], example_id: str
) -> dict[str, NewField]:
    """Return the fields of an object that are not documented, or have another type, by path.

    `place` is token, metadata, balance or webhook. A documented field may be null.
    """
    news = {}
    for name, value in islice(fields.items(), _MOST_CHECKED):
        path, raw = f"{place}.{name[:_LONGEST_NAME]}", bytes(value)
        kind = _TYPES.get(raw[:1]) or ("integer" if _INTEGER.fullmatch(raw) else "number")
        documented = _DOCUMENTED.get(path)
        if documented is None or kind not in {documented, "null"}:
            news[path] = NewField(path, kind, documented, example_id)
    return news


def of_content(content: Content | None, token_id: str) -> dict[str, NewField]:
    extra = None if content is None else content[_EXTRA]
    fields = _object.decode(str(extra)) if extra else {}
    is_object = bytes(fields.get("metadata", b""))[:1] == b"{"
    inner = _object.decode(fields.pop("metadata")) if is_object else {}
    return new_fields("metadata", inner, token_id) | new_fields("token", fields, token_id)


def of_webhook(body: bytes, webhook_id: str) -> dict[str, NewField]:
    """Return the new fields of a webhook's body; none if it is not a JSON object in UTF-8."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return new_fields("webhook", _object.decode(body.removeprefix(BOM_UTF8)), webhook_id)
    return {}
