import json
import re
from datetime import time, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nftsync.alerts import Forward, Quiet, WatchRule
from nftsync.cli.check import describe
from nftsync.errors import SettingsError
from nftsync.settings import (
    KEYS,
    Paging,
    Route,
    alerts,
    database_and_source,
    load,
    unknown_variables,
)
from tests.kit.errors import everything_said

UUID = "ABCDEF01-2345-6789-abcd-ef0123456789"
SECRETS = [key.name for key in KEYS if key.secret]
VARIABLES = [key for key in KEYS if key.variable is not None]
PATHS = ("ca_file", "client_certificate", "client_key", "collections_file", "hidden_file")
#: The text of a variable, in which `{}` is a number, and the reader of its value.
SAMPLES = {
    **dict.fromkeys(("database", "wallets_file", *PATHS), ("/d/{}.x", Path)),
    **dict.fromkeys(("concurrency", "retries", "removal_rows"), ("1{}", int)),
    **dict.fromkeys(("timeout", "rate_limit"), ("{}.5", float)),
    **dict.fromkeys(("webhook_secret", "webhook_secret_previous", "proxy"), (" x {} ", str)),
    "removal_limit": ("0.{}5", float),
    "base_url": ("HTTPS://h{}.example/", lambda text: text.lower()[:-1]),
    "headers": ('{{"X-Key": "v{}"}}', json.loads),
    "organization_id": (UUID[:-1] + "{}", str.lower),
    "ipfs_gateway": ("https://g{}/ipfs", "{}/".format),
    "api_token": (" t{} ", str.strip),
    "ping_url": (" https://m{}.example/x?y=z ", str.strip),
}


def sample(name: str, layer: int) -> tuple[str, object]:
    """Return a text for a variable or flag and its value, different for each layer."""
    text, read = SAMPLES.get(name, (" x {} ", str.strip))
    return text.format(layer), read(text.format(layer))


def in_file(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = "{v}"' for k, v in value.items()) + "}"
    return str(value) if isinstance(value, int | float) else f'"{value}"'


def toml(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "nftsync.toml"
    file.write_text(text, encoding="utf-8")
    return file


def load_in(directory: Path, flags: dict | None = None, **environ: str):
    return load(flags, environ=environ, directory=directory)


def open_destinations(read, environ: dict[str, str]):
    return alerts.open_destination_settings(read.destinations, read.watch, read.forward, environ)


def assert_fails(
    directory: Path, message: str, flags: dict | None = None, config: Path | None = None, **environ
) -> None:
    """Compare the message of an error; `…` is any text of its line."""
    with pytest.raises(SettingsError) as caught:
        open_destinations(load(flags, config=config, environ=environ, directory=directory), environ)
    pattern = ".*".join(map(re.escape, message.split("…")))
    assert re.fullmatch(pattern, str(caught.value)), str(caught.value)
    assert "hush" not in everything_said(caught.value)


def test_flag_before_environment_before_file_before_default(tmp_path):
    """A blank variable counts as unset; a blank secret is none, but one that signs stays blank."""
    default = load_in(tmp_path)
    assert set(default.sources.values()) == {"default"}
    names = [key.name for key in VARIABLES]
    expected, sources = (dict(vars(default)) for _ in range(2))
    plain = [key.variable for key in VARIABLES if not key.secret]

    def assert_read(flags, **environ):
        read = load_in(tmp_path, flags, **environ)
        assert {name: getattr(read, name) for name in names} == {n: expected[n] for n in names}
        assert {name: read.sources[name] for name in names} == {n: sources[n] for n in names}
        return read

    file = toml(tmp_path, "\n".join(f"{n} = {in_file(sample(n, 0)[1])}" for n in names))
    expected |= {name: sample(name, 0)[1] for name in names}
    sources |= dict.fromkeys(names, f"file {file}")
    assert_read({})
    for blank in ("", " \n"):
        assert_read({}, **dict.fromkeys(plain, blank))
        read = load_in(tmp_path, **{f"NFTSYNC_{name.upper()}": blank for name in SECRETS})
        assert (read.api_token, read.headers, read.webhook_secret_previous) == (None, {}, None)
        assert (read.webhook_secret, read.proxy) == (blank, blank)
        assert all(read.sources[name].startswith("environment ") for name in SECRETS)
        shown = {row["setting"]: row["value"] for row in describe(read)}
        all_shown = ["not set", "not set", "blank", "not set", "blank", "not set"]
        assert [shown[name] for name in SECRETS] == all_shown
    environ = {key.variable: sample(key.name, 1)[0] for key in VARIABLES}
    expected |= {name: sample(name, 1)[1] for name in names}
    sources |= {key.name: f"environment {key.variable}" for key in VARIABLES}
    assert_read({}, **environ)
    flagged = [key for key in VARIABLES if key.flag is not None]
    assert_read(dict.fromkeys(key.name for key in flagged), **environ)
    expected |= {key.name: sample(key.name, 2)[1] for key in flagged}
    sources |= {key.name: f"flag {key.flag}" for key in flagged}
    for part in (0, 1):  # a flag's text, or its value
        assert_read({key.name: sample(key.name, 2)[part] for key in flagged}, **environ)


def test_the_database_is_found_by_variable_and_working_directory(tmp_path, monkeypatch):
    file = toml(tmp_path, "retries = 2\ndatabase = 'x.db'")
    monkeypatch.setenv("NFTSYNC_CONCURRENCY", "7")
    read = load()
    assert (read.concurrency, read.retries) == (7, 2)
    monkeypatch.setenv("NFTSYNC_CONCURRENCY", "x")
    assert database_and_source() == (tmp_path / "x.db", f"file {file}")
    monkeypatch.setenv("NFTSYNC_DATABASE", "e.db")
    assert database_and_source()[0] == tmp_path / "e.db"


def test_the_nearest_file_upwards_is_read_alone_or_the_one_that_is_named(tmp_path):
    deep = tmp_path / "a" / "b"
    toml(tmp_path, "retries = 2\nconcurrency = 2")
    near = toml(tmp_path / "a", "retries = 3")
    (deep / "nftsync.toml").mkdir(parents=True)  # ignored: a directory
    read = load_in(deep)
    assert (read.retries, read.concurrency, read.sources["retries"]) == (3, 16, f"file {near}")
    other = toml(tmp_path / "etc", "retries = 4\ndatabase = 'x.db'").rename(tmp_path / "other.toml")
    for config in (other, Path("other.toml")):
        read = load(config=config, environ={}, directory=tmp_path)
        assert (read.retries, read.database) == (4, tmp_path / "x.db")
        assert read.sources["retries"] == f"file {other}"


def test_paths_are_relative_to_who_names_them_and_home_is_a_tilde(tmp_path, monkeypatch):
    below = tmp_path / "below"
    toml(tmp_path, "database = 'data/x.db'\nwallets_file = 'w.txt'")
    below.mkdir()
    read = load_in(below)
    assert (read.database, read.wallets_file) == (tmp_path / "data" / "x.db", tmp_path / "w.txt")
    read = load_in(below, {"database": Path("y.db")}, NFTSYNC_WALLETS_FILE="v.txt")
    assert (read.database, read.wallets_file) == (below / "y.db", below / "v.txt")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    toml(below, "database = '~/n.db'\nwallets_file = '~n'")
    read = load_in(below)
    assert (read.database, read.wallets_file) == (tmp_path / "home" / "n.db", below / "~n")
    for given_path in ("-", Path("-")):
        assert load_in(tmp_path, {"wallets_file": given_path}).wallets_file == "-"


def test_a_base_url_has_no_slash_at_its_end(tmp_path):
    for url, read in (
        ("https://api.example.com/", "https://api.example.com"),
        ("HTTP://localhost:8788", "http://localhost:8788"),
        ("https://h.example/prefix/x//", "https://h.example/prefix/x"),
        (" http://[::1]:80/ ", "http://[::1]:80"),
        ("https://bücher.example", "https://bücher.example"),
    ):
        assert load_in(tmp_path, {"base_url": url}).base_url == read


NO_URL = "must be a URL such as https://api.example.com"
NO_LINE = "must be one line of printable ASCII"
NO_HEADERS = "must be a JSON object of header names and text values"
HEADER = "headers (NFTSYNC_HEADERS) entry"
#: By key: the problem, and values with it; messages show the values without `hush`.
BAD_VALUES = {
    "base_url": {
        NO_URL: [
            *("localhost:8000", "ftp://h", "http://", "http:///x", "http://a b", "http://h\\x"),
            *("http://h\nx", "http://h:99999", "http://h:port", "http://h:0", "http://[::1"),
            "http://a,b",
        ],
        "must not contain a user name or password; use api_token or headers": [
            *("http://me:hush@h", "http:hush@h"),
        ],
        "must not have a query or fragment; remove everything from the ? or # on, and put an API "
        "key in `headers`": ["http://h?hush", "http://h#hush"],
    },
    "ipfs_gateway": {
        "must not contain a user name or password": ["http://me:hush@h", "http:hush@h"],
        "must not have a query or fragment; remove everything from the ? or # on": [
            *("http://h?hush", "http://h#hush"),
        ],
    },
    "database": {"must be non-blank text": ["a\0b"]},
    "organization_id": {"must be a UUID of 8-4-4-4-12 hex digits": ["abc"]},
    "concurrency": {
        "must be a whole number from 1 to 512": ["abc", "0", "513", "1_6", "1.5"],
    },
    "timeout": {"must be a number above 0": ["x", "0", "-1", "inf", "nan", "1e999"]},
    "retries": {"must be a whole number of at least 1": ["x", "0"]},
    "api_token": {
        "must be printable ASCII without spaces": [
            *("a hush", "a\nhush", "hüsh hush", "hush\x7f", "hush\0"),
        ],
        "must be UTF-8 text": ["hush\udc80"],
    },
    "headers": {
        NO_HEADERS: [
            "hush",
            '["hush"]',
            '{"hush": 1}',
            '{"X": "\udc80hush"}',
            "hush" + "[" * 9_999,
        ],
        "entry 2 has an invalid HTTP header name": ['{"A": "", "X hush": "1"}'],
        "entry 1 has an invalid HTTP header name": ['{"": "hush"}'],
        "must not repeat a header": ['{"X": "hush", "x": ""}'],
    },
    "headers.X": {NO_LINE: ['{"X": "hush\\r\\nY: 1"}', '{"X": "hush\\n"}', '{"X": "hüsh hush"}']},
}


@pytest.mark.parametrize("key", BAD_VALUES)
def test_a_bad_value_is_shown_with_its_variable_and_a_secret_is_not(tmp_path, key):
    variable = f"NFTSYNC_{key.partition('.')[0].upper()}"
    for problem, texts in BAD_VALUES[key].items():
        for text in texts:
            shown = "" if "hush" in text else f", not {text!r}"
            message = f"{key} ({variable}) {problem}{shown} (from environment {variable})"
            assert_fails(tmp_path, message, **{variable: text})
    assert_fails(tmp_path, "retries (NFTSYNC_RETRIES) … (from flag --retries)", {"retries": "0"})


WEBHOOK = "[destinations.ops]\nkind = 'webhook'\nurl = 'https://x.example/?key=hush'\n"
COMMAND = "[destinations.ops]\nkind = 'command'\ncommand = "
OBJECT_PATH = "/v1/transactions/{resourceId}"
A, TOKEN = "[routes.A]\n", "[routes.Token]\n"
TOO_MUCH = "cannot parse FILE: it is not UTF-8, or a value is too long or nested too deeply"
#: Contents of the file, and what follows in the message; `FILE` is its path.
BAD_FILES = {
    'concurrency = "16"': "concurrency (NFTSYNC_CONCURRENCY) must be a whole number…, not '16' (…",
    "concurrency = true": "concurrency (NFTSYNC_CONCURRENCY) must be a whole number…, not true (…",
    "database = ['x']": "database (NFTSYNC_DATABASE) must be text, not a list (from file FILE)",
    "ignore_fields = 'x'": "ignore_fields must be a list of field names, not 'x' (from file FILE)",
    "headers = 'hush'": "headers (NFTSYNC_HEADERS) must be a table of header… (from file FILE)",
    "api_token = 5": "api_token (NFTSYNC_API_TOKEN) must be text (from file FILE)",
    "paging = 1": "paging must be a table, not 1 (from file FILE)",
    "[paging]": "paging must have next and param (from file FILE)",
    "[paging]\nnext='c'\nparam=''": "paging.param must be non-blank text, not '' (from file FILE)",
    # Routes
    "routes.Token = 1": "routes.Token must be a table, not 1 (from file FILE)",
    "routes = 1": "routes must be tables [routes.TYPE], not 1 (from file FILE)",
    A + "kind='x'": "routes.A.kind must be token, wallet, object or sync, not 'x' (from file FILE)",
    A + "holders=1": "routes.A.holders must be true or false, not 1 (from file FILE)",
    A + "tokens=['a..b']": "routes.A.tokens must be a list of field names…, not a list (from …",
    A + "at_most_every='x'": "routes.A.at_most_every must be a duration…, not 'x' (from file FILE)",
    A + "path='//h/x'": "routes.A.path must be a path such as …, not '//h/x' (from file FILE)",
    A: 'routes.A has no kind; write kind = "token"… (from file FILE)',
    A + f"path = '{OBJECT_PATH}'": "routes.A has no kind; write kind =… (from file FILE)",
    "[routes.'*']": 'routes."*" has no kind… (from file FILE)',
    A + "kind = 'object'": 'routes.A.path is required for kind = "object"…{resourceId}…',
    A
    + "kind = 'object'\npath = '/v1/a'": "routes.A.path is required…{resourceId}… (from file FILE)",
    TOKEN + "kind = 'object'": "routes.Token.path is required… (from file FILE)",
    A + f"kind = 'token'\npath = '{OBJECT_PATH}'": 'routes.A.path of kind…kind = "object"… (from …',
    TOKEN + f"path = '{OBJECT_PATH}'": "routes.Token.path of kind…remove path… (from file FILE)",
    A + f"kind = 'sync'\npath = '{OBJECT_PATH}'": "routes.A.path is not allowed…remove path… (…",
    "[routes.Wallet]\nholders = true": 'routes.Wallet.holders is not allowed…"wallet"…token… (…',
    TOKEN + "wallets = ['a']": 'routes.Token.wallets is not allowed with kind = "token"…object… (…',
    A + "kind = 'sync'\nwallets = ['a']": 'routes.A.wallets is not allowed with…only "object"… (…',
    TOKEN + "at_most_every = '9s'": 'routes.Token.at_most_every is not allowed…only "sync"… (…',
    "[routes.'*']\nkind = 'token'": 'routes."*" cannot have kind = "token"…"object" or "sync"… (…',
    # Unknown keys
    "base-url = 'x'": "unknown key 'base-url' in FILE; did you mean 'base_url'?",
    "TIMEOUT = 1": "unknown key 'TIMEOUT' in FILE; did you mean 'timeout'?",
    "[route.Token]": "unknown key 'route' in FILE; did you mean 'routes'?",
    "[paging]\nnxt = 'x'": "unknown key 'nxt' in [paging] of file FILE; did you mean 'next'?",
    "[paging]\ncolor = 'x'": "unknown key 'color' in [paging] of file FILE; known keys: next, …",
    # Unreadable files
    "retries = 2\nx y": "FILE is not valid TOML: line 2, column 3: Expected '=' after a key in a …",
    "retries = 2\nretries = 3": "FILE is not valid TOML: line 2, at the end: Cannot overwrite a …",
    "retries = [": "FILE is not valid TOML: line 1, at the end: Invalid value",
    "retries = 2\n[a]\n[a]": "FILE is not valid TOML: line 3, column 3…",
    b"# \xff": TOO_MUCH,
    "retries = " + "9" * 5000: TOO_MUCH,
    "retries = " + "[" * 50_000: TOO_MUCH,
    # Secrets of destinations, perhaps at a wrong place
    WEBHOOK + "secret = 'hush'": "unknown key 'secret' in …",
    WEBHOOK.replace("'https", "'ftp") + "secret_file = 's1'": "the url of …is not an http(s) URL",
    WEBHOOK.replace("'https", "'\\u0000https").replace(
        "'", '"'
    ): "…ops.url must be non-blank text…",
    WEBHOOK + "secret_file = 'lacking'": "destinations.ops.secret_file: cannot read …",
    WEBHOOK + "secret_file = ['s1', 's2', 's1']": "…must be one file, or two during a rotation…",
    WEBHOOK: "destinations.ops has no secret: set secret_file, or the variable …",
    WEBHOOK + "url_file = 's1'": "…only one of url and url_file…",
    WEBHOOK + "password_file = 's1'": '…must not have password_file with kind = "webhook"…',
    "[destinations.ops]\nkind = 'slack'\nurl = 'https://hush'": "…must not have url with kind…",
    COMMAND + "'run hush'": "…must be a list of strings…",
    COMMAND + "['hush', 7]": "…must be a list of strings…",
    COMMAND + "[]": "…must be a list of strings…",
    "[destinations.ops]\ncommand = ['hush']": "…must have kind = 'webhook', 'slack'…",
    "[destinations.a-b]\nkind = 'slack'\n[destinations.A_b]\nkind = 'slack'": "…only in case…",
}


@pytest.mark.parametrize("text", BAD_FILES, ids=lambda text: str(text)[:60])
def test_a_bad_file_is_refused_with_the_place(tmp_path, text):
    for name in ("s1", "s2"):
        (tmp_path / name).write_text("hush\n")
    file = tmp_path / "nftsync.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    variable = "NFTSYNC_DESTINATIONS_A_B_URL"  # of two destinations
    message = BAD_FILES[text].replace("FILE", str(file))
    assert_fails(tmp_path, message, **{variable: "https://x.example/hush"})


def test_a_file_that_cannot_be_opened_is_named_and_one_of_windows_is_read(tmp_path):
    for config, why in ((tmp_path / "no.toml", "No such file"), (tmp_path, "Is a directory")):
        message = f"cannot read the settings file {config}: {why}…"
        assert_fails(tmp_path, message, config=config)
    (tmp_path / "nftsync.toml").write_bytes(b"\xef\xbb\xbfretries = 2\r\nconcurrency = 3\r\n")
    assert load_in(tmp_path).concurrency == 3


def test_routes_paging_rules_and_forwards_are_tables(tmp_path):
    toml(
        tmp_path,
        """
        ignore_fields = ["total"]
        routes.Transaction = { path = "/v1/x/{resourceId}", kind = "object", wallets = ["to.id"] }
        routes."*" = { kind = "sync", at_most_every = "15m" }
        paging = { next = "nextCursor", param = "cursor" }
        [watch.treasury]
        on = ["sent", "wallet_stale"]
        to = ["ops"]
        groups = ["house"]
        collections = ["Ocean"]
        contracts = ["KT1"]
        min_amount = "340282366920938463463374607431768211456"
        digest = "5m"
        quiet = "22:00-07:00 Europe/Berlin"
        repeat = "6h"
        max_age = "2d"
        hidden = true
        [forward.warehouse]
        to = ["ops"]
        types = ["nft"]
        """,
    )
    read = load_in(tmp_path)
    assert read.ignore_fields == ["total"]
    assert read.paging == Paging(next="nextCursor", param="cursor")
    assert read.routes == {
        "Transaction": Route(path="/v1/x/{resourceId}", kind="object", wallets=["to.id"]),
        "*": Route(kind="sync", at_most_every=timedelta(minutes=15)),
    }
    shown = {row["setting"]: row["value"] for row in describe(read)}
    assert shown["paging"] == "next=nextCursor param=cursor"
    assert shown["routes"].endswith("*: kind=sync at_most_every=0:15:00")
    assert read.watch["treasury"] == WatchRule(
        name="treasury",
        on=["sent", "wallet_stale"],
        to=["ops"],
        groups=["house"],
        collections=["Ocean"],
        contracts=["KT1"],
        min_amount=2**128,
        digest=timedelta(minutes=5),
        quiet=Quiet(time(22), time(7), "Europe/Berlin"),
        repeat=timedelta(hours=6),
        max_age=timedelta(days=2),
        hidden=True,
    )
    assert read.forward["warehouse"] == Forward(name="warehouse", to=["ops"], types=["nft"])


def test_secrets_of_destinations_are_read_and_not_shown(tmp_path, monkeypatch):
    for name, text in (("s1", "\ufeffhush1\r\n\r\n"), ("s2", " hush2 \n")):
        (tmp_path / name).write_text(text, "utf-8", newline="")
    toml(
        tmp_path,
        WEBHOOK
        + """secret_file = ["s1", "s2"]
        allow_private = true
        [destinations.Other-one]
        kind = "webhook"
        url_file = "s1"
        [destinations.mail]
        kind = "email"
        server = "smtp.example.com"
        from = "a@example.com"
        recipients = ["b@example.com"]
        password_file = "s2"
        """,
    )
    read = load_in(tmp_path)
    other = {
        "NFTSYNC_DESTINATIONS_OTHER_ONE_URL": "https://y.example",
        "NFTSYNC_DESTINATIONS_OTHER_ONE_SECRET": "new old",
    }
    destinations = open_destinations(read, other)
    assert "hush" not in repr(read) + str(describe(read)) + repr(destinations)
    assert "hush" not in destinations["ops"].shown
    assert {name: one.secrets for name, one in destinations.items()} == {
        "ops": ("hush1", "hush2"),
        "Other-one": ("new", "old"),
        "mail": (),
    }
    assert destinations["Other-one"].url == "https://y.example"
    mail = destinations["mail"]
    assert (mail.sender, mail.recipients, mail.password, mail.port, mail.security) == (
        *("a@example.com", ("b@example.com",), "hush2"),
        *(587, "starttls"),
    )
    ours = {"NFTSYNC_DESTINATIONS_OPS_SECRET": "s3", "NFTSYNC_DESTINATIONS_MAIL_PASSWORD": " "}
    destinations = open_destinations(read, {**other, **ours})
    assert (destinations["ops"].secrets, destinations["mail"].password) == (("s3",), "hush2")
    spaced = {"NFTSYNC_DESTINATIONS_MAIL_PASSWORD": "abcd efgh  ijkl\n"}  # as Google shows it
    assert open_destinations(read, {**other, **spaced})["mail"].password == "abcd efgh  ijkl"
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    assert unknown_variables() == []


def stripped(value):
    return value.strip() if isinstance(value, str) else value


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_and_nothing_else_comes_from_a_file(tmp_path, name):
    environ = {"NFTSYNC_RETRIES_FILE": "none", "NFTSYNC_TOKEN_COMMAND_FILE": "none"}
    assert load_in(tmp_path, **environ) == load_in(tmp_path)
    text, value = sample(name, 0)
    (tmp_path / "secret").write_bytes(text.encode() + b"\n")
    toml(tmp_path, f"{name} = {in_file(sample(name, 1)[1])}")
    variable = f"NFTSYNC_{name.upper()}_FILE"
    for path in ("secret", str(tmp_path / "secret")):
        read = load_in(tmp_path, **{variable: path})
        assert getattr(read, name) == stripped(value)
        assert read.sources[name] == f"environment {variable}"
    assert getattr(load_in(tmp_path, **{variable: ""}), name) == sample(name, 1)[1]
    (tmp_path / "bytes").write_bytes(b"hush\xffhush")
    for path, why in (
        ("none", "No such file or directory"),
        (".", "Is a directory"),
        ("bytes", "it is not UTF-8 text"),
    ):
        message = f"{name} ({variable}): cannot read {tmp_path / path}: {why}"
        assert_fails(tmp_path, message, **{variable: path})
    plain = variable.removesuffix("_FILE")
    both = f"{name}: both {plain} and {variable} are set; unset one of them"
    for given_secret in ("hush", ""):
        assert_fails(tmp_path, both, **{plain: given_secret, variable: "hush"})


#: What editors, shells and spreadsheets write around a text; PowerShell writes UTF-16.
AROUND = [
    *("{}", "{}\n", "{}\r\n", "{}\n\n", "{}\r\n\r\n", "{}\r", " {} \n", "\t{}\x0b\x0c\n\n "),
    *("\ufeff{}\r\n", "\ufeff \n{} \r\n", "\u00a0{}\u2028"),
]
FORMS = [*((form, "utf-8") for form in AROUND), ("{}\r\n", "utf-16"), ("\ufeff{}\n", "utf-16-be")]


@pytest.mark.parametrize("name", SECRETS)
def test_marks_and_white_space_around_a_secret_in_a_file_do_not_belong_to_it(tmp_path, name):
    text, value = sample(name, 0)
    for form, encoding in FORMS:
        (tmp_path / "secret").write_text(form.format(text), encoding, newline="")
        read = load_in(tmp_path, **{f"NFTSYNC_{name.upper()}_FILE": "secret"})
        assert getattr(read, name) == stripped(value)


def test_white_space_inside_a_secret_belongs_to_it(tmp_path):
    for stored in ("a b", "ß\0", "a\nb", "a\u200b", ""):
        (tmp_path / "s").write_text(f"{stored}\n", "utf-8")
        read = load_in(tmp_path, NFTSYNC_WEBHOOK_SECRET_FILE="s")
        assert read.webhook_secret == stored
    assert load_in(tmp_path, NFTSYNC_WEBHOOK_SECRET=" a ").webhook_secret == " a "


def test_describe_shows_paths_sources_and_no_secret(tmp_path):
    toml(tmp_path, f"organization_id = '{UUID}'\n[headers]\nX-Key = 'hush'\nX-Org = 'hush'")
    environ = {"NFTSYNC_API_TOKEN": "hush", "NFTSYNC_TOKEN_COMMAND": "pass show x"}
    read = load_in(tmp_path, {"rate_limit": 2, "wallets_file": "-"}, **environ)
    rows = describe(read)
    assert [row["setting"] for row in rows] == [key.name for key in KEYS]
    assert {row["setting"]: row["source"] for row in rows} == read.sources
    assert {row["setting"]: row["value"] for row in rows if row["value"] != "not set"} == {
        "database": str(tmp_path / "data" / "nftsync.db"),
        "api_token": "set",
        "token_command": "pass …; 2 arguments, not shown",
        "headers": "set (X-Key, X-Org)",
        "organization_id": UUID.lower(),
        "concurrency": "16",
        "timeout": "30",
        "retries": "5",
        "rate_limit": "2",
        "wallets_file": "-",
        "removal_limit": "0.5",
        "removal_rows": "100",
        "ipfs_gateway": "https://ipfs.io/ipfs/",
    }
    assert "hush" not in str(rows) + repr(read)


# A mark that no message of ours can hold, within a text of any kind.
hostile = st.tuples(st.text(max_size=20), st.text(max_size=20)).map("hUsH4".join)
forms = st.sampled_from(['"{}"', "'{}'", "{}", '"{}', "['{}']", "{{ 'X' = '{}' }}", "'''{}'"])


@hypothesis_settings(max_examples=150)
@given(secret=hostile, name=st.sampled_from(SECRETS), form=forms, rest=st.binary(max_size=3))
def test_no_secret_is_ever_shown(tmp_path, secret, name, form, rest):
    (tmp_path / "secret").write_bytes(secret.encode() + rest)
    config = tmp_path / "any.toml"
    line = form.format(secret.replace("\n", ""))
    config.write_bytes(f"{name} = {line}".encode() + rest)
    variable = f"NFTSYNC_{name.upper()}"
    for file, environ in (
        (None, {variable: secret}),
        (None, {variable: json.dumps({"X": secret}, ensure_ascii=False)}),
        (None, {f"{variable}_FILE": "secret"}),
        (config, {}),
    ):
        try:
            read = load(config=file, environ=environ, directory=tmp_path)
            said = repr(read) + str(describe(read))
        except SettingsError as error:
            said = everything_said(error)
        assert "hUsH4" not in said
