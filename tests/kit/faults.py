"""The faults of a provider, and the error of a client for each."""

from __future__ import annotations

import gzip
from http.client import responses
from typing import NamedTuple

from nftsync.errors import AccessRefused, NoConnection, ReadError, UnusableResponse
from tests.kit.provider import Sender, balances, endless, entry, head, raw, reply, token, wallet

GOOD = balances(entry(token(1)))
PACKED = gzip.compress(GOOD)


class Fault(NamedTuple):
    """A faulty answer.

    Attributes:
        answer: sends it.
        kind: the class of the error.
        message: a pattern of its text.
        passing: whether the client tries again.
        down: whether the provider counts as down.
        status: of the error.
    """

    answer: Sender
    kind: type[ReadError]
    message: str
    passing: bool = False
    down: bool = False
    status: int | None = None


def chunked(body: bytes, *, last: bytes = b"0\r\n\r\n", **headers: str) -> bytes:
    """Return a response whose body is one chunk."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return head("transfer-encoding: chunked", *lines) + b"%x\r\n%s\r\n%s" % (len(body), body, last)


_BROKEN: dict[str, Sender] = {
    "closed": raw(),
    "reset": raw(then="reset"),
    "too short": reply(GOOD, length=len(GOOD) + 1),
    "reset in the body": raw(head(f"content-length: {len(GOOD)}") + GOOD[:9], then="reset"),
    "no last chunk": raw(chunked(GOOD, last=b"")),
    "endless headers": endless(b"x: y\r\n" * 1_000, b"HTTP/1.1 200 OK\r\n"),
    "another protocol": raw(b"SSH-2.0-x\r\n"),
}
_CUT: dict[str, Sender] = {
    "empty": reply(b""),
    "cut at the end": reply(GOOD[:-1]),
    "cut in the middle": reply(GOOD[: len(GOOD) // 2]),
    "cut in a character": reply('{"x": "é'.encode()[:-1]),
    "cut gzip": reply(PACKED[:-12], content_encoding="gzip"),
}
_UNUSABLE: dict[str, tuple[Sender, str]] = {
    "HTML": (reply(b"<html>Welcome to the hotel's Wi-Fi"), "it looks like HTML"),
    "no list": (reply(b"{}"), "nftTokenBalances"),
    "another shape": (reply(b'{"nftTokenBalances": {}}'), "nftTokenBalances: expected array"),
    "two amounts of a token": (
        reply(balances(entry(token(1), "1"), entry(token(1), "2"))),
        f"token {token(1)} is listed twice, with the amounts '1' and '2'",
    ),
    "not gzip": (reply(GOOD, content_encoding="gzip"), "cannot be decompressed"),
    "damaged gzip": (
        reply(PACKED[:20] + b"\xff" * 30 + PACKED[50:], content_encoding="gzip"),
        "cannot be decompressed",
    ),
    "brotli": (reply(GOOD, content_encoding="br"), "content encoding 'br'"),
    "gzip twice": (
        reply(gzip.compress(PACKED), content_encoding="gzip, gzip"),
        "encoding 'gzip, gzip'",
    ),
    "206": (reply(GOOD, 206, content_range="items 0-0/2"), "206: only a part of the object"),
    **{
        f"{status} to {place}": (
            reply(GOOD, status, location=place),
            f"{status}, a redirect, which nftsync does not follow",
        )
        for status in (301, 302, 307)
        for place in (f"/v1/wallets/{wallet(1)}/nft-balances", "/there")
    },
}
_REFUSED: dict[str, tuple[Sender, int]] = {
    **{
        str(status): (reply(b"no", status, retry_after="1"), status)
        for status in (400, 401, 404, 410, 413, 422)
    },
    "403 with requests left": (
        reply(b"no", 403, x_ratelimit_remaining="9", x_ratelimit_reset="1"),
        403,
    ),
    "403 with a reset": (reply(b"no", 403, ratelimit_reset="1"), 403),
    "403 without a time": (reply(b"no", 403, retry_after="never"), 403),
}


FAULTS: dict[str, Fault] = {
    **{
        name: Fault(answer, NoConnection, "the connection broke: .*", passing=True, down=True)
        for name, answer in _BROKEN.items()
    },
    **{
        name: Fault(answer, UnusableResponse, "the (compressed )?body is .*", passing=True)
        for name, answer in _CUT.items()
    },
    **{
        str(status): Fault(
            reply(b"busy", status),
            ReadError,
            f"the provider answered {status} {responses.get(status, '')}".strip(),
            passing=True,
            down=True,
            status=status,
        )
        for status in (408, 421, 425, 429, 500, 501, 503, 505, 599)
    },
    **{
        name: Fault(answer, UnusableResponse, f".*{message}.*", status=None)
        for name, (answer, message) in _UNUSABLE.items()
    },
    **{
        name: Fault(
            answer,
            AccessRefused if status in {401, 403} else ReadError,
            f"the provider answered {status}.*",
            down=status in {401, 403},
            status=status,
        )
        for name, (answer, status) in _REFUSED.items()
    },
    **{
        f"{status} for a day": Fault(
            reply(b"", status, retry_after="86400"),
            ReadError,
            f"the provider answered {status} .* and asks to wait 86400 s, longer than 300 s",
            down=True,
            status=status,
        )
        for status in (429, 503)
    },
}
PASSING = {name: fault for name, fault in FAULTS.items() if fault.passing}
FINAL = {name: fault for name, fault in FAULTS.items() if not fault.passing}
