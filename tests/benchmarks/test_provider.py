"""The provider that benchmarks read from, with nginx where it is installed and without."""

import http.client

import pytest

from benchmarks.provider import body_file, static_provider, write_world


def get(url: str, wallet: str, etag: str = "") -> tuple[int, bytes, str | None]:
    link = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    link.request("GET", f"/v1/wallets/{wallet}/nft-balances", headers={"If-None-Match": etag})
    answer = link.getresponse()
    found = answer.status, answer.read(), answer.headers["ETag"]
    link.close()
    return found


@pytest.mark.parametrize("server", ["installed", "double"])
def test_what_was_written_is_served_and_counted_and_may_change(server, tmp_path, monkeypatch):
    if server == "double":
        monkeypatch.setenv("PATH", str(tmp_path))  # no nginx there
    wallets = write_world(tmp_path, 3, 2)
    with static_provider(tmp_path, etag=True, count=True) as provider:
        bodies = [get(provider.url, wallet)[1] for wallet in wallets]
        assert bodies == [body_file(tmp_path, wallet).read_bytes() for wallet in wallets]
        etag = get(provider.url, wallets[0])[2]
        assert etag is not None
        assert get(provider.url, wallets[0], etag)[:2] == (304, b"")
        assert provider.sent(5) == sum(map(len, bodies)) + len(bodies[0])
    with static_provider(tmp_path, changing=True) as provider:
        assert get(provider.url, wallets[0]) == (200, bodies[0], None)
        new = body_file(tmp_path, wallets[0]).with_suffix(".new")
        new.write_bytes(b"{}")
        new.replace(body_file(tmp_path, wallets[0]))
        assert get(provider.url, wallets[0])[1] == b"{}"
