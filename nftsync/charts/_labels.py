"""Text from data, made fit for a figure.

Plotly reads a part of HTML in every text it draws (tags, entities, links), hands what stands
between dollar signs to MathJax where that is loaded, and fills in `%{...}` in what hovering shows.
Names and labels come from metadata and from people: they are shown as they are, and act on nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from nftsync.errors import InputError

__all__ = [
    "Names",
    "counted",
    "escaped",
    "given_names",
    "in_full",
    "name_group",
    "tell_apart",
    "without",
]

#: Names that a caller gives to contracts, wallets or other groups.
Names: TypeAlias = "Mapping[str, str] | None"

_LONGEST = 40
_LONGEST_IN_HOVER = 120

#: Controls, surrogates, line and paragraph separators, marks without width, and the marks that
#: turn the direction of what follows.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\ufffc\U000e0000-\U000e0fff]+"
)
_WITHOUT = {
    "contract_address": "no contract",
    "creator_name": "no creator",
    "name": "no name",
    "wallet_group": "no group",
    "wallet_label": "no label",
}
_SPACE = re.compile(r"\s+")
_ENTITIES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;", "$": "&#36;", "%": "&#37;"}
)
_ID = re.compile(r"0x[0-9a-f]{40}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def escaped(text: str, longest: int = _LONGEST) -> str:
    """Text as plotly shows it literally, on one line.

    Args:
        text: anything.
        longest: characters that may remain; what is longer ends in `…`.
    """
    # Cut first: what cannot be shown may be very long.
    shown = _SPACE.sub(" ", _UNSAFE.sub(" ", text[: 16 * longest])).strip()
    if len(shown) > longest:
        shown = shown[: longest - 1].rstrip() + "…"
    return shown.translate(_ENTITIES)


def in_full(text: str) -> str:
    """Text for a hover, where there is more room."""
    return escaped(text, _LONGEST_IN_HOVER)


def name_group(value: Any, missing: str, names: Mapping[str, str]) -> tuple[str, str]:
    """Name what stands for a group: a wallet, a contract, or a value of a column.

    Args:
        value: the id or value; None or blank text is missing.
        missing: what to call the group of what is missing.
        names: given names, as `given_names` returns them.

    Returns:
        The label and the longer text for a hover, both escaped.
    """
    if value is None:
        return escaped(missing), escaped(missing)
    text = str(value)
    full = in_full(text) or escaped(missing)
    given = names.get(_key(text))
    if given is not None and (label := escaped(_short(given))):
        return label, f"{label}<br>{full}"
    return escaped(_short(text)) or escaped(missing), full


def without(by: str) -> str:
    """What to call the group of all for which a column has nothing."""
    return _WITHOUT.get(by, "none given")


def given_names(names: Names) -> dict[str, str]:
    """Check the names that a caller gives, and let them match addresses whatever their case.

    Raises:
        InputError: they are not a mapping of text to text.
    """
    if names is None:
        return {}
    if not isinstance(names, Mapping):
        raise InputError(f"names={names!r} is not a mapping; give {{address or id: name}}")
    for key, name in names.items():
        if not isinstance(key, str) or not isinstance(name, str):
            raise InputError(f"names has {key!r}: {name!r}; give text for both")
    return {_key(key): name for key, name in names.items()}


def tell_apart(labels: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Add a part of their ids to labels that look the same, or all of it if that does not do.

    Args:
        labels: escaped ones.
        ids: an id per label; they need no escaping.
    """
    told = list(labels)
    for part in (lambda key: _short(key)[-13:], lambda key: key):
        often = Counter(told)
        told = [
            shown if often[shown] == 1 or not key else f"{label} ({escaped(part(key))})"
            for shown, label, key in zip(told, labels, ids, strict=True)
        ]
    return told


def counted(number: int, one: str) -> str:
    """A whole number and what it counts: `1 wallet`, `2 wallets`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def _key(text: str) -> str:
    """Addresses and UUIDs are the same whatever their case."""
    return text.lower() if _ID.fullmatch(text) else text


def _short(text: str) -> str:
    """Chain addresses and UUIDs by their two ends, which is how people tell them apart."""
    return f"{text[:8]}…{text[-4:]}" if _ID.fullmatch(text) else text
