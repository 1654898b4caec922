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
from nftsync.provider.new_fields import new_fields, of_content
from nftsync.records import (
    FIELD_PATHS,
    INTEGER_COLUMNS,
    INTEGERS,
    Content,
    Entry,
    NewField,
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


class _Entry(_Strict):
    token_id: str
    amount: str
    token: _Token | None = None


class _Balances(_Strict):
    nft_token_balances: list[_Entry]


class _LooseEntry(msgspec.Struct, rename="camel", gc=False):
    token_id: str
    amount: str
    token: Any = None


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
_cursor_decoder = msgspec.json.Decoder(str | int | bool | None)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])

_LONE = re.compile("[\ud800-\udfff]")
_BEGUN_NUMBER = re.compile(rb"(?:-|[0-9]\.|[0-9][eE][+-]?)\Z")
_NOTHING: tuple[None, ...] = (None,) * len(_METADATA_FIELDS)
_ENTRY_FIELDS = ("tokenId", "amount", "token")
#: The records within a list's entry and a token, and what precedes their fields in messages.
_RECORDS = {"$.token": "", "metadata": "metadata."}
_BOM = b"\xef\xbb\xbf"
#: Levels of a field's value in a token's metadata.
_DEEPEST = DEEPEST_JSON - 2
#: After an entry with this many new fields, further ones are not checked.
_MOST_NEW_FIELDS = 1_000
#: Errors of JSON that is to be read in another way.
_UNREADABLE = (ValueError, TypeError, RecursionError, UnusableResponse)
_BROKEN_TEXT = "text that is not Unicode"


class WalletList(NamedTuple):
    """A wallet's balances, or one page of them.

    Attributes:
        entries: in the order sent, with lower-case ids; left out if `unchanged`.
        doubt: the field or header that suggests more pages, as a message names it.
        digest: SHA-256 of the body or of all pages; empty for a single page.
        new_fields: by path; not all if there are thousands.
    """

    entries: list[Entry]
    doubt: str | None = None
    cursor: str | None = None
    digest: str = ""
    etag: str | None = None
    new_fields: dict[str, NewField] = {}  # noqa: RUF012 - never changed
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
                entries = _entries(balances.nft_token_balances, repeat({}), _strict_content)
                # All that it may read beyond the document is one field of the metadata.
                first = next((one for one in entries if one[2] and one[2][-1]), None)
                news = of_content(first[2], first[0]) if first else {}
                return WalletList(entries, new_fields=news)
        except _UNREADABLE:
            pass  # the loose pass names the problem, if there is one
    document = _parsed(body)
    listed: Any = document.get(_LIST_FIELD)
    if isinstance(listed, list):
        document[_LIST_FIELD] = []
    readable = _readable(document, {}, "$.", {_LIST_FIELD, cursor_field})
    _decode(_loose_balances, msgspec.json.encode(readable))
    cursor = cursor_field and _cursor(readable.get(cursor_field), cursor_field)
    faults: list[_Faults] = [{} for _ in listed]
    loose = [*map(_read_loosely, count(), listed, faults)]
    allowed = {_LIST_FIELD, cursor_field, *known_fields}
    unknown = next((name for name in document if name not in allowed), None)
    doubt = unknown and f"the unknown field {unknown[:80]!r} beside {_LIST_FIELD}"
    entries = _entries(loose, faults, _loose_content)
    return WalletList(entries, doubt, cursor, new_fields=_new_fields(listed, entries))


def _new_fields(listed: list[dict[str, Any]], entries: list[Entry]) -> dict[str, NewField]:
    news: dict[str, NewField] = {}
    for fields, (token_id, _, content) in zip(listed, entries, strict=True):
        is_record = isinstance(fields.get("token"), dict)
        documented = _ENTRY_FIELDS if is_record else _ENTRY_FIELDS[:2]
        beside = {name: value for name, value in fields.items() if name not in documented}
        shown = _object.decode(msgspec.json.encode(_clean(beside, [])))
        news |= new_fields("balance", shown, token_id)
        if is_record:
            news |= of_content(content, token_id)
        if len(news) > _MOST_NEW_FIELDS:
            break
    return news


def _may_repeat_a_key(body: bytes, balances: _Balances) -> bool:
    """Return whether bytes are lost, maybe with a repeated key."""
    again = msgspec.json.encode(balances)
    lost, nulls = (body.count(text) - again.count(text) for text in (b":", b"null"))
    return len(again) != len(body) and (lost != nulls or b"u003" in body)


def without_duplicates(entries: list[Entry]) -> list[Entry]:
    """Drop repeated entries; refuse different amounts for one token."""
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
    faults: _Faults = {}
    record = _readable(_parsed(body.removeprefix(_BOM)), faults)
    shown = record.get("id")
    if isinstance(shown, str) and shown.lower() != token_id:
        raise UnusableResponse(f"$.id: the response is the record of another token, {shown[:80]!r}")
    # The document guarantees only the metadata, but an id also identifies a token.
    if not isinstance(shown, str) and not isinstance(record.get("metadata"), dict):
        raise UnusableResponse("$: no id and no metadata, so this is not a token record")
    return _loose_content(record, token_id, faults) or ()  # as the record is an object


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
    return msgspec.json.encode(_readable(_parsed(body), {}))


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
    documented = (
        {name: fields[name] for name in _ENTRY_FIELDS if name in fields} if fields else entry
    )
    try:
        readable = _readable(documented, faults, "$.", _ENTRY_FIELDS[:2])
        record = readable.pop("token", None) if fields else None
        read = _decode(_loose_entry, msgspec.json.encode(readable))
    except UnusableResponse as error:
        place, _, problem = str(error).partition(": ")
        place = f"$.{_LIST_FIELD}[{number}]{place[1:]}"
        token_id = fields.get("tokenId")
        if isinstance(token_id, str) and is_uuid(token_id):
            place += f" (token {token_id})"
        raise UnusableResponse(f"{place}: {problem}") from None
    read.token = record
    return read


def _readable(
    value: Any, faults: _Faults, place: str = "", needed: Collection[str | None] = ()
) -> Any:
    """Return a parsed value as JSON can encode it; note a record's unreadable fields, or refuse."""
    with suppress(*_UNREADABLE):
        stored = {"metadata": value} if place == "metadata." else value
        if not nests_too_deeply(msgspec.json.encode(stored).decode()):
            return value
    fields: dict[str, Any] = {}
    for name, one in value.items() if isinstance(value, dict) else ():
        reasons: list[str] = []
        shown = _clean(name, reasons)
        inner = _RECORDS.get(place + name)
        if inner is not None and isinstance(one, dict):
            fields[name] = _readable(one, faults, inner)
            continue
        cleaned = _clean(one, reasons)
        if {*reasons} <= {_BROKEN_TEXT}:  # otherwise no value would be true
            fields[shown] = cleaned
        if reasons and name in needed:
            raise UnusableResponse(f"{place}{name}: {reasons[0]}")
        if reasons:
            faults[(place + shown).removeprefix("$.")] = reasons[0]
    return fields


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
        (token_id, entry.amount, content(entry.token, token_id, f))
        for token_id, entry, f in zip(ids, balances, faults, strict=False)
    ]


def _strict_content(token: _Token | None, token_id: str, _: _Faults) -> Content | None:
    if token is None:
        return None
    shown_id, organization, *columns, described = msgspec.structs.astuple(token)
    if shown_id is not None and shown_id != token_id and shown_id.lower() != token_id:
        raise UnusableResponse("another token")  # the loose pass reports it
    metadata: Sequence[Any] = _NOTHING
    extra = None
    if described is not None:
        *metadata, attributes = msgspec.structs.astuple(described)
        extra = None if attributes is msgspec.UNSET else _attributes_json(attributes)
    return (_organization(organization), *columns, *metadata, extra)


def _attributes_json(attributes: msgspec.Raw) -> str:
    text = _json({"metadata": {"attributes": attributes}})
    if nests_too_deeply(text):
        raise UnusableResponse("nested too deeply")  # the loose pass names it
    return _json(_decoder.decode(text))


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


def _cursor(value: Any, field: str) -> str | None:
    try:
        cursor = _cursor_decoder.decode(msgspec.json.encode(value))
    except ValueError:
        cursor = True
    if cursor is True:
        raise UnusableResponse(f"$.{field}: expected a cursor (text or an integer), null or false")
    return None if cursor is None or cursor is False or cursor == "" else str(cursor)


def _loose_content(record: Any, token_id: str, faults: _Faults) -> Content | None:
    """Arrange a parsed token record; unknown fields and wrong types go to `extra`."""
    if record is None and not faults:
        return None
    if isinstance(record, dict):
        extra = dict(record)
    else:
        extra = {} if record is None else {"token": record}
        faults = {"token": "not an object"} | faults
    shown_id = extra.get("id")
    if shown_id is None or (isinstance(shown_id, str) and shown_id.lower() == token_id):
        extra.pop("id", None)
    elif isinstance(shown_id, str):
        faults = {"token": f"the record of another token, {shown_id[:80]!r}"} | faults
    organization, *columns = (_take(extra, name) for name in _TOKEN_FIELDS)
    metadata: Sequence[Any] = _NOTHING
    unknown = extra.pop("metadata", None)
    if isinstance(unknown, dict):
        unknown = dict(unknown)
        metadata = [_take(unknown, name) for name in _METADATA_FIELDS]
    elif unknown is not None:
        faults = {"metadata": "not an object"} | faults
    if unknown not in (None, {}):
        extra["metadata"] = unknown
    content = (_organization(organization), *columns, *metadata, _json(extra) if extra else None)
    return (*content, msgspec.json.encode(faults).decode()) if faults else content


def _take(fields: dict[str, Any], name: str) -> Any:
    value = fields.pop(name, None)
    is_integer = name in _INTEGER_FIELDS
    if value is None or (isinstance(value, str) and not is_integer):
        return value
    number = _whole(bytes(value)) if is_integer and isinstance(value, msgspec.Raw) else None
    if number is None:
        fields[name] = value
    return number


def _whole(digits: bytes) -> int | None:
    """Return a whole number that fits 64 bits as an integer, in whatever spelling."""
    with suppress(ArithmeticError):
        number = Decimal(digits.decode())
        is_whole = number.adjusted() < 19 and number == number.to_integral_value()
        if is_whole and int(number) in INTEGERS:
            return int(number)
    return None


def _json(fields: Mapping[str, Any]) -> str:
    """Encode fields independently of their order, and if parsed, of spacing and escaping."""
    return msgspec.json.encode(fields, order="sorted").decode()
