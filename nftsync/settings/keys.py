"""Every setting, and how a value that was given for it is checked and read, whoever gave it.

A reader takes a `Given` and returns the value, or raises a FormError that says what the value
must be. Which key it belongs to, and whether the value may be shown, is the caller's to know.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from nftsync.errors import InputError, SettingsError
from nftsync.provider.routes import Paging, Route, RouteKind, merged
from nftsync.records import normalize_uuid
from nftsync.text import header_problem, http_url, toml_key
from nftsync.times import parse_duration

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


Reader: TypeAlias = Callable[[Given], Any]


class Key(NamedTuple):
    """One setting.

    Attributes:
        name: in the file and in Settings.
        read: checks and reads a value.
        help: what it is, for the docs.
        default: in the form of the file; None: none.
        flag: on the command line, or None.
        in_environment: whether a variable can give it.
        secret: never shown; a file named in the variable with `_FILE` behind can also give it.
    """

    name: str
    read: Reader
    help: str
    default: Any = None
    flag: str | None = None
    in_environment: bool = True
    secret: bool = False

    @property
    def variable(self) -> str | None:
        """The environment variable, or None."""
        return f"NFTSYNC_{self.name.upper()}" if self.in_environment else None


def against(problem: str, value: object) -> str:
    """Put the value that was given behind what it must be, in one short line."""
    if isinstance(value, dict | list):
        shown = "a table" if isinstance(value, dict) else "a list"
    elif isinstance(value, bool):
        shown = str(value).lower()
    else:
        shown = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return f"{problem}, not {shown if len(shown) <= 80 else shown[:77] + '...'}"


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
        merged(read)
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
            raise FormError(against(str(error), value), key=f"{name}.{key}", show=False) from None
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

#: Every setting, in the order of the documentation.
KEYS = (
    Key(
        "base_url",
        _base_url,
        "The provider's base address, such as `https://api.example.com`; a path may follow",
        flag="--base-url",
    ),
    Key("database", _path, "The SQLite file", "data/nftsync.db", flag="--database"),
    Key("api_token", _token, "Sent as `Authorization: Bearer …`", secret=True),
    Key("token_command", _text, "Command whose standard output is the token"),
    Key(
        "headers", _headers, "Headers of every API request, to sign in another way", {}, secret=True
    ),
    Key("webhook_secret", _secret, "Signs webhooks; `serve` needs it", secret=True),
    Key(
        "webhook_secret_previous",
        _secret_or_none,
        "The former secret, accepted during a rotation",
        secret=True,
    ),
    Key("organization_id", _UUID, "Webhooks for any other organization are quarantined"),
    Key("concurrency", _CONCURRENCY, "Requests at once, 1 to 512", 16, flag="--concurrency"),
    Key("timeout", _POSITIVE, "Seconds for one attempt as a whole", 30, flag="--timeout"),
    Key("retries", _ATTEMPTS, "Attempts per request, the first included", 5, flag="--retries"),
    Key("rate_limit", _POSITIVE, "Requests per second at most", flag="--rate-limit"),
    Key("proxy", _secret, "The proxy's URL: `http://`, `https://` or `socks5://`", secret=True),
    Key("ca_file", _path, "The only certificates to trust, in PEM form"),
    Key("client_certificate", _path, "Certificate for the provider, in PEM form"),
    Key("client_key", _path, "Private key of the certificate, if it is in another file"),
    Key("wallets_file", _path_or_stdin, "Wallets to sync; `-` is stdin", flag="--wallets-file"),
    Key(
        "ignore_fields",
        _NAMES,
        "Top-level fields and headers of a balances response without a meaning for nftsync",
        [],
        in_environment=False,
    ),
    Key("collections_file", _path, "CSV of collection names"),
    Key("removal_limit", _SHARE, "Share of holdings that may be removed within 24 hours", 0.5),
    Key(
        "removal_rows",
        _COUNT,
        "Fewer removed balances than this are never held for review, if of fewer than 20 wallets",
        100,
    ),
    Key("ipfs_gateway", _gateway, "Where galleries load `ipfs://` images", "https://ipfs.io/ipfs/"),
    Key(
        "routes",
        _routes,
        "Tables `[routes.TYPE]`: what to read after a webhook",
        {},
        in_environment=False,
    ),
    Key("paging", _paging, "Table `[paging]`: how the provider pages", in_environment=False),
)
