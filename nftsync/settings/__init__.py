"""Settings from flags, environment and `nftsync.toml`, which are read only on call.

The first source with a value wins: flag, environment, file, default. A blank variable counts as
unset; of a secret, it means "none", but a blank `webhook_secret` stays blank, so that `serve` can
refuse to start. Errors are one line without a secret.
"""

# ruff: noqa: RUF009 - _key and _in_file return a dataclasses.field

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from nftsync.alerts import DestinationTable, Forward, WatchRule
from nftsync.errors import SettingsError
from nftsync.provider.config import Paging
from nftsync.provider.webhooks import Route, merge_routes
from nftsync.records import normalize_uuid
from nftsync.settings import alerts, values
from nftsync.settings.values import InvalidValue, RawValue, ValueReader

_FILE_NAME = "nftsync.toml"
#: Names the file, like --config, for programs without flags, such as notebooks.
_FILE_VARIABLE = "NFTSYNC_CONFIG"
_TOML_REASON = re.compile(r"(?:Expected '=' )?[A-Za-z /-]+")
_TOML_PLACE = re.compile(r"line \d+, column \d+")
_ROUTE_PATH = re.compile(r"/(?!/)(?:[^\s\\#{}]|\{resourceId\})*")


class Key(NamedTuple):
    """A setting; only shown ones are in messages."""

    read: ValueReader
    default: Any = None
    has_flag: bool = False
    in_environment: bool = True
    secret: bool = False
    shown: bool = True
    name: str = ""

    @property
    def flag(self) -> str | None:
        return f"--{self.name.replace('_', '-')}" if self.has_flag else None

    @property
    def variable(self) -> str | None:
        return f"NFTSYNC_{self.name.upper()}" if self.in_environment else None


def _path_or_stdin(raw: RawValue) -> Path | Literal["-"]:
    return "-" if str(raw.value).strip() == "-" else values.path(raw)


def _route_path(raw: RawValue) -> str:
    route_path = values.text(raw)
    if _ROUTE_PATH.fullmatch(route_path) is None:
        raise InvalidValue("must be a path such as /v1/things/{resourceId}")
    return route_path


_dotted = values.plain(
    list[Annotated[str, Meta(pattern=r"^[^.\s]+(\.[^.\s]+)*\Z")]],
    "a list of field names, with dots for nested fields",
)
_ROUTES = values.tables(
    Route, special={"path": _route_path, **dict.fromkeys(("wallets", "tokens"), _dotted)}
)


def _routes(raw: RawValue) -> dict[str, Route]:
    routes: dict[str, Route] = _ROUTES(raw)
    try:
        merge_routes(routes)
    except SettingsError as error:
        raise SettingsError(f"{error} (from {raw.source})") from None
    return routes


_UUID = values.parsed(lambda text: normalize_uuid(text, "UUID"), "a UUID of 8-4-4-4-12 hex digits")
_CONCURRENCY = values.plain(Annotated[int, Meta(ge=1, le=512)], "a whole number from 1 to 512")
_ATTEMPTS = values.plain(Annotated[int, Meta(ge=1)], "a whole number of at least 1")
_POSITIVE = values.plain(Annotated[float, Meta(gt=0, le=sys.float_info.max)], "a number above 0")
_SHARE = values.plain(Annotated[float, Meta(ge=0, le=1)], "a number from 0 to 1")
_COUNT = values.plain(Annotated[int, Meta(ge=0)], "a whole number of at least 0")
_NAMES = values.plain(list[Annotated[str, Meta(min_length=1)]], "a list of field names")


def _key(
    read: ValueReader, default: Any = None, *, secret: bool = False, shown: bool = True, **more: Any
) -> Any:
    key = Key(read, default, secret=secret, shown=shown and not secret, **more)
    return field(repr=key.shown, metadata={"key": key})


def _in_file(read: ValueReader, default: Any = None, **more: Any) -> Any:
    return _key(read, default, in_environment=False, **more)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, in the order of the documentation. The repr shows no secret.

    Paths are absolute. A blank `proxy` means no proxy, not even the environment's. The reference
    contains these descriptions.

    Attributes:
        base_url: Base URL of the provider's API, such as `https://api.example.com`; it may have a
            path
        database: The SQLite database file
        api_token: Token sent as `Authorization: Bearer …`
        token_command: Command that prints the token on standard output
        headers: Headers of every API request, for other authentication schemes
        webhook_secret: Signs webhooks; `serve` requires it
        webhook_secret_previous: The previous webhook secret, accepted during a rotation
        organization_id: Webhooks for other organizations are quarantined
        concurrency: Concurrent requests, 1 to 512
        timeout: Time limit of a whole attempt, in seconds
        retries: Attempts per request, including the first
        rate_limit: Maximum requests per second
        proxy: Proxy URL: `http://`, `https://` or `socks5://`
        ca_file: PEM file with the only certificates to trust
        client_certificate: PEM file with the client certificate
        client_key: PEM file with the certificate's private key, if it is a separate file
        wallets_file: File that lists the wallets to sync; `-` is stdin
        ignore_fields: Top-level fields and headers of a balances response to ignore
        volatile_fields: Fields of tokens to store without history: `lastSyncedAt`, `metadata.image`
        collections_file: CSV of collection names
        hidden_file: CSV of contracts and tokens to hide as spam
        removal_limit: Share of holdings that may be removed within 24 hours without review
        removal_rows: Fewer removals than this are never held for review, unless they affect 20 or
            more wallets
        ping_url: URL of a heartbeat monitor, requested at the start and end of each sync and verify
        ipfs_gateway: Gateway from which galleries load `ipfs://` images
        routes: Tables `[routes.TYPE]`: the read after a webhook
        paging: Table `[paging]`: the provider's paging fields
        destinations: Tables `[destinations.NAME]`: receivers of alerts and forwarded webhooks
        watch: Tables `[watch.NAME]`: rules that report changes and states
        forward: Tables `[forward.NAME]`: webhooks to forward
        sources: `flag --base-url`, `environment NFTSYNC_BASE_URL`, `file /abs/nftsync.toml` or
            `default`, by key
    """

    base_url: str | None = _key(values.base_url, has_flag=True)
    database: Path = _key(values.path, "data/nftsync.db", has_flag=True)
    api_token: str | None = _key(values.token, secret=True)
    token_command: str | None = _key(values.text, shown=False)
    headers: dict[str, str] = _key(values.headers, {}, secret=True)
    webhook_secret: str | None = _key(values.secret, secret=True)
    webhook_secret_previous: str | None = _key(values.secret_or_none, secret=True)
    organization_id: str | None = _key(_UUID)
    concurrency: int = _key(_CONCURRENCY, 16, has_flag=True)
    timeout: float = _key(_POSITIVE, 30, has_flag=True)
    retries: int = _key(_ATTEMPTS, 5, has_flag=True)
    rate_limit: float | None = _key(_POSITIVE, has_flag=True)
    proxy: str | None = _key(values.secret, secret=True)
    ca_file: Path | None = _key(values.path)
    client_certificate: Path | None = _key(values.path)
    client_key: Path | None = _key(values.path)
    wallets_file: Path | Literal["-"] | None = _key(_path_or_stdin, has_flag=True)
    ignore_fields: list[str] = _in_file(_NAMES, [])
    volatile_fields: list[str] = _in_file(_NAMES, [])
    collections_file: Path | None = _key(values.path)
    hidden_file: Path | None = _key(values.path)
    removal_limit: float = _key(_SHARE, 0.5)
    removal_rows: int = _key(_COUNT, 100)
    ping_url: str | None = _key(values.ping_url, secret=True)
    ipfs_gateway: str = _key(values.gateway, "https://ipfs.io/ipfs/")
    routes: dict[str, Route] = _in_file(_routes, {})
    paging: Paging | None = _in_file(partial(values.table, kind=Paging))
    destinations: dict[str, DestinationTable] = _in_file(alerts.DESTINATIONS, {}, shown=False)
    watch: dict[str, WatchRule] = _in_file(alerts.RULES, {})
    forward: dict[str, Forward] = _in_file(alerts.FORWARDS, {})
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
        why = "it is not UTF-8, or a value is too long or nested too deeply"
        problem = f"cannot parse {file}: {why}"
    raise SettingsError(problem)


def _toml_problem(message: str, content: str) -> str:
    """Omit the file's text, which may contain secrets."""
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
        names = [key.name for key in KEYS if key.has_flag]
        if unknown := self.flags.keys() - names:
            raise TypeError(f"unexpected argument {min(unknown)!r}; settings: {', '.join(names)}")
        self.environ = os.environ if environ is None else environ
        self.here = _here(directory)
        self.file = _file(config, self.environ, self.here)
        self.table = {} if self.file is None else _read_toml(self.file)
        values.refuse_unknown(self.table, _BY_NAME, str(self.file))

    def resolve(self, key: Key) -> tuple[Any, str]:
        raw = self._find(key)
        return None if raw.value is None else values.checked(key.read, raw), raw.source

    def _find(self, key: Key) -> RawValue:
        make = partial(RawValue, name=key.name, variable=key.variable, show=key.shown)
        if key.name in self.flags:
            return make(self.flags[key.name], source=f"flag {key.flag}", base=self.here)
        value, variable = self._from_environment(key)
        if value is not None:
            source = f"environment {variable}"
            return make(value, variable=variable, source=source, base=self.here)
        if self.file is not None and key.name in self.table:
            value, source, base = self.table[key.name], f"file {self.file}", self.file.parent
            return make(value, source=source, base=base, typed=True)
        return make(key.default, source="default", base=self.here, typed=True)

    def _from_environment(self, key: Key) -> tuple[str | None, str]:
        variable = key.variable or ""
        value, in_file = self.environ.get(variable), f"{variable}_FILE"
        path = self.environ.get(in_file, "").strip() if key.secret else ""
        if path and value is not None:
            both = f"both {variable} and {in_file} are set"
            raise SettingsError(f"{key.name}: {both}; unset one of them")
        if path:
            return values.read_secret(self.here / path, f"{key.name} ({in_file})"), in_file
        is_set = value is not None and (key.secret or value.strip())
        return value if is_set else None, variable


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
        config: the file; default: `NFTSYNC_CONFIG`, or the nearest `nftsync.toml`.
        environ: default: this process's.
        directory: where the search begins, and the base of relative paths outside the file.
    """
    sources = _Sources(flags, environ, directory, config)
    resolved = {key.name: sources.resolve(key) for key in KEYS}
    sources_by_key = {name: source for name, (_, source) in resolved.items()}
    return Settings(**{key: value for key, (value, _) in resolved.items()}, sources=sources_by_key)


def database_and_source() -> tuple[Path, str]:
    """Return the database's path and its source, without checking other settings."""
    return _Sources(None, None, None).resolve(_BY_NAME["database"])


def settings_file(config: Path | None = None) -> Path | None:
    return _file(config, os.environ, _here(None))


def unknown_variables() -> list[tuple[str, str | None]]:
    """Return unknown NFTSYNC_ variables, each with the nearest known one."""
    names = [_FILE_VARIABLE, *(key.variable for key in KEYS if key.variable is not None)]
    names += [f"{key.variable}_FILE" for key in KEYS if key.secret]
    return [
        (name, next(iter(get_close_matches(name, names, n=1, cutoff=0.8)), None))
        for name in os.environ
        if name.startswith("NFTSYNC_") and name not in names
        if not name.startswith(alerts.DESTINATION_VARIABLES)
    ]


def require_base_url(settings: Settings) -> str:
    """Return the base URL, or raise a SettingsError."""
    if settings.base_url is None:
        ways = f"--base-url, NFTSYNC_BASE_URL or base_url in {_FILE_NAME}"
        try_it = "To try nftsync without a provider: `nftsync demo` or `nftsync sandbox`"
        raise SettingsError(f"no base_url; set it with {ways}. {try_it}")
    return settings.base_url


def _file(config: Path | None, environ: Mapping[str, str], here: Path) -> Path | None:
    named = config or environ.get(_FILE_VARIABLE, "").strip()
    if named:
        return here / named
    files = (folder / _FILE_NAME for folder in (here, *here.parents))
    return next(filter(os.path.isfile, files), None)  # False for an inaccessible directory


def _here(directory: Path | None) -> Path:
    try:
        return Path(directory or ".").resolve()
    except OSError as error:
        raise SettingsError(f"cannot find the working directory: {error.strerror}") from None
