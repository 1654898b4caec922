"""The tables `[destinations.NAME]`, `[watch.NAME]` and `[forward.NAME]`, and their secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import time
from typing import TYPE_CHECKING, Annotated, Any, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from nftsync.alerts import (
    CHANGES,
    STATE_KINDS,
    Destination,
    DestinationKind,
    Forward,
    Quiet,
    Security,
    WatchRule,
)
from nftsync.errors import SettingsError
from nftsync.exact_sum import exact
from nftsync.settings.values import (
    InvalidValue,
    RawValue,
    Reader,
    _bool,
    _converted,
    _duration,
    _entries,
    _hint,
    _path,
    _plain,
    _read_secret,
    _text,
)
from nftsync.text import http_url, toml_key

if TYPE_CHECKING:
    from nftsync.settings import Settings


#: Prefix of the variables with secrets: `…_NAME_URL`, `…_NAME_SECRET`, `…_NAME_PASSWORD`.
DESTINATION_VARIABLES = "NFTSYNC_DESTINATIONS_"


def _tables(heading: str, readers: Mapping[str, Reader], make: Callable[..., Any]) -> Reader:
    """Return a reader that makes an object of each table `[heading.NAME]`."""

    def read(raw: RawValue) -> dict[str, Any]:
        if not isinstance(raw.value, dict):
            raise InvalidValue(f"must be tables [{heading}.NAME]", show=False)
        made = {}
        for name, table in raw.value.items():
            full = f"{heading}.{toml_key(name)}"
            if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) is None:
                raise InvalidValue("needs a name of letters, digits, _ and -", key=full, show=False)
            entries = _entries(replace(raw, value=table), readers, full)
            try:
                made[name] = make(name, entries)
            except InvalidValue as error:
                raise InvalidValue(str(error), key=full, show=False) from None
        return made

    return read


def _destination(name: str, entries: dict[str, Any]) -> dict[str, Any]:
    """Check a destination without its secrets, which only sending commands read."""
    kind = entries.get("kind")
    if kind is None:
        raise InvalidValue(f"must have kind = {', '.join(map(repr, _KINDS))}")
    needed, optional = _OF_KIND[kind]
    if missing := [key for key in needed if key not in entries]:
        raise InvalidValue(f"must have {' and '.join(missing)}")
    if extra := entries.keys() - {"kind", "allow_http", "allow_private", *needed, *optional}:
        raise InvalidValue(f'must not have {min(extra)} with kind = "{kind}"')
    if "url" in entries and "url_file" in entries:
        raise InvalidValue("must have only one of url and url_file")
    return {"name": name, **entries}


def _watch_rule(name: str, entries: dict[str, Any]) -> WatchRule:
    if missing := [key for key in ("on", "to") if not entries.get(key)]:
        raise InvalidValue(f"must have {' and '.join(missing)}")
    entries["collections"] = entries.get("collections", []) + entries.pop("contracts", [])
    return WatchRule(name=name, **entries)


def _forward(name: str, entries: dict[str, Any]) -> Forward:
    if not entries.get("to"):
        raise InvalidValue("must have to")
    return Forward(name=name, **entries)


def _quiet(raw: RawValue) -> Quiet:
    match = re.fullmatch(r"(\d\d:\d\d)-(\d\d:\d\d)(?: (\S+))?", _text(raw))
    try:
        if match is not None:
            start, end, zone = match[1], match[2], match[3] or "UTC"
            ZoneInfo(zone)
            hours = Quiet(time.fromisoformat(start), time.fromisoformat(end), zone)
            if hours.start != hours.end:
                return hours
    except (ValueError, OSError, ZoneInfoNotFoundError):  # OSError: the zone is a folder
        pass
    raise InvalidValue("must be hours and a time zone such as 22:00-07:00 Europe/Berlin")


def _kinds_of_rule(raw: RawValue) -> list[str]:
    kinds: list[str] = _converted(raw, list[str], "a list of kinds")
    for kind in kinds:
        if kind not in _RULE_KINDS:
            hint = _hint(kind, _RULE_KINDS, f"kinds: {', '.join(_RULE_KINDS)}")
            raise InvalidValue(f"has the unknown kind {kind!r}; {hint}", show=False)
    return kinds


def _whole_amount(raw: RawValue) -> int:
    number = exact(raw.value) if not isinstance(raw.value, bool) else None
    if number is None or number < 0:
        raise InvalidValue("must be a whole number")
    return number


def _not_shown(read: Reader) -> Reader:
    """Return a reader whose errors don't show the value."""

    def checked(raw: RawValue) -> Any:
        try:
            return read(raw)
        except InvalidValue as error:
            problem = str(error)
        raise InvalidValue(problem, show=False)

    return checked


def _one_or_more(read: Reader) -> Reader:
    """Return a reader of one value, or a list of one or two."""

    def several(raw: RawValue) -> tuple[Any, ...]:
        values = raw.value if isinstance(raw.value, list) else [raw.value]
        if not 1 <= len(values) <= 2:
            raise InvalidValue("must be one file, or two during a rotation")
        return tuple(read(replace(raw, value=value)) for value in values)

    return several


_KINDS = get_args(DestinationKind)


_RULE_KINDS = (*CHANGES, *STATE_KINDS)


_words = _plain(
    Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)], "a list of strings"
)


_DESTINATION: dict[str, Reader] = {
    "kind": _plain(DestinationKind, ", ".join(_KINDS)),
    "url": _not_shown(_text),
    "url_file": _path,
    "secret_file": _one_or_more(_path),
    "allow_http": _bool,
    "allow_private": _bool,
    "command": _not_shown(_words),
    "server": _text,
    "port": _plain(Annotated[int, Meta(ge=1, le=65535)], "a port number"),
    "security": _plain(Security, ", ".join(get_args(Security))),
    "from": _text,
    "recipients": _words,
    "username": _text,
    "password_file": _path,
}


#: Required and optional keys, by kind of destination.
_OF_KIND: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "webhook": ((), ("url", "url_file", "secret_file")),
    "slack": ((), ("url_file",)),
    "email": (
        ("server", "from", "recipients"),
        ("port", "security", "username", "password_file"),
    ),
    "command": (("command",), ()),
}


_WATCH: dict[str, Reader] = {
    "on": _kinds_of_rule,
    "to": _words,
    **dict.fromkeys(("wallets", "groups", "collections", "contracts"), _words),
    "min_amount": _whole_amount,
    **dict.fromkeys(("digest", "repeat", "max_age"), _duration),
    "quiet": _quiet,
    **dict.fromkeys(("baseline", "hidden"), _bool),
}


_FORWARD: dict[str, Reader] = {"to": _words, "types": _words, "original_signature": _bool}


DESTINATIONS = _tables("destinations", _DESTINATION, _destination)
RULES = _tables("watch", _WATCH, _watch_rule)
FORWARDS = _tables("forward", _FORWARD, _forward)


def open_destination_settings(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> dict[str, Destination]:
    """Return the destinations with their secrets.

    Raises:
        SettingsError: a secret is missing or unreadable, or a rule names an unknown destination.
    """
    for table, rules in (("watch", settings.watch), ("forward", settings.forward)):
        for rule in rules.values():
            for name in rule.to:
                _check_destination(name, settings.destinations, f"{table}.{toml_key(rule.name)}.to")
    if both := settings.watch.keys() & settings.forward.keys():
        raise SettingsError(f"[watch.{min(both)}] and [forward.{min(both)}] need different names")
    variables = {_variable(name) for name in settings.destinations}
    if len(variables) < len(settings.destinations):
        raise SettingsError("names of destinations must differ in more than case, - and _")
    environment = os.environ if environ is None else environ
    return {
        name: _with_secrets(dict(entries), environment)
        for name, entries in settings.destinations.items()
    }


def _check_destination(name: str, destinations: Mapping[str, object], where: str) -> None:
    if name not in destinations:
        hint = _hint(name, destinations, f"add a table [destinations.{name}]")
        raise SettingsError(f"{where} names the unknown destination {name!r}; {hint}")


def _variable(name: str) -> str:
    return f"{DESTINATION_VARIABLES}{name.upper().replace('-', '_')}"


def _with_secrets(entries: dict[str, Any], environ: Mapping[str, str]) -> Destination:
    name = entries["name"]
    variable = _variable(name)

    def secret(key: str, suffix: str) -> tuple[str, ...]:
        value = environ.get(f"{variable}_{suffix}", "").strip()
        values = value.split() if suffix == "SECRET" else [value] if value else []
        files = entries.pop(key, ())
        files = files if isinstance(files, tuple) else (files,)
        full = f"destinations.{toml_key(name)}.{key}"
        return tuple(values) or tuple(_read_secret(file, full) for file in files)

    urls, secrets, passwords = (
        secret(f"{suffix.lower()}_file", suffix) for suffix in ("URL", "SECRET", "PASSWORD")
    )
    kind = entries["kind"]
    entries["url"] = next(iter(urls), entries.get("url"))
    needs_url = kind in {"webhook", "slack"}
    if (needs_url and not entries["url"]) or (kind == "webhook" and not secrets):
        lacking = "url" if needs_url and not entries["url"] else "secret"
        raise SettingsError(
            f"destinations.{toml_key(name)} has no {lacking}: set {lacking}_file, or the variable"
            f" {variable}_{lacking.upper()}"
        )
    if needs_url and http_url(entries["url"]) is None:
        raise SettingsError(f"the url of destinations.{toml_key(name)} is not an http(s) URL")
    entries["sender"] = entries.pop("from", None)
    for key in ("command", "recipients"):
        entries[key] = tuple(entries.get(key, ()))
    return Destination(**entries, secrets=secrets, password=next(iter(passwords), None))
