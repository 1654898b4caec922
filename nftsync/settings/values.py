"""Readers of settings: convert a raw value, or raise InvalidValue."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin

import msgspec

from nftsync.errors import InputError, SettingsError
from nftsync.text import decoded, header_problem, http_url, shown_with, toml_key
from nftsync.times import parse_duration

_T = TypeVar("_T", bound=msgspec.Struct)

#: Entries of tables that may contain a secret.
_HIDDEN = {"url", "command"}


class InvalidValue(Exception):
    """An invalid value; the text states the requirement.

    Never raised while handling an exception, which may contain a secret.
    """

    def __init__(self, problem: str, *, part: str | None = None, show: bool = True) -> None:
        super().__init__(problem)
        self.part = part
        self.show = show


@dataclass(frozen=True)
class RawValue:
    """An unchecked value, perhaps a secret; `typed`: from the file, where values have types."""

    value: Any = field(repr=False)
    name: str
    variable: str | None
    source: str
    base: Path
    show: bool
    typed: bool = False


#: Returns the checked value, or raises an InvalidValue or SettingsError.
ValueReader: TypeAlias = Callable[[RawValue], Any]


def checked(read: ValueReader, raw: RawValue) -> Any:
    """Return a value, or raise a SettingsError."""
    try:
        return read(raw)
    except InvalidValue as error:
        problem = shown_with(str(error), raw.value) if error.show and raw.show else str(error)
        name = error.part or raw.name
        where = f"{name} ({raw.variable})" if raw.variable else name
        raise SettingsError(f"{where} {problem} (from {raw.source})") from None


def refuse_unknown(table: Mapping[str, object], keys: Iterable[str], where: str) -> None:
    """Raise a SettingsError for an unknown key."""
    for key in table:
        if key not in keys:
            near = hint(key.replace("-", "_").lower(), keys, f"known keys: {', '.join(keys)}")
            raise SettingsError(f"unknown key {key!r} in {where}; {near}")


def hint(name: str, names: Iterable[str], otherwise: str) -> str:
    near = get_close_matches(name, list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def require(entries: Mapping[str, object], needed: Iterable[str]) -> None:
    """Raise an InvalidValue if needed entries have no value."""
    if missing := [key for key in needed if not entries.get(key)]:
        raise InvalidValue(f"must have {' and '.join(missing)}", show=False)


def table(
    raw: RawValue,
    kind: type[_T],
    special: Mapping[str, ValueReader] = {},
    check: Callable[[Mapping[str, Any]], None] = lambda _: None,
    own: Mapping[str, str] = {},
) -> _T:
    """Return a table's struct, whose types choose the readers, except for `special` ones.

    The table cannot set `own` fields.
    """
    if any(re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) is None for name in own.values()):
        raise InvalidValue("needs a name of letters, digits, _ and -", show=False)
    if not isinstance(raw.value, dict):
        raise InvalidValue("must be a table")
    fields = {
        part.encode_name: part for part in msgspec.structs.fields(kind) if part.name not in own
    }
    refuse_unknown(raw.value, fields, f"[{raw.name}] of {raw.source}")
    entries = {}
    for key, value in raw.value.items():
        part = replace(raw, value=value, name=f"{raw.name}.{key}", show=key not in _HIDDEN)
        entries[key] = checked(special.get(key) or _reader_of(fields[key].type), part)
    check(entries)
    require(entries, [key for key, part in fields.items() if part.required])
    return msgspec.convert({**own, **entries}, kind)


def tables(kind: type[msgspec.Struct], **options: Any) -> ValueReader:
    """Return a reader of tables such as `[watch.NAME]`, with options of `table`."""
    is_named = "name" in kind.__struct_fields__

    def read(raw: RawValue) -> dict[str, Any]:
        if not isinstance(raw.value, dict):
            raise InvalidValue(f"must be tables [{raw.name}.{'NAME' if is_named else 'TYPE'}]")
        structs = {}
        for name, value in raw.value.items():
            own = {"name": name} if is_named else {}
            part = replace(raw, value=value, name=f"{raw.name}.{toml_key(name)}")
            structs[name] = checked(partial(table, kind=kind, own=own, **options), part)
        return structs

    return read


def _reader_of(kind: Any) -> ValueReader:
    if NoneType in get_args(kind):  # it is optional
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        *others, last = get_args(kind)
        return plain(kind, f"{', '.join(others)} or {last}")
    return _READERS.get(kind) or plain(kind, kind.__metadata__[0].description)


def plain(kind: Any, must: str) -> ValueReader:
    def read(raw: RawValue) -> Any:
        value = raw.value
        strict = raw.typed or not isinstance(value, str)
        with suppress(msgspec.ValidationError, UnicodeEncodeError):
            return msgspec.convert(value if strict else value.strip(), kind, strict=strict)
        raise InvalidValue(f"must be {must}")

    return read


def parsed(parse: Callable[[str], Any], must: str) -> ValueReader:
    def read(raw: RawValue) -> Any:
        with suppress(InputError):
            return parse(text(raw))
        raise InvalidValue(f"must be {must}")

    return read


duration = parsed(parse_duration, "a duration such as 90s, 15m, 6h or 7d")


def secret(raw: RawValue) -> str:
    if not isinstance(raw.value, str):
        raise InvalidValue("must be text")
    if re.search("[\ud800-\udfff]", raw.value):
        raise InvalidValue("must be UTF-8 text")
    return raw.value


def secret_or_none(raw: RawValue) -> str | None:
    """Return a text unchanged, or None if it is blank."""
    return secret(raw) if secret(raw).strip() else None


def token(raw: RawValue) -> str | None:
    """Return a text for an HTTP header, or None."""
    stripped = secret(raw).strip()
    if re.fullmatch("[!-~]*", stripped) is None:
        raise InvalidValue("must be printable ASCII without spaces")
    return stripped or None


def text(raw: RawValue) -> str:
    stripped = secret(raw).strip()
    if not stripped or "\0" in stripped:
        raise InvalidValue("must be non-blank text")
    return stripped


def path(raw: RawValue) -> Path:
    """Return an absolute path; `~/` is the home directory."""
    value = os.fspath(raw.value) if isinstance(raw.value, os.PathLike) else raw.value
    relative = Path(text(replace(raw, value=value)))
    if relative.parts[:1] != ("~",):
        return raw.base / relative
    with suppress(RuntimeError):
        return relative.expanduser()
    raise InvalidValue("begins with ~, but the home directory is unknown; use an absolute path")


def base_url(raw: RawValue) -> str:
    return _url(raw, "; use api_token or headers", ", and put an API key in `headers`")


def ping_url(raw: RawValue) -> str | None:
    """Return a URL, perhaps with a query, or None if it is blank."""
    url = secret(raw).strip()
    parts = http_url(url)
    if url and (parts is None or "@" in parts.netloc or "#" in url or not url.isascii()):
        raise InvalidValue("must be an http or https URL in ASCII, without user name or fragment")
    return url or None


def gateway(raw: RawValue) -> str:
    return _url(raw) + "/"


def _url(raw: RawValue, instead: str = "", for_key: str = "") -> str:
    url = text(raw)
    if "@" in url:
        raise InvalidValue(f"must not contain a user name or password{instead}", show=False)
    if "?" in url or "#" in url:
        must = f"must not have a query or fragment; remove everything from the ? or # on{for_key}"
        raise InvalidValue(must, show=False)
    parts = http_url(url)
    if parts is not None:
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    raise InvalidValue("must be a URL such as https://api.example.com")


def headers(raw: RawValue) -> dict[str, str]:
    value, form = raw.value, "table" if raw.typed else "JSON object"
    if not raw.typed:
        value = None
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            value = msgspec.json.decode(raw.value.strip() or "{}")
    must = f"a {form} of header names and text values"
    read = plain(dict[str, str], must)(replace(raw, value=value))
    read = {name: content.strip(" ") for name, content in read.items()}
    for number, (name, content) in enumerate(read.items(), 1):
        match header_problem(name, content):
            case "name":
                raise InvalidValue(f"entry {number} has an invalid HTTP header name")
            case "value":
                raise InvalidValue("must be one line of printable ASCII", part=f"headers.{name}")
    if len({name.lower() for name in read}) < len(read):
        raise InvalidValue("must not repeat a header")
    return read


#: Readers of types without a description.
_READERS: dict[Any, ValueReader] = {
    str: text,
    bool: plain(bool, "true or false"),
    timedelta: duration,
    Path: path,
}


def read_secret(file: Path, name: str) -> str:
    try:
        return decoded(file.read_bytes())
    except OSError as error:
        why = error.strerror or "it cannot be opened"
    except ValueError:
        why = "it is not UTF-8 text"
    raise SettingsError(f"{name}: cannot read {file}: {why}")
