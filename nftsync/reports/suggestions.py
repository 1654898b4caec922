"""Routes suggested for webhook types without one, as TOML for `nftsync.toml`.

All type and field names are quoted and escaped, even in comments, because they come from outside.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nftsync.provider.webhooks import Route, Routes
from nftsync.records import are_uuids
from nftsync.store.schema import reading
from nftsync.store.wallets import known_tokens, wallets_by_id
from nftsync.text import counted, toml_key, toml_string

#: Newest webhooks and objects of a type to search.
_SAMPLE = 10_000
_MOST_TYPES = 100
_MOST_FIELDS = 20
_LONGEST_BODY = 1_000_000
_DEEPEST = 30
_UUID_LENGTH = 36

#: A name that can be part of a route's dotted field.
_NAME = re.compile(r"[^.\s]+")


#: A dotted field that contains known ids, and in how many documents.
FieldCount: TypeAlias = tuple[str, int]


class Fields(NamedTuple):
    """Fields that contain ids of known wallets or tokens."""

    documents: int = 0
    wallets: Sequence[FieldCount] = ()
    tokens: Sequence[FieldCount] = ()

    @property
    def by_kind(self) -> dict[str, Sequence[FieldCount]]:
        return {"wallets": self.wallets, "tokens": self.tokens}

    def __bool__(self) -> bool:
        return any(self.by_kind.values())


class Suggestion(NamedTuple):
    """Findings on a type with a missing or incomplete route.

    Of its different `ids`, some are known `wallets` and `tokens`.
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
    """Suggestions, with the sample size if some types have more webhooks."""

    routes: list[Suggestion]
    sample: int | None
    passed_over: int


def suggest(path: Path, routes: Routes) -> Suggestions:
    suggestions: list[Suggestion] = []
    with reading(path) as connection:
        counts = connection.execute(
            "SELECT resource_type, count(*) FROM webhooks WHERE state <> 'quarantined'"
            " AND resource_type IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, max(rowid) DESC"
        ).fetchall()
        types = [(name, count) for name, count in counts if _may_need_route(name, routes)]
        sampled = False
        for name, count in types[:_MOST_TYPES]:
            suggestion = _inspect(connection, name, count, routes.by_type.get(name))
            sampled = sampled or count > _SAMPLE or suggestion.objects.documents >= _SAMPLE
            if _is_useful(suggestion, routes.find(name)):
                suggestions.append(suggestion)
    return Suggestions(suggestions, _SAMPLE if sampled else None, max(0, len(types) - _MOST_TYPES))


def _may_need_route(name: str, routes: Routes) -> bool:
    own = routes.by_type.get(name)
    # A route named "*" would match every type.
    return name != "*" and (own is None or own.kind == "object")


def _is_useful(suggestion: Suggestion, route: Route | None) -> bool:
    if route is None:
        return True
    objects, own = suggestion.objects, suggestion.route
    if own is None:
        return bool(suggestion.wallets or suggestion.tokens or objects)
    return any(
        {field for field, _ in counts} - set(getattr(own, kind))
        for kind, counts in objects.by_kind.items()
    )


#: The newest webhooks of a type, and its last read objects.
_NEWEST = (
    "FROM webhooks WHERE resource_type = ? AND state <> 'quarantined' ORDER BY rowid DESC LIMIT ?"
)
_LAST_READ = "SELECT rowid FROM resources WHERE resource_type = ? ORDER BY fetched_at DESC LIMIT ?"


def _inspect(
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
    counts = len(wallets_by_id(connection, ids)), len(known_tokens(connection, ids))
    fields = _fields(connection, objects), _fields(connection, changes)
    return Suggestion(name, count, len(ids), *counts, *fields, own)


def _fields(connection: sqlite3.Connection, documents: Iterator[str]) -> Fields:
    count = 0
    wallets: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for document in documents:
        count += 1
        places = set(_ids_in(document))
        ids = {uuid for _, uuid in places}
        for counts, known_ids in (
            (wallets, wallets_by_id(connection, ids).keys()),
            (tokens, known_tokens(connection, ids)),
        ):
            counts.update({field for field, uuid in places if uuid in known_ids})
    return Fields(count, _most_frequent(wallets), _most_frequent(tokens))


def _most_frequent(counts: Counter[str]) -> list[FieldCount]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_FIELDS]


def _ids_in(document: str) -> Iterator[tuple[str, str]]:
    try:
        value = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError):
        return
    pending: list[tuple[str, int, Any]] = [("", 0, value)] if isinstance(value, dict) else []
    while pending:
        field, depth, value = pending.pop()
        if isinstance(value, str):
            if len(value) == _UUID_LENGTH and are_uuids(value):
                yield field, value.lower()
        elif depth >= _DEEPEST:
            continue
        elif isinstance(value, dict):
            for name, inner in value.items():
                # A UUID as a name is a key of a mapping, not a field.
                if _NAME.fullmatch(name) and not are_uuids(name):
                    pending.append((f"{field}.{name}" if field else name, depth + 1, inner))
        elif isinstance(value, list):
            pending += [(field, depth + 1, inner) for inner in value]


def as_toml(suggestions: Suggestions) -> str:
    head = []
    if suggestions.sample is not None:
        sample = f"{suggestions.sample:,}"
        head.append(f"# Searched the newest {sample} webhooks and objects of each type.")
    if suggestions.passed_over:
        head.append(f"# Not searched: {suggestions.passed_over:,} more types.")
    blocks = ["\n".join(head)] if head else []
    blocks += ["\n".join(_block(suggestion)) for suggestion in suggestions.routes]
    return "\n\n".join(blocks) + "\n"


def _block(suggestion: Suggestion) -> Iterator[str]:
    name = suggestion.resource_type
    stored = f"# {toml_string(name)}: {counted(suggestion.webhooks, 'webhook')} stored"
    ids = counted(suggestion.ids, "object")
    if suggestion.route is not None:
        yield f"{stored}. Its route lacks some fields; replace it with this one."
        yield from _object(suggestion)
    elif suggestion.wallets or suggestion.tokens:
        wallet = suggestion.wallets >= suggestion.tokens
        count = suggestion.wallets if wallet else suggestion.tokens
        kind = "wallet" if wallet else "token"
        yield f"{stored}, on {ids}; known {kind}s among them: {count:,}."
        yield f"[routes.{toml_key(name)}]"
        yield f'kind = "{kind}"'
    else:
        yield f"{stored}, on {ids}; none is a known wallet or token."
        yield "# The provider's document shows no path for it: fill it in, and uncomment the lines."
        for line in _object(suggestion):
            yield line if line.startswith("#") else f"# {line}"


def _object(suggestion: Suggestion) -> Iterator[str]:
    own, objects = suggestion.route, suggestion.objects
    # Presumably `changes` has the names of the object's fields.
    fields = objects if objects or own is not None else suggestion.changes
    source = "objects" if fields is objects else "changes"
    for kind, counts in fields.by_kind.items():
        if counts:
            places = ", ".join(f"{toml_string(field)} ({times:,})" for field, times in counts)
            yield f"# Known {kind} in {fields.documents:,} {source}: {places}"
    yield f"[routes.{toml_key(suggestion.resource_type)}]"
    path = "/FILL/THIS/IN/{resourceId}" if own is None or own.path is None else own.path
    yield f"path = {toml_string(path)}"
    yield 'kind = "object"'
    for kind, counts in fields.by_kind.items():
        own_fields = getattr(own, kind) if own else []
        if names := dict.fromkeys([*own_fields, *(field for field, _ in counts)]):
            yield f"{kind} = [{', '.join(map(toml_string, names))}]"
