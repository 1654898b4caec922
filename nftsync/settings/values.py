"""Readers of settings: convert a raw value, or raise InvalidValue."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from nftsync.errors import InputError, SettingsError
from nftsync.text import decoded, header_problem, http_url, shown_with, toml_key
from nftsync.times import parse_duration

#: Entries of tables that may contain a secret.
_HIDDEN = {"url", "command"}


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
        show: messages may show the value.
        typed: from the file, where values have types.
    """

    value: Any = field(repr=False)
    source: str
    base: Path
    show: bool
    typed: bool = False


#: Returns the checked value, or raises an InvalidValue or SettingsError.
Reader: TypeAlias = Callable[[RawValue], Any]


@contextmanager
def named(raw: RawValue, key: str, variable: str | None = None) -> Iterator[RawValue]:
    """Replace an InvalidValue by a SettingsError that names the key, variable and source."""
    try:
        yield raw
    except InvalidValue as error:
        problem = shown_with(str(error), raw.value) if error.show and raw.show else str(error)
        where = f"{error.key or key} ({variable})" if variable else error.key or key
        raise SettingsError(f"{where} {problem} (from {raw.source})") from None


def refuse_unknown(table: Mapping[str, object], keys: Iterable[str], where: str) -> None:
    """Raise a SettingsError for the first key that is not in `keys`."""
    for key in table:
        if key not in keys:
            near = hint(key.replace("-", "_").lower(), keys, f"known keys: {', '.join(keys)}")
            raise SettingsError(f"unknown key {key!r} in {where}; {near}")


def hint(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return a question with the nearest of some names, or else another text."""
    near = get_close_matches(name, list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def table(
    raw: RawValue, readers: Mapping[str, Reader], name: str, needed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the entries of the table `[name]`."""
    if not isinstance(raw.value, dict):
        raise InvalidValue("must be a table")
    refuse_unknown(raw.value, readers, f"[{name}] of {raw.source}")
    entries = {}
    for key, value in raw.value.items():
        with named(replace(raw, value=value, show=key not in _HIDDEN), f"{name}.{key}") as entry:
            entries[key] = readers[key](entry)
    require(entries, needed)
    return entries


def require(entries: Mapping[str, object], needed: Iterable[str]) -> None:
    """Raise an InvalidValue that names the needed entries without a value, if any."""
    if missing := [key for key in needed if not entries.get(key)]:
        raise InvalidValue(f"must have {' and '.join(missing)}", show=False)


def tables(
    heading: str, readers: Mapping[str, Reader], make: Callable[..., Any], *needed: str
) -> Reader:
    """Return a reader that makes an object of each table, such as `[watch.NAME]`."""
    kind, _, placeholder = heading.partition(".")

    def read(raw: RawValue) -> dict[str, Any]:
        if not isinstance(raw.value, dict):
            raise InvalidValue(f"must be tables [{heading}]")
        made = {}
        for name, value in raw.value.items():
            key = f"{kind}.{toml_key(name)}"
            with named(replace(raw, value=value), key) as one:
                own = {"name": name} if placeholder == "NAME" else {}
                if own and re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) is None:
                    raise InvalidValue("needs a name of letters, digits, _ and -", show=False)
                made[name] = make(**own, **table(one, readers, key, needed))
        return made

    return read


def plain(kind: Any, must: str) -> Reader:
    """Return a reader of a type that msgspec checks."""

    def read(raw: RawValue) -> Any:
        value = raw.value
        strict = raw.typed or not isinstance(value, str)
        with suppress(msgspec.ValidationError, UnicodeEncodeError):
            return msgspec.convert(value if strict else value.strip(), kind, strict=strict)
        raise InvalidValue(f"must be {must}")

    return read


def parsed(parse: Callable[[str], Any], must: str) -> Reader:
    """Return a reader of a text that a function parses."""

    def read(raw: RawValue) -> Any:
        with suppress(InputError):
            return parse(text(raw))
        raise InvalidValue(f"must be {must}")

    return read


duration = parsed(parse_duration, "a duration such as 90s, 15m, 6h or 7d")
boolean = plain(bool, "true or false")


def secret(raw: RawValue) -> str:
    """Return a text as it is."""
    if not isinstance(raw.value, str):
        raise InvalidValue("must be text")
    if re.search("[\ud800-\udfff]", raw.value):
        raise InvalidValue("must be UTF-8 text")
    return raw.value


def secret_or_none(raw: RawValue) -> str | None:
    """Return a text as it is, or None if it is blank."""
    return secret(raw) if secret(raw).strip() else None


def token(raw: RawValue) -> str | None:
    """Return a text that an HTTP header can carry, or None."""
    stripped = secret(raw).strip()
    if re.fullmatch("[!-~]*", stripped) is None:
        raise InvalidValue("must be printable ASCII without spaces")
    return stripped or None


def text(raw: RawValue) -> str:
    """Return a text that is not blank, stripped."""
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
    """Return the URL of an API, without a slash at its end."""
    return _url(raw, "; use api_token or headers", ", and put an API key in `headers`")


def gateway(raw: RawValue) -> str:
    """Return a URL with a slash at its end."""
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
    """Return HTTP headers from a table or a JSON object; blank means none."""
    value, form = raw.value, "table" if raw.typed else "JSON object"
    if not raw.typed:
        value = None
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            value = msgspec.json.decode(raw.value.strip() or "{}")
    must = f"a {form} of header names and text values"
    read = plain(dict[str, str], must)(replace(raw, value=value))
    read = {name: content.strip(" ") for name, content in read.items()}
    for number, (name, content) in enumerate(read.items(), 1):
        problem = header_problem(name, content)
        if problem == "name":
            raise InvalidValue(f"entry {number} has an invalid HTTP header name")
        if problem == "value":
            raise InvalidValue("must be one line of printable ASCII", key=f"headers.{name}")
    if len({name.lower() for name in read}) < len(read):
        raise InvalidValue("must not repeat a header")
    return read


def read_secret(file: Path, name: str) -> str:
    """Return the secret in a file; errors don't show it."""
    try:
        return decoded(file.read_bytes())
    except OSError as error:
        why = error.strerror or "it cannot be opened"
    except ValueError:
        why = "it is not UTF-8 text"
    raise SettingsError(f"{name}: cannot read {file}: {why}")
