"""Routes suggested from unrouted webhooks, as TOML for `nftsync.toml`.

Type names and field names come from outside, so every one of them is quoted and escaped, in
comments too: nothing of them ends a string, a comment or a line.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nftsync.provider.webhooks import Route, Routes
from nftsync.records import are_uuids
from nftsync.store.schema import reading
from nftsync.store.wallets import known_tokens, wallets_by_id
from nftsync.text import counted, toml_key, toml_string

#: Webhooks and objects of a type that are looked at, the newest.
_SAMPLE = 10_000
_MOST_TYPES = 100
_MOST_FIELDS = 20
_LONGEST_BODY = 1_000_000
#: Documents whose ids are looked up at once.
_CHUNK = 20
_DEEPEST = 30
_UUID_LENGTH = 36

#: A name that a route's dotted field can hold.
_NAME = re.compile(r"[^.\s]+")


#: The dotted name of a field in which known ids stand, and in how many documents it holds one.
Found: TypeAlias = tuple[str, int]


class Fields(NamedTuple):
    """The fields of some documents in which known ids stand, the most frequent first.

    Attributes:
        documents: how many were looked at.
        wallets: those with a wallet's id.
        tokens: those with a token's id.
    """

    documents: int = 0
    wallets: Sequence[Found] = ()
    tokens: Sequence[Found] = ()

    def __bool__(self) -> bool:
        return bool(self.wallets or self.tokens)


class Suggestion(NamedTuple):
    """What is known of a type whose webhooks no route follows, or not wholly.

    Attributes:
        resource_type: the type, as sent.
        webhooks: how many of it are stored.
        ids: different `resource_id` among those that were looked at.
        wallets: those of them that are known wallets.
        tokens: those of them that are known tokens.
        objects: what stands in the stored objects of the type.
        changes: what stands in the `changes` of its webhooks.
        route: the type's own route, which is incomplete; None: it has none of its own.
    """

    resource_type: str
    webhooks: int
    ids: int
    wallets: int
    tokens: int
    objects: Fields
    changes: Fields
    route: Route | None


class Suggestions(NamedTuple):
    """All suggestions.

    Attributes:
        routes: one for each type, the most frequent first.
        sample: how many webhooks and objects of a type were looked at, where some have more.
        passed_over: types that were not looked at, being too many.
    """

    routes: list[Suggestion]
    sample: int | None
    passed_over: int


def suggest(path: Path, routes: Routes) -> Suggestions:
    """Look for known ids in the stored webhooks and objects of each type.

    Args:
        path: the database.
        routes: those in force.

    Raises:
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    found: list[Suggestion] = []
    with reading(path) as connection:
        counts = connection.execute(
            "SELECT resource_type, count(*) FROM webhooks WHERE state <> 'quarantined'"
            " AND resource_type IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, max(rowid) DESC"
        ).fetchall()
        types = [(name, count) for name, count in counts if _may_need_route(name, routes)]
        sampled = False
        for name, count in types[:_MOST_TYPES]:
            looked_at = _look_at(connection, name, count, routes.by_type.get(name))
            sampled = sampled or count > _SAMPLE or looked_at.objects.documents >= _SAMPLE
            if _is_worth_it(looked_at, routes.find(name)):
                found.append(looked_at)
    return Suggestions(found, _SAMPLE if sampled else None, max(0, len(types) - _MOST_TYPES))


def _may_need_route(name: str, routes: Routes) -> bool:
    own = routes.by_type.get(name)
    # A type of the name "*" is the provider's; its route would catch every other type too.
    return name != "*" and (own is None or own.kind == "object")


def _is_worth_it(suggestion: Suggestion, route: Route | None) -> bool:
    if route is None:
        return True
    objects, own = suggestion.objects, suggestion.route
    if own is None:
        return bool(suggestion.wallets or suggestion.tokens or objects)
    return bool(
        {field for field, _ in objects.wallets} - set(own.wallets)
        or {field for field, _ in objects.tokens} - set(own.tokens)
    )


#: The newest webhooks of a type, and the numbers of the objects that were read last.
_NEWEST = (
    "FROM webhooks WHERE resource_type = ? AND state <> 'quarantined' ORDER BY rowid DESC LIMIT ?"
)
_LAST_READ = "SELECT rowid FROM resources WHERE resource_type = ? ORDER BY fetched_at DESC LIMIT ?"


def _look_at(
    connection: sqlite3.Connection, name: str, count: int, own: Route | None
) -> Suggestion:
    def read(query: str) -> Iterator[str]:
        return (text for (text,) in connection.execute(query, (name, _SAMPLE)) if text)

    ids = set(read(f"SELECT resource_id {_NEWEST}"))
    objects = read(
        f"SELECT body FROM resources WHERE rowid IN ({_LAST_READ})"
        f" AND length(body) <= {_LONGEST_BODY}"
    )
    changes = read(f"SELECT changes {_NEWEST}")
    known = len(wallets_by_id(connection, ids)), len(known_tokens(connection, ids))
    found = _fields(connection, objects), _fields(connection, changes)
    return Suggestion(name, count, len(ids), *known, *found, own)


def _fields(connection: sqlite3.Connection, documents: Iterator[str]) -> Fields:
    """The fields of JSON objects in which known ids stand."""
    count = 0
    wallets: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    while chunk := list(islice(documents, _CHUNK)):
        count += len(chunk)
        read = [set(_ids_in(document)) for document in chunk]
        all_ids = {each for ids in read for _, each in ids}
        for counts, known in (
            (wallets, wallets_by_id(connection, all_ids).keys()),
            (tokens, known_tokens(connection, all_ids)),
        ):
            for ids in read:
                counts.update({field for field, each in ids if each in known})
    return Fields(count, _most_frequent(wallets), _most_frequent(tokens))


def _most_frequent(counts: Counter[str]) -> list[Found]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_FIELDS]


def _ids_in(document: str) -> Iterator[tuple[str, str]]:
    """The UUIDs in a JSON document and the dotted fields they stand in; list items count as one."""
    try:
        value = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError):
        return
    waiting: list[tuple[str, int, Any]] = [("", 0, value)] if isinstance(value, dict) else []
    while waiting:
        field, depth, value = waiting.pop()
        if isinstance(value, str):
            if len(value) == _UUID_LENGTH and are_uuids(value):
                yield field, value.lower()
        elif depth >= _DEEPEST:
            continue
        elif isinstance(value, dict):
            for name, inner in value.items():
                # An id as a name is an entry of a mapping, not a field that others have too.
                if _NAME.fullmatch(name) and not are_uuids(name):
                    waiting.append((f"{field}.{name}" if field else name, depth + 1, inner))
        elif isinstance(value, list):
            waiting += [(field, depth + 1, inner) for inner in value]


def as_toml(suggestions: Suggestions) -> str:
    """Write suggestions as TOML, with comments on what they are taken from."""
    head = []
    if suggestions.sample is not None:
        sample = f"{suggestions.sample:,}"
        head.append(f"# Of each type, the newest {sample} webhooks and objects were looked at.")
    if suggestions.passed_over:
        head.append(f"# {suggestions.passed_over:,} more types were not looked at.")
    blocks = ["\n".join(head)] if head else []
    blocks += ["\n".join(_block(suggestion)) for suggestion in suggestions.routes]
    return "\n\n".join(blocks) + "\n"


def _block(suggestion: Suggestion) -> Iterator[str]:
    name = suggestion.resource_type
    stored = f"# {toml_string(name)}: {counted(suggestion.webhooks, 'webhook')} stored"
    ids = counted(suggestion.ids, "object")
    if suggestion.route is not None:
        yield f"{stored}. Its route leaves out some fields; this is to take its place."
        yield from _object(suggestion)
    elif suggestion.wallets or suggestion.tokens:
        wallet = suggestion.wallets >= suggestion.tokens
        known = suggestion.wallets if wallet else suggestion.tokens
        kind = "wallet" if wallet else "token"
        yield f"{stored}, on {ids}; known {kind}s among them: {known:,}."
        yield f"[routes.{toml_key(name)}]"
        yield f'kind = "{kind}"'
    else:
        yield f"{stored}, on {ids}; none is a known wallet or token."
        yield "# The provider's document shows no path for it: fill it in, and take away the marks."
        for line in _object(suggestion):
            yield line if line.startswith("#") else f"# {line}"


def _object(suggestion: Suggestion) -> Iterator[str]:
    own, objects = suggestion.route, suggestion.objects
    # Names in `changes` are those of the object's fields, as far as anyone can tell.
    fields = objects if objects or own is not None else suggestion.changes
    yield from _evidence(fields, "objects" if fields is objects else "changes")
    yield f"[routes.{toml_key(suggestion.resource_type)}]"
    path = "/FILL/THIS/IN/{resourceId}" if own is None or own.path is None else own.path
    yield f"path = {toml_string(path)}"
    yield 'kind = "object"'
    yield from _list("wallets", own.wallets if own else [], fields.wallets)
    yield from _list("tokens", own.tokens if own else [], fields.tokens)


def _evidence(fields: Fields, source: str) -> Iterator[str]:
    for what, found in (("wallets", fields.wallets), ("tokens", fields.tokens)):
        if found:
            places = ", ".join(f"{toml_string(field)} ({times:,})" for field, times in found)
            yield f"# Known {what} in {fields.documents:,} {source}: {places}"


def _list(key: str, own: Sequence[str], found: Sequence[Found]) -> Iterator[str]:
    names = list(dict.fromkeys(chain(own, (field for field, _ in found))))
    if names:
        yield f"{key} = [{', '.join(map(toml_string, names))}]"
