"""How a webhook shows that it comes from the service: made here and checked here.

Source: provider's document, section Authentication: the header `x-service-webhook-hmac` carries
Base64(HMAC-SHA256(shared secret, body)).
"""

from __future__ import annotations

import binascii
import hmac
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["HEADER", "Accepted", "Reason", "Refused", "sign", "verify"]

#: The header that carries the signature.
HEADER = "x-service-webhook-hmac"

#: `missing`: no signature came. `malformed`: what came can be none, or is two. `wrong`: it was not
#: made of this body with one of the secrets.
Reason: TypeAlias = Literal["missing", "malformed", "wrong"]

# 32 bytes are 43 digits and one `=`. A header that came twice is joined with a comma.
_SHAPE = re.compile(r"[A-Za-z0-9+/]{43}=")


class Accepted(NamedTuple):
    """The signature is right.

    Attributes:
        which: the place, among the secrets that were tried, of the first that made it.
    """

    which: int


class Refused(NamedTuple):
    """The signature proves nothing.

    Attributes:
        reason: see `Reason`.
    """

    reason: Reason


def sign(secret: str, body: bytes) -> str:
    """Sign a webhook's body.

    Args:
        secret: the shared secret; its UTF-8 form is the key.
        body: the raw bytes that are sent.

    Returns:
        The header's value: 44 characters of Base64.
    """
    return _signature(secret, body).decode("ascii")


def verify(body: bytes, header: str | None, secrets: Sequence[str]) -> Accepted | Refused:
    """Tell whether a body came from someone who knows one of the secrets.

    The texts are compared, not what they decode to: Base64 has several spellings of the same bytes,
    of which the service sends one. The time it takes tells nothing about where they differ, nor
    which secret was right.

    Args:
        body: the raw bytes that came.
        header: the header's value, or None where there was none.
        secrets: those to try; none of them blank (whoever configures them sees to that).
    """
    if not header:
        return Refused("missing")
    if _SHAPE.fullmatch(header) is None:
        return Refused("malformed")
    given = header.encode("ascii")
    matches = [hmac.compare_digest(_signature(secret, body), given) for secret in secrets]
    return Accepted(matches.index(True)) if True in matches else Refused("wrong")


def _signature(secret: str, body: bytes) -> bytes:
    return binascii.b2a_base64(hmac.digest(secret.encode(), body, "sha256"), newline=False)
