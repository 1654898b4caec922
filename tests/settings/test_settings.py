from datetime import time, timedelta
from pathlib import Path

import msgspec
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

UUID = "ABCDEF01-2345-6789-abcd-ef0123456789"
SECRETS = [key.name for key in KEYS if key.secret]
VARIABLES = [key for key in KEYS if key.variable is not None]


def toml(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "nftsync.toml"
    file.write_text(text, encoding="utf-8")
    return file


def load_in(directory: Path, flags: dict | None = None, **environ: str):
    return load(flags, environ=environ, directory=directory)


def open_destination_settings(read, environ: dict[str, str]):
    return alerts.open_destination_settings(read.destinations, read.watch, read.forward, environ)


def fails(directory: Path, flags: dict | None = None, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load_in(directory, flags, **environ)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def everything_said(error: BaseException | None) -> str:
    """The texts of an exception and of all that it was raised from or during."""
    said = ""
    while error is not None:
        said += f"{error}\n{error!r}\n{error.__dict__}\n"
        if isinstance(error, UnicodeError):
            said += repr(error.object)
        error = error.__cause__ or error.__context__
    return said


def sample(name: str, layer: int) -> tuple[str, object]:
    """Return a text for a variable or flag and its value, different for each layer."""
    if name == "removal_limit":
        return f"0.{layer}5", float(f"0.{layer}5")
    if name in {"concurrency", "retries", "removal_rows"}:
        return f"1{layer}", 10 + layer
    if name in {"timeout", "rate_limit"}:
        return f"{layer}.5", layer + 0.5
    paths = (
        "database ca_file client_certificate client_key wallets_file collections_file hidden_file"
    )
    if name in paths.split():
        return f"/d/{layer}.x", Path(f"/d/{layer}.x")
    texts: dict[str, tuple[str, object]] = {
        "base_url": (f"HTTPS://h{layer}.example/", f"https://h{layer}.example"),
        "headers": (f'{{"X-Key": "v{layer}"}}', {"X-Key": f"v{layer}"}),
        "organization_id": (UUID[:-1] + str(layer), UUID.lower()[:-1] + str(layer)),
        "ipfs_gateway": (f"https://g{layer}/ipfs", f"https://g{layer}/ipfs/"),
        "api_token": (f" t{layer} ", f"t{layer}"),
    }
    return texts.get(name, (f" x {layer} ", f" x {layer} " if name in SECRETS else f"x {layer}"))


def in_file(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = "{v}"' for k, v in value.items()) + "}"
    return str(value) if isinstance(value, int | float) else f'"{value}"'


@pytest.mark.parametrize("key", VARIABLES, ids=lambda key: key.name)
def test_flag_before_environment_before_file_before_default(tmp_path, key):
    (by_flag, flagged), (by_variable, set_), (_, filed) = (sample(key.name, n) for n in range(3))
    default = load_in(tmp_path)
    assert default.sources[key.name] == "default"

    file = toml(tmp_path, f"{key.name} = {in_file(filed)}")
    read = load_in(tmp_path)
    assert getattr(read, key.name) == filed
    assert read.sources[key.name] == f"file {file}"

    read = load_in(tmp_path, **{key.variable: by_variable})
    assert getattr(read, key.name) == set_
    assert read.sources[key.name] == f"environment {key.variable}"

    if key.flag is not None:
        for value in (by_flag, flagged):
            read = load_in(tmp_path, {key.name: value}, **{key.variable: by_variable})
            assert getattr(read, key.name) == flagged
            assert read.sources[key.name] == f"flag {key.flag}"
        assert load_in(tmp_path, {key.name: None}) == load_in(tmp_path)


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
    assert (read.retries, read.concurrency) == (3, 16)
    assert read.sources["retries"] == f"file {near}"
    other = tmp_path / "etc" / "other.toml"
    toml(tmp_path / "etc", "retries = 4\ndatabase = 'x.db'").rename(other)
    for config in (other, Path("etc/other.toml")):
        read = load(config=config, environ={}, directory=tmp_path)
        assert (read.retries, read.database) == (4, tmp_path / "etc" / "x.db")
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


def test_a_base_url_is_read_or_shown_where_it_is_of_no_use(tmp_path):
    for url, read in (
        ("https://api.example.com/", "https://api.example.com"),
        ("HTTP://localhost:8788", "http://localhost:8788"),
        ("https://h.example/prefix/x//", "https://h.example/prefix/x"),
        (" http://[::1]:80/ ", "http://[::1]:80"),
        ("https://bücher.example", "https://bücher.example"),
    ):
        assert load_in(tmp_path, {"base_url": url}).base_url == read
    for url in (
        *("localhost:8000", "ftp://h", "http://", "http:///x", "http://a b", "http://h\\x"),
        *("http://h\nx", "http://h:99999", "http://h:port", "http://h:0", "http://[::1"),
        "http://a,b",
    ):
        message = fails(tmp_path, NFTSYNC_BASE_URL=url)
        assert message.startswith("base_url (NFTSYNC_BASE_URL) must be a URL such as ")
        assert f"not {url!r}" in message

    for url, advice in (
        *((f"http:{slashes}hush@h", "use api_token or headers") for slashes in ("//me:", "")),
        *(
            (f"http://h{mark}hush", "remove everything from the ? or # on, and put an API key in")
            for mark in "?#"
        ),
    ):
        assert advice in fails(tmp_path, {"base_url": url})
        for key in ("base_url", "ipfs_gateway"):
            message = fails(tmp_path, **{f"NFTSYNC_{key.upper()}": url})
            assert message.startswith(f"{key} (NFTSYNC_{key.upper()}) must not ")
            assert "hush" not in message


def test_a_bad_value_names_key_variable_value_and_source(tmp_path):
    for key, must, bad in (
        ("database", "non-blank text", ["a\0b"]),
        ("organization_id", "a UUID of 8-4-4-4-12 hex digits", ["abc"]),
        ("concurrency", "a whole number from 1 to 512", ["abc", "0", "513", "1_6", "1.5"]),
        ("timeout", "a number above 0", ["x", "0", "-1", "inf", "nan", "1e999"]),
        ("retries", "a whole number of at least 1", ["x", "0"]),
    ):
        variable = f"NFTSYNC_{key.upper()}"
        for value in bad:
            said = f"{key} ({variable}) must be {must}, not {value!r}"
            assert fails(tmp_path, **{variable: value}) == f"{said} (from environment {variable})"
    assert fails(tmp_path, {"retries": "0"}).endswith("not '0' (from flag --retries)")


BAD_IN_FILE = [
    ('concurrency = "16"', "concurrency (NFTSYNC_CONCURRENCY) must be a whole number", "not '16'"),
    ("concurrency = true", "concurrency (NFTSYNC_CONCURRENCY) must be a whole number", "not true"),
    ("database = ['x']", "database (NFTSYNC_DATABASE) must be text", "not a list"),
    ("ignore_fields = 'x'", "ignore_fields must be a list of field names", "not 'x'"),
    ("headers = 'x'", "headers (NFTSYNC_HEADERS) must be a table of header", "(from file"),
    ("api_token = 5", "api_token (NFTSYNC_API_TOKEN) must be text (from file", ""),
    ("paging = 1", "paging must be a table", "not 1"),
    ("routes.Token = 1", "routes.Token must be a table", "not 1 (from"),
    ("[paging]", "paging must have next and param", ""),
    ("[paging]\nnext='c'\nparam=''", "paging.param must be non-blank text", "not ''"),
    ("routes = 1", "routes must be tables [routes.TYPE]", "not 1"),
    ("[routes.A]\nkind='x'", "routes.A.kind must be token, wallet, object or sync", "not 'x'"),
    ("[routes.A]\nholders=1", "routes.A.holders must be true or false", "not 1"),
    ("[routes.A]\ntokens=['a..b']", "routes.A.tokens must be a list of field names", "not a list"),
    ("[routes.A]\nat_most_every='x'", "routes.A.at_most_every must be a duration", "not 'x'"),
    ("[routes.A]\npath='//h/x'", "routes.A.path must be a path such as", "not '//h/x'"),
]


def test_a_bad_value_in_the_file_names_key_variable_and_file(tmp_path):
    for text, begin, then in BAD_IN_FILE:
        file = toml(tmp_path, text)
        message = fails(tmp_path)
        assert message.startswith(begin)
        assert then in message
        assert message.endswith(f"(from file {file})")


def test_an_unknown_key_is_named_with_the_nearest_or_all_known_ones(tmp_path):
    for text, where, unknown, hint in (
        ("base-url = 'x'", "", "base-url", "did you mean 'base_url'?"),
        ("TIMEOUT = 1", "", "TIMEOUT", "did you mean 'timeout'?"),
        ("[route.Token]", "", "route", "did you mean 'routes'?"),
        ("[paging]\nnxt = 'x'", "[paging] of file ", "nxt", "did you mean 'next'?"),
        ("[paging]\ncolor = 'x'", "[paging] of file ", "color", "known keys: next, param"),
    ):
        place = f"{where}{toml(tmp_path, text)}"
        assert fails(tmp_path) == f"unknown key {unknown!r} in {place}; {hint}"


def test_a_file_that_cannot_be_read_is_named_with_the_line(tmp_path):
    file = tmp_path / "nftsync.toml"
    too_much = "it is not UTF-8, or a value is too long or nested too deeply"
    for text, problem in (
        (b"retries = 2\nx y", "line 2, column 3: Expected '=' after a key in a key/value pair"),
        (b"retries = 2\nretries = 3", "line 2, at the end: Cannot overwrite a value"),
        (b"retries = [", "line 1, at the end: Invalid value"),
        (b"retries = 2\n[a]\n[a]", "line 3, column 3"),
    ):
        file.write_bytes(text)
        assert fails(tmp_path) == f"{file} is not valid TOML: {problem}"
    for text in (b"# \xff", b"retries = " + b"9" * 5000, b"retries = " + b"[" * 50_000):
        file.write_bytes(text)
        assert fails(tmp_path) == f"cannot parse {file}: {too_much}"
    for config, why in ((tmp_path / "no.toml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(SettingsError, match=why) as caught:
            load(config=config, environ={}, directory=tmp_path)
        assert str(caught.value).startswith(f"cannot read the settings file {config}: ")
    file.write_bytes(b"\xef\xbb\xbfretries = 2\r\nconcurrency = 3\r\n")
    assert load_in(tmp_path).concurrency == 3  # as a Windows editor writes it


def test_routes_and_paging(tmp_path):
    toml(
        tmp_path,
        """
        ignore_fields = ["total"]
        routes.Transaction = { path = "/v1/x/{resourceId}", kind = "object", wallets = ["to.id"] }
        routes."*" = { kind = "sync", at_most_every = "15m" }
        paging = { next = "nextCursor", param = "cursor" }
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


WEBHOOK = "[destinations.ops]\nkind = 'webhook'\nurl = 'https://x.example/?key=hush'\n"
#: Tables with the word `hush` where a secret may stand by mistake, or at the wrong place.
MISPLACED = {
    WEBHOOK + "secret = 'hush'": "unknown key 'secret'",
    WEBHOOK.replace("'https", "'ftp") + "secret_file = 's1'": "is not an http(s) URL",
    WEBHOOK.replace("'https", "'\\u0000https").replace("'", '"'): "ops.url must be non-blank text",
    WEBHOOK + "secret_file = 'lacking'": "cannot read",
    WEBHOOK + "secret_file = ['s1', 's2', 's1']": "one file, or two during a rotation",
    WEBHOOK: "destinations.ops has no secret: set secret_file, or the variable",
    WEBHOOK + "url_file = 's1'": "only one of url and url_file",
    WEBHOOK + "password_file = 's1'": 'must not have password_file with kind = "webhook"',
    "[destinations.ops]\nkind = 'slack'\nurl = 'https://hush'": "must not have url with kind",
    "[destinations.ops]\nkind = 'command'\ncommand = 'run hush'": "must be a list of strings",
    "[destinations.ops]\nkind = 'command'\ncommand = ['hush', 7]": "must be a list of strings",
    "[destinations.ops]\nkind = 'command'\ncommand = []": "must be a list of strings",
    "[destinations.ops]\ncommand = ['hush']": "must have kind = 'webhook', 'slack'",
}


def test_no_secret_of_a_destination_is_shown(tmp_path):
    for name in ("s1", "s2"):
        (tmp_path / name).write_text("hush\n")
    for text, problem in MISPLACED.items():
        toml(tmp_path, text)
        with pytest.raises(SettingsError) as caught:
            open_destination_settings(load_in(tmp_path), {})
        assert problem in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "hush" not in everything_said(caught.value)
    toml(tmp_path, WEBHOOK + "secret_file = 's1'\nallow_private = true")
    read = load_in(tmp_path)
    assert "hush" not in repr(read) + str(describe(read))
    destinations = open_destination_settings(read, {})
    assert "hush" not in repr(destinations) + destinations["ops"].shown


def test_secrets_of_destinations_come_from_variables_or_files(tmp_path, monkeypatch):
    for name, text in (("s1", "\ufeffs1\r\n\r\n"), ("s2", " s2 \n")):
        (tmp_path / name).write_text(text, "utf-8", newline="")
    toml(
        tmp_path,
        WEBHOOK
        + """secret_file = ["s1", "s2"]
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
    destinations = open_destination_settings(read, other)
    assert {name: one.secrets for name, one in destinations.items()} == {
        "ops": ("s1", "s2"),
        "Other-one": ("new", "old"),
        "mail": (),
    }
    assert destinations["Other-one"].url == "https://y.example"
    mail = destinations["mail"]
    assert (mail.sender, mail.recipients, mail.password, mail.port, mail.security) == (
        *("a@example.com", ("b@example.com",), "s2"),
        *(587, "starttls"),
    )
    ours = {"NFTSYNC_DESTINATIONS_OPS_SECRET": "s3", "NFTSYNC_DESTINATIONS_MAIL_PASSWORD": " "}
    destinations = open_destination_settings(read, {**other, **ours})
    assert destinations["ops"].secrets == ("s3",)
    assert destinations["mail"].password == "s2"
    spaced = {"NFTSYNC_DESTINATIONS_MAIL_PASSWORD": "abcd efgh  ijkl\n"}  # as Google shows it
    destinations = open_destination_settings(read, {**other, **spaced})
    assert destinations["mail"].password == "abcd efgh  ijkl"
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    assert unknown_variables() == []


def test_no_variable_is_the_secret_of_two_destinations(tmp_path):
    tables = (f'[destinations.{name}]\nkind = "slack"\n' for name in ("a-b", "A_b"))
    toml(tmp_path, "".join(tables))
    with pytest.raises(SettingsError, match="more than case"):
        open_destination_settings(
            load_in(tmp_path), {"NFTSYNC_DESTINATIONS_A_B_URL": "https://x.example/hush"}
        )


def test_rules_and_forwards_are_tables(tmp_path):
    toml(
        tmp_path,
        """
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


def test_a_blank_variable_counts_as_unset_but_a_blank_secret_is_none(tmp_path):
    plain = [key for key in VARIABLES if not key.secret]
    lines = [f"{key.name} = {in_file(sample(key.name, 0)[1])}" for key in VARIABLES]
    file = toml(tmp_path, "\n".join(lines))
    for blank in ("", " \n"):
        read = load_in(tmp_path, **{key.variable: blank for key in plain})
        for key in plain:
            assert getattr(read, key.name) == sample(key.name, 0)[1]
            assert read.sources[key.name] == f"file {file}"

        read = load_in(tmp_path, **{f"NFTSYNC_{name.upper()}": blank for name in SECRETS})
        assert (read.api_token, read.headers, read.webhook_secret_previous) == (None, {}, None)
        assert (read.webhook_secret, read.proxy) == (blank, blank)
        assert all(read.sources[key].startswith("environment ") for key in SECRETS)
        shown = {row["setting"]: row["value"] for row in describe(read)}
        expected = ["not set", "not set", "blank", "not set", "blank"]
        assert [shown[name] for name in SECRETS] == expected


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
        assert fails(tmp_path, **{variable: path}) == message
    plain = variable.removesuffix("_FILE")
    both = f"{name}: both {plain} and {variable} are set; unset one of them"
    for value in ("hush", ""):
        assert fails(tmp_path, **{plain: value, variable: "hush"}) == both


def stripped(value):
    return value.strip() if isinstance(value, str) else value


#: What editors, shells and spreadsheets write around a text.
AROUND = [
    *("{}", "{}\n", "{}\r\n", "{}\n\n", "{}\r\n\r\n", "{}\r", " {} \n", "\t{}\x0b\x0c\n\n "),
    *("\ufeff{}\r\n", "\ufeff \n{} \r\n", "\u00a0{}\u2028"),
]


@pytest.mark.parametrize("name", SECRETS)
def test_marks_and_white_space_around_a_secret_in_a_file_do_not_belong_to_it(tmp_path, name):
    text, value = sample(name, 0)
    variable = {f"NFTSYNC_{name.upper()}_FILE": "secret"}
    for around in AROUND:
        (tmp_path / "secret").write_text(around.format(text), "utf-8", newline="")
        assert getattr(load_in(tmp_path, **variable), name) == stripped(value)
    for encoding in ("utf-16", "utf-16-be"):  # of PowerShell, with its mark
        mark = "\ufeff" if encoding == "utf-16-be" else ""
        (tmp_path / "secret").write_bytes(f"{mark}{text}\r\n".encode(encoding))
        assert getattr(load_in(tmp_path, **variable), name) == stripped(value)


def test_white_space_inside_a_secret_belongs_to_it(tmp_path):
    for stored in ("a b", "ß\0", "a\nb", "a\u200b", ""):
        (tmp_path / "s").write_text(f"{stored}\n", "utf-8")
        read = load_in(tmp_path, NFTSYNC_WEBHOOK_SECRET_FILE="s")
        assert read.webhook_secret == stored
    assert load_in(tmp_path, NFTSYNC_WEBHOOK_SECRET=" a ").webhook_secret == " a "


@pytest.mark.parametrize(
    ("begin", "texts"),
    [
        ("api_token (NFTSYNC_API_TOKEN) must be ",
         ["a hush", "a\nhush", "hüsh", "hush\x7f", "hush\udc80", "hush\0"]),
        ("headers (NFTSYNC_HEADERS) must be a JSON object",
         ["hush", '["hush"]', '{"hush": 1}', '{"X": "\udc80hush"}', "[" * 100_000]),
        ("headers (NFTSYNC_HEADERS) entry ",
         ['{"A": "", "X hush": "1"}', '{"": "hush"}']),
        ("headers.X (NFTSYNC_HEADERS) must be one line of printable",
         ['{"X": "hush\\r\\nY: 1"}', '{"X": "hush\\n"}', '{"X": "hüsh"}']),
        ("headers (NFTSYNC_HEADERS) must not repeat a header", ['{"X": "hush", "x": ""}']),
    ],
)  # fmt: skip
def test_a_token_or_headers_that_cannot_be_sent(tmp_path, begin, texts):
    variable = "NFTSYNC_API_TOKEN" if "API_TOKEN" in begin else "NFTSYNC_HEADERS"
    for text in texts:
        message = fails(tmp_path, **{variable: text})
        assert message.startswith(begin)
        assert "hush" not in message


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
        (None, {variable: msgspec.json.encode({"X": secret}).decode()}),
        (None, {f"{variable}_FILE": "secret"}),
        (config, {}),
    ):
        try:
            read = load(config=file, environ=environ, directory=tmp_path)
            said = repr(read) + str(describe(read))
        except SettingsError as error:
            said = everything_said(error)
        assert "hUsH4" not in said
