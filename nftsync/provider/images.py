"""Image addresses in token metadata: which ones may be shown, and as which URL.

Metadata comes from strangers. These addresses are shown:

- `https:`, unless the host is plainly on this machine or a private network
- content on IPFS or Arweave, through a gateway
- the provider's own origin, which may be plain `http:` in a trial
- a picture itself (`data:` or an SVG), of a bounded size; in `<img>`, an SVG runs no script

Returned URLs are assembled from checked parts, so browsers cannot interpret them differently.

Source: provider's document, section TokenMetadata (which does not define the form of `image`).
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode
from contextlib import suppress
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

import idna
import msgspec

from nftsync.errors import InputError
from nftsync.provider.addresses import is_private

DEFAULT_GATEWAY: Final = "https://ipfs.io/ipfs/"

_MOST_CHARACTERS = 2048
_MOST_HOST_CHARACTERS = 253
_DEFAULT_PORTS = {"http": 80, "https": 443}

_NEVER = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\]")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.ASCII | re.IGNORECASE)
_AUTHORITY = re.compile(r"//([^/?#]*)(.*)")
_HOST_AND_PORT = re.compile(r"(\[[0-9a-f:.]*\]|[^:]*)(?::(.*))?")
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
#: A last label of this form makes browsers read the host as an IPv4 address.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
#: Characters to percent-encode in a path, query or fragment.
_UNSAFE = re.compile(r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9\-._~!$&()*+,;=:@/?#\[\]%]")

#: Version 0, and version 1 in base 32, 36, 58 and 16 (docs.ipfs.tech, Content identifiers).
_CID = (
    r"(?:Qm[1-9A-HJ-NP-Za-km-z]{44}|z[1-9A-HJ-NP-Za-km-z]{46,112}"
    r"|(?i:b[a-z2-7]{58,112}|k[0-9a-z]{50,112}|f01[0-9a-f]{68,140}))"
)
_ON_IPFS = re.compile(rf"(?:(?i:ipfs):/*|/)?(?i:ipfs/)*({_CID})((?:[/?#].*)?)", re.ASCII)
_ON_ARWEAVE = re.compile(r"(?i:ar):/*([A-Za-z0-9_-]{43})((?:[/?#].*)?)")
_ARWEAVE = "https://arweave.net/"
#: Images that browsers show.
IMAGE_TYPES: Final = frozenset(
    f"image/{name}" for name in ("avif", "bmp", "gif", "jpeg", "png", "svg+xml", "webp")
)
_DATA = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.IGNORECASE | re.DOTALL)
_MOST_IN_DATA = 200_000
#: Where `image` is unusable, these fields may have a picture: TZIP-21, OpenSea.
_OTHER_FIELDS = ("displayUri", "artifactUri", "thumbnailUri", "image_url", "image_data")
_TOKEN_NUMBER = re.compile(r"[0-9]{1,78}|0x[0-9a-f]{1,64}", re.IGNORECASE)
_UPWARDS = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)


class ImageAddress(NamedTuple):
    """A URL that is ASCII and safe to load, or a reason that quotes at most the scheme."""

    url: str | None
    problem: str | None


class _Refused(Exception):
    """Reason why an address is not shown."""


def origin(url: str) -> str:
    """Return a configured URL's scheme, host and port, as browsers write them."""
    return _configured(url)[0]


#: Allowed images.
WhichImages: TypeAlias = Literal["all", "provider", "none"]


class Images(NamedTuple):
    """Allowed sources of images: the URL before IPFS content, and the provider's base URL."""

    gateway: str = DEFAULT_GATEWAY
    provider: str | None = None
    which: WhichImages = "all"

    def of_token(self, image: str, number: str, extra: str) -> ImageAddress:
        """Check a token's image and, if it is unusable, other fields of its metadata.

        `number` is the on-chain token id, which replaces `{id}` (ERC-1155); `extra` is JSON.
        """
        digits = "{id}"
        if _TOKEN_NUMBER.fullmatch(number):
            digits = f"{int(number, 16 if number[1:2] in {'x', 'X'} else 10):064x}"
        metadata = msgspec.json.decode(extra).get("metadata") if extra else None
        fields = metadata if isinstance(metadata, dict) else {}
        texts = [image, *map(fields.get, _OTHER_FIELDS)]
        filled = (text for text in texts if isinstance(text, str) and text.strip())
        checked = (self.at(text.replace("{id}", digits)) for text in filled)
        return min(checked, key=lambda one: one.url is None, default=ImageAddress(None, None))

    def at(self, text: str) -> ImageAddress:
        """Turn an address from metadata, a bare CID, `data:` or an SVG into a URL safe to load."""
        if self.which == "none":
            return ImageAddress(None, "images are off")
        own = None if self.provider is None else origin(self.provider)
        gateway = _gateway(self.gateway)
        try:
            url = _shown(text.strip(), gateway, own)
        except _Refused as problem:
            return ImageAddress(None, str(problem))
        if self.which == "all" or (own and url.startswith(f"{own}/")):
            return ImageAddress(url, None)
        return ImageAddress(None, "only the provider's images are on")

    def checked(self) -> Images:
        """Return these sources, or raise InputError."""
        for url in (self.gateway, self.provider):
            if url is not None:
                origin(url)
        return self


def image_sources(images: Images) -> str:
    own = [] if images.provider is None else [origin(images.provider)]
    others = {site for site in [origin(images.gateway), *own] if not site.startswith("https:")}
    sources = {"all": ["https:", "data:", *sorted(others)], "provider": own, "none": []}
    return " ".join(sources[images.which]) or "'none'"


def _shown(text: str, gateway: str, own: str | None) -> str:
    if text.startswith(("<svg", "<?xml")) or text[:5].lower() == "data:":
        return _data_url(text)
    _check_characters(text)
    if "{id}" in text:
        raise _Refused("{id} without an on-chain token id")
    if on_ipfs := _ON_IPFS.fullmatch(text):
        cid = on_ipfs[1]
        return gateway + (cid if cid[0] in "Qz" else cid.lower()) + _within(on_ipfs[2])
    if on_arweave := _ON_ARWEAVE.fullmatch(text):
        return _ARWEAVE + on_arweave[1] + _within(on_arweave[2])
    scheme = _SCHEME.match(text)
    if scheme is None:
        raise _Refused("relative address without a host")
    name = scheme[1].lower()
    if name == "ipfs":
        raise _Refused("ipfs: without a valid content id")
    if name not in _DEFAULT_PORTS:
        raise _Refused(f"{name if len(name) <= 20 else f'{name[:20]}…'}: is not allowed")
    site, host, rest = _split(name, text[scheme.end() :])
    if site != own:
        if name == "http":
            raise _Refused("http: is allowed only from the provider")
        if is_private(host):
            raise _Refused("host on this machine or a private network")
    return f"{site}{'' if rest.startswith('/') else '/'}{_encoded(rest)}"


def _data_url(text: str) -> str:
    if len(text) > _MOST_IN_DATA:
        raise _Refused(f"a picture of more than {_MOST_IN_DATA:,} characters")
    kind, content = "image/svg+xml" if text[0] == "<" else "", text.encode("utf-8", "replace")
    if match := _DATA.fullmatch(text):
        kind, content = (
            match[1].strip().lower(),
            unquote_to_bytes(match[3].encode("utf-8", "replace")),
        )
        if match[2].replace(" ", "").lower().endswith(";base64"):
            with suppress(ValueError):  # a browser says that it is damaged
                content = urlsafe_b64decode(content + b"==")
    if kind not in IMAGE_TYPES or not content:
        raise _Refused("data: without a picture")
    return f"data:{kind};base64,{b64encode(content).decode()}"


def _check_characters(text: str) -> None:
    if not text:
        raise _Refused("blank")
    if len(text) > _MOST_CHARACTERS:
        raise _Refused(f"longer than {_MOST_CHARACTERS:,} characters")
    if _NEVER.search(text) is not None:
        raise _Refused("contains a control character, an unpaired surrogate or a backslash")


def _split(scheme: str, after: str) -> tuple[str, str, str]:
    match = _AUTHORITY.fullmatch(after)
    if match is None or not match[1]:
        raise _Refused("no host")
    authority, rest = match.groups()
    if "@" in authority:
        raise _Refused("contains a user name or password")
    parts = _HOST_AND_PORT.fullmatch(authority.lower())
    if parts is None:
        raise _Refused("no valid host")
    host = _host(parts[1])
    default = _DEFAULT_PORTS[scheme]
    port = parts[2] or str(default)
    if _PORT.fullmatch(port) is None or not 0 < int(port) <= 65535:
        raise _Refused("no valid port")
    return f"{scheme}://{host}{'' if int(port) == default else f':{int(port)}'}", host, rest


def _host(host: str) -> str:
    try:
        if host.startswith("["):
            return f"[{IPv6Address(host[1:-1]).compressed}]"
        if not host.isascii():
            host = idna.encode(host, uts46=True).decode()
        labels = host.removesuffix(".").split(".")
        if _NUMBER.fullmatch(labels[-1]):
            return str(IPv4Address(host))
    except (AddressValueError, idna.IDNAError):
        raise _Refused("no valid host") from None
    if len(host) > _MOST_HOST_CHARACTERS or not all(map(_LABEL.fullmatch, labels)):
        raise _Refused("no valid host")
    return host


def _within(path: str) -> str:
    path = path.replace("#", "%23")
    if any(map(_UPWARDS.fullmatch, path.partition("?")[0].split("/"))):
        raise _Refused("path leads outside the content")
    return _encoded(path)


def _encoded(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in match[0].encode())

    return _UNSAFE.sub(escape, text)


@lru_cache(maxsize=8)
def _gateway(url: str) -> str:
    site, _, rest = _configured(url)
    path = _encoded(rest).strip("/")
    return f"{site}/{path}/" if path else f"{site}/"


@lru_cache(maxsize=8)
def _configured(url: str) -> tuple[str, str, str]:
    url = url.strip()
    scheme, _, after = url.partition(":")
    try:
        _check_characters(url)
        if scheme.lower() in _DEFAULT_PORTS:
            return _split(scheme.lower(), after)
        problem = "not an http: or https: URL"
    except _Refused as refused:
        problem = str(refused)
    raise InputError(f"a source of images (ipfs_gateway or base_url) cannot be used: {problem}")
