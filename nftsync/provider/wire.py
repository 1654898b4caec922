"""Decoding of responses into tokens and amounts; errors name the field.

One strict pass reads responses with only the documented fields and types. All others are decoded
field by field, which keeps unknown fields and every digit, and repairs and names unreadable ones.

Source: provider's document, sections NFT token balance, Token, TokenMetadata and the two reads
under Endpoints.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from itertools import count, repeat
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from nftsync.errors import UnusableResponse
from nftsync.records import (
    FIELD_PATHS,
    INTEGER_COLUMNS,
    Content,
    Entry,
    Integer,
    TokenMetadata,
    are_uuids,
    is_uuid,
)
from nftsync.text import DEEPEST_JSON, cut_deep, nests_too_deeply

_T = TypeVar("_T")


class CutShort(UnusableResponse):
    """The body ends before its JSON does; a retry may get it all."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.passing = True


class _Strict(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """Base of what the strict pass reads."""


class _AttributedMetadata(TokenMetadata):
    """Metadata with a field that is not in the document, but frequent: here for speed."""

    attributes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Token(_Strict):
    id: str | None = None
    organization_id: str | None = None
    contract_address: str | None = None
    blockchain_token_id: str | None = None
    metadata: _AttributedMetadata | None = None


class _Entry(_Strict, forbid_unknown_fields=False):
    token_id: str
    amount: str
    token: _Token | None = None


class _Balances(_Strict):
    nft_token_balances: list[_Entry]


class _LooseEntry(msgspec.Struct, rename="camel", gc=False):
    token_id: str
    amount: str
    token: msgspec.Raw = msgspec.Raw(b"null")


class _LooseBalances(msgspec.Struct, rename="camel", gc=False):
    nft_token_balances: list[Any]


_LIST_FIELD = "nftTokenBalances"
_AMOUNT = b'"amount"'
_TOKEN_FIELDS = tuple(path for path in FIELD_PATHS.values() if "." not in path)
_METADATA_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(TokenMetadata))
_INTEGER_FIELDS = {FIELD_PATHS[name].rpartition(".")[2] for name in INTEGER_COLUMNS}

_strict_balances = msgspec.json.Decoder(_Balances)
_loose_balances = msgspec.json.Decoder(_LooseBalances)
_loose_entry = msgspec.json.Decoder(_LooseEntry)
_strict_token = msgspec.json.Decoder(_Token)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str | None)
_integer = msgspec.json.Decoder(Integer | None)

_LONE = re.compile("[\ud800-\udfff]")
_BEGUN_NUMBER = re.compile(rb"(?:-|[0-9]\.|[0-9][eE][+-]?)\Z")
_NOTHING: tuple[None, ...] = (None,) * len(_METADATA_FIELDS)
_ENTRY_FIELDS = ("tokenId", "amount", "token")
#: The records within a list's entry and a token, and what precedes their fields in messages.
_RECORDS = {"$.token": "", "metadata": "metadata."}
_NULL = msgspec.Raw(b"null")
_WRONG = object()
_BOM = b"\xef\xbb\xbf"
#: Levels of a field's value in a token's metadata.
_DEEPEST = DEEPEST_JSON - 2
#: Errors of JSON that is to be read in another way.
_UNREADABLE = (ValueError, TypeError, RecursionError, UnusableResponse)
_BROKEN_TEXT = "text that is not Unicode"


class WalletList(NamedTuple):
    """A wallet's balances, or one page of them.

    Attributes:
        entries: in the order sent, with lower-case ids; left out if `unchanged`.
        doubt: the field or header that suggests more pages, as a message names it.
        digest: SHA-256 of the body or of all pages; empty for a single page.
    """

    entries: list[Entry]
    doubt: str | None = None
    cursor: str | None = None
    digest: str = ""
    etag: str | None = None
    unchanged: bool = False


def decode_wallet(
    body: bytes,
    *,
    known_fields: Collection[str] = (),
    cursor_field: str | None = None,
    most: int | None = None,
) -> WalletList:
    """Decode one page of a wallet's balances, unless it has more than `most` entries.

    `known_fields` are harmless extra top-level fields.
    """
    if most is not None and body.count(_AMOUNT) > most:
        raise UnusableResponse(f"$.{_LIST_FIELD}: more than {most:,} entries")
    body = body.removeprefix(_BOM)
    if cursor_field is None:
        try:
            balances = _strict_balances.decode(body)
            if not _may_repeat_a_key(body, balances):
                return WalletList(
                    _entries(balances.nft_token_balances, repeat({}), _strict_content)
                )
        except _UNREADABLE:
            pass  # the loose pass names the problem, if there is one
    document = _parsed(body)
    listed: Any = document.get(_LIST_FIELD)
    if isinstance(listed, list):
        document[_LIST_FIELD] = []
    text = _repaired(document, {}, "$.", {_LIST_FIELD, cursor_field})
    _decode(_loose_balances, text)
    cursor = cursor_field and _cursor(_decode(_object, text).get(cursor_field, _NULL), cursor_field)
    faults: list[_Faults] = [{} for _ in listed]
    loose = [*map(_read_loosely, count(), listed, faults)]
    allowed = {_LIST_FIELD, cursor_field, *known_fields}
    unknown = next((name for name in document if name not in allowed), None)
    doubt = unknown and f"the unknown field {unknown[:80]!r} beside {_LIST_FIELD}"
    return WalletList(_entries(loose, faults, _loose_content), doubt, cursor)


def _may_repeat_a_key(body: bytes, balances: _Balances) -> bool:
    """Return whether bytes are lost, maybe with a key: decoders differ in which value they take."""
    again = msgspec.json.encode(balances)
    lost, nulls = (body.count(text) - again.count(text) for text in (b":", b"null"))
    return len(again) != len(body) and (lost != nulls or b"u003" in body)


def without_duplicates(entries: list[Entry]) -> list[Entry]:
    """Drop repeated entries of a wallet's list; refuse different amounts for one token."""
    first = {entry[0]: entry for entry in reversed(entries)}
    if len(first) == len(entries):
        return entries
    for token_id, amount, _ in entries:
        if first[token_id][1] != amount:
            raise UnusableResponse(
                f"$.{_LIST_FIELD}: token {token_id} is listed twice, "
                f"with the amounts {first[token_id][1][:80]!r} and {amount[:80]!r}"
            )
    return list(reversed(first.values()))


def decode_token(body: bytes, token_id: str) -> Content:
    """Decode the response to the read of a single token."""
    faults: _Faults = {}
    text = _repaired(_parsed(body.removeprefix(_BOM)), faults)
    fields = _decode(_object, text)
    shown = _value(fields.get("id", _NULL), _text)
    if isinstance(shown, str) and shown.lower() != token_id:
        raise UnusableResponse(f"$.id: the response is the record of another token, {shown[:80]!r}")
    # The document guarantees only the metadata, but an id also identifies a token.
    if not isinstance(shown, str) and bytes(fields.get("metadata", _NULL))[:1] != b"{":
        raise UnusableResponse("$: no id and no metadata, so this is not a token record")
    return _loose_content(text, token_id, faults) or ()  # as the text is an object


def check_object(body: bytes) -> bytes:
    """Return an object as UTF-8 text, its unreadable fields repaired."""
    body = body.removeprefix(_BOM)
    with suppress(*_UNREADABLE):
        _decode(_object, body)
        text = body.decode()
        if r"\ud" in text.lower():  # halves of characters cannot be encoded
            msgspec.json.encode(json.loads(text, parse_int=str, parse_float=str))
        if not nests_too_deeply(text):
            return body
    return bytes(_repaired(_parsed(body), {}))


#: The unreadable fields of a token record, dotted, each with the reason.
_Faults: TypeAlias = dict[str, str]


def _without_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = (name for name in fields if counts[name] > 1)
        fields |= {name: ValueError(f"the key {name[:80]!r} appears twice") for name in twice}
    return fields


def _digits(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode("ascii"))


_decoder = json.JSONDecoder(
    strict=False,
    object_pairs_hook=_without_repeated,
    parse_constant=lambda name: ValueError(f"{name} is not a JSON number"),
    parse_int=_digits,
    parse_float=_digits,
)


def _parsed(body: bytes) -> dict[str, Any]:
    """Parse an object; errors take the place of unreadable values."""
    text = body.decode("utf-8", "surrogateescape")
    with suppress(ValueError):
        try:
            document = _decoder.decode(text)
        except RecursionError:
            document = _decoder.decode(cut_deep(text, DEEPEST_JSON + 9))
        if isinstance(document, dict):
            return document
    _decode(_object, body)
    raise UnusableResponse("the response is not JSON")


def _read_loosely(number: int, entry: Any, faults: _Faults) -> _LooseEntry:
    fields = entry if isinstance(entry, dict) else {}
    needed = {name: fields[name] for name in _ENTRY_FIELDS if name in fields} if fields else entry
    try:
        return _decode(_loose_entry, _repaired(needed, faults, "$.", _ENTRY_FIELDS[:2]))
    except UnusableResponse as error:
        place, _, problem = str(error).partition(": ")
        place = f"$.{_LIST_FIELD}[{number}]{place[1:]}"
        token_id = fields.get("tokenId")
        if isinstance(token_id, str) and is_uuid(token_id):
            place += f" (token {token_id})"
        raise UnusableResponse(f"{place}: {problem}") from None


def _repaired(
    value: Any, faults: _Faults, place: str = "", needed: Collection[str | None] = ()
) -> msgspec.Raw:
    """Encode a parsed value; note the unreadable fields of a record, or refuse them."""
    with suppress(*_UNREADABLE):
        encoded = msgspec.json.encode(value)
        if not nests_too_deeply(encoded.decode()):
            return msgspec.Raw(encoded)
    fields: dict[str, Any] = {}
    for name, one in value.items() if isinstance(value, dict) else ():
        reasons: list[str] = []
        shown = _clean(name, reasons)
        inner = _RECORDS.get(place + name)
        if inner is not None and isinstance(one, dict):
            fields[name] = _repaired(one, faults, inner)
            continue
        cleaned = _clean(one, reasons)
        if {*reasons} <= {_BROKEN_TEXT}:  # otherwise no value would be true
            fields[shown] = cleaned
        if reasons and name in needed:
            raise UnusableResponse(f"{place}{name}: {reasons[0]}")
        if reasons:
            faults[(place + shown).removeprefix("$.")] = reasons[0]
    return msgspec.Raw(msgspec.json.encode(fields))


def _clean(value: Any, reasons: list[str], levels: int = _DEEPEST) -> Any:
    """Return a parsed value as JSON can encode it; add why that is not the whole value."""
    if isinstance(value, list | dict) and levels == 0:
        value = ValueError(f"nested more than {DEEPEST_JSON} levels deep")
    if isinstance(value, ValueError):
        reasons.append(str(value))
        return None
    if isinstance(value, list):
        return [_clean(one, reasons, levels - 1) for one in value]
    if isinstance(value, dict):
        return {
            _clean(name, reasons): _clean(one, reasons, levels - 1) for name, one in value.items()
        }
    if isinstance(value, str) and _LONE.search(value):
        reasons.append(_BROKEN_TEXT)
        return _LONE.sub("\ufffd", value)
    return value


def _entries(
    balances: Sequence[_Entry | _LooseEntry],
    faults: Iterable[_Faults],
    content: Callable[[Any, str, _Faults], Content | None],
) -> list[Entry]:
    ids = _token_ids([entry.token_id for entry in balances])
    return [
        (token_id, entry.amount, None if entry.token is None else content(entry.token, token_id, f))
        for token_id, entry, f in zip(ids, balances, faults, strict=False)
    ]


def _strict_content(token: _Token, token_id: str, _: _Faults) -> Content:
    if token.id is not None and token.id != token_id and token.id.lower() != token_id:
        raise UnusableResponse("another token")  # the loose pass reports it
    metadata: Sequence[Any] = _NOTHING
    extra = None
    if token.metadata is not None:
        *metadata, attributes = msgspec.structs.astuple(token.metadata)
        extra = None if attributes is msgspec.UNSET else _attributes_json(attributes)
    return (
        _organization(token.organization_id),
        token.contract_address,
        token.blockchain_token_id,
        *metadata,
        extra,
    )


def _attributes_json(attributes: msgspec.Raw) -> str:
    return _json({"metadata": _encode({"attributes": attributes})})


@lru_cache(maxsize=1024)
def _organization(value: str | None) -> str | None:
    return value.lower() if value is not None and are_uuids(value) else value


def _token_ids(ids: list[str]) -> list[str]:
    """Check and lower-case a page's ids as one text, for speed."""
    if not ids:
        return ids
    joined = ",".join(ids)
    if not are_uuids(joined) or len(joined) != 37 * len(ids) - 1:
        index, wrong = next((i, x) for i, x in enumerate(ids) if "," in x or not are_uuids(x))
        raise UnusableResponse(f"$.{_LIST_FIELD}[{index}].tokenId: {wrong[:80]!r} is not a UUID")
    return joined.lower().split(",")


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise UnusableResponse(_path_first(str(error))) from None
    except msgspec.DecodeError as error:
        if "truncated" in str(error) or _ends_in_a_number(body):
            raise CutShort(
                "the body is empty" if not body.strip() else "the body is cut short"
            ) from None
        kind = " (it looks like HTML; check base_url)" if body.lstrip()[:1] == b"<" else ""
        raise UnusableResponse(f"the response is not JSON{kind}: {error}") from None
    except (RecursionError, UnicodeDecodeError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else "not UTF-8"
        raise UnusableResponse(f"the body is {problem}") from None


def _ends_in_a_number(body: bytes) -> bool:
    return body.lstrip()[:1] == b"{" and _BEGUN_NUMBER.search(body[-3:]) is not None


def _path_first(message: str) -> str:
    """Turn msgspec's "problem - at `path`" into "path: problem"."""
    problem, _, path = message.replace("`", "").partition(" - at ")
    return f"{path or '$'}: {problem[:1].lower()}{problem[1:]}"


def _cursor(raw: msgspec.Raw, field: str) -> str | None:
    value = _value(raw, msgspec.json.Decoder(str | int | bool | None))
    if value is _WRONG or value is True:
        raise UnusableResponse(f"$.{field}: expected a cursor (text or an integer), null or false")
    return None if value is None or value is False or value == "" else str(value)


def _value(raw: msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, ValueError):
        return _WRONG


def _loose_content(raw: msgspec.Raw, token_id: str, faults: _Faults) -> Content | None:
    """Decode a token record; unknown fields and wrong types go to `extra`."""
    record = bytes(raw)
    if record == b"null" and not faults:
        return None
    if not faults:
        try:
            return _strict_content(_strict_token.decode(record), token_id, faults)
        except _UNREADABLE:
            pass  # some field belongs in `extra`
    extra = {} if record == b"null" else {"token": raw}
    if record[:1] == b"{":
        extra = _decode(_object, record)
    else:
        faults = {"token": "not an object"} | faults
    shown_id = _value(extra.get("id", _NULL), _text)
    if shown_id is None or (isinstance(shown_id, str) and shown_id.lower() == token_id):
        extra.pop("id", None)
    elif isinstance(shown_id, str):
        faults = {"token": f"the record of another token, {shown_id[:80]!r}"} | faults
    organization, *columns = (_take(extra, name) for name in _TOKEN_FIELDS)
    metadata: Sequence[Any] = _NOTHING
    metadata_rest = extra.pop("metadata", _NULL)
    if bytes(metadata_rest)[:1] == b"{":
        unknown = _decode(_object, metadata_rest)
        metadata = [_take(unknown, name) for name in _METADATA_FIELDS]
        metadata_rest = _encode(unknown) if unknown else _NULL
    elif bytes(metadata_rest) != b"null":
        faults = {"metadata": "not an object"} | faults
    if bytes(metadata_rest) != b"null":
        extra["metadata"] = metadata_rest
    content = (_organization(organization), *columns, *metadata, _json(extra) if extra else None)
    return (*content, msgspec.json.encode(faults).decode()) if faults else content


def _take(fields: dict[str, msgspec.Raw], name: str) -> Any:
    """Move a documented field out of `fields`, if its type is right."""
    raw = fields.get(name, _NULL)
    value = _value(raw, _integer if name in _INTEGER_FIELDS else _text)
    if value is _WRONG and name in _INTEGER_FIELDS:
        value = _whole(bytes(raw).decode())
    if value is _WRONG:
        return None
    fields.pop(name, None)
    return value


def _whole(text: str) -> Any:
    """Return a whole number that fits 64 bits as an integer, in whatever spelling."""
    try:
        number = Decimal(text)
    except ArithmeticError:
        return _WRONG
    is_whole = number.adjusted() < 19 and number == number.to_integral_value()
    return int(number) if is_whole and -(2**63) <= number < 2**63 else _WRONG


def _json(fields: Mapping[str, msgspec.Raw]) -> str:
    """Encode fields independently of their order, spacing and escaping."""
    text = bytes(_encode(fields)).decode()
    if nests_too_deeply(text):
        raise UnusableResponse("an unknown field is nested too deeply")
    if "\\" in text or text.count("{") + text.count("[") > 1 + ("metadata" in fields):
        text = bytes(_encode(_decoder.decode(text))).decode()
    return text


def _encode(fields: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(fields, order="sorted"))
