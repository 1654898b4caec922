"""Image addresses in untrusted metadata: shown or refused."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nftsync.errors import InputError
from nftsync.provider.images import DEFAULT_GATEWAY, image_address, origin

V0 = "QmYwAPJzv5CZsnA625s1Xf2nemtYgPpHdWEz79ojWKPbdG"
V1 = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
PROVIDER = "http://127.0.0.1:8788/api"

#: Parts of addresses, and characters that break parsers.
PIECES = (
    *("https:", "HTTPS:", "http:", "ipfs:", "javascript:", "data:image/png;base64,AA", "//", "/"),
    *("\\", "@", ":", "?", "#", "..", "%2e%2E", "%", "%41", "[::1]", "[", "a.example", "127.1"),
    *("xn--nxasmq6b.example", "127.0.0.1", "0x7f.1", "8788", "127.0.0.1:8788", "99999", V0, V1),
    *(" ", "\t", "\n", "\x00", '"', "'", "<", ">", "`", "é", "Ｋ", "。", "／", "\u2028", "\u202e"),
    *("\ud800", "💎", "x" * 700),
)
addresses = st.one_of(
    st.text(st.characters()),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=8).map(lambda parts: "https://" + "".join(parts)),
    st.lists(st.sampled_from(PIECES), max_size=5).map(
        lambda parts: "http://127.0.0.1:8788" + "".join(parts)
    ),
)


@given(addresses)
@example("https://a.example/" + "é" * 2000)
@example("http://127.0.0.1:8788@evil.example/")
@example("http://127.0.0.1:8788\\@evil.example/")
@example("http://127.0.0.1:87880/")
@example("http://127.0.0.1:8788.evil.example/")
def test_any_text_gives_a_safe_url_or_a_problem(text):
    url, problem = image_address(text, provider=PROVIDER)
    assert (url is None) != (problem is None)
    if url is None:
        assert problem
        assert len(problem) < 80
        assert problem.isprintable()
        return
    assert re.fullmatch(r"[A-Za-z0-9\-._~!$&()*+,;=:@/?#\[\]%]+", url)
    parts = urlsplit(url)
    assert parts.hostname
    assert "@" not in parts.netloc
    own = url.startswith("http://127.0.0.1:8788/")
    assert own or parts.scheme == "https"
    with suppress(ValueError):
        assert own or ip_address(parts.hostname).is_global
    if len(url) <= 2048:  # encoding may make it longer than an address may be
        assert image_address(url, provider=PROVIDER).url == url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://a.example/b.png?c=1&d#e", "https://a.example/b.png?c=1&d#e"),
        ("  https://a.example/b c.png\n", "https://a.example/b%20c.png"),
        ("HTTPS://A.Example:443/B", "https://a.example/B"),
        ("https://a.example", "https://a.example/"),
        ("https://a.example?b", "https://a.example/?b"),
        ("https://a.example:/b", "https://a.example/b"),
        (
            "https://a_b.example.:8443/ü'\"<>{}|^`",
            "https://a_b.example.:8443/%C3%BC%27%22%3C%3E%7B%7D%7C%5E%60",
        ),
        ("https://a.example/%41%zz", "https://a.example/%41%25zz"),
        ("https://[2606:4700:0:0::1]/x", "https://[2606:4700::1]/x"),
        (f"ipfs://{V0}", f"{DEFAULT_GATEWAY}{V0}"),
        (f"ipfs://{V0}/1 #2.png", f"{DEFAULT_GATEWAY}{V0}/1%20%232.png"),
        (f"IPFS://{V0}/a", f"{DEFAULT_GATEWAY}{V0}/a"),
        (f"ipfs://ipfs/{V1}/a?filename=b", f"{DEFAULT_GATEWAY}{V1}/a?filename=b"),
        (f"ipfs:{V1}", f"{DEFAULT_GATEWAY}{V1}"),
        (V0, f"{DEFAULT_GATEWAY}{V0}"),
        (f"{V1}/image.png", f"{DEFAULT_GATEWAY}{V1}/image.png"),
        (f"/ipfs/{V0}", f"{DEFAULT_GATEWAY}{V0}"),
        ("http://127.0.0.1:8788/x.svg", "http://127.0.0.1:8788/x.svg"),
    ],
)
def test_what_is_shown(text, url):
    assert image_address(text, provider=PROVIDER) == (url, None)


NOT_SHOWN = {
    "blank": ["", " \n"],
    "longer than 2,048 characters": ["x" * 2049],
    "contains a control character, an unpaired surrogate or a backslash": [
        *("https://a.example/\x00", "https://a.example/\x85b", "java\tscript:alert(1)"),
        *("https://a.example\\b", "https://a.example/\ud83d"),
    ],
    "relative address without a host": ["image.png", "//a.example/b", f"/ipfs/{V0[:-1]}"],
    "javascript: is not allowed": ["JavaScript:alert(1)"],
    "data: is not allowed": ["data:image/png;base64,AA"],
    "file: is not allowed": ["file:///etc/passwd"],
    "a" * 20 + "…: is not allowed": ["a" * 30 + ":x"],
    "ipfs: without a valid content id": ["ipfs://not-a-cid/x"],
    "path leads outside the content": [f"ipfs://{V0}/../x", f"ipfs://{V0}/a/%2E%2e/x"],
    "http: is allowed only from the provider": [
        *("http://a.example/b.png", "http://127.0.0.1:8789/x", "http://localhost:8788/x"),
    ],
    "host on this machine or a private network": [
        *[
            "https://127.0.0.1:22/x",
            "https://127.0.0.1:8788/x",
            "https://10.1.2.3/",
            "https://0.0.0.0/",
        ],
        *["https://192.168.0.1/", "https://100.64.0.1/", "https://224.0.0.1/"],
        *["https://169.254.169.254/latest/meta-data", "https://[::1]/x", "https://[::1]:8443/x"],
        *["https://[fe80::1]/", "https://[fd00::1]/", "https://[::ffff:127.0.0.1]/"],
        *["https://[2002:7f00:1::]/", "https://[64:ff9b::a01:203]/", "https://[::127.0.0.1]/x"],
        *["https://[::7f00:1]/x", "https://[::ffff:0:10.0.0.1]/x", "https://[fec0::1]/x"],
        *["https://[feff::1]/x", "https://[64:ff9b:1::7f00:1]/x", "https://localhost/x"],
        *["https://LOCALHOST.:9/", "https://a.localhost/", "https://router/", "https://nas.local/"],
        *["https://vault.internal/", "https://x.home.arpa./", "https://home.arpa/x"],
        *["https://HOME.ARPA./x", "https://api.default.svc/x", "https://wiki.corp/x"],
        *["https://nas.home/x", "https://a.b.private/x"],
        *["https://168.63.129.16/x", "https://[::ffff:168.63.129.16]/x"],
    ],
    "no host": ["https:a.example", "https:///a.example"],
    "contains a user name or password": ["https://a:b@c.example/"],
    "no valid host": [
        *("https://a..example/", "https://ä.example/", "https://a%2eexample/", "https://127.1/"),
        *("https://0x7f000001/", "https://[fe80::1%25eth0]/", "https://[::1"),
        "https://" + "a" * 64 + ".example/",
    ],
    "no valid port": [f"https://a.example:{port}/" for port in ("65536", "0", "8x", "٣")],
}


@pytest.mark.parametrize("problem", NOT_SHOWN)
def test_what_is_not_shown_and_why(problem):
    for text in NOT_SHOWN[problem]:
        assert image_address(text, provider=PROVIDER) == (None, problem)


def test_gateway_and_provider_are_written_as_browsers_write_them():
    assert image_address("http://127.0.0.1:8788/x").url is None, "no provider is known"
    local = "http://localhost:8080/ipfs"
    assert image_address(V0, ipfs_gateway=local).url == f"{local}/{V0}"
    assert image_address(V0, ipfs_gateway="https://g.example").url == f"https://g.example/{V0}"
    assert origin("HTTP://Provider.Example:80/api") == "http://provider.example"
    assert origin("https://provider.example:8443") == "https://provider.example:8443"
    for url in ("", "provider.example", "ftp://a.example", "http://a:b@c.example"):
        with pytest.raises(InputError, match="cannot be used"):
            image_address(V0, ipfs_gateway=url)
        with pytest.raises(InputError, match="cannot be used"):
            origin(url)
