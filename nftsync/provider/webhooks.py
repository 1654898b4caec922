"""Webhooks: signatures, fields of the body, and routes to follow-up reads.

A signed body may still contain anything, so each field is checked before it is stored or shown.

A route defines the read for a webhook type. The provider's document shows no such path, so routes
are settings; only the document's two reads are built in.

Source: provider's document, section Webhook (notification body), Follow-up read of a webhook's
object.
"""

from __future__ import annotations

import binascii
import hmac
import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias
from urllib.parse import quote

import msgspec

from nftsync.errors import InputError, SettingsError
from nftsync.records import are_uuids, normalize_uuid
from nftsync.text import DEEPEST_JSON, nests_too_deeply, repeated_key, toml_key

#: The header with the signature.
HEADER = "x-service-webhook-hmac"

#: `missing`: no signature. `malformed`: not a signature, or two of them. `wrong`: made from another
#: body or with another secret.
Reason: TypeAlias = Literal["missing", "malformed", "wrong"]

# Base64 of 32 bytes: 43 digits and one `=`. A header sent twice arrives joined with a comma.
_SHAPE = re.compile(r"[A-Za-z0-9+/]{43}=")


def sign(secret: str, body: bytes) -> str:
    """Return the signature of a webhook's raw body, as Base64."""
    return _signature(secret, body).decode("ascii")


def verify(body: bytes, header: str | None, secrets: Sequence[str]) -> int | Reason:
    """Return the index of the secret that signed a raw body, or why the signature is refused.

    No secret may be blank. Compares the Base64 texts, as several texts decode to the same bytes and
    the service sends only one. The duration reveals neither where they differ nor which secret
    matched.
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


class Webhook(NamedTuple):
    """The fields of a webhook; ids are UUIDs in lower case, and `changes` is JSON as sent."""

    webhook_id: str
    organization_id: str
    action: str
    resource_type: str
    resource_id: str
    created_at_utc: str
    changes: str | None


class Unusable(NamedTuple):
    """A body that cannot be processed: a one-line reason, safe to show, and any readable fields."""

    reason: str
    webhook: Webhook | None = None


#: The most digits of a number. Amounts have up to 78; Python refuses to convert over 4,300.
_LONGEST_NUMBER = 1_000
_LONGEST_TEXT = 200

_IDS = ("id", "organizationId", "resourceId")
_TEXTS = ("action", "resourceType", "createdAtUtc")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_Fields: TypeAlias = dict[str, Any]


class _Changes(msgspec.Struct, gc=False):
    changes: msgspec.Raw


_changes = msgspec.json.Decoder(_Changes)


class _UnusableError(Exception):
    """Reason why a body is unusable, as its text."""


def read_webhook(body: bytes, organization_id: str | None) -> Webhook | Unusable:
    """Read a webhook's raw body; never raises.

    Accepts only webhooks for `organization_id`, unless that is None.
    """
    try:
        webhook = _webhook(body, _fields(body))
    except _UnusableError as error:
        return Unusable(str(error))
    if organization_id is not None and webhook.organization_id != organization_id.lower():
        return Unusable(f"it is for another organization, {webhook.organization_id}", webhook)
    return webhook


def _webhook(body: bytes, fields: _Fields) -> Webhook:
    webhook_id, organization_id, resource_id = (_id(fields, name) for name in _IDS)
    action, resource_type, created_at_utc = (_text(fields, name) for name in _TEXTS)
    changes = fields.get("changes")
    if changes is not None and not isinstance(changes, dict):
        raise _UnusableError(f"changes: expected an object or null, got {_kind(changes)}")
    try:
        raw = None if changes is None else bytes(_changes.decode(body).changes).decode()
    except (msgspec.DecodeError, RecursionError) as error:
        raise _UnusableError("changes: not JSON that can be kept") from error
    return Webhook(
        webhook_id, organization_id, action, resource_type, resource_id, created_at_utc, raw
    )


def _id(fields: _Fields, name: str) -> str:
    value = _string(fields, name)
    try:
        return normalize_uuid(value, name)
    except InputError:
        raise _UnusableError(f"{name}: {_shown(value)} is not a UUID") from None


def _text(fields: _Fields, name: str) -> str:
    value = _string(fields, name)
    if len(value) > _LONGEST_TEXT:
        raise _UnusableError(f"{name}: longer than {_LONGEST_TEXT} characters")
    if _CONTROL.search(value) is not None:
        raise _UnusableError(f"{name}: {_shown(value)} contains control characters")
    return value


def _string(fields: _Fields, name: str) -> str:
    if name not in fields:
        raise _UnusableError(f"{name}: missing")
    value = fields[name]
    if not isinstance(value, str):
        raise _UnusableError(f"{name}: expected a string, got {_kind(value)}")
    return value


def _fields(body: bytes) -> _Fields:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _UnusableError(f"not UTF-8 (byte {error.start})") from None
    if nests_too_deeply(body):
        raise _UnusableError(f"nested more than {DEEPEST_JSON} levels deep")
    try:
        value = _decoder.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _UnusableError(f"not JSON: {error.msg} (character {error.pos})") from None
    except UnicodeEncodeError:
        raise _UnusableError("contains an unpaired surrogate") from None
    if not isinstance(value, dict):
        raise _UnusableError(f"expected a JSON object, got {_kind(value)}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> _Fields:
    twice = repeated_key(pairs)
    if twice is not None:
        raise _UnusableError(f"the key {_shown(twice)} appears twice")
    return dict(pairs)


def _number(digits: str) -> float:
    if len(digits) > _LONGEST_NUMBER:
        raise _UnusableError(f"contains a number of more than {_LONGEST_NUMBER:,} digits")
    return 0.0  # the value does not matter: changes are stored as sent


def _constant(name: str) -> NoReturn:
    raise _UnusableError(f"{name} is not JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
)


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", float: "a number"}
    return kinds.get(type(value), "null" if value is None else "a boolean")


def _shown(value: str) -> str:
    """Quote untrusted text on one line, escaped."""
    quoted = ascii(value[:80])
    return quoted if len(quoted) <= 80 else f"{quoted[:77]}..."


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
        path: the path to read, or None.
        kind: the kind of the response; None: not configured.
        holders: also read every wallet known to hold the token.
        wallets: dotted fields of the object with ids of wallets to read.
        tokens: dotted fields of the object with ids of tokens to read.
        at_most_every: the minimum interval between two such reads.
    """

    path: str | None = None
    kind: RouteKind | None = None
    holders: bool = False
    wallets: list[str] = []
    tokens: list[str] = []
    at_most_every: timedelta | None = None


class Routes(NamedTuple):
    """All routes, complete and checked.

    Attributes:
        by_type: resource type to route; all but `sync` routes have a path.
    """

    by_type: Mapping[str, Route]

    def find(self, resource_type: str) -> Route | None:
        """Return the route of a type, or else the route `*`, or None."""
        return self.by_type.get(resource_type) or self.by_type.get(_ANY)


def merge_routes(configured: Mapping[str, Route]) -> Routes:
    """Merge configured routes, by type, into the built-in ones.

    Raises:
        SettingsError: a route is invalid; the text names it and the remedy.
    """
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
    """Return the encoded path that reads an object.

    Raises:
        InputError: the id is not a UUID.
    """
    if route.path is None:
        raise SettingsError('the route has no path; add one, as kind = "object" requires it')
    encoded = quote(route.path, safe=string.punctuation, errors="replace")
    return encoded.replace(_PLACE, normalize_uuid(resource_id, "resource id"))


def named_ids(body: str | bytes, fields: Sequence[str]) -> list[str]:
    """Return the distinct UUIDs in fields of a JSON object: lower case, in the fields' order.

    Ignores values that are absent or not UUIDs, and a body that is not JSON. Dots in `fields`
    separate nested names; a name applied to a list selects from each element.
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
