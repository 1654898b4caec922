"""Downloads of a gallery's images: hostile servers on loopback, redirects, bounds."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nftsync
from nftsync.errors import NftsyncWarning
from nftsync.provider.config import ClientConfig
from nftsync.provider.downloads import Limits, download_images
from nftsync.provider.images import DEFAULT_GATEWAY, Images
from tests.gallery.gallery_frames import frame
from tests.kit.forward_proxy import HOST, ForwardProxy
from tests.kit.provider import Provider, endless, head, raw, reply, silence
from tests.kit.serve_process import free_port
from tests.kit.waiting import wait_until

SHOWN = "data:image/png;base64,eA=="
PNG = reply(b"x", content_type="image/png")


@pytest.fixture
def stranger(certificates: Any) -> Iterator[Provider]:
    """Return an image server with TLS, a public name and an address of this machine."""
    with Provider(certificate=certificates.server) as running:
        running.always(PNG)
        yield running


@pytest.fixture
def download(provider: Provider, certificates: Any) -> Callable[..., list[str]]:
    """Return a function that downloads paths or URLs, and returns each image or problem."""

    def results(*paths: str, proxy: str = "", limits: Limits | None = None) -> list[str]:
        images = Images(DEFAULT_GATEWAY, provider.url)
        config = ClientConfig(base_url=provider.url, proxy=proxy, ca_file=certificates.ca)
        urls = [path if "://" in path else provider.url + path for path in paths]
        found = download_images(
            urls, images, config, limits=(limits or Limits())._replace(timeout=2.0)
        )
        assert list(found) == urls
        return [address.url or f"{address.problem}" for address in found.values()]

    return results


@pytest.fixture
def private_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve the public name of the stranger to this machine."""
    real = socket.getaddrinfo

    def resolved(host: Any, *args: Any, **kwargs: Any) -> Any:
        return real("127.0.0.1" if host in {HOST, HOST.encode()} else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def test_a_public_name_with_a_private_address_gets_no_byte(stranger, download, private_dns):
    """Not even a TLS handshake is sent; only the own provider can have a private address."""
    url = f"https://{HOST}:{stranger.port}/1.png"
    assert download(url) == ["the host has a private network address"]
    wait_until(lambda: stranger.connections == 1)
    assert stranger.requests() == []


def test_redirects_are_checked_and_lead_to_no_private_host(
    stranger, provider, download, private_dns
):
    provider.always(PNG)
    not_allowed = "redirects to an address that is not allowed: "
    results = {
        "/moved.png": SHOWN,
        "http://169.254.169.254/": f"{not_allowed}http: is allowed only from the provider",
        "https://127.0.0.1/x": f"{not_allowed}host on this machine or a private network",
        "file:///etc/passwd": f"{not_allowed}file: is not allowed",
        f"https://{HOST}:{stranger.port}/x": "the host has a private network address",
        "/5": "redirects more than 4 times",
        "https://[": "redirects to no valid address",
    }
    for number, target in enumerate(results):
        provider.on(f"/{number}", reply(status=302, location=target))
    assert download(*(f"/{number}" for number in range(len(results)))) == [*results.values()]
    assert stranger.requests() == []


def test_a_stranger_does_not_lead_to_the_own_provider(stranger, provider, download):
    stranger.always(reply(status=302, location=f"{provider.url}/secret"))
    with ForwardProxy() as proxy:
        (problem,) = download(f"https://{HOST}:{stranger.port}/1.png", proxy=proxy.address)
    assert problem.endswith("http: is allowed only from the provider")
    assert provider.requests() == []


def test_images_come_through_the_proxy_without_credentials(stranger, download):
    url = f"https://{HOST}:{stranger.port}/1.png"
    with ForwardProxy() as proxy:
        assert download(url, proxy=proxy.address) == [SHOWN]
        assert proxy.asked == [f"CONNECT {HOST}:{stranger.port}"]
        proxy.refuse_with = 403
        assert download(url, proxy=proxy.address) == ["no connection through the proxy"]
    (seen,) = stranger.requests()
    assert not {"authorization", "cookie", "referer"} & set(seen.headers)


def test_hostile_answers_are_refused_with_a_reason(provider, download):
    png = "content-type: image/png"
    at_once = [
        (reply(b"x", content_type="text/html; charset=utf-8"), "not an image but text/html"),
        (reply(b"x", content_type='image/png"><script>'), "not an image"),
        (reply(b"x"), "not an image"),
        (reply(b"", content_type="image/png"), "empty"),
        (reply(b"", 404), "its server answered with HTTP 404"),
        (
            reply(b"x", content_type="image/png", content_encoding="br"),
            "the body has an unusable content encoding 'br'",
        ),
        (endless(b"x" * 65536, head(png)), "larger than 5 MB"),
    ]
    for number, (answer, _) in enumerate(at_once):
        provider.on(f"/{number}", answer)
    found = download(*(f"/{number}" for number in range(len(at_once))))
    assert found == [problem for _, problem in at_once]
    for answer in (
        endless(b"x", head(png), pause=0.1),
        endless(b"x: y\r\n", b"HTTP/1.1 200 OK\r\n", pause=0.1),
        silence(),
    ):
        provider.always(answer)
        assert download("/slow") == ["no complete response within 2 s"]
    provider.always(raw(head(png, "content-length: 100") + b"x"))
    (problem,) = download("/cut")
    assert problem.startswith("the connection broke")


def test_downloads_are_bounded_in_number_size_time_and_failures(provider, download):
    provider.always(reply(b"x" * 600_000, content_type="image/png"))
    paths = [f"/{number}.png" for number in range(5)]
    over = "only the first 2 images are embedded"
    assert download(*paths, limits=Limits(images=2))[2:] == [over] * 3
    found = download(*paths, limits=Limits(all_megabytes=1))
    assert found.count("all images together are larger than 1 MB") == 4
    late = "downloads stopped after 0 s"
    assert download(*paths, limits=Limits(all_seconds=0)) == [late] * 5
    provider.always(silence())
    before = len(provider.requests())
    found = download(*[f"/{number}.png" for number in range(40)])
    assert len(provider.requests()) - before < 20
    assert "3 requests in a row to its server failed" in found


def test_images_that_are_off_or_without_a_server_are_a_warning(provider):
    for images, url, reason in (
        ("none", provider.url, "images are off"),
        ("all", f"http://127.0.0.1:{free_port()}", ".*refused"),
    ):
        shown = frame([{"image": f"{url}/x.png"}])
        gallery = nftsync.gallery(shown, base_url=url, images=images)
        with pytest.warns(NftsyncWarning, match=f"^1 of 1 image not embedded; the first: {reason}"):
            gallery.save("page.html", embed=True)
    assert provider.requests() == []
