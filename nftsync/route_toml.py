"""Suggested routes as the TOML that a person puts into `nftsync.toml`.

Type names and field names come from outside, so every one of them is quoted and escaped, in
comments too: nothing of them ends a string, a comment or a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from nftsync.route_suggestions import SAMPLE, Fields, Found, Suggestion, Suggestions

__all__ = ["as_toml", "quoted_text"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")

#: What a TOML string must escape, and what a terminal would obey: controls, line and paragraph
#: separators, marks that turn the direction of text or take no room, and surrogates.
_ESCAPED = re.compile(
    '["\\\\\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]'
)


def quoted_text(text: str) -> str:
    """A text as a TOML basic string on one line."""
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    letter = found[0]
    return f"\\{letter}" if letter in '"\\' else f"\\u{ord(letter):04X}"


def _table(name: str) -> str:
    return f"[routes.{name if _BARE.fullmatch(name) else quoted_text(name)}]"


def as_toml(suggestions: Suggestions) -> str:
    """Write suggestions as TOML, with comments on what they are taken from."""
    head = []
    if suggestions.sampled:
        head.append(f"# Of each type, the newest {SAMPLE:,} webhooks and objects were looked at.")
    if suggestions.passed_over:
        head.append(f"# {suggestions.passed_over:,} more types were not looked at.")
    blocks = ["\n".join(head)] if head else []
    blocks += ["\n".join(_block(suggestion)) for suggestion in suggestions.routes]
    return "\n\n".join(blocks) + "\n"


def _block(suggestion: Suggestion) -> Iterator[str]:
    name = suggestion.resource_type
    stored = f"# {quoted_text(name)}: {_counted(suggestion.webhooks, 'webhook')} stored"
    ids = _counted(suggestion.ids, "object")
    if suggestion.route is not None:
        yield f"{stored}. Its route leaves out some fields; this is to take its place."
        yield from _object(suggestion)
    elif suggestion.wallets or suggestion.tokens:
        wallet = suggestion.wallets >= suggestion.tokens
        known = suggestion.wallets if wallet else suggestion.tokens
        kind = "wallet" if wallet else "token"
        yield f"{stored}, on {ids}; known {kind}s among them: {known:,}."
        yield _table(name)
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
    yield _table(suggestion.resource_type)
    path = "/FILL/THIS/IN/{resourceId}" if own is None or own.path is None else own.path
    yield f"path = {quoted_text(path)}"
    yield 'kind = "object"'
    yield from _list("wallets", own.wallets if own else [], fields.wallets)
    yield from _list("tokens", own.tokens if own else [], fields.tokens)


def _evidence(fields: Fields, source: str) -> Iterator[str]:
    for what, found in (("wallets", fields.wallets), ("tokens", fields.tokens)):
        if found:
            places = ", ".join(f"{quoted_text(each.field)} ({each.times:,})" for each in found)
            yield f"# Known {what} in {fields.documents:,} {source}: {places}"


def _list(key: str, own: Sequence[str], found: Sequence[Found]) -> Iterator[str]:
    names = list(dict.fromkeys(chain(own, (each.field for each in found))))
    if names:
        yield f"{key} = [{', '.join(map(quoted_text, names))}]"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
