"""Decoding of responses into tokens and amounts; errors name the field.

One strict pass reads responses with only the documented fields and types. All others are decoded
field by field, which keeps unknown fields, values of a wrong type, and every digit. Metadata come
from strangers: if a response cannot be read even so, its unreadable fields are repaired and named,
and the rest is decoded as before.

Source: provider's document, sections NFT token balance, Token, TokenMetadata and the two reads
under Endpoints.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import count, repeat
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from nftsync.errors import UnusableResponse
from nftsync.records import Content, Entry, are_uuids, is_uuid
from nftsync.text import DEEPEST_JSON, cut_deep, nests_too_deeply

_Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class CutShort(UnusableResponse):
    """The body ends before its JSON does; a retry may get it all."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.passing = True


class _Metadata(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    name: str | None = None
    description: str | None = None
    image: str | None = None
    animation_url: str | None = None
    external_url: str | None = None
    background_color: str | None = None
    edition_id: _Integer | None = None
    total_edition: _Integer | None = None
    creator_name: str | None = None
    creator_image_url: str | None = None
    creator_external_page_url: str | None = None


class _AttributedMetadata(_Metadata, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Metadata with a field that is not in the document, but frequent: here for speed."""

    attributes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Token(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    id: str | None = None
    organization_id: str | None = None
    contract_address: str | None = None
    blockchain_token_id: str | None = None
    metadata: _AttributedMetadata | None = None


class _Entry(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    token_id: str
    amount: str
    token: _Token | None = None


class _Balances(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    nft_token_balances: list[_Entry]


class _LooseEntry(msgspec.Struct, rename="camel", gc=False):
    token_id: str
    amount: str
    token: msgspec.Raw = msgspec.Raw(b"null")


class _LooseBalances(msgspec.Struct, rename="camel", gc=False):
    nft_token_balances: list[_LooseEntry]


_LIST_FIELD = "nftTokenBalances"
_AMOUNT = b'"amount"'
_TOKEN_FIELDS = ("organizationId", "contractAddress", "blockchainTokenId")
_METADATA_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(_Metadata))
_INTEGER_FIELDS = frozenset({"editionId", "totalEdition"})

_strict_balances = msgspec.json.Decoder(_Balances)
_loose_balances = msgspec.json.Decoder(_LooseBalances)
_strict_token = msgspec.json.Decoder(_Token)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str | None)
_integer = msgspec.json.Decoder(_Integer | None)

# Escaped backslash, surrogate pair, or a lone surrogate; only the last is not Unicode text.
_SURROGATE = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_LONE = re.compile("[\ud800-\udfff]")
_BEGUN_NUMBER = re.compile(rb"(?:-|[0-9]\.|[0-9][eE][+-]?)\Z")
_ENTRY = re.compile(rf"\$\.{_LIST_FIELD}\[(\d+)\](?:\.amount)?")
_NOTHING: tuple[None, ...] = (None,) * len(_METADATA_FIELDS)
_NULL = msgspec.Raw(b"null")
_WRONG = object()
_BOM = b"\xef\xbb\xbf"
#: Levels of JSON around a token record in a list; and within one, for a repair.
_AROUND, _DEEPEST = 3, DEEPEST_JSON - 1
#: Stands for a value that is nested too deeply: two halves of characters, which no text has.
_TOO_DEEP = "\udbff\udbff"
_BROKEN_TEXT = "text that is not Unicode"
_NESTED = f"nested more than {DEEPEST_JSON} levels deep"


class WalletList(NamedTuple):
    """A wallet's balances, or one page of them.

    Attributes:
        entries: in the order sent, with lower-case ids.
        doubt: the field or header that suggests more pages, as a message names it.
        cursor: the value of the cursor field, or None.
        digest: SHA-256 of the body or of all pages; empty for a single page.
        etag: the response's validator.
        unchanged: the response is the stored one; entries are left out.
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
    """Decode one page of a wallet's balances.

    Args:
        body: the response's body.
        known_fields: harmless extra top-level fields.
        cursor_field: the top-level field with the cursor.
        most: a body with more entries is not decoded, to save memory.
    """
    if most is not None and body.count(_AMOUNT) > most:
        raise UnusableResponse(f"$.{_LIST_FIELD}: more than {most:,} entries")
    body = body.removeprefix(_BOM)
    if cursor_field is None:
        try:
            balances = _strict_balances.decode(body)
            _refuse_repeated_keys(body, balances)
            return WalletList(_entries(balances.nft_token_balances, [], _strict_content))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, UnusableResponse):
            pass  # the loose pass names the problem, if there is one
    allowed = {_LIST_FIELD, cursor_field, *known_fields}

    def read(text: bytes, faults: Sequence[_Faults]) -> WalletList:
        fields = _decode(_object, text)
        loose = _decode(_loose_balances, _checked(text))
        _again(text)
        unknown = next((name for name in fields if name not in allowed), None)
        doubt = unknown and f"the unknown field {unknown[:80]!r} beside {_LIST_FIELD}"
        cursor = cursor_field and _cursor(fields.get(cursor_field, _NULL), cursor_field)
        entries = _entries(loose.nft_token_balances, faults, _loose_content)
        return WalletList(entries, doubt, cursor)

    try:
        return read(body, [])
    except UnusableResponse as error:
        document = _parsed(body, _AROUND + _DEEPEST, error)
    listed = document.get(_LIST_FIELD)
    try:
        return read(*_repaired_list(document, {_LIST_FIELD, cursor_field}))
    except UnusableResponse as error:
        place = _ENTRY.match(str(error))
        if place and isinstance(listed, list) and isinstance(entry := listed[int(place[1])], dict):
            token_id = entry.get("tokenId")
            if isinstance(token_id, str) and is_uuid(token_id):
                error.args = (f"{place[0]} (token {token_id}){str(error)[place.end() :]}",)
        raise


def _refuse_repeated_keys(body: bytes, balances: _Balances) -> None:
    """Refuse JSON with a repeated key, as decoders differ in which value they take.

    If no byte is lost, no key is repeated. The slow check is for all but compact JSON.
    """
    again = msgspec.json.encode(balances)
    if len(again) != len(body):
        lost, nulls = (body.count(text) - again.count(text) for text in (b":", b"null"))
        if lost != nulls or b"u003" in body:
            _again(body)


def _again(text: bytes) -> bytes:
    """Encode JSON independently of spacing and escaping; refuse repeated keys."""
    try:
        again = bytes(_encode(json.loads(text, parse_int=_digits, parse_float=_digits)))
    except (ValueError, RecursionError):
        raise UnusableResponse("the body is nested too deeply") from None
    # Only a repeated key loses a colon, if none is hidden in an escape.
    if again.count(b":") != text.count(b":") or b"u003a" in text or b"u003A" in text:
        json.loads(text, object_pairs_hook=_refuse_repeated_key, parse_int=str, parse_float=str)
    return again


def _refuse_repeated_key(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise UnusableResponse("a key appears twice")


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
    body = body.removeprefix(_BOM).strip()
    try:
        return _token_content(body, token_id, {})
    except UnusableResponse as error:
        faults: _Faults = {}
        text = _encode(_repaired(_parsed(body, _DEEPEST, error), faults))
    return _token_content(bytes(text), token_id, faults)


def _token_content(text: bytes, token_id: str, faults: _Faults) -> Content:
    fields = _decode(_object, text)
    _again(_checked(text))
    shown = _value(fields.get("id", _NULL), _text)
    if isinstance(shown, str) and shown.lower() != token_id:
        raise UnusableResponse(f"$.id: the response is the record of another token, {shown[:80]!r}")
    # The document guarantees only the metadata, but an id also identifies a token.
    if not isinstance(shown, str) and bytes(fields.get("metadata", _NULL))[:1] != b"{":
        raise UnusableResponse("$: no id and no metadata, so this is not a token record")
    content = _loose_content(msgspec.Raw(text), token_id, faults)
    if content is None:
        raise UnusableResponse("$: expected an object, got null")
    return content


def check_object(body: bytes) -> bytes:
    """Return the body as UTF-8 text, its unreadable fields repaired; refuse all but an object."""
    body = body.removeprefix(_BOM)
    try:
        _decode(_object, body)
        if not nests_too_deeply(_checked(body)):
            return body
        raise UnusableResponse(f"the body is {_NESTED}")  # noqa: TRY301 - as if it were not JSON
    except UnusableResponse as error:
        return msgspec.json.encode(_repaired(_parsed(body, _DEEPEST, error), {}))


#: The unreadable fields of a token record, dotted, each with the reason.
_Faults: TypeAlias = dict[str, str]


class _Unreadable(NamedTuple):
    """A value that JSON does not define."""

    reason: str


def _parsed(body: bytes, deepest: int, error: UnusableResponse) -> dict[str, Any]:
    """Parse an object with unreadable values; raise `error` if it is of another kind."""
    text = cut_deep(body, deepest, b'"\\udbff\\udbff"').decode("utf-8", "surrogateescape")
    try:
        document = json.loads(
            text,
            strict=False,
            object_pairs_hook=_without_repeated,
            parse_constant=lambda name: _Unreadable(f"{name} is not a JSON number"),
            parse_int=_digits,
            parse_float=_digits,
        )
    except ValueError:
        raise error from None
    if not isinstance(document, dict):
        raise error
    return document


def _without_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(name for name, _ in pairs)
    return {
        name: value if counts[name] == 1 else _Unreadable(f"the key {name[:80]!r} appears twice")
        for name, value in pairs
    }


def _repaired_list(
    document: dict[str, Any], needed: Collection[str | None]
) -> tuple[bytes, list[_Faults]]:
    """Encode a parsed balances response without its unreadable values; return also the faults."""
    listed = document.get(_LIST_FIELD)
    entries = listed if isinstance(listed, list) else []
    faults: list[_Faults] = [{} for _ in entries]
    rest = {name: value for name, value in document.items() if value is not entries}
    repaired = _repaired(rest, {}, "$.", needed)
    if entries is listed:
        repaired[_LIST_FIELD] = [*map(_repaired_entry, entries, faults, count())]
    return bytes(_encode(repaired)), faults


def _repaired_entry(entry: Any, faults: _Faults, number: int) -> Any:
    if not isinstance(entry, dict):
        return _clean(entry, [])
    rest = {name: value for name, value in entry.items() if name != "token"}
    repaired = _repaired(rest, {}, f"$.{_LIST_FIELD}[{number}].", ("tokenId", "amount"))
    token = entry.get("token")
    if isinstance(token, dict):
        return repaired | {"token": _repaired(token, faults)}
    return repaired | _repaired({"token": token}, faults)


def _repaired(
    fields: dict[str, Any], faults: _Faults, place: str = "", needed: Collection[str | None] = ()
) -> dict[str, Any]:
    """Return a parsed record as JSON can encode it; note its unreadable fields, or refuse them."""
    repaired: dict[str, Any] = {}
    for name, value in fields.items():
        reasons: list[str] = []
        shown = _clean(name, reasons)
        if name == "metadata" and not place and isinstance(value, dict):
            repaired[name] = _repaired(value, faults, "metadata.")
            continue
        cleaned = _clean(value, reasons)
        if {*reasons} <= {_BROKEN_TEXT}:  # otherwise no value would be true
            repaired[shown] = cleaned
        if reasons and name in needed:
            raise UnusableResponse(f"{place}{name}: {reasons[0]}")
        if reasons:
            faults[place + shown] = reasons[0]
    return repaired


def _clean(value: Any, reasons: list[str]) -> Any:
    """Return a parsed value as JSON can encode it; add why that is not the whole value."""
    if isinstance(value, list):
        return [_clean(one, reasons) for one in value]
    if isinstance(value, dict):
        return {_clean(name, reasons): _clean(one, reasons) for name, one in value.items()}
    if isinstance(value, _Unreadable) or value == _TOO_DEEP:
        reasons.append(value.reason if isinstance(value, _Unreadable) else _NESTED)
        return None
    if isinstance(value, str) and _LONE.search(value):
        reasons.append(_BROKEN_TEXT)
        return _LONE.sub("\ufffd", value)
    return value


class _NeedsLooseReadError(UnusableResponse):
    """A record has the id of another token, which the loose pass reports."""


def _entries(
    balances: Sequence[_Entry | _LooseEntry],
    faults: Sequence[_Faults],
    content: Callable[[Any, str, _Faults], Content | None],
) -> list[Entry]:
    ids = _token_ids([entry.token_id for entry in balances])
    return [
        (token_id, entry.amount, None if entry.token is None else content(entry.token, token_id, f))
        for token_id, entry, f in zip(ids, balances, faults or repeat({}), strict=False)
    ]


def _strict_content(token: _Token, token_id: str, _: _Faults) -> Content:
    if token.id is not None and token.id != token_id and token.id.lower() != token_id:
        raise _NeedsLooseReadError("another token")
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
    _checked(bytes(attributes))  # the strict pass checks only their syntax
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


def _checked(body: bytes) -> bytes:
    """Require UTF-8 without lone surrogates, which text cannot contain."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise UnusableResponse(f"the body is not UTF-8 (byte {error.start})") from None
    escapes = _SURROGATE.finditer(body) if b"\\ud" in body or b"\\uD" in body else ()
    if any(len(match[0]) == 6 for match in escapes):
        raise UnusableResponse(f"the body has {_BROKEN_TEXT}")
    return body


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
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
        except (msgspec.DecodeError, RecursionError, UnusableResponse):
            pass  # some field belongs in `extra`
    if record[:1] != b"{":
        sent = None if record == b"null" else _json({"token": raw})
        content: Content = (*(None,) * len(_TOKEN_FIELDS), *_NOTHING, sent)
        return _with_faults(content, {"token": "not an object"} | faults)
    extra = _decode(_object, record)
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
    return _with_faults(content, faults)


def _with_faults(content: Content, faults: _Faults) -> Content:
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
    """Return a number that is whole and fits 64 bits as an integer, in whatever spelling."""
    try:
        number = Decimal(text)
    except ArithmeticError:
        return _WRONG
    is_whole = number.adjusted() < 19 and number == number.to_integral_value()
    return int(number) if is_whole and -(2**63) <= number < 2**63 else _WRONG


def _json(fields: Mapping[str, msgspec.Raw]) -> str:
    """Encode fields independently of their order, spacing and escaping."""
    text = bytes(_encode(fields))
    if nests_too_deeply(text):
        raise UnusableResponse(f"the body has an unknown field {_NESTED}")
    if b"\\" in text or text.count(b"{") + text.count(b"[") > 1 + ("metadata" in fields):
        text = _again(text)
    return text.decode()


def _encode(fields: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(fields, order="sorted"))


def _digits(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode("ascii"))
