"""The tables `[destinations.NAME]`, `[watch.NAME]` and `[forward.NAME]`, and their secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import time
from pathlib import Path
from typing import get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from nftsync import alerts
from nftsync.errors import SettingsError
from nftsync.exact_sum import exact
from nftsync.settings import values
from nftsync.settings.values import InvalidValue, RawValue
from nftsync.text import http_url, toml_key

#: Prefix of the variables with secrets: `…_NAME_URL`, `…_NAME_SECRET`, `…_NAME_PASSWORD`.
DESTINATION_VARIABLES = "NFTSYNC_DESTINATIONS_"

_KINDS = get_args(alerts.DestinationKind)
_RULE_KINDS = (*alerts.CHANGES, *alerts.STATE_KINDS)
#: Required and optional keys, by kind of destination.
_NEEDED = {"email": ("server", "from", "recipients"), "command": ("command",)}
_OPTIONAL = {
    "webhook": ("url", "url_file", "secret_file"),
    "slack": ("url_file",),
    "email": ("port", "security", "username", "password_file"),
}


def _check_destination(entries: Mapping[str, object]) -> None:
    kind = str(entries.get("kind"))
    if kind not in _KINDS:
        raise InvalidValue(f"must have kind = {', '.join(map(repr, _KINDS))}", show=False)
    needed = _NEEDED.get(kind, ())
    values.require(entries, needed)
    allowed = {"kind", "allow_http", "allow_private", *needed, *_OPTIONAL.get(kind, ())}
    if extra := entries.keys() - allowed:
        raise InvalidValue(f'must not have {min(extra)} with kind = "{kind}"', show=False)
    if "url" in entries and "url_file" in entries:
        raise InvalidValue("must have only one of url and url_file", show=False)


def _quiet(raw: RawValue) -> alerts.Quiet:
    match = re.fullmatch(r"(\d\d:\d\d)-(\d\d:\d\d)(?: (\S+))?", values.text(raw))
    with suppress(ValueError, OSError, ZoneInfoNotFoundError):  # OSError: the zone is a folder
        if match is not None:
            start, end, zone = match[1], match[2], match[3] or "UTC"
            ZoneInfo(zone)
            hours = alerts.Quiet(time.fromisoformat(start), time.fromisoformat(end), zone)
            if hours.start != hours.end:
                return hours
    raise InvalidValue("must be hours and a time zone such as 22:00-07:00 Europe/Berlin")


def _kinds_of_rule(raw: RawValue) -> list[str]:
    kinds: list[str] = values.plain(list[str], "a list of kinds")(raw)
    for kind in kinds:
        if kind not in _RULE_KINDS:
            hint = values.hint(kind, _RULE_KINDS, f"kinds: {', '.join(_RULE_KINDS)}")
            raise InvalidValue(f"has the unknown kind {kind!r}; {hint}", show=False)
    return kinds


def _whole_amount(raw: RawValue) -> int:
    number = exact(raw.value) if not isinstance(raw.value, bool) else None
    if number is None or number < 0:
        raise InvalidValue("must be a whole number")
    return number


def _secret_files(raw: RawValue) -> tuple[Path, ...]:
    files = raw.value if isinstance(raw.value, list) else [raw.value]
    if not 1 <= len(files) <= 2:
        raise InvalidValue("must be one file, or two during a rotation")
    return tuple(values.path(replace(raw, value=file)) for file in files)


DESTINATIONS = values.tables(
    alerts.DestinationTable, special={"secret_file": _secret_files}, check=_check_destination
)
RULES = values.tables(
    alerts.WatchRule, special={"on": _kinds_of_rule, "min_amount": _whole_amount, "quiet": _quiet}
)
FORWARDS = values.tables(alerts.Forward)


def open_destination_settings(
    destinations: Mapping[str, alerts.DestinationTable],
    watch: Mapping[str, alerts.WatchRule],
    forward: Mapping[str, alerts.Forward],
    environ: Mapping[str, str] | None = None,
) -> dict[str, alerts.Destination]:
    for kind, rules in (("watch", watch), ("forward", forward)):
        for rule in rules.values():
            if unknown := next((name for name in rule.to if name not in destinations), None):
                hint = values.hint(unknown, destinations, f"add a table [destinations.{unknown}]")
                where = f"{kind}.{toml_key(rule.name)}.to"
                raise SettingsError(f"{where} names the unknown destination {unknown!r}; {hint}")
    if both := watch.keys() & forward.keys():
        raise SettingsError(
            f"[watch.{min(both)}] and [forward.{min(both)}] have the same name; rename one"
        )
    if len({_variable(name) for name in destinations}) < len(destinations):
        raise SettingsError("two names of destinations differ only in case, - or _; rename one")
    variables = os.environ if environ is None else environ
    return {name: _with_secrets(table, variables) for name, table in destinations.items()}


def _variable(name: str) -> str:
    return f"{DESTINATION_VARIABLES}{name.upper().replace('-', '_')}"


def _with_secrets(table: alerts.DestinationTable, environ: Mapping[str, str]) -> alerts.Destination:
    full, variable = f"destinations.{toml_key(table.name)}", _variable(table.name)

    def read(part: str, *files: Path | None) -> list[str]:
        if value := environ.get(f"{variable}_{part.upper()}", "").strip():
            return value.split() if part == "secret" else [value]
        return [values.read_secret(file, f"{full}.{part}_file") for file in files if file]

    secrets = read("secret", *table.secret_file)
    url = next(iter(read("url", table.url_file)), table.url)
    password = next(iter(read("password", table.password_file)), None)
    needed = {"webhook": ("url", "secret"), "slack": ("url",)}.get(table.kind, ())
    for part, value in (("url", url), ("secret", secrets)):
        if part in needed and not value:
            way = f"set {part}_file, or the variable {variable}_{part.upper()}"
            raise SettingsError(f"{full} has no {part}: {way}")
    if needed and http_url(url or "") is None:
        raise SettingsError(f"the url of {full} is not an http(s) URL")
    entries = {**msgspec.structs.asdict(table), "url": url}
    return alerts.Destination(**entries, secrets=tuple(secrets), password=password)
