"""Any input from outside is read, or refused in one line; `make fuzz` runs this for long.

Other parsers have such properties beside their tests.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import settings as nftsync_settings
from nftsync.errors import InputError, ReadError, SettingsError
from nftsync.provider.client import Client, finish
from nftsync.provider.compression import Gunzip
from nftsync.provider.config import ClientConfig
from nftsync.pull.list_files import read_collections_file, read_wallets_file
from nftsync.records import Effort
from nftsync.settings import KEYS
from tests.kit.provider import Provider, raw, wallet


def joined(*parts: str) -> st.SearchStrategy[bytes]:
    """Files of such parts, and of any text."""
    some = st.lists(st.sampled_from(parts) | st.text(max_size=10), max_size=25)
    return some.map(lambda found: "".join(found).encode("utf-8", "surrogatepass"))


SETTINGS = joined(
    *(f"{key.name} = " for key in KEYS),
    *("[routes.Token]\n", "[paging]\n", "[headers]\n", "[[routes]]\n", 'path = "/v1/x"\n', '"x"\n'),
    *("'''x\n", "16\n", "-1\n", "0x10\n", "1e999\n", "\n", "true\n", "[1, 2]\n", '{ a = "b" }\n'),
    *("2026-01-31\n", "nan\n", "\ufeff", "\0", "=", "#"),
)
LISTS = joined(
    *("wallet_id", "label", "name", "contract_address", wallet(1), '"', ";", ",", "\n", "\r", "#"),
    *("\t", "sep=;", "\ufeff", "\u2028", "\0", " "),
)
VARIABLES = [key.variable for key in KEYS if key.variable is not None]


def one_line(error: Exception) -> None:
    assert len(str(error).splitlines()) == 1, str(error)


@given(
    SETTINGS | st.binary(max_size=60) | st.just(b""),
    st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=30)),
)
def test_any_settings_are_read_or_refused(content, environ):
    file = Path("nftsync.toml")
    file.write_bytes(content)
    try:
        nftsync_settings.load(environ=environ)
    except SettingsError as error:
        one_line(error)


@pytest.mark.filterwarnings("ignore:the (wallets|collections) file .* Windows-1252")
@given(st.binary(max_size=80) | LISTS)
def test_any_list_file_is_read_or_refused(content):
    file = Path("list.csv")
    file.write_bytes(content)
    for read in (read_wallets_file, read_collections_file):
        try:
            read(file)
        except InputError as error:
            one_line(error)


@given(st.lists(st.binary(max_size=300), max_size=4), st.data())
def test_gzip_is_unpacked_however_it_is_cut(members, data):
    packed = b"".join(map(gzip.compress, members))
    unpacker, out = Gunzip(), b""
    while packed:
        cut = data.draw(st.integers(1, len(packed)))
        out += unpacker.unpack(packed[:cut], 10_000)
        packed = packed[cut:]
    assert out == b"".join(members)
    assert unpacker.is_whole == bool(members)


@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(0, 100))
def test_any_bytes_are_unpacked_within_a_bound_or_refused(parts, most):
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
BODIES = [
    *(b'{"nftTokenBalances":[]}', b"", b"{", b"[]", b"\xff", b"5\r\nhello\r\n0\r\n\r\n"),
    b"\x1f\x8b\x08",
]


@settings(max_examples=max(40, settings().max_examples // 10))
@given(
    st.sampled_from([200, 200, 200, 204, 206, 301, 304, 401, 404, 429, 500, 0, 99, 999, 100]),
    st.lists(st.sampled_from(HEADERS) | st.text(max_size=8), max_size=5),
    st.sampled_from(BODIES) | st.binary(max_size=30),
)
def test_any_answer_is_a_list_or_a_failed_read(talking, status, headers, body):
    """As bytes on a socket: a read fails, or gives what the answer says; nothing else is raised."""
    provider, client = talking
    head = "\r\n".join([f"HTTP/1.1 {status} X", *headers, "", ""])
    provider.always(raw(head.encode("utf-8", "surrogatepass") + body))
    try:
        found = finish(client.balances(wallet(1), Effort()))
    except ReadError as error:
        one_line(error)
    else:
        assert found.entries == []
