"""Settings: the one place where flags, environment and `nftsync.toml` are read.

A value comes from the first that gives it: command-line flag, environment, file, default. Nothing
is read at import. What is wrong is a SettingsError of one line that names the key, its variable
and where the value came from; neither it nor its cause or context holds a secret's value.

A variable that is set but blank counts as unset, except a secret's: that means "none", and wins
over the file. A blank `webhook_secret` stays as it is, so that `serve` can refuse to start.
"""

# ruff: noqa: RUF009 - what the fields of Settings call is dataclasses.field

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from nftsync.errors import InputError, SettingsError
from nftsync.provider.config import Paging
from nftsync.provider.webhooks import Route, RouteKind, merge_routes
from nftsync.records import normalize_uuid
from nftsync.text import header_problem, http_url, shown_with, toml_key
from nftsync.times import parse_duration

_FILE_NAME = "nftsync.toml"
#: Names the file, as --config does, for programs that take no flags, such as notebooks.
_FILE_VARIABLE = "NFTSYNC_CONFIG"
_TOML_REASON = re.compile(r"(?:Expected '=' )?[A-Za-z /-]+")
_TOML_PLACE = re.compile(r"line \d+, column \d+")
_ROUTE_PATH = re.compile(r"/(?!/)(?:[^\s\\#{}]|\{resourceId\})*")


class FormError(Exception):
    """A value is of the wrong form; the text says what it must be, without key and value.

    It is never raised while an exception is being handled that could hold a secret.

    Attributes:
        key: the full name of what is wrong, where it is a part of the key: `routes.Token.kind`.
        show: whether a message may show the value.
    """

    def __init__(self, problem: str, *, key: str | None = None, show: bool = True) -> None:
        super().__init__(problem)
        self.key = key
        self.show = show


@dataclass(frozen=True)
class Given:
    """A value as it was given.

    Attributes:
        value: as it came; not in the repr, as it can be a secret.
        source: where from, for messages.
        base: the directory that a relative path is relative to.
        typed: it is from the file, where a text does not stand for a number.
    """

    value: Any = field(repr=False)
    source: str
    base: Path
    typed: bool = False


#: Returns the value, or raises a FormError.
Reader: TypeAlias = Callable[[Given], Any]


class Key(NamedTuple):
    """One setting.

    Attributes:
        read: checks and reads a value.
        help: what it is, for the docs.
        default: in the form of the file; None: none.
        has_flag: whether the command line can give it.
        in_environment: whether a variable can give it.
        secret: never shown; a file named in the variable with `_FILE` behind can also give it.
        name: in the file and in Settings.
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
        """The flag on the command line, or None."""
        return f"--{self.name.replace('_', '-')}" if self.has_flag else None

    @property
    def variable(self) -> str | None:
        """The environment variable, or None."""
        return f"NFTSYNC_{self.name.upper()}" if self.in_environment else None


def refuse_unknown(table: Mapping[str, object], known: Mapping[str, object], where: str) -> None:
    """Raise a SettingsError for the first key that is not known, with the nearest that is."""
    for key in table:
        if key not in known:
            nearest = get_close_matches(key.replace("-", "_").lower(), known, n=1, cutoff=0)[0]
            raise SettingsError(f"unknown key {key!r} in {where}; the nearest one is {nearest!r}")


def _plain(kind: Any, must: str) -> Reader:
    """Make a reader of whatever msgspec converts to that type."""
    return lambda given: _converted(given, kind, must)


def _converted(given: Given, kind: Any, must: str) -> Any:
    value = given.value
    strict = given.typed or not isinstance(value, str)
    try:
        return msgspec.convert(value if strict else value.strip(), kind, strict=strict)
    except (msgspec.ValidationError, UnicodeEncodeError):
        pass
    raise FormError(f"must be {must}")


def _secret(given: Given) -> str:
    """Read any text at all, blank or not, as it is."""
    if not isinstance(given.value, str):
        raise FormError("must be text")
    if re.search("[\ud800-\udfff]", given.value):
        raise FormError("must be UTF-8 text")
    return given.value


def _secret_or_none(given: Given) -> str | None:
    """Read any text as it is; a blank one is none."""
    kept = _secret(given)
    return kept if kept.strip() else None


def _token(given: Given) -> str | None:
    """Read a text that an HTTP header can carry; a blank one is none."""
    stripped = _secret(given).strip()
    if re.fullmatch("[!-~]*", stripped) is None:
        raise FormError("must be printable ASCII without blanks")
    return stripped or None


def _text(given: Given) -> str:
    """Read a text that is not blank."""
    stripped = _secret(given).strip()
    if not stripped or "\0" in stripped:
        raise FormError("must be a text that is not blank")
    return stripped


def _path(given: Given) -> Path:
    """Read a path and make it absolute; a leading `~/` is the home directory."""
    value = given.value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    relative = Path(_text(replace(given, value=value)))
    if relative.parts[:1] != ("~",):
        return given.base / relative
    try:
        return relative.expanduser()
    except RuntimeError as error:
        raise FormError("must not begin with ~ where no home directory is known") from error


def _path_or_stdin(given: Given) -> Path | Literal["-"]:
    """Read a path, or `-`, which stays."""
    return "-" if str(given.value).strip() == "-" else _path(given)


def _parsed(parse: Callable[[str], Any], must: str) -> Reader:
    """Make a reader of a text that is not blank."""

    def read(given: Given) -> Any:
        try:
            return parse(_text(given))
        except InputError:
            pass
        raise FormError(f"must be {must}")

    return read


def _base_url(given: Given) -> str:
    """Read the URL of the provider's API; a path may stand before its own."""
    return _url(given, "; api_token and headers are for that", ", and give a key in headers")


def _gateway(given: Given) -> str:
    """Read a URL that a path can be put behind."""
    return _url(given) + "/"


def _url(given: Given, instead: str = "", for_key: str = "") -> str:
    url = _text(given)
    if "@" in url:
        raise FormError(f"must not contain a user name or password{instead}", show=False)
    if "?" in url or "#" in url:
        must = f"must not have a query or fragment: end it before the ? or #{for_key}"
        raise FormError(must, show=False)
    parts = http_url(url)
    if parts is not None:
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    raise FormError("must be a URL such as https://api.example.com")


def _headers(given: Given) -> dict[str, str]:
    """Read HTTP headers: a table of the file, or elsewhere a JSON object; blank is none."""
    value, must = given.value, "a table of header names and text values"
    if not given.typed:
        must = "a JSON object of header names and text values"
        if not value.strip():
            return {}
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            value = None
    read: dict[str, str] = _converted(replace(given, value=value), dict[str, str], must)
    read = {name: content.strip(" ") for name, content in read.items()}
    for number, (name, content) in enumerate(read.items(), 1):
        problem = header_problem(name, content)
        if problem == "name":
            raise FormError(f"must have HTTP header names; entry {number} has another")
        if problem == "value":
            raise FormError("must be one line of printable ASCII", key=f"headers.{name}")
    if len({name.lower() for name in read}) < len(read):
        raise FormError("must not have a header twice")
    return read


def _routes(given: Given) -> dict[str, Route]:
    """Read the `[routes.TYPE]` tables.

    Raises:
        SettingsError: a table says what makes no sense together.
    """
    if not isinstance(given.value, dict):
        raise FormError("must be tables [routes.TYPE]")
    read = {
        kind: Route(**_entries(replace(given, value=table), _ROUTE, f"routes.{toml_key(kind)}"))
        for kind, table in given.value.items()
    }
    try:
        merge_routes(read)
    except SettingsError as error:
        raise SettingsError(f"{error} (from {given.source})") from None
    return read


def _paging(given: Given) -> Paging:
    """Read the `[paging]` table, which needs both its entries."""
    entries = _entries(given, _PAGING, "paging")
    if missing := [name for name in _PAGING if name not in entries]:
        raise FormError(f"must have {' and '.join(missing)} too", show=False)
    return Paging(**entries)


def _entries(given: Given, readers: Mapping[str, Reader], name: str) -> dict[str, Any]:
    if not isinstance(given.value, dict):
        raise FormError("must be a table", key=name)
    refuse_unknown(given.value, readers, f"[{name}] of {given.source}")
    entries = {}
    for key, value in given.value.items():
        try:
            entries[key] = readers[key](replace(given, value=value))
        except FormError as error:
            raise FormError(
                shown_with(str(error), value), key=f"{name}.{key}", show=False
            ) from None
    return entries


def _route_path(given: Given) -> str:
    route_path = _text(given)
    if _ROUTE_PATH.fullmatch(route_path) is None:
        raise FormError("must be a path such as /v1/things/{resourceId}")
    return route_path


_dotted = _plain(
    list[Annotated[str, Meta(pattern=r"^[^.\s]+(\.[^.\s]+)*\Z")]],
    "a list of field names, dotted where one lies in another",
)
_ROUTE: dict[str, Reader] = {
    "path": _route_path,
    "kind": _plain(RouteKind, "token, wallet, object or sync"),
    "holders": _plain(bool, "true or false"),
    "wallets": _dotted,
    "tokens": _dotted,
    "at_most_every": _parsed(parse_duration, "a duration such as 90s, 15m, 6h or 7d"),
}
_PAGING: dict[str, Reader] = {"next": _text, "param": _text}

_UUID = _parsed(lambda text: normalize_uuid(text, "UUID"), "a UUID of 8-4-4-4-12 hex digits")
_CONCURRENCY = _plain(Annotated[int, Meta(ge=1, le=512)], must="a whole number from 1 to 512")
_ATTEMPTS = _plain(Annotated[int, Meta(ge=1)], must="a whole number from 1 up")
_POSITIVE = _plain(Annotated[float, Meta(gt=0, le=sys.float_info.max)], must="a number above 0")
_SHARE = _plain(Annotated[float, Meta(ge=0, le=1)], must="a number from 0 to 1")
_COUNT = _plain(Annotated[int, Meta(ge=0)], must="a whole number from 0 up")
_NAMES = _plain(list[Annotated[str, Meta(min_length=1)]], must="a list of field names")


def _key(read: Reader, text: str, default: Any = None, *, shown: bool = True, **more: Any) -> Any:
    """A field of Settings with its key; `shown`: the repr may show it."""
    key = Key(read, text, default, **more)
    return field(repr=shown and not key.secret, metadata={"key": key})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, checked, in the order of the documentation. Its repr shows no secret.

    Paths are absolute. None is what was not set, but for a proxy (None: the environment's; blank:
    none). A blank secret is None, but for `webhook_secret`.

    Attributes:
        sources: for each key where its value came from: `flag --base-url`,
            `environment NFTSYNC_BASE_URL`, `file /abs/nftsync.toml` or `default`.
    """

    base_url: str | None = _key(
        _base_url,
        "The provider's base address, such as `https://api.example.com`; a path may follow",
        has_flag=True,
    )
    database: Path = _key(_path, "The SQLite file", "data/nftsync.db", has_flag=True)
    api_token: str | None = _key(_token, "Sent as `Authorization: Bearer …`", secret=True)
    token_command: str | None = _key(
        _text, "Command whose standard output is the token", shown=False
    )
    headers: dict[str, str] = _key(
        _headers, "Headers of every API request, to sign in another way", {}, secret=True
    )
    webhook_secret: str | None = _key(_secret, "Signs webhooks; `serve` needs it", secret=True)
    webhook_secret_previous: str | None = _key(
        _secret_or_none, "The former secret, accepted during a rotation", secret=True
    )
    organization_id: str | None = _key(_UUID, "Webhooks for any other organization are quarantined")
    concurrency: int = _key(_CONCURRENCY, "Requests at once, 1 to 512", 16, has_flag=True)
    timeout: float = _key(_POSITIVE, "Seconds for one attempt as a whole", 30, has_flag=True)
    retries: int = _key(_ATTEMPTS, "Attempts per request, the first included", 5, has_flag=True)
    rate_limit: float | None = _key(_POSITIVE, "Requests per second at most", has_flag=True)
    proxy: str | None = _key(
        _secret, "The proxy's URL: `http://`, `https://` or `socks5://`", secret=True
    )
    ca_file: Path | None = _key(_path, "The only certificates to trust, in PEM form")
    client_certificate: Path | None = _key(_path, "Certificate for the provider, in PEM form")
    client_key: Path | None = _key(
        _path, "Private key of the certificate, if it is in another file"
    )
    wallets_file: Path | Literal["-"] | None = _key(
        _path_or_stdin, "Wallets to sync; `-` is stdin", has_flag=True
    )
    ignore_fields: list[str] = _key(
        _NAMES,
        "Top-level fields and headers of a balances response without a meaning for nftsync",
        [],
        in_environment=False,
    )
    collections_file: Path | None = _key(_path, "CSV of collection names")
    removal_limit: float = _key(
        _SHARE, "Share of holdings that may be removed within 24 hours", 0.5
    )
    removal_rows: int = _key(
        _COUNT,
        "Fewer removed balances than this are never held for review, if of fewer than 20 wallets",
        100,
    )
    ipfs_gateway: str = _key(
        _gateway, "Where galleries load `ipfs://` images", "https://ipfs.io/ipfs/"
    )
    routes: dict[str, Route] = _key(
        _routes, "Tables `[routes.TYPE]`: what to read after a webhook", {}, in_environment=False
    )
    paging: Paging | None = _key(
        _paging, "Table `[paging]`: how the provider pages", in_environment=False
    )
    sources: dict[str, str]


#: Every setting, in the order of the documentation.
KEYS = tuple(
    each.metadata["key"]._replace(name=each.name) for each in fields(Settings) if each.metadata
)
_BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}


def _read_toml(file: Path) -> dict[str, Any]:
    """Read a settings file.

    Raises:
        SettingsError: it cannot be read, or is not TOML; the message quotes none of its values.
    """
    content = ""
    try:
        content = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        return tomllib.loads(content)
    except OSError as error:
        problem = f"cannot read {file}: {error.strerror}"
    except tomllib.TOMLDecodeError as error:
        problem = f"{file} is not TOML: {_toml_problem(str(error), content)}"
    except (ValueError, RecursionError):
        problem = f"{file} is not TOML: not UTF-8, or a value that is too long or too deep"
    raise SettingsError(problem)


def _toml_problem(message: str, content: str) -> str:
    """Say what tomllib says, less the part that can quote the file, which may hold secrets."""
    reason, _, place = message.rpartition(" (at ")
    found = _TOML_PLACE.match(place)
    where = found[0] if found else f"line {content.rstrip().count(chr(10)) + 1}, at the end"
    return f"{where}: {reason}" if _TOML_REASON.fullmatch(reason) else where


class _Layers:
    """Where values come from, first the strongest."""

    def __init__(
        self,
        flags: Mapping[str, object] | None,
        environ: Mapping[str, str] | None,
        directory: Path | None,
        config: Path | None = None,
        *,
        has_file: bool = True,
    ) -> None:
        self.flags = {name: value for name, value in (flags or {}).items() if value is not None}
        for name in self.flags:
            if name not in _BY_NAME or not _BY_NAME[name].has_flag:
                raise TypeError(f"{name!r} is no setting that has a flag")
        self.environ = os.environ if environ is None else environ
        self.here = _here(directory)
        self.file = file = _file(config, self.environ, self.here) if has_file else None
        self.table: dict[str, Any] = {} if file is None else _read_toml(file)
        refuse_unknown(self.table, _BY_NAME, str(file))

    def resolve(self, key: Key) -> tuple[Any, str]:
        """Return a key's value and where it came from."""
        given = self._given(key)
        if given is None:
            return None, "default"
        try:
            return key.read(given), given.source
        except FormError as error:
            problem = str(error)
            if error.show and not key.secret:
                problem = shown_with(problem, given.value)
            name = error.key or key.name
        kind, _, source = given.source.partition(" ")
        variable = source if kind == "environment" else key.variable
        shown = f" ({variable})" if variable else ""
        raise SettingsError(f"{name}{shown} {problem} (from {given.source})")

    def _given(self, key: Key) -> Given | None:
        if key.name in self.flags:
            return Given(self.flags[key.name], f"flag {key.flag}", self.here)
        given = None if key.variable is None else self._from_environment(key, key.variable)
        if given is not None:
            return given
        if self.file is not None and key.name in self.table:
            source = f"file {self.file}"
            return Given(self.table[key.name], source, self.file.parent, typed=True)
        if key.default is None:
            return None
        return Given(key.default, "default", self.here, typed=True)

    def _from_environment(self, key: Key, variable: str) -> Given | None:
        value = self.environ.get(variable)
        if key.secret:
            named = f"{variable}_FILE"
            if path := self.environ.get(named, "").strip():
                if value is not None:
                    both = f"both {variable} and {named} are set"
                    raise SettingsError(f"{key.name}: {both}; unset one of them")
                content = _read_secret(self.here / path, f"{key.name} ({named})")
                return Given(content, f"environment {named}", self.here)
        elif value is not None and not value.strip():
            return None
        return None if value is None else Given(value, f"environment {variable}", self.here)

    def settings(self) -> Settings:
        resolved = {key.name: self.resolve(key) for key in KEYS}
        values = {name: value for name, (value, _) in resolved.items()}
        return Settings(**values, sources={name: source for name, (_, source) in resolved.items()})


def _read_secret(path: Path, what: str) -> str:
    """What a file holds, less a line's end behind it; a message holds nothing of it."""
    try:
        return re.sub(r"\r?\n\Z", "", path.read_bytes().decode("utf-8"))
    except OSError as error:
        why = error.strerror or "it cannot be opened"
    except ValueError:
        why = "it is not UTF-8 text"
    raise SettingsError(f"{what}: cannot read {path}: {why}")


def load(
    flags: Mapping[str, object] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Read all settings.

    Args:
        flags: key to value, as given on the command line or by a caller; None is not given.
        config: the file; without it the one that `NFTSYNC_CONFIG` names, else the nearest
            `nftsync.toml` from `directory` upwards.
        environ: the environment; without it this process's.
        directory: base of relative paths outside the file; without it the working directory.

    Raises:
        SettingsError: a setting is of the wrong form, or the file cannot be read.
        TypeError: `flags` names something that has no flag.
    """
    return _Layers(flags, environ, directory, config).settings()


def isolated(
    flags: Mapping[str, object] | None = None, *, directory: Path | None = None
) -> Settings:
    """Return the defaults, and what flags say; neither environment nor file is read."""
    return _Layers(flags, {}, directory, has_file=False).settings()


def database_and_source(
    *, environ: Mapping[str, str] | None = None, directory: Path | None = None
) -> tuple[Path, str]:
    """Return the database's path and source alone; what is wrong with other settings is no matter.

    Raises:
        SettingsError: `database` is of the wrong form, or the file cannot be read.
    """
    database: Path
    database, source = _Layers(None, environ, directory).resolve(_BY_NAME["database"])
    return database, source


def settings_file(config: Path | None = None) -> Path | None:
    """Return the file that `load` reads, or None."""
    return _file(config, os.environ, _here(None))


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[tuple[str, str | None]]:
    """Variables that look like settings and are none, each with the nearest that is one, if any."""
    known = [_FILE_VARIABLE]
    for key in KEYS:
        if key.variable is not None:
            known += [key.variable, f"{key.variable}_FILE"] if key.secret else [key.variable]
    given = os.environ if environ is None else environ
    return [
        (name, next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), None))
        for name in given
        if name.startswith("NFTSYNC_") and name not in known
    ]


def require_base_url(settings: Settings) -> str:
    """Return the base URL, or raise a SettingsError that says how to set it."""
    if settings.base_url is None:
        ways = f"--base-url, NFTSYNC_BASE_URL or base_url in {_FILE_NAME}"
        raise SettingsError(f"no base_url: set it with {ways}")
    return settings.base_url


def _file(config: Path | None, environ: Mapping[str, str], here: Path) -> Path | None:
    """Find the settings file: the one that is named, else the nearest from a directory upwards."""
    named = config or environ.get(_FILE_VARIABLE, "").strip()
    if named:
        return here / named
    for folder in (here, *here.parents):
        try:
            if (folder / _FILE_NAME).is_file():
                return folder / _FILE_NAME
        except OSError:  # a directory that may not be looked into
            continue
    return None


def _here(directory: Path | None) -> Path:
    try:
        return Path(directory or ".").resolve()
    except OSError as error:
        raise SettingsError(f"cannot tell the working directory: {error.strerror}") from None
