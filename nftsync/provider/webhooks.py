"""From a webhook's bytes to its fields, or the reason why it cannot be worked on.

A body whose signature is right comes from the service, but may still be anything: it is kept
whatever it holds. What is read here can be stored, shown and looked up without harm.

Source: provider's document, section Webhook (notification body).
"""

from __future__ import annotations

import binascii
import hmac
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import msgspec

from nftsync.errors import InputError
from nftsync.records import normalize_uuid
from nftsync.text import DEEPEST_JSON, nests_too_deeply, repeated_key

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


class Webhook(NamedTuple):
    """The fields of a webhook.

    Attributes:
        webhook_id: its id, a UUID in lower case.
        organization_id: the organization it is for, a UUID in lower case.
        action: what happened to the object.
        resource_type: the kind of the object.
        resource_id: the object's id, a UUID in lower case.
        created_at_utc: when the service made it, as sent.
        changes: a JSON object, to the letter as sent, or None.
    """

    webhook_id: str
    organization_id: str
    action: str
    resource_type: str
    resource_id: str
    created_at_utc: str
    changes: str | None


class Unusable(NamedTuple):
    """A body that cannot be worked on.

    Attributes:
        reason: why, in one line that is safe to store and to show.
        webhook: its fields, where they could be read and only what they say is wrong.
    """

    reason: str
    webhook: Webhook | None = None


#: The digits of a number. Amounts reach 78; Python refuses to convert more than 4,300.
_LONGEST_NUMBER = 1_000
_LONGEST_TEXT = 200

_IDS = ("id", "organizationId", "resourceId")
_TEXTS = ("action", "resourceType", "createdAtUtc")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_Fields: TypeAlias = dict[str, Any]


class _Changes(msgspec.Struct, gc=False):
    changes: msgspec.Raw


_changes = msgspec.json.Decoder(_Changes)


class _UnusableError(Exception):
    """Its text is the reason."""


def read_webhook(body: bytes, organization_id: str | None) -> Webhook | Unusable:
    """Read a webhook's body; whatever the bytes are, one of the two comes back.

    Args:
        body: the raw bytes that came.
        organization_id: the only organization whose webhooks are wanted, or None for any.
    """
    try:
        webhook = _webhook(body, _fields(body))
    except _UnusableError as error:
        return Unusable(str(error))
    if organization_id is not None and webhook.organization_id != organization_id.lower():
        return Unusable(f"it is for another organization, {webhook.organization_id}", webhook)
    return webhook


def _webhook(body: bytes, fields: _Fields) -> Webhook:
    webhook_id, organization_id, resource_id = (_id(fields, name) for name in _IDS)
    action, resource_type, created_at_utc = (_text(fields, name) for name in _TEXTS)
    changes = fields.get("changes")
    if changes is not None and not isinstance(changes, dict):
        raise _UnusableError(f"changes: expected an object or null, got {_kind(changes)}")
    try:
        raw = None if changes is None else bytes(_changes.decode(body).changes).decode()
    except (msgspec.DecodeError, RecursionError) as error:
        raise _UnusableError("changes: not JSON that can be kept") from error
    return Webhook(
        webhook_id, organization_id, action, resource_type, resource_id, created_at_utc, raw
    )


def _id(fields: _Fields, name: str) -> str:
    value = _string(fields, name)
    try:
        return normalize_uuid(value, name)
    except InputError:
        raise _UnusableError(f"{name}: {_shown(value)} is not a UUID") from None


def _text(fields: _Fields, name: str) -> str:
    value = _string(fields, name)
    if len(value) > _LONGEST_TEXT:
        raise _UnusableError(f"{name}: longer than {_LONGEST_TEXT} characters")
    if _CONTROL.search(value) is not None:
        raise _UnusableError(f"{name}: {_shown(value)} holds control characters")
    return value


def _string(fields: _Fields, name: str) -> str:
    if name not in fields:
        raise _UnusableError(f"{name}: missing")
    value = fields[name]
    if not isinstance(value, str):
        raise _UnusableError(f"{name}: expected a string, got {_kind(value)}")
    return value


def _fields(body: bytes) -> _Fields:
    """Read the whole body, fields that nobody asks for included."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _UnusableError(f"not UTF-8 (byte {error.start})") from None
    if nests_too_deeply(body):
        raise _UnusableError(f"nested over {DEEPEST_JSON} levels deep")
    try:
        value = _decoder.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _UnusableError(f"not JSON: {error.msg} (character {error.pos})") from None
    except UnicodeEncodeError:
        raise _UnusableError("half of a surrogate pair stands alone") from None
    if not isinstance(value, dict):
        raise _UnusableError(f"expected a JSON object, got {_kind(value)}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> _Fields:
    twice = repeated_key(pairs)
    if twice is not None:
        raise _UnusableError(f"the key {_shown(twice)} stands twice")
    return dict(pairs)


def _number(digits: str) -> float:
    if len(digits) > _LONGEST_NUMBER:
        raise _UnusableError(f"a number of more than {_LONGEST_NUMBER:,} digits")
    return 0.0  # only that it is one matters: changes are kept as they were written


def _constant(name: str) -> NoReturn:
    raise _UnusableError(f"{name} is not JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
)


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", float: "a number"}
    return kinds.get(type(value), "null" if value is None else "a boolean")


def _shown(value: str) -> str:
    """Quote text from outside: escaped, on one line, at most 80 characters."""
    quoted = ascii(value[:80])
    return quoted if len(quoted) <= 80 else f"{quoted[:77]}..."
