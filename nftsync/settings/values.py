"""Readers of settings: convert a raw value, or raise InvalidValue."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from nftsync.errors import InputError, SettingsError
from nftsync.text import decoded, shown_with
from nftsync.times import parse_duration


class InvalidValue(Exception):
    """An invalid value; the text states the requirement, without key and value.

    Never raised while handling an exception, which may contain a secret.

    Attributes:
        key: full name of the invalid part.
        show: messages may show the value.
    """

    def __init__(self, problem: str, *, key: str | None = None, show: bool = True) -> None:
        super().__init__(problem)
        self.key = key
        self.show = show


@dataclass(frozen=True)
class RawValue:
    """An unchecked value; hidden in the repr, because it can be a secret.

    Attributes:
        source: origin, for messages.
        base: directory for relative paths.
        typed: from the file, where values have types.
    """

    value: Any = field(repr=False)
    source: str
    base: Path
    typed: bool = False


#: Returns the checked value, or raises an InvalidValue.
Reader: TypeAlias = Callable[[RawValue], Any]


def refuse_unknown(table: Mapping[str, object], keys: Mapping[str, object], where: str) -> None:
    """Raise a SettingsError for the first key that is not in `keys`."""
    for key in table:
        if key not in keys:
            hint = _hint(key.replace("-", "_").lower(), keys, f"known keys: {', '.join(keys)}")
            raise SettingsError(f"unknown key {key!r} in {where}; {hint}")


def _hint(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return a question with the nearest of some names, or else another text."""
    near = get_close_matches(name, list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def _plain(kind: Any, must: str) -> Reader:
    return lambda raw: _converted(raw, kind, must)


def _converted(raw: RawValue, kind: Any, must: str) -> Any:
    value = raw.value
    strict = raw.typed or not isinstance(value, str)
    try:
        return msgspec.convert(value if strict else value.strip(), kind, strict=strict)
    except (msgspec.ValidationError, UnicodeEncodeError):
        pass
    raise InvalidValue(f"must be {must}")


def _secret(raw: RawValue) -> str:
    if not isinstance(raw.value, str):
        raise InvalidValue("must be text")
    if re.search("[\ud800-\udfff]", raw.value):
        raise InvalidValue("must be UTF-8 text")
    return raw.value


def _text(raw: RawValue) -> str:
    stripped = _secret(raw).strip()
    if not stripped or "\0" in stripped:
        raise InvalidValue("must be non-blank text")
    return stripped


def _path(raw: RawValue) -> Path:
    """Return an absolute path; `~/` is the home directory."""
    value = raw.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    relative = Path(_text(replace(raw, value=value)))
    if relative.parts[:1] != ("~",):
        return raw.base / relative
    try:
        return relative.expanduser()
    except RuntimeError as error:
        raise InvalidValue(
            "begins with ~, but the home directory is unknown; use an absolute path"
        ) from error


def _parsed(parse: Callable[[str], Any], must: str) -> Reader:

    def read(raw: RawValue) -> Any:
        try:
            return parse(_text(raw))
        except InputError:
            pass
        raise InvalidValue(f"must be {must}")

    return read


def _entries(raw: RawValue, readers: Mapping[str, Reader], name: str) -> dict[str, Any]:
    if not isinstance(raw.value, dict):
        raise InvalidValue(shown_with("must be a table", raw.value), key=name, show=False)
    refuse_unknown(raw.value, readers, f"[{name}] of {raw.source}")
    entries = {}
    for key, value in raw.value.items():
        try:
            entries[key] = readers[key](replace(raw, value=value))
        except InvalidValue as error:
            problem = shown_with(str(error), value) if error.show else str(error)
            raise InvalidValue(problem, key=f"{name}.{key}", show=False) from None
    return entries


_duration = _parsed(parse_duration, "a duration such as 90s, 15m, 6h or 7d")


_bool = _plain(bool, "true or false")


def _read_secret(path: Path, name: str) -> str:
    """Return the secret in a file; errors don't show it."""
    try:
        return decoded(path.read_bytes())
    except OSError as error:
        why = error.strerror or "it cannot be opened"
    except ValueError:
        why = "it is not UTF-8 text"
    raise SettingsError(f"{name}: cannot read {path}: {why}")
