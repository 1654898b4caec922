"""Downloads of a gallery's images: hostile servers on loopback, redirects, bounds, the page."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nftsync
from nftsync.errors import NftsyncWarning
from nftsync.provider.config import ClientConfig
from nftsync.provider.downloads import Limits, download_images
from nftsync.provider.images import DEFAULT_GATEWAY, Images
from tests.gallery.gallery_frames import data_of, frame
from tests.kit.forward_proxy import HOST, ForwardProxy
from tests.kit.provider import Provider, endless, head, raw, reply, silence
from tests.kit.waiting import wait_until
from tests.notebooks.worlds import free_port

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944"
)
PNG += bytes.fromhex("4154789c6360f8cfc000000301010018dd8db00000000049454e44ae426082")
SHOWN = "data:image/png;base64,iVBORw0KGgo"

Download = Callable[..., list[str]]


@pytest.fixture
def stranger(certificates: Any) -> Iterator[Provider]:
    """Return an image server with TLS, a public name and an address of this machine."""
    with Provider(certificate=certificates.server) as running:
        running.always(reply(PNG, content_type="image/png"))
        yield running


@pytest.fixture
def download(provider: Provider, certificates: Any) -> Download:
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


def named(server: Provider) -> str:
    return server.url.replace("127.0.0.1", HOST)


@pytest.fixture
def private_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve the public name of the stranger to this machine."""
    real = socket.getaddrinfo

    def resolved(host: Any, *args: Any, **kwargs: Any) -> Any:
        return real("127.0.0.1" if host in {HOST, HOST.encode()} else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def test_a_public_name_with_a_private_address_gets_no_byte(stranger, download, private_dns):
    """Not even a TLS handshake is sent; only the own provider can have a private address."""
    assert download(f"{named(stranger)}/1.png") == ["the host has a private network address"]
    wait_until(lambda: stranger.connections == 1)
    assert stranger.requests() == []


def test_redirects_are_checked_and_lead_to_no_private_host(
    stranger, provider, download, private_dns
):
    provider.always(reply(PNG, content_type="image/png"))
    for path, target in {
        "/within": "/moved.png",
        "/metadata": "http://169.254.169.254/latest/meta-data",
        "/local": "https://127.0.0.1/x.png",
        "/file": "file:///etc/passwd",
        "/rebound": f"{named(stranger)}/x.png",
        "/loop": "/loop",
        "/broken": "https://[",
    }.items():
        provider.on(path, reply(status=302, location=target))
    not_allowed = "redirects to an address that is not allowed: "
    within, *others = download(
        *("/within", "/metadata", "/local", "/file", "/rebound", "/loop", "/broken")
    )
    assert within.startswith(SHOWN)
    assert others == [
        f"{not_allowed}http: is allowed only from the provider",
        f"{not_allowed}host on this machine or a private network",
        f"{not_allowed}file: is not allowed",
        "the host has a private network address",
        "redirects more than 4 times",
        "redirects to no valid address",
    ]
    assert stranger.requests() == []


def test_a_stranger_does_not_lead_to_the_own_provider(stranger, provider, download):
    stranger.always(reply(status=302, location=f"{provider.url}/secret"))
    with ForwardProxy() as proxy:
        (problem,) = download(f"{named(stranger)}/1.png", proxy=proxy.address)
    assert problem.endswith("http: is allowed only from the provider")
    assert provider.requests() == []


def test_images_come_through_the_proxy_without_credentials(stranger, download):
    with ForwardProxy() as proxy:
        (image,) = download(f"{named(stranger)}/1.png", proxy=proxy.address)
        assert proxy.asked == [f"CONNECT {HOST}:{stranger.port}"]
        proxy.refuse_with = 403
        assert download(f"{named(stranger)}/2.png", proxy=proxy.address) == [
            "no connection through the proxy"
        ]
    assert image.startswith(SHOWN)
    (seen,) = stranger.requests()
    assert not {"authorization", "cookie", "referer"} & set(seen.headers)


def test_hostile_answers_are_refused_with_a_reason(provider, download):
    png = "content-type: image/png"
    for path, answer in {
        "/page": reply(b"<script>", content_type="text/html; charset=utf-8"),
        "/odd": reply(b"x", content_type='image/png"><script>'),
        "/none": reply(b"x"),
        "/empty": reply(b"", content_type="image/png"),
        "/gone": reply(b"", 404),
        "/bomb": reply(b"\x1f\x8b", content_type="image/png", content_encoding="br"),
        "/endless": endless(b"x" * 65536, head(png)),
        "/drip": endless(b"x", head(png), pause=0.1),
        "/slow-head": endless(b"x: y\r\n", b"HTTP/1.1 200 OK\r\n", pause=0.1),
        "/silent": silence(),
        "/cut": raw(head(png, "content-length: 100") + b"x"),
    }.items():
        provider.on(path, answer)
    paths = ("/page", "/odd", "/none", "/empty", "/gone", "/bomb", "/endless")
    assert download(*paths) == [
        "not an image but text/html",
        "not an image",
        "not an image",
        "empty",
        "its server answered with HTTP 404",
        "the body has an unusable content encoding 'br'",
        "larger than 5 MB",
    ]
    for path in ("/drip", "/slow-head", "/silent"):
        assert download(path) == ["no complete response within 2 s"]
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


def test_a_saved_page_has_its_images_and_names_the_missing_ones(provider, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    provider.on("/good.png", reply(PNG, content_type="image/png"))
    provider.on("/large.png", endless(b"x" * 65536, head("content-type: image/png")))
    names = ("good.png", "large.png", "good.png")
    rows = [{"image": f"{provider.url}/{name}"} for name in names]
    gallery = nftsync.gallery(frame([*rows, {"image": "file:///x"}, {}]), base_url=provider.url)
    with pytest.warns(NftsyncWarning, match="^2 of 4 images not embedded; the first: larger than"):
        page = gallery.save(tmp_path / "page.html", embed=True).read_text()
    assert "img-src data:;" in page
    assert provider.url not in page
    assert "Not embedded: 2 of 4 images. Their cards say why." in page
    columns = data_of(page)["columns"]
    images, problems = (
        [columns[name]["of"][at] for at in columns[name]["at"]] for name in ("image", "problem")
    )
    assert [str(image)[: len(SHOWN)] for image in images] == [SHOWN, "None", SHOWN, "None", "None"]
    assert problems == [None, "larger than 5 MB", None, "file: is not allowed", None]
    assert len(provider.requests("/good.png")) == 1
    assert provider.url in gallery.html


def test_no_images_means_no_requests(provider, tmp_path):
    gallery = nftsync.gallery(
        frame([{"image": f"{provider.url}/x.png"}]), base_url=provider.url, images="none"
    )
    with pytest.warns(NftsyncWarning, match="1 of 1 image not embedded; the first: images are off"):
        gallery.save(tmp_path / "page.html", embed=True)
    assert provider.requests() == []
    assert download_images([], Images(DEFAULT_GATEWAY, None), ClientConfig(base_url="")) == {}


def test_a_page_without_embedded_images_is_a_warning(tmp_path):
    stopped = f"http://127.0.0.1:{free_port()}"
    gallery = nftsync.gallery(frame([{"image": f"{stopped}/1.png"}] * 3), base_url=stopped)
    with pytest.warns(NftsyncWarning, match="^3 of 3 images not embedded; the first: .*refused"):
        gallery.save(tmp_path / "page.html", embed=True)
