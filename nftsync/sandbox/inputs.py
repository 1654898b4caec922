"""What callers of the sandbox hand in, checked: JSON bodies, amounts, metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

import msgspec

from nftsync.errors import InputError
from nftsync.sandbox.worldfile import Holding

__all__ = [
    "MAX_AMOUNT",
    "Metadata",
    "decode_body",
    "json_object",
    "positive_amount",
    "whole_amount",
]

#: The greatest amount that a chain's uint256 holds.
MAX_AMOUNT = 2**256 - 1

#: A token's metadata: a mapping, or JSON text that is kept to the character.
Metadata: TypeAlias = Mapping[str, object] | msgspec.Raw

_Form = TypeVar("_Form")
_DIGITS = re.compile(r"[0-9]{1,100}", re.ASCII)


def decode_body(body: bytes, form: type[_Form], what: str) -> _Form:
    """Read a request's body.

    Args:
        body: JSON as UTF-8; the request's Content-Type does not count.
        form: the msgspec type that it must have.
        what: what it is, for the message.

    Raises:
        InputError: it is no such JSON; the text says where and why, and quotes nothing of it but
            field names.
    """
    try:
        # msgspec skips over a raw value without checking its UTF-8.
        body.decode()
        return msgspec.json.decode(body, type=form)
    except UnicodeDecodeError as error:
        raise InputError(f"the {what} is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise InputError(f"the {what} is nested too deeply") from error
    except msgspec.MsgspecError as error:
        raise InputError(f"the {what} cannot be used: {_in_a_line(str(error))}") from error


def _in_a_line(message: str) -> str:
    """Escape what would break a line: msgspec quotes field names as they came."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in message)


def positive_amount(amount: int | str) -> int:
    """Read an amount exactly; a bool or a float is none.

    Raises:
        InputError: it is no positive integer, or above MAX_AMOUNT.
    """
    if isinstance(amount, str) and _DIGITS.fullmatch(amount):
        amount = int(amount)
    if not isinstance(amount, int) or isinstance(amount, bool) or amount < 1:
        raise InputError("the amount is not a positive integer")
    if amount > MAX_AMOUNT:
        raise InputError("the amount is above 2**256-1")
    return amount


def whole_amount(wallet: str, holding: Holding) -> int:
    """Read what a wallet holds of a token as a number.

    Raises:
        InputError: the text it lists is none.
    """
    if _DIGITS.fullmatch(holding.amount) is None:
        token, shown = holding.token_id, holding.amount[:40]
        raise InputError(f"wallet {wallet} holds {shown!r} of token {token}: no whole number")
    return int(holding.amount)


def json_object(value: Metadata, what: str) -> dict[str, msgspec.Raw]:
    """Check that a value is a JSON object, whose own values stay JSON text.

    Raises:
        InputError: it is none.
    """
    try:
        text = msgspec.json.encode(value)
        text.decode()
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the {what} is no JSON object: {_in_a_line(str(error))}") from error
