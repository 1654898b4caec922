"""The provider that benchmarks read from, with nginx where it is installed and without."""

from __future__ import annotations

import http.client
import time
from pathlib import Path

import pytest

from benchmarks.provider import body_file, static_provider, write_world


@pytest.fixture(params=["what is installed", "asyncio"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "asyncio":
        monkeypatch.setenv("PATH", str(tmp_path))  # no nginx there
    return tmp_path


def get(
    url: str, wallet: str, etag: str | None = None
) -> tuple[int, bytes, http.client.HTTPMessage]:
    link = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    headers = {} if etag is None else {"If-None-Match": etag}
    link.request("GET", f"/v1/wallets/{wallet}/nft-balances", headers=headers)
    answer = link.getresponse()
    found = answer.status, answer.read(), answer.headers
    link.close()
    return found


def test_what_was_written_is_served_and_counted(folder: Path) -> None:
    wallets = write_world(folder, 3, 2)
    with static_provider(folder, etag=True, count=True) as provider:
        bodies = [get(provider.url, wallet)[1] for wallet in wallets]
        assert bodies == [body_file(folder, wallet).read_bytes() for wallet in wallets]
        etag = get(provider.url, wallets[0])[2]["ETag"]
        status, body, _ = get(provider.url, wallets[0], etag)
        assert (status, body) == (304, b"")
        assert provider.sent(5) == sum(map(len, bodies)) + len(bodies[0])


def test_without_etags_there_are_none(folder: Path) -> None:
    (wallet,) = write_world(folder, 1, 2)
    with static_provider(folder) as provider:
        assert get(provider.url, wallet)[2]["ETag"] is None


def test_an_answer_can_take_its_time(folder: Path) -> None:
    (wallet,) = write_world(folder, 1, 2)
    with static_provider(folder, delay=0.2) as provider:
        began = time.monotonic()
        assert get(provider.url, wallet)[1] == body_file(folder, wallet).read_bytes()
        assert time.monotonic() - began >= 0.2


def test_files_may_change_meanwhile(folder: Path) -> None:
    (wallet,) = write_world(folder, 1, 2)
    with static_provider(folder, changing=True) as provider:
        get(provider.url, wallet)
        new = body_file(folder, wallet).with_suffix(".new")
        new.write_bytes(b"{}")
        new.replace(body_file(folder, wallet))
        assert get(provider.url, wallet)[1] == b"{}"
