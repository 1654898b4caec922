"""Errors of responses that refuse a request, with advice."""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from http.client import responses
from typing import TYPE_CHECKING

from nftsync.errors import AccessRefused, ReadError, UnusableResponse
from nftsync.provider.config import HTTPS_HINT
from nftsync.provider.rate_limit import Auth
from nftsync.text import cut_line

if TYPE_CHECKING:
    from nftsync.provider.transport import Response

#: If a response asks for a longer wait, the read fails, so that it does not block others; seconds.
_LONGEST_PAUSE = 300.0


def passing_refusal(status: int, wait: float | None) -> ReadError:
    """Return the error of a refusal that may pass; it does not if the wait is too long."""
    # With the standard phrase, as the provider's may be anything.
    text = f"the provider answered {status} {responses.get(status, '')}".rstrip()
    error = ReadError(text, status=429 if status == 403 else status)
    if wait is not None and wait > _LONGEST_PAUSE:
        text += f" and asks to wait {wait:.0f} s, longer than {_LONGEST_PAUSE:.0f} s"
        error.args, error.passing = (text,), False
    return error


def refusal(response: Response, base_url: str, auth: Auth, sent_secret: str) -> ReadError:
    """Return the error of a status that no retry changes; it quotes no part of a secret."""
    status = response.status
    kind: type[ReadError] = UnusableResponse if status < 400 else ReadError
    if status in {401, 403}:
        kind = AccessRefused
    error = kind(f"the provider answered {_advised(status, base_url, auth)}", status=status)
    error.reason = _reason(response.body, [sent_secret, *auth.headers()[0].values()])
    return error


def _advised(status: int, base_url: str, auth: Auth) -> str:
    match status:
        case 401 | 403 if status == 401 or not auth.is_set:
            return f"{status}: no access; {auth.advice}"
        case 403:
            return "403: no access; the credentials are valid but lack permission; ask for it"
        case 206:
            return "206: only a part of the object"
        case 304:
            return "304: not modified, but the request had no condition"
        case 400 if base_url.startswith("http:"):
            return f"400{HTTPS_HINT}"
        case 404 if re.search("/v1(/|$)", base_url):
            return "404: no such object; paths already start with /v1: remove it from base_url"
        case 404:
            return "404: no such object"
    if 300 <= status < 400:
        return f"{status}, a redirect, which nftsync does not follow; check base_url"
    return str(status)


def _reason(body: bytes, secrets: list[str]) -> str:
    """Return the start of a body as one line, or blank if it repeats a part of a secret."""
    with suppress(zlib.error):
        body = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, 5_000)
    text = body.decode("utf-8", "ignore")
    parts = {x[n : n + 6].lower() for x in secrets for n in range(max(1, len(x) - 5))} - {""}
    repeats = any(y in text.lower() for x in parts for y in (x, json.dumps(x)[1:-1]))
    return "" if repeats else cut_line(text, 300)
