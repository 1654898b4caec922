"""Webhooks: signatures, fields of the body, and routes to the reads that follow.

A body whose signature is right comes from the service, but may still be anything: it is kept
whatever it holds. What is read here can be stored, shown and looked up without harm.

A route says what to read for a type. The document shows no path for any type, so a route is a
setting; what is built in are the document's own two reads.

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

#: The header that carries the signature.
HEADER = "x-service-webhook-hmac"

#: `missing`: no signature came. `malformed`: what came can be none, or is two. `wrong`: it was not
#: made of this body with one of the secrets.
Reason: TypeAlias = Literal["missing", "malformed", "wrong"]

# 32 bytes are 43 digits and one `=`. A header that came twice is joined with a comma.
_SHAPE = re.compile(r"[A-Za-z0-9+/]{43}=")


class Accepted(NamedTuple):
    """The signature is right.

    Attributes:
        which: the place, among the secrets that were tried, of the first that made it.
    """

    which: int


class Refused(NamedTuple):
    """The signature proves nothing.

    Attributes:
        reason: see `Reason`.
    """

    reason: Reason


def sign(secret: str, body: bytes) -> str:
    """Sign a webhook's body.

    Args:
        secret: the shared secret; its UTF-8 form is the key.
        body: the raw bytes that are sent.

    Returns:
        The header's value: 44 characters of Base64.
    """
    return _signature(secret, body).decode("ascii")


def verify(body: bytes, header: str | None, secrets: Sequence[str]) -> Accepted | Refused:
    """Tell whether a body came from someone who knows one of the secrets.

    The texts are compared, not what they decode to: Base64 has several spellings of the same bytes,
    of which the service sends one. The time it takes tells nothing about where they differ, nor
    which secret was right.

    Args:
        body: the raw bytes that came.
        header: the header's value, or None where there was none.
        secrets: those to try; none of them blank (whoever configures them sees to that).
    """
    if not header:
        return Refused("missing")
    if _SHAPE.fullmatch(header) is None:
        return Refused("malformed")
    given = header.encode("ascii")
    matches = [hmac.compare_digest(_signature(secret, body), given) for secret in secrets]
    return Accepted(matches.index(True)) if True in matches else Refused("wrong")


def _signature(secret: str, body: bytes) -> bytes:
    return binascii.b2a_base64(hmac.digest(secret.encode(), body, "sha256"), newline=False)


class Webhook(NamedTuple):
    """The fields of a webhook.

    Attributes:
        webhook_id: its id, a UUID in lower case.
        organization_id: the organization it is for, a UUID in lower case.
        action: what happened to the object.
        resource_type: the kind of the object.
        resource_id: the object's id, a UUID in lower case.
        created_at_utc: when the service made it, as sent.
        changes: a JSON object, to the letter as sent, or None.
    """

    webhook_id: str
    organization_id: str
    action: str
    resource_type: str
    resource_id: str
    created_at_utc: str
    changes: str | None


class Unusable(NamedTuple):
    """A body that cannot be worked on.

    Attributes:
        reason: why, in one line that is safe to store and to show.
        webhook: its fields, where they could be read and only what they say is wrong.
    """

    reason: str
    webhook: Webhook | None = None


#: The digits of a number. Amounts reach 78; Python refuses to convert more than 4,300.
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
    """Its text is the reason."""


def read_webhook(body: bytes, organization_id: str | None) -> Webhook | Unusable:
    """Read a webhook's body; whatever the bytes are, one of the two comes back.

    Args:
        body: the raw bytes that came.
        organization_id: the only organization whose webhooks are wanted, or None for any.
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
        raise _UnusableError(f"{name}: {_shown(value)} holds control characters")
    return value


def _string(fields: _Fields, name: str) -> str:
    if name not in fields:
        raise _UnusableError(f"{name}: missing")
    value = fields[name]
    if not isinstance(value, str):
        raise _UnusableError(f"{name}: expected a string, got {_kind(value)}")
    return value


def _fields(body: bytes) -> _Fields:
    """Read the whole body, fields that nobody asks for included."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _UnusableError(f"not UTF-8 (byte {error.start})") from None
    if nests_too_deeply(body):
        raise _UnusableError(f"nested over {DEEPEST_JSON} levels deep")
    try:
        value = _decoder.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _UnusableError(f"not JSON: {error.msg} (character {error.pos})") from None
    except UnicodeEncodeError:
        raise _UnusableError("half of a surrogate pair stands alone") from None
    if not isinstance(value, dict):
        raise _UnusableError(f"expected a JSON object, got {_kind(value)}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> _Fields:
    twice = repeated_key(pairs)
    if twice is not None:
        raise _UnusableError(f"the key {_shown(twice)} stands twice")
    return dict(pairs)


def _number(digits: str) -> float:
    if len(digits) > _LONGEST_NUMBER:
        raise _UnusableError(f"a number of more than {_LONGEST_NUMBER:,} digits")
    return 0.0  # only that it is one matters: changes are kept as they were written


def _constant(name: str) -> NoReturn:
    raise _UnusableError(f"{name} is not JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
)


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", float: "a number"}
    return kinds.get(type(value), "null" if value is None else "a boolean")


def _shown(value: str) -> str:
    """Quote text from outside: escaped, on one line, at most 80 characters."""
    quoted = ascii(value[:80])
    return quoted if len(quoted) <= 80 else f"{quoted[:77]}..."


RouteKind: TypeAlias = Literal["token", "wallet", "object", "sync"]

_PLACE = "{resourceId}"
#: The paths of the two reads that the provider's document shows (section Endpoints).
_PATHS: Mapping[RouteKind, str] = {
    "token": f"/v1/tokens/{_PLACE}",
    "wallet": f"/v1/wallets/{_PLACE}/nft-balances",
}
_BUILT_IN: Mapping[str, RouteKind] = {"Token": "token", "Nft": "token", "Wallet": "wallet"}
_ANY = "*"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A `[routes.TYPE]` table, as the file has it or as `merged` completed it.

    Attributes:
        path: what to read for a webhook of this type; None: the file does not say.
        kind: what the answer is; None: the file does not say.
        holders: also read every wallet known to hold the token.
        wallets: dotted fields of the object that name wallets to read again.
        tokens: dotted fields of the object that name tokens to read again.
        at_most_every: the shortest time between two such reads.
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
        by_type: a webhook's resource type to its route; each has a kind, and a path but for `sync`.
    """

    by_type: Mapping[str, Route]

    def find(self, resource_type: str) -> Route | None:
        """The route of a type, else that of `*`, else None."""
        return self.by_type.get(resource_type) or self.by_type.get(_ANY)


def merged(configured: Mapping[str, Route]) -> Routes:
    """Put configured routes over the built-in ones and check the sum.

    Args:
        configured: webhook type to route; of a built-in type, only what differs.

    Raises:
        SettingsError: a route makes no sense; the text names it and says what to write.
    """
    built_in = {name: Route(kind=kind) for name, kind in _BUILT_IN.items()}
    return Routes(
        {
            name: _completed(name, configured.get(name, Route()))
            for name in {**built_in, **configured}
        }
    )


def _completed(name: str, route: Route) -> Route:
    kind = route.kind or _BUILT_IN.get(name)
    problem = _problem(name, kind, route)
    if problem is not None:
        raise SettingsError(f"routes.{toml_key(name)}{problem}")
    path = route.path if kind is None else _PATHS.get(kind, route.path)
    return msgspec.structs.replace(route, kind=kind, path=path)


def _problem(name: str, kind: RouteKind | None, route: Route) -> str | None:
    """What is wrong with a route, as the rest of a message that begins with its name."""
    path = route.path
    if kind is None:
        return ' has no kind; write kind = "token", "wallet", "object" or "sync"'
    if name == _ANY and kind in _PATHS:
        return f' cannot have kind = "{kind}", as it stands for any type; write "object" or "sync"'
    if kind == "object" and (path is None or _PLACE not in path):
        return f'.path must be given for kind = "object", such as "/v1/things/{_PLACE}"'
    if kind == "sync" and path is not None:
        return '.path has no use with kind = "sync"; leave path out, or write kind = "object"'
    if kind in _PATHS and path not in {None, _PATHS[kind]}:
        return (
            f'.path of kind = "{kind}" is always "{_PATHS[kind]}"; leave path out, or write '
            'kind = "object"'
        )
    for key, given, belongs_to in (
        ("holders", route.holders, "token"),
        ("wallets", route.wallets, "object"),
        ("tokens", route.tokens, "object"),
        ("at_most_every", route.at_most_every is not None, "sync"),
    ):
        if given and kind != belongs_to:
            return f'.{key} only goes with kind = "{belongs_to}"; leave it out of kind = "{kind}"'
    return None


def path_for(route: Route, resource_id: str) -> str:
    """The path below the base address that reads an object, encoded.

    Args:
        route: with a path.
        resource_id: the object's id, as the webhook has it.

    Raises:
        InputError: the id is no UUID, so nothing may be asked for with it.
        SettingsError: the route has no path.
    """
    if route.path is None:
        raise SettingsError('the route has no path; write one, as kind = "object" needs it')
    encoded = quote(route.path, safe=string.punctuation, errors="replace")
    return encoded.replace(_PLACE, normalize_uuid(resource_id, "resource id"))


def named_ids(body: str | bytes, fields: Sequence[str]) -> list[str]:
    """The UUIDs at fields of a JSON object, lower case, each once, in the fields' order.

    What is absent, null or no UUID is passed over, and so is a body that is no JSON.

    Args:
        body: the object.
        fields: names, dotted where one lies in another; a step on a list is one on each element.
    """
    try:
        # Digits stay text: Python refuses to convert numbers of thousands of them.
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
    """The value, or where it is a list its elements, however lists nest in it."""
    rest = [value]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest.extend(reversed(value))
        else:
            yield value
