"""Webhooks: signatures, fields of the body, and routes to follow-up reads.

A signed body may contain anything, so each field is checked before it is stored or shown.

Source: provider's document, section Webhook (notification body), Follow-up read of a webhook's
object.
"""

from __future__ import annotations

import binascii
import codecs
import hashlib
import hmac
import json
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import quote

import msgspec

from nftsync.errors import SettingsError
from nftsync.records import are_uuids, normalize_uuid
from nftsync.text import cut_deep, nests_too_deeply, toml_key

#: The header with the signature.
HEADER = "x-service-webhook-hmac"

#: The allowed types (provider's document, sections Events and Webhook configuration).
WebhookType: TypeAlias = Literal[
    "payment", "transaction", "nft", "kyc", "document", "custodialAccount"
]
WEBHOOK_TYPES: tuple[WebhookType, ...] = get_args(WebhookType)

#: `missing`: no signature. `malformed`: not a signature, or two of them. `wrong`: made from another
#: body or with another secret.
Reason: TypeAlias = Literal["missing", "malformed", "wrong"]

# Base64 of 32 bytes: 43 digits and one `=`. A header sent twice arrives joined with a comma.
_SHAPE = re.compile(r"[A-Za-z0-9+/]{43}=")


#: Characters of the shortest safe secret; RFC 2104 recommends 32 random bytes for SHA-256.
_SHORTEST_SECRET = 16
_TOO_SHORT = (
    f"shorter than {_SHORTEST_SECRET} characters, so it can be guessed from one signed webhook;"
    " send the provider one of 32 random bytes: nftsync webhook-config --send-secret"
)


def secret_problem(secret: str) -> str:
    """Return why a webhook secret is unsafe, without showing it, or a blank text."""
    return _TOO_SHORT if len(secret) < _SHORTEST_SECRET else ""


def sign(secret: str, body: bytes) -> str:
    return _signature(secret, body).decode("ascii")


def verify(body: bytes, header: str | None, secrets: Sequence[str]) -> int | Reason:
    """Return the index of the secret that signed a raw body, or why the signature is refused.

    No secret may be blank. Compares the Base64 texts, as several texts decode to the same bytes.
    The duration reveals neither where they differ nor which secret matched.
    """
    if not header:
        return "missing"
    if _SHAPE.fullmatch(header) is None:
        return "malformed"
    signature = header.encode("ascii")
    matches = [hmac.compare_digest(_signature(secret, body), signature) for secret in secrets]
    return matches.index(True) if True in matches else "wrong"


def _signature(secret: str, body: bytes) -> bytes:
    return binascii.b2a_base64(hmac.digest(secret.encode(), body, "sha256"), newline=False)


class DeliveryHeaders(NamedTuple):
    """Headers by which the provider's support finds a delivery; None: absent or unusable."""

    request_id: str | None = None
    traceparent: str | None = None

    def given(self) -> dict[str, str]:
        return {name: value for name, value in self._asdict().items() if value is not None}


def delivery_headers(header: Callable[[str], str | None]) -> DeliveryHeaders:
    """Return the headers of a delivery, which anyone can have sent; `header` gets one by name."""
    return DeliveryHeaders(_text(header("request-id")), _text(header("traceparent")))


class Webhook(NamedTuple):
    """The fields of a webhook: ids are UUIDs in lower case, and `changes` is JSON as sent.

    Absent or unreadable fields are None; without a usable `id`, it is the body's SHA-256.
    """

    webhook_id: str
    organization_id: str | None
    action: str | None
    resource_type: str
    resource_id: str
    created_at_utc: str | None
    changes: str | None


class Unusable(NamedTuple):
    """A body that cannot be processed: a one-line reason, safe to show, and any readable fields."""

    reason: str
    webhook: Webhook | None = None


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Any spelling: hyphens are optional, and braces or `urn:uuid:` may surround the digits.
_UUID = re.compile(
    rf"(?ai)(?:urn:uuid:)?\{{?{'-?'.join(f'([0-9a-f]{{{n}}})' for n in (8, 4, 4, 4, 12))}\}}?"
)


class _Fields(msgspec.Struct, rename="camel", gc=False):
    """Unchecked fields; None: absent, null or unreadable."""

    id: Any = None
    organization_id: Any = None
    action: Any = None
    resource_type: Any = None
    resource_id: Any = None
    created_at_utc: Any = None
    changes: msgspec.Raw = msgspec.Raw(b"null")


_decoder = msgspec.json.Decoder(_Fields)
#: The fields that a read needs; if one is repeated with another value, neither counts.
_NEEDED = ('"resourceType"', '"resourceId"')


def read_webhook(body: bytes, organization_id: str | None) -> Webhook | Unusable:
    """Read a webhook's raw body; never raises.

    Refuses webhooks that name another organization than `organization_id`, unless that is None.
    """
    fields = _fields(body)
    if fields is None:
        return Unusable("not a JSON object")
    resource_type, resource_id = _text(fields.resource_type), _uuid(fields.resource_id)
    if resource_type is None:
        return _unusable("resourceType", fields.resource_type, "1 to 200 printable characters")
    if resource_id is None:
        return _unusable("resourceId", fields.resource_id, "a UUID")
    named = _uuid(fields.organization_id)
    changes = bytes(fields.changes).decode(errors="replace")
    webhook = Webhook(
        _uuid(fields.id) or hashlib.sha256(body).hexdigest(),
        named,
        _text(fields.action),
        resource_type,
        resource_id,
        _text(fields.created_at_utc),
        # Readers of the column must be able to parse it.
        None if changes == "null" or nests_too_deeply(changes) else changes,
    )
    if organization_id and named and named != organization_id.lower():
        return Unusable(f"it is for another organization, {named}", webhook)
    return webhook


def _uuid(value: object) -> str | None:
    match = _UUID.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else "-".join(match.groups()).lower()


def _text(value: object) -> str | None:
    text = value.strip() if isinstance(value, str) else ""
    return text if 0 < len(text) <= 200 and not _CONTROL.search(text) else None


def _unusable(name: str, value: object, must: str) -> Unusable:
    shown = ascii(value[:80])[:80] if isinstance(value, str) else "none, several or another type"
    return Unusable(f"{name}: expected {must}, got {shown}")


def _fields(body: bytes) -> _Fields | None:
    body = body.removeprefix(codecs.BOM_UTF8)
    if all(body.count(name.encode()) == 1 for name in _NEEDED):
        with suppress(ValueError, RecursionError):
            return _decoder.decode(body)
    # msgspec refuses a text with a lone surrogate, also after a backslash.
    codecs.register_error("nftsync.lone", lambda error: ("\ud800", error.end))  # type: ignore[attr-defined]
    return _loose_fields(body.decode(json.detect_encoding(body), "nftsync.lone"))


# Possessive groups match too much in Python before 3.11.5, so only characters are possessive.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*"'
#: A field of an object whose values have nothing in brackets.
_FIELD = rf'({_STRING})\s*:\s*((?:{_STRING}|[^\s"\[\]{{}}:,]++|\[\])\s*)'
_FIELDS = re.compile(_FIELD, re.DOTALL)
_OBJECT = re.compile(rf"\s*\{{\s*(?:{_FIELD}(?:,\s*{_FIELD})*)?\}}\s*", re.DOTALL)


def _loose_fields(text: str) -> _Fields | None:
    """Return the readable fields of a JSON object, or None."""
    flat = cut_deep(text, 1)  # of the same length
    if _OBJECT.fullmatch(flat) is None:
        return None
    fields: dict[str, str] = {}
    for match in _FIELDS.finditer(flat):
        name, value = text[slice(*match.span(1))], text[slice(*match.span(2))].rstrip()
        repeated = name in _NEEDED and fields.get(name, value) != value
        fields[name] = "null" if repeated or not _is_json(value) else value
    readable = ",".join(f"{name}:{value}" for name, value in fields.items() if _is_json(name))
    return _decoder.decode(f"{{{readable}}}")


def _is_json(text: str) -> bool:
    with suppress(ValueError):
        return not nests_too_deeply(text) and msgspec.json.decode(text) is not msgspec.UNSET
    return False


RouteKind: TypeAlias = Literal["token", "wallet", "object", "sync"]

_PLACE = "{resourceId}"
#: The paths of the provider's document (section Endpoints).
_PATHS: Mapping[RouteKind, str] = {
    "token": f"/v1/tokens/{_PLACE}",
    "wallet": f"/v1/wallets/{_PLACE}/nft-balances",
}
_BUILT_IN: Mapping[str, RouteKind] = {"Token": "token", "Nft": "token", "Wallet": "wallet"}
_ANY = "*"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A `[routes.TYPE]` table, as configured or as completed by `merge_routes`.

    Attributes:
        holders: also read every wallet known to hold the token.
        wallets, tokens: dotted fields of the object with ids to read.
        at_most_every: the minimum interval between two such reads.
    """

    path: str | None = None
    kind: RouteKind | None = None
    holders: bool = False
    wallets: list[str] = []
    tokens: list[str] = []
    at_most_every: timedelta | None = None


class Routes(NamedTuple):
    """All routes by resource type, complete and checked; all but `sync` routes have a path."""

    by_type: Mapping[str, Route]

    def find(self, resource_type: str) -> Route | None:
        """Return the route of a type, or else the route `*`, or None."""
        return self.by_type.get(resource_type) or self.by_type.get(_ANY)


def merge_routes(configured: Mapping[str, Route]) -> Routes:
    """Merge configured routes, by type, into the built-in ones; SettingsError names the remedy."""
    names = (*_BUILT_IN, *configured)
    return Routes({name: _completed(name, configured.get(name, Route())) for name in names})


def _completed(name: str, route: Route) -> Route:
    kind = route.kind or _BUILT_IN.get(name)
    problem = _problem(name, kind, route)
    if problem is not None:
        raise SettingsError(f"routes.{toml_key(name)}{problem}")
    path = route.path if kind is None else _PATHS.get(kind, route.path)
    return msgspec.structs.replace(route, kind=kind, path=path)


def _problem(name: str, kind: RouteKind | None, route: Route) -> str | None:
    path = route.path
    if kind is None:
        return ' has no kind; write kind = "token", "wallet", "object" or "sync"'
    if name == _ANY and kind in _PATHS:
        return f' cannot have kind = "{kind}", as it matches any type; write "object" or "sync"'
    if kind == "object" and (path is None or _PLACE not in path):
        return f'.path is required for kind = "object", such as "/v1/things/{_PLACE}"'
    if kind == "sync" and path is not None:
        return '.path is not allowed with kind = "sync"; remove path, or write kind = "object"'
    if kind in _PATHS and path not in {None, _PATHS[kind]}:
        return (
            f'.path of kind = "{kind}" is always "{_PATHS[kind]}"; remove path, or write '
            'kind = "object"'
        )
    for key, is_set, needed_kind in (
        ("holders", route.holders, "token"),
        ("wallets", route.wallets, "object"),
        ("tokens", route.tokens, "object"),
        ("at_most_every", route.at_most_every is not None, "sync"),
    ):
        if is_set and kind != needed_kind:
            return f'.{key} is not allowed with kind = "{kind}", only "{needed_kind}"; remove it'
    return None


def path_for(route: Route, resource_id: str) -> str:
    """Return the encoded path that reads an object; InputError: the id is not a UUID."""
    if route.path is None:
        raise SettingsError('the route has no path; add one, as kind = "object" requires it')
    encoded = quote(route.path, safe=string.punctuation, errors="replace")
    return encoded.replace(_PLACE, normalize_uuid(resource_id, "resource id"))


def named_ids(body: str | bytes, fields: Sequence[str]) -> list[str]:
    """Return the distinct UUIDs in fields of a JSON object: lower case, in the fields' order.

    Dots in `fields` separate nested names; a name applied to a list selects from each element.
    """
    try:
        # Numbers stay text, because Python refuses to convert thousands of digits.
        value = json.loads(body, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return []
    named = (x for field in fields for x in _at(value, field.split(".")) if isinstance(x, str))
    return list(dict.fromkeys(x.lower() for x in named if len(x) == 36 and are_uuids(x)))


def _at(value: Any, steps: Sequence[str]) -> Iterator[Any]:
    for step in steps:
        value = [x[step] for x in _elements(value) if isinstance(x, dict) and step in x]
    return _elements(value)


def _elements(value: Any) -> Iterator[Any]:
    rest = [value]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest.extend(reversed(value))
        else:
            yield value
