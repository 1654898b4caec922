"""Whatever comes in from outside is read, or refused in one line that quotes no secret.

What else parses has properties of its own beside its tests; `make fuzz` runs them all for long.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync import settings as nftsync_settings
from nftsync.errors import InputError, ReadError, SettingsError
from nftsync.provider.client import Client, finish
from nftsync.provider.compression import Gunzip
from nftsync.provider.config import ClientConfig
from nftsync.pull.list_files import read_collections_file, read_wallets_file
from nftsync.records import Effort
from nftsync.settings import KEYS
from nftsync.times import parse_duration
from tests.kit.provider import Provider, raw, wallet

SECRET = "canary-4711"
LINES = st.lists(
    st.sampled_from(
        [
            *(f"{key.name} = " for key in KEYS),
            *("[routes.Token]\n", "[paging]\n", "[headers]\n", "[[routes]]\n", 'path = "/v1/x"\n'),
            *('"x"\n', f'"{SECRET}"\n', f"'''{SECRET}\n", "16\n", "-1\n", "0x10\n", "1e999\n"),
            *("\n", "true\n", "[1, 2]\n", '{ a = "b" }\n', "2026-01-31\n", "nan\n", "\ufeff"),
            *("\0", "=", "#"),
        ]
    )
    | st.text(max_size=10),
    max_size=12,
).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass"))


def one_line(error: Exception, *, may_quote: bool = False) -> None:
    assert len(str(error).splitlines()) == 1, str(error)
    known = str(error) + repr(error.__cause__) + repr(error.__context__)
    assert may_quote or SECRET not in known


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fuzz")
    (made / "empty").mkdir()
    (made / "empty" / "nftsync.toml").touch()  # the nearest one
    return made


PUBLIC = [key.name for key in KEYS if not key.secret]


@given(LINES | st.binary(max_size=60))
@example(b'webhook_secret = "canary-4711')
@example(b'database = "canary-4711"\n')
def test_any_settings_file_is_read_or_refused_in_one_line(folder: Path, content: bytes) -> None:
    file = folder / "nftsync.toml"
    file.write_bytes(content)
    try:
        found = nftsync_settings.load(config=file, environ={}, directory=folder)
    except SettingsError as error:
        one_line(error, may_quote=any(name in str(error) for name in PUBLIC))
    else:
        public = [str(getattr(found, name)) for name in PUBLIC]
        assert SECRET not in repr(found) or SECRET in "".join(public)


VARIABLES = [key.variable for key in KEYS if key.variable is not None]


@given(st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=30) | st.just(SECRET)))
def test_any_environment_is_read_or_refused(folder: Path, given_to: dict[str, str]) -> None:
    secret = {name: value for name, value in given_to.items() if value == SECRET}
    try:
        nftsync_settings.load(environ=given_to, directory=folder / "empty")
    except SettingsError as error:
        public = [key for key in KEYS if key.variable in secret and not key.secret]
        one_line(error, may_quote=bool(public))


@pytest.mark.filterwarnings("ignore:the (wallets|collections) file .* Windows-1252")
@given(
    st.binary(max_size=80)
    | st.lists(
        st.sampled_from(
            ["wallet_id", "label", "name", "contract_address", wallet(1), '"', ";", ","]
        )
        | st.sampled_from(["\n", "\r", "#", "\t", "sep=;", "\ufeff", "\u2028", "\0", " "])
        | st.text(max_size=4),
        max_size=25,
    ).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass"))
)
def test_any_list_file_is_read_or_refused_in_one_line(folder: Path, content: bytes) -> None:
    file = folder / "list.csv"
    file.write_bytes(content)
    for read in (read_wallets_file, read_collections_file):
        try:
            read(file)
        except InputError as error:
            one_line(error)


@given(st.text() | st.from_regex(r"\A\d{1,40}[smhdw]?\Z"))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert parse_duration(text).total_seconds() >= 0
    except InputError as error:
        one_line(error)


@given(st.lists(st.binary(max_size=300), max_size=4), st.data())
def test_gzip_is_unpacked_however_it_is_cut(members: list[bytes], data: st.DataObject) -> None:
    packed = b"".join(map(gzip.compress, members))
    unpacker, out = Gunzip(), b""
    while packed:
        cut = data.draw(st.integers(1, len(packed)))
        out += unpacker.unpack(packed[:cut], 10_000)
        packed = packed[cut:]
    assert out == b"".join(members)
    assert unpacker.is_whole == bool(members)


@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(0, 100))
def test_any_bytes_are_unpacked_within_a_bound_or_refused(parts: list[bytes], most: int) -> None:
    unpacker = Gunzip()
    try:
        for part in (gzip.compress(b"x" * 1_000)[:12], *parts):
            assert len(unpacker.unpack(part, most)) <= most
    except zlib.error:
        pass


@pytest.fixture(scope="module")
def talking() -> Iterator[tuple[Provider, Client]]:
    with Provider() as provider:
        config = ClientConfig(base_url=provider.url, attempts=1, timeout=5.0, first_wait=0.0)
        with Client(config) as client:
            yield provider, client


HEADERS = [
    *("Content-Length: 23", "Content-Length: 5", "Content-Length: x", "Content-Length: -1"),
    *("Transfer-Encoding: chunked", "Content-Encoding: gzip", "Content-Encoding: br"),
    *('Link: <x>; rel="next"', "Link: ;;;", "Content-Range: items 0-0/2", "Content-Range: \xff"),
    *("X-Total-Count: 9" * 3, "X-Total-Count: 0", 'ETag: "x"', "ETag: *", "Date: tomorrow"),
    *("Retry-After: 1e9", "Retry-After: -1", "Connection: close", "Location: http://127.0.0.1:1/"),
    *("Content-Type: text/html; charset=\xfc", ": x", "no colon", " folded", "A: \0", "Age: 1"),
]
BODIES = st.sampled_from(
    [
        *(b'{"nftTokenBalances":[]}', b"", b"{", b"[]", b"\xff", b"5\r\nhello\r\n0\r\n\r\n"),
        b"\x1f\x8b\x08",
    ]
)


@settings(max_examples=max(40, settings().max_examples // 10))
@given(
    st.sampled_from([200, 200, 200, 204, 206, 301, 304, 401, 404, 429, 500, 0, 99, 999, 100]),
    st.lists(st.sampled_from(HEADERS) | st.text(max_size=8), max_size=5),
    BODIES | st.binary(max_size=30),
)
def test_any_answer_is_a_list_or_a_failed_read(
    talking: tuple[Provider, Client], status: int, headers: list[str], body: bytes
) -> None:
    """As bytes on a socket: a read fails, or gives what the answer says; nothing else is raised."""
    provider, client = talking
    lines = [f"HTTP/1.1 {status} X", *headers, "", ""]
    head = "\r\n".join(lines).encode("utf-8", "surrogatepass")
    provider.always(raw(head + body))
    try:
        found = finish(client.balances(wallet(1), Effort()))
    except ReadError as error:
        one_line(error)
    else:
        assert found.entries == []
