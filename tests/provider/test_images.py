import json
import re
from base64 import b64encode
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nftsync.errors import InputError
from nftsync.provider.images import DEFAULT_GATEWAY, Images, origin

V0 = "QmYwAPJzv5CZsnA625s1Xf2nemtYgPpHdWEz79ojWKPbdG"
V1 = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
OTHERS = ("displayUri", "artifactUri", "thumbnailUri", "image_url", "image_data")
BASE36 = f"k51qzi5uqu5d{'a' * 50}"
ARWEAVE = "Zq-_" * 10 + "Zq8"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><path fill='#f00' d='M0 0'/></svg>"
SVGS = (
    *(SVG, f"data:image/svg+xml;utf8,{SVG}", f"data:image/svg+xml,{quote(SVG)}"),
    f"data:image/svg+xml;charset=utf-8;base64,{b64encode(SVG.encode()).decode().rstrip('=')}",
)
PROVIDER = "http://127.0.0.1:8788/api"

#: Parts of addresses, and characters that break parsers.
PIECES = (
    *("https:", "HTTPS:", "http:", "ipfs:", "javascript:", "data:image/png;base64,AA", "//", "/"),
    *("\\", "@", ":", "?", "#", "..", "%2e%2E", "%", "%41", "[::1]", "[", "a.example", "127.1"),
    *("xn--nxasmq6b.example", "127.0.0.1", "0x7f.1", "8788", "127.0.0.1:8788", "99999", V0, V1),
    *(" ", "\t", "\n", "\x00", '"', "'", "<", ">", "`", "é", "Ｋ", "。", "／", "\u2028", "\u202e"),
    *("\ud800", "💎", "x" * 700),
)
addresses = st.text(st.characters()) | st.builds(
    "{}{}".format,
    st.sampled_from(["", "https://", "http://127.0.0.1:8788"]),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
)


@given(addresses)
@example("https://a.example/" + "é" * 2000)
@example("http://127.0.0.1:8788@evil.example/")
@example("http://127.0.0.1:8788\\@evil.example/")
@example("http://127.0.0.1:87880/")
@example("http://127.0.0.1:8788.evil.example/")
def test_any_text_gives_a_safe_url_or_a_problem(text):
    url, problem = Images(provider=PROVIDER).at(text)
    assert (url is None) != (problem is None)
    if url is None:
        assert problem
        assert len(problem) < 80
        assert problem.isprintable()
        return
    if url.startswith("data:"):
        assert re.fullmatch("data:image/[a-z+]+;base64,[A-Za-z0-9+/]+=*", url)
        assert Images().at(url) == (url, None)
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
        assert Images(provider=PROVIDER).at(url).url == url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://a.example/b.png?c=1&d#e", "https://a.example/b.png?c=1&d#e"),
        ("  https://a.example/b c.png\n", "https://a.example/b%20c.png"),
        ("HTTPS://A.Example:443/B", "https://a.example/B"),
        ("https://a.example", "https://a.example/"),
        ("https://a.example?b", "https://a.example/?b"),
        ("https://a.example:/b", "https://a.example/b"),
        ("https://a_b.example.:8443/ü'\"<", "https://a_b.example.:8443/%C3%BC%27%22%3C"),
        ("https://a.example/>{}|^`", "https://a.example/%3E%7B%7D%7C%5E%60"),
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
        *((text, f"{DEFAULT_GATEWAY}{V1}") for text in (V1.upper(), f"IPFS://IPFS/{V1.title()}")),
        (f"ipfs://{BASE36.upper()}/A.png", f"{DEFAULT_GATEWAY}{BASE36}/A.png"),
        (f"ar://{ARWEAVE}", f"https://arweave.net/{ARWEAVE}"),
        (f"AR://{ARWEAVE}/1 #2.png", f"https://arweave.net/{ARWEAVE}/1%20%232.png"),
        ("https://Bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("https://a。example:8443/", "https://a.example:8443/"),
        ("https://日本.例え/x", "https://xn--wgv71a.xn--r8jz45g/x"),
        *((text, f"data:image/svg+xml;base64,{b64encode(SVG.encode()).decode()}") for text in SVGS),
        ("data:image/png;base64,_-8", "data:image/png;base64,/+8="),
        ("DATA: image/GIF ;charset=x; BASE64,R0lG OD lh", "data:image/gif;base64,R0lGODlh"),
        ("http://127.0.0.1:8788/x.svg", "http://127.0.0.1:8788/x.svg"),
    ],
)
def test_usable_addresses_are_shown_in_normal_form(text, url):
    assert Images(provider=PROVIDER).at(text) == (url, None)


NOT_SHOWN = {
    "blank": ["", " \n"],
    "longer than 2,048 characters": ["x" * 2049],
    "contains a control character, an unpaired surrogate or a backslash": [
        *("https://a.example/\x00", "https://a.example/\x85b", "java\tscript:alert(1)"),
        *("https://a.example\\b", "https://a.example/\ud83d"),
    ],
    "relative address without a host": ["image.png", "//a.example/b", f"/ipfs/{V0[:-1]}"],
    "javascript: is not allowed": ["JavaScript:alert(1)"],
    "data: without a picture": [
        *("data:text/html,<script>", "data:,x", "data:image/png", "data:image/png;base64,"),
        *("data:image/svg,<svg/>", "data:application/pdf;base64,AA"),
    ],
    "a picture of more than 200,000 characters": [f"data:image/png,{'x' * 200_000}"],
    "{id} without an on-chain token id": ["https://a.example/{id}.png", f"ipfs://{V0}/{{id}}"],
    "ar: is not allowed": [f"ar://{'a' * 42}", "ar://../x"],
    "file: is not allowed": ["file:///etc/passwd"],
    "a" * 20 + "…: is not allowed": ["a" * 30 + ":x"],
    "ipfs: without a valid content id": ["ipfs://not-a-cid/x"],
    "path leads outside the content": [f"ipfs://{V0}/../x", f"ipfs://{V0}/a/%2E%2e/x"],
    "http: is allowed only from the provider": [
        *("http://a.example/b.png", "http://127.0.0.1:8789/x", "http://localhost:8788/x"),
    ],
    "host on this machine or a private network": [
        *["https://127.0.0.1:8788/x", "https://10.1.2.3/", "https://0.0.0.0/"],
        *["https://192.168.0.1/", "https://100.64.0.1/", "https://224.0.0.1/"],
        *["https://169.254.169.254/latest/meta-data", "https://[::1]/x", "https://[::1]:8443/x"],
        *["https://[fe80::1]/", "https://[fd00::1]/", "https://[::ffff:127.0.0.1]/"],
        *["https://[2002:7f00:1::]/", "https://[64:ff9b::a01:203]/", "https://[::127.0.0.1]/x"],
        *["https://[::7f00:1]/x", "https://[::ffff:0:10.0.0.1]/x", "https://[fec0::1]/x"],
        *["https://[feff::1]/x", "https://[64:ff9b:1::7f00:1]/x", "https://localhost/x"],
        *["https://１２７.０.０.１/", "https://ⓛocalhost/", "https://nas。local/"],
        *["https://LOCALHOST.:9/", "https://a.localhost/", "https://router/", "https://nas.local/"],
        *["https://vault.internal/", "https://x.home.arpa./", "https://home.arpa/x"],
        *["https://HOME.ARPA./x", "https://api.default.svc/x", "https://wiki.corp/x"],
        *["https://nas.home/x", "https://a.b.private/x"],
        *["https://168.63.129.16/x", "https://[::ffff:168.63.129.16]/x"],
    ],
    "no host": ["https:a.example", "https:///a.example"],
    "contains a user name or password": ["https://a:b@c.example/"],
    "no valid host": [
        *("https://a..example/", "https://a／b.example/", "https://a%2eexample/", "https://127.1/"),
        *("https://0x7f000001/", "https://[fe80::1%25eth0]/", "https://[::1"),
        "https://" + "a" * 64 + ".example/",
    ],
    "no valid port": [f"https://a.example:{port}/" for port in ("65536", "0", "8x", "٣")],
}


@pytest.mark.parametrize("problem", NOT_SHOWN)
def test_other_addresses_are_refused_with_the_reason(problem):
    for text in NOT_SHOWN[problem]:
        assert Images(provider=PROVIDER).at(text) == (None, problem)


def test_gateway_and_provider_are_written_as_browsers_write_them():
    assert Images().at("http://127.0.0.1:8788/x").url is None, "no provider is known"
    local = "http://localhost:8080/ipfs"
    assert Images(local).at(V0).url == f"{local}/{V0}"
    assert Images("https://g.example").at(V0).url == f"https://g.example/{V0}"
    assert origin("HTTP://Provider.Example:80/api") == "http://provider.example"
    assert origin("https://provider.example:8443") == "https://provider.example:8443"
    for url in ("", "provider.example", "ftp://a.example", "http://a:b@c.example"):
        with pytest.raises(InputError, match="cannot be used"):
            Images(url).at(V0)
        with pytest.raises(InputError, match="cannot be used"):
            origin(url)


IMAGES = Images()


def test_a_token_number_replaces_id_in_64_digits():
    for number, digits in (
        *(("188", "bc"), ("0xBC", "bc"), ("0", "0"), ("007", "7"), (str(2**256 - 1), "f" * 64)),
    ):
        for template in ("https://a.example/{id}.json", f"ipfs://{V0}/{{id}}"):
            expected = IMAGES.at(template.replace("{id}", digits.rjust(64, "0")))
            assert IMAGES.of_token(template, number, "") == expected
        extra = '{"metadata":{"image_url":"https://a.example/{id}"}}'
        assert IMAGES.of_token("", number, extra).url
    for number in ("", "-1", "1.5", "x", "0x", "１", "9" * 79, "0x" + "f" * 65):
        found = IMAGES.of_token("https://a.example/{id}", number, "")
        assert found == (None, "{id} without an on-chain token id")


@given(st.dictionaries(st.sampled_from(OTHERS), st.sampled_from([None, 1, [], " ", "x", "ok"])))
def test_other_fields_replace_a_missing_image_in_order(fields):
    found = {
        name: f"https://{name.lower()}.example/" if x == "ok" else x for name, x in fields.items()
    }
    extra = json.dumps({"metadata": found, "other": 1})
    usable = [f"https://{name.lower()}.example/" for name in OTHERS if fields.get(name) == "ok"]
    for image in ("", "x"):
        assert IMAGES.of_token(image, "", extra).url == (usable[0] if usable else None)
    assert IMAGES.of_token("https://a.example/", "", extra).url == "https://a.example/"
    for unusable in ("{}", '{"metadata":null}', '{"metadata":"x"}', '{"metadata":[]}'):
        assert IMAGES.of_token("", "", unusable) == (None, None)
