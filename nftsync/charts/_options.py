"""What callers may give, checked."""

from __future__ import annotations

import operator
from collections.abc import Collection
from difflib import get_close_matches
from typing import SupportsIndex

from nftsync.errors import InputError

__all__ = ["MOST_BARS", "MOST_POINTS", "choice", "number_of"]

#: Points of a chart over time; more cannot be told apart on any screen.
MOST_POINTS = 2_000

MOST_BARS = 200


def number_of(value: SupportsIndex, name: str, most: int) -> int:
    """Check how many of something are to be shown.

    Raises:
        InputError: it is no whole number from 1 to `most`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or not 1 <= number <= most:
        raise InputError(f"{name}={value!r} cannot be shown; give a whole number from 1 to {most}")
    return number


def choice(value: object, name: str, choices: Collection[str]) -> str:
    """Check a choice of names.

    Raises:
        InputError: it is none of them; the text names the nearest.
    """
    if isinstance(value, str) and value in choices:
        return value
    near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    instead = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"{name}={value!r} is unknown; {instead}give one of {', '.join(choices)}")
