"""Settings from flags, environment and `nftsync.toml`; nothing is read at import.

The first source with a value wins: command-line flag, environment, file, default. A blank variable
counts as unset. A secret's blank variable means "none" and overrides the file, but a blank
`webhook_secret` stays blank, so that `serve` can refuse to start.

Errors are SettingsErrors of one line; neither they nor their causes contain a secret.
"""

# ruff: noqa: RUF009 - _key returns a dataclasses.field

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from nftsync.alerts import Forward, WatchRule
from nftsync.errors import SettingsError
from nftsync.provider.config import Paging
from nftsync.provider.webhooks import Route, RouteKind, merge_routes
from nftsync.records import normalize_uuid
from nftsync.settings.alerts import DESTINATION_VARIABLES, DESTINATIONS, FORWARDS, RULES
from nftsync.settings.values import (
    InvalidValue,
    RawValue,
    Reader,
    _bool,
    _converted,
    _duration,
    _entries,
    _parsed,
    _path,
    _plain,
    _read_secret,
    _secret,
    _text,
    refuse_unknown,
)
from nftsync.text import header_problem, http_url, shown_with, toml_key

_FILE_NAME = "nftsync.toml"
#: Names the file, like --config, for programs without flags, such as notebooks.
_FILE_VARIABLE = "NFTSYNC_CONFIG"
_TOML_REASON = re.compile(r"(?:Expected '=' )?[A-Za-z /-]+")
_TOML_PLACE = re.compile(r"line \d+, column \d+")
_ROUTE_PATH = re.compile(r"/(?!/)(?:[^\s\\#{}]|\{resourceId\})*")


class Key(NamedTuple):
    """A setting.

    Attributes:
        read: checks and converts a value.
        help: description for the docs.
        default: as in the file.
        in_environment: it has a variable.
        secret: never shown; a file named in its variable with `_FILE` appended can contain it.
    """

    read: Reader
    help: str
    default: Any = None
    has_flag: bool = False
    in_environment: bool = True
    secret: bool = False
    name: str = ""

    @property
    def flag(self) -> str | None:
        """The command-line flag, if any."""
        return f"--{self.name.replace('_', '-')}" if self.has_flag else None

    @property
    def variable(self) -> str | None:
        """The environment variable, if any."""
        return f"NFTSYNC_{self.name.upper()}" if self.in_environment else None


def _secret_or_none(raw: RawValue) -> str | None:
    secret = _secret(raw)
    return secret if secret.strip() else None


def _token(raw: RawValue) -> str | None:
    """Return a text that an HTTP header can carry, or None."""
    stripped = _secret(raw).strip()
    if re.fullmatch("[!-~]*", stripped) is None:
        raise InvalidValue("must be printable ASCII without spaces")
    return stripped or None


def _path_or_stdin(raw: RawValue) -> Path | Literal["-"]:
    return "-" if str(raw.value).strip() == "-" else _path(raw)


def _base_url(raw: RawValue) -> str:
    return _url(raw, "; use api_token or headers", ", and put an API key in `headers`")


def _gateway(raw: RawValue) -> str:
    return _url(raw) + "/"


def _url(raw: RawValue, instead: str = "", for_key: str = "") -> str:
    url = _text(raw)
    if "@" in url:
        raise InvalidValue(f"must not contain a user name or password{instead}", show=False)
    if "?" in url or "#" in url:
        must = f"must not have a query or fragment; remove everything from the ? or # on{for_key}"
        raise InvalidValue(must, show=False)
    parts = http_url(url)
    if parts is not None:
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    raise InvalidValue("must be a URL such as https://api.example.com")


def _headers(raw: RawValue) -> dict[str, str]:
    """Return HTTP headers from a table or a JSON object; blank means none."""
    value, must = raw.value, "a table of header names and text values"
    if not raw.typed:
        must = "a JSON object of header names and text values"
        if not value.strip():
            return {}
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            value = None
    read: dict[str, str] = _converted(replace(raw, value=value), dict[str, str], must)
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


def _routes(raw: RawValue) -> dict[str, Route]:
    """Return the routes of the `[routes.TYPE]` tables.

    Raises:
        SettingsError: a table's entries contradict each other.
    """
    if not isinstance(raw.value, dict):
        raise InvalidValue("must be tables [routes.TYPE]")
    read = {
        kind: Route(**_entries(replace(raw, value=table), _ROUTE, f"routes.{toml_key(kind)}"))
        for kind, table in raw.value.items()
    }
    try:
        merge_routes(read)
    except SettingsError as error:
        raise SettingsError(f"{error} (from {raw.source})") from None
    return read


def _paging(raw: RawValue) -> Paging:
    entries = _entries(raw, _PAGING, "paging")
    if missing := [name for name in _PAGING if name not in entries]:
        raise InvalidValue(f"must have {' and '.join(missing)}", show=False)
    return Paging(**entries)


def _route_path(raw: RawValue) -> str:
    route_path = _text(raw)
    if _ROUTE_PATH.fullmatch(route_path) is None:
        raise InvalidValue("must be a path such as /v1/things/{resourceId}")
    return route_path


_dotted = _plain(
    list[Annotated[str, Meta(pattern=r"^[^.\s]+(\.[^.\s]+)*\Z")]],
    "a list of field names, with dots for nested fields",
)
_ROUTE: dict[str, Reader] = {
    "path": _route_path,
    "kind": _plain(RouteKind, "token, wallet, object or sync"),
    "holders": _bool,
    "wallets": _dotted,
    "tokens": _dotted,
    "at_most_every": _duration,
}
_PAGING: dict[str, Reader] = {"next": _text, "param": _text}

_UUID = _parsed(lambda text: normalize_uuid(text, "UUID"), "a UUID of 8-4-4-4-12 hex digits")
_CONCURRENCY = _plain(Annotated[int, Meta(ge=1, le=512)], must="a whole number from 1 to 512")
_ATTEMPTS = _plain(Annotated[int, Meta(ge=1)], must="a whole number of at least 1")
_POSITIVE = _plain(Annotated[float, Meta(gt=0, le=sys.float_info.max)], must="a number above 0")
_SHARE = _plain(Annotated[float, Meta(ge=0, le=1)], must="a number from 0 to 1")
_COUNT = _plain(Annotated[int, Meta(ge=0)], must="a whole number of at least 0")
_NAMES = _plain(list[Annotated[str, Meta(min_length=1)]], must="a list of field names")


def _key(read: Reader, text: str, default: Any = None, *, shown: bool = True, **more: Any) -> Any:
    key = Key(read, text, default, **more)
    return field(repr=shown and not key.secret, metadata={"key": key})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, checked, in the order of the documentation. The repr shows no secret.

    Paths are absolute. None means not set; a blank `proxy` means no proxy, not even the
    environment's.

    Attributes:
        sources: `flag --base-url`, `environment NFTSYNC_BASE_URL`, `file /abs/nftsync.toml` or
            `default`, by key.
    """

    base_url: str | None = _key(
        _base_url,
        "Base URL of the provider's API, such as `https://api.example.com`; it may have a path",
        has_flag=True,
    )
    database: Path = _key(_path, "The SQLite database file", "data/nftsync.db", has_flag=True)
    api_token: str | None = _key(_token, "Token sent as `Authorization: Bearer …`", secret=True)
    token_command: str | None = _key(
        _text, "Command that prints the token on standard output", shown=False
    )
    headers: dict[str, str] = _key(
        _headers, "Headers of every API request, for other authentication schemes", {}, secret=True
    )
    webhook_secret: str | None = _key(_secret, "Signs webhooks; `serve` requires it", secret=True)
    webhook_secret_previous: str | None = _key(
        _secret_or_none, "The previous webhook secret, accepted during a rotation", secret=True
    )
    organization_id: str | None = _key(_UUID, "Webhooks for other organizations are quarantined")
    concurrency: int = _key(_CONCURRENCY, "Concurrent requests, 1 to 512", 16, has_flag=True)
    timeout: float = _key(_POSITIVE, "Time limit of a whole attempt, in seconds", 30, has_flag=True)
    retries: int = _key(_ATTEMPTS, "Attempts per request, including the first", 5, has_flag=True)
    rate_limit: float | None = _key(_POSITIVE, "Maximum requests per second", has_flag=True)
    proxy: str | None = _key(
        _secret, "Proxy URL: `http://`, `https://` or `socks5://`", secret=True
    )
    ca_file: Path | None = _key(_path, "PEM file with the only certificates to trust")
    client_certificate: Path | None = _key(_path, "PEM file with the client certificate")
    client_key: Path | None = _key(
        _path, "PEM file with the certificate's private key, if it is a separate file"
    )
    wallets_file: Path | Literal["-"] | None = _key(
        _path_or_stdin, "File that lists the wallets to sync; `-` is stdin", has_flag=True
    )
    ignore_fields: list[str] = _key(
        _NAMES,
        "Top-level fields and headers of a balances response to ignore",
        [],
        in_environment=False,
    )
    volatile_fields: list[str] = _key(
        _NAMES,
        "Fields of tokens to store without history: `lastSyncedAt`, `metadata.image`",
        [],
        in_environment=False,
    )
    collections_file: Path | None = _key(_path, "CSV of collection names")
    hidden_file: Path | None = _key(_path, "CSV of contracts and tokens to hide as spam")
    removal_limit: float = _key(
        _SHARE, "Share of holdings that may be removed within 24 hours without review", 0.5
    )
    removal_rows: int = _key(
        _COUNT,
        "Fewer removals than this are never held for review, unless they affect 20 or more wallets",
        100,
    )
    ipfs_gateway: str = _key(
        _gateway, "Gateway from which galleries load `ipfs://` images", "https://ipfs.io/ipfs/"
    )
    routes: dict[str, Route] = _key(
        _routes, "Tables `[routes.TYPE]`: the read after a webhook", {}, in_environment=False
    )
    paging: Paging | None = _key(
        _paging, "Table `[paging]`: the provider's paging fields", in_environment=False
    )
    destinations: dict[str, dict[str, Any]] = _key(
        DESTINATIONS,
        "Tables `[destinations.NAME]`: receivers of alerts and forwarded webhooks",
        {},
        shown=False,
        in_environment=False,
    )
    watch: dict[str, WatchRule] = _key(
        RULES,
        "Tables `[watch.NAME]`: rules that report changes and states",
        {},
        in_environment=False,
    )
    forward: dict[str, Forward] = _key(
        FORWARDS,
        "Tables `[forward.NAME]`: webhooks to forward",
        {},
        in_environment=False,
    )
    sources: dict[str, str]


#: Every setting, in the order of the documentation.
KEYS = tuple(
    entry.metadata["key"]._replace(name=entry.name) for entry in fields(Settings) if entry.metadata
)
_BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}


def _read_toml(file: Path) -> dict[str, Any]:
    content = ""
    try:
        content = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        return tomllib.loads(content)
    except OSError as error:
        problem = f"cannot read the settings file {file}: {error.strerror}"
    except tomllib.TOMLDecodeError as error:
        problem = f"{file} is not valid TOML: {_toml_problem(str(error), content)}"
    except (ValueError, RecursionError):
        problem = (
            f"cannot parse {file}: it is not UTF-8, or a value is too long or nested too deeply"
        )
    raise SettingsError(problem)


def _toml_problem(message: str, content: str) -> str:
    """Return tomllib's message without quoting the file, which may contain secrets."""
    reason, _, place = message.rpartition(" (at ")
    match = _TOML_PLACE.match(place)
    where = match[0] if match else f"line {content.rstrip().count(chr(10)) + 1}, at the end"
    return f"{where}: {reason}" if _TOML_REASON.fullmatch(reason) else where


class _Sources:
    def __init__(
        self,
        flags: Mapping[str, object] | None,
        environ: Mapping[str, str] | None,
        directory: Path | None,
        config: Path | None = None,
    ) -> None:
        self.flags = {name: value for name, value in (flags or {}).items() if value is not None}
        for name in self.flags:
            if name not in _BY_NAME or not _BY_NAME[name].has_flag:
                settings = ", ".join(key for key, one in _BY_NAME.items() if one.has_flag)
                raise TypeError(f"unexpected argument {name!r}; settings: {settings}")
        self.environ = os.environ if environ is None else environ
        self.here = _here(directory)
        self.file = file = _file(config, self.environ, self.here)
        self.table: dict[str, Any] = {} if file is None else _read_toml(file)
        refuse_unknown(self.table, _BY_NAME, str(file))

    def resolve(self, key: Key) -> tuple[Any, str]:
        """Return a key's value and its source."""
        raw = self._find(key)
        if raw is None:
            return None, "default"
        try:
            return key.read(raw), raw.source
        except InvalidValue as error:
            problem = str(error)
            if error.show and not key.secret:
                problem = shown_with(problem, raw.value)
            name = error.key or key.name
        kind, _, source = raw.source.partition(" ")
        variable = source if kind == "environment" else key.variable
        shown = f" ({variable})" if variable else ""
        raise SettingsError(f"{name}{shown} {problem} (from {raw.source})")

    def _find(self, key: Key) -> RawValue | None:
        if key.name in self.flags:
            return RawValue(self.flags[key.name], f"flag {key.flag}", self.here)
        raw = None if key.variable is None else self._from_environment(key, key.variable)
        if raw is not None:
            return raw
        if self.file is not None and key.name in self.table:
            source = f"file {self.file}"
            return RawValue(self.table[key.name], source, self.file.parent, typed=True)
        if key.default is None:
            return None
        return RawValue(key.default, "default", self.here, typed=True)

    def _from_environment(self, key: Key, variable: str) -> RawValue | None:
        value = self.environ.get(variable)
        if key.secret:
            named = f"{variable}_FILE"
            if path := self.environ.get(named, "").strip():
                if value is not None:
                    both = f"both {variable} and {named} are set"
                    raise SettingsError(f"{key.name}: {both}; unset one of them")
                content = _read_secret(self.here / path, f"{key.name} ({named})")
                return RawValue(content, f"environment {named}", self.here)
        elif value is not None and not value.strip():
            return None
        return None if value is None else RawValue(value, f"environment {variable}", self.here)


def load(
    flags: Mapping[str, object] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Read all settings.

    Args:
        flags: values by key; None counts as absent.
        config: the file. Default: `NFTSYNC_CONFIG`, or the nearest `nftsync.toml` from `directory`
            upwards.
        environ: the environment; default: this process's.
        directory: base of relative paths outside the file; default: the working directory.

    Raises:
        SettingsError: a setting is invalid, or the file cannot be read.
        TypeError: a key in `flags` has no flag.
    """
    sources = _Sources(flags, environ, directory, config)
    resolved = {key.name: sources.resolve(key) for key in KEYS}
    values = {name: value for name, (value, _) in resolved.items()}
    return Settings(**values, sources={name: source for name, (_, source) in resolved.items()})


def database_and_source() -> tuple[Path, str]:
    """Return the database's path and its source, without checking other settings.

    Raises:
        SettingsError: `database` is invalid, or the file cannot be read.
    """
    database: Path
    database, source = _Sources(None, None, None).resolve(_BY_NAME["database"])
    return database, source


def settings_file(config: Path | None = None) -> Path | None:
    """Return the file that `load` reads, if any."""
    return _file(config, os.environ, _here(None))


def unknown_variables() -> list[tuple[str, str | None]]:
    """Return unknown NFTSYNC_ variables, each with the nearest known one, if any."""
    names = [_FILE_VARIABLE]
    for key in KEYS:
        if key.variable is not None:
            names += [key.variable, f"{key.variable}_FILE"] if key.secret else [key.variable]
    return [
        (name, next(iter(get_close_matches(name, names, n=1, cutoff=0.8)), None))
        for name in os.environ
        if name.startswith("NFTSYNC_") and name not in names
        if not name.startswith(DESTINATION_VARIABLES)
    ]


def require_base_url(settings: Settings) -> str:
    """Return the base URL, or raise a SettingsError."""
    if settings.base_url is None:
        ways = f"--base-url, NFTSYNC_BASE_URL or base_url in {_FILE_NAME}"
        raise SettingsError(f"no base_url: set it with {ways}")
    return settings.base_url


def _file(config: Path | None, environ: Mapping[str, str], here: Path) -> Path | None:
    """Return the named settings file, or the nearest one from `here` upwards."""
    named = config or environ.get(_FILE_VARIABLE, "").strip()
    if named:
        return here / named
    for folder in (here, *here.parents):
        try:
            if (folder / _FILE_NAME).is_file():
                return folder / _FILE_NAME
        except OSError:  # an inaccessible directory
            continue
    return None


def _here(directory: Path | None) -> Path:
    try:
        return Path(directory or ".").resolve()
    except OSError as error:
        raise SettingsError(f"cannot find the working directory: {error.strerror}") from None
