"""The settings: the one place where flags, environment and `nftsync.toml` are read.

A value comes from the first that gives it: command-line flag, environment, file, default. Nothing
is read at import. What is wrong is a SettingsError of one line that names the key, its variable
and where the value came from; neither it nor its cause or context holds a secret's value.

A variable that is set but blank counts as unset, except a secret's: that means "none", and wins
over the file. A blank `webhook_secret` stays as it is, so that `serve` can refuse to start.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nftsync.errors import SettingsError
from nftsync.provider.routes import Paging, Route
from nftsync.settings.keys import KEYS, FormError, Given, Key, against, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping


_FILE_NAME = "nftsync.toml"

_TOML_REASON = re.compile(r"(?:Expected '=' )?[A-Za-z /-]+")
_TOML_PLACE = re.compile(r"line \d+, column \d+")


def _nearest_file(here: Path) -> Path | None:
    """Find the settings file in a directory or above it."""
    for folder in (here, *here.parents):
        try:
            if (folder / _FILE_NAME).is_file():
                return folder / _FILE_NAME
        except OSError:  # a directory that may not be looked into
            continue
    return None


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


#: Names the file, as --config does, for programs that take no flags, such as notebooks.
_FILE_VARIABLE = "NFTSYNC_CONFIG"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, checked. Its repr shows no secret.

    Attributes:
        base_url: without a slash at its end.
        database: absolute.
        api_token: never blank.
        token_command: a command line, as it was given.
        headers: sent on every API request; empty when none are set.
        webhook_secret: None when not set; blank when it was set to nothing, which `serve` refuses.
        webhook_secret_previous: never blank.
        organization_id: lower case.
        concurrency: requests at once.
        timeout: seconds.
        retries: attempts per request, the first included.
        rate_limit: requests per second; None: no limit.
        proxy: a proxy's URL; None: the environment's; blank: none.
        ca_file: absolute; None: what the system trusts.
        client_certificate: absolute.
        client_key: absolute; None: the same file holds it.
        wallets_file: absolute; `"-"` is stdin.
        ignore_fields: known extra top-level fields of a balances response.
        collections_file: absolute; what collections are called.
        removal_limit: share of what was held that may vanish within 24 hours, from 0 to 1.
        removal_rows: so many balances of a few wallets always may.
        ipfs_gateway: with a slash at its end.
        routes: webhook type to route, only what the file says.
        paging: None: the provider sends no pages.
        sources: for each key where its value came from: `flag --base-url`,
            `environment NFTSYNC_BASE_URL`, `file /abs/nftsync.toml` or `default`.
    """

    base_url: str | None
    database: Path
    api_token: str | None = field(repr=False)
    token_command: str | None = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    webhook_secret: str | None = field(repr=False)
    webhook_secret_previous: str | None = field(repr=False)
    organization_id: str | None
    concurrency: int
    timeout: float
    retries: int
    rate_limit: float | None
    proxy: str | None = field(repr=False)
    ca_file: Path | None
    client_certificate: Path | None
    client_key: Path | None
    wallets_file: Path | Literal["-"] | None
    ignore_fields: list[str]
    collections_file: Path | None
    removal_limit: float
    removal_rows: int
    ipfs_gateway: str
    routes: dict[str, Route]
    paging: Paging | None
    sources: dict[str, str]


_BY_NAME = {key.name: key for key in KEYS}


class _Layers:
    """Where values come from, first the strongest."""

    def __init__(
        self,
        flags: Mapping[str, object] | None,
        environ: Mapping[str, str],
        file: Path | None,
        here: Path,
    ) -> None:
        self.flags = {name: value for name, value in (flags or {}).items() if value is not None}
        for name in self.flags:
            if name not in _BY_NAME or _BY_NAME[name].flag is None:
                raise TypeError(f"{name!r} is no setting that has a flag")
        self.environ = environ
        self.file = file
        self.here = here
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
                problem = against(problem, given.value)
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
        directory: what relative paths outside the file are relative to; without it the
            working directory.

    Raises:
        SettingsError: a setting is of the wrong form, or the file cannot be read.
        TypeError: `flags` names something that has no flag.
    """
    return _layers(flags, config, environ, directory).settings()


def isolated(
    flags: Mapping[str, object] | None = None, *, directory: Path | None = None
) -> Settings:
    """Return the defaults, and what flags say; neither environment nor file is read."""
    return _Layers(flags, {}, None, _here(directory)).settings()


def database_and_source(
    *, environ: Mapping[str, str] | None = None, directory: Path | None = None
) -> tuple[Path, str]:
    """Return the database's path and source alone; what is wrong with other settings is no matter.

    Raises:
        SettingsError: `database` is of the wrong form, or the file cannot be read.
    """
    database: Path
    database, source = _layers(None, None, environ, directory).resolve(_BY_NAME["database"])
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


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """List every key with its value as text and its source; of secrets, only whether they are set.

    A secret is `set`, `not set`, or `blank`; of the headers, the names are listed too.
    """
    return [
        (key.name, _shown(key, getattr(settings, key.name)), settings.sources[key.name])
        for key in KEYS
    ]


def _shown(key: Key, value: Any) -> str:
    if value is None or value in ({}, []):
        return "not set"
    if isinstance(value, str) and not value.strip():
        return "blank"
    if key.name == "token_command":
        return _command_shown(value)
    if key.secret:
        return f"set ({', '.join(value)})" if isinstance(value, dict) else "set"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_entries(entry)}" for name, entry in value.items())
    if isinstance(value, Paging):
        return _entries(value)
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _command_shown(command: str) -> str:
    """Which program a command runs; there may be a secret among its arguments."""
    try:
        program, *arguments = shlex.split(command)
    except ValueError:
        return "set"
    return f"{program} …; {len(arguments)} arguments, not shown" if arguments else program


def _entries(table: Route | Paging) -> str:
    entries = {name: getattr(table, name) for name in table.__struct_fields__}
    return " ".join(f"{name}={value}" for name, value in entries.items() if value)


def _layers(
    flags: Mapping[str, object] | None,
    config: Path | None,
    environ: Mapping[str, str] | None,
    directory: Path | None,
) -> _Layers:
    here = _here(directory)
    given = os.environ if environ is None else environ
    return _Layers(flags, given, _file(config, given, here), here)


def _file(config: Path | None, environ: Mapping[str, str], here: Path) -> Path | None:
    if config is not None:
        return here / config
    named = environ.get(_FILE_VARIABLE, "").strip()
    return here / named if named else _nearest_file(here)


def _here(directory: Path | None) -> Path:
    try:
        return Path(directory or ".").resolve()
    except OSError as error:
        raise SettingsError(f"cannot tell the working directory: {error.strerror}") from None
