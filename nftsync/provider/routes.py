"""From a webhook's type to the read that follows; pure.

Source: provider's document, Follow-up read of a webhook's object. It shows no path for any type,
so a route is a setting; what is built in are the document's own two reads.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from nftsync.errors import SettingsError
from nftsync.records import are_uuids, normalize_uuid
from nftsync.text import toml_key

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


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """How the provider pages, where it does (provider's document: not shown).

    Attributes:
        next: the response field that carries a cursor.
        param: the query parameter that takes it.
    """

    next: str
    param: str


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
