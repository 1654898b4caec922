"""Traits of tokens."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.columns import TEXT, coded, flags, frame_of, numbered_together, text
from nftsync.columnar.filters import filters_of
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.source import Store, reading
from nftsync.columnar.tokens import NAMING, contract_groups, read_tokens
from nftsync.errors import NftsyncWarning
from nftsync.text import counted

#: The type of a trait (None: the attribute names none) and its value as text.
Trait: TypeAlias = "tuple[str | None, str]"

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_objects = msgspec.json.Decoder(list[msgspec.Raw])
_text = msgspec.json.Decoder(str)
#: Names of the type of a trait: ERC-721, other marketplaces, TZIP-21.
_TYPE_FIELDS: Final = ("trait_type", "traitType", "name", "key")
#: Fields of metadata with traits, in order of preference: ERC-721 and Metaplex, OpenSea, ERC-1155.
_FIELDS: Final = ("attributes", "traits", "properties")
_NAMES: Final = ("contract_address", "contract", "collection", "token_id", "name", "nft")
_HAS_TRAITS: Final = rf'(?:{"|".join(_FIELDS)})\\*"\s*:'


def traits_of(extra: str) -> Iterator[Trait]:
    """Yield the traits in the `extra` column of one token.

    The first of `_FIELDS` that is not empty is a list of objects with a type and `value`, or an
    object that maps types to values or to such objects.
    """
    try:
        metadata = _object.decode(_json(_object.decode(extra).get("metadata", b"{}")))
        fields = ((name, _json(metadata[name])) for name in _FIELDS if name in metadata)
        for trait_type, raw in _pairs(*next((x for x in fields if len(x[1]) > 2), ("", b"[]"))):
            if (value := _scalar(raw)) is not None:
                yield trait_type, value
    except (msgspec.DecodeError, RecursionError):
        return


def _json(raw: msgspec.Raw | bytes) -> bytes:
    """Return a JSON list or object, also of JSON as text, or nothing."""
    text = bytes(raw)
    if text.startswith(b'"'):
        text = _text.decode(text).strip().encode("utf-8", "replace")
    return text if text[:1] in {b"[", b"{"} else b""


def _pairs(field: str, attributes: bytes) -> Iterator[tuple[str | None, msgspec.Raw]]:
    items: Iterable[tuple[str | None, msgspec.Raw]]
    if attributes.startswith(b"{"):
        named = _object.decode(attributes)
        is_media = field == "properties" and "files" in named  # of Metaplex
        items = () if is_media else named.items()
    else:
        items = ((None, one) for one in _objects.decode(attributes))
    for name, value in items:
        if bytes(value).startswith(b"{"):
            fields = _object.decode(value)
            types = (_scalar(fields[field]) for field in _TYPE_FIELDS if field in fields)
            yield next(types, name), fields.get("value", msgspec.Raw(b"null"))
        elif name is not None:
            yield name, value


def _scalar(value: msgspec.Raw) -> str | None:
    raw = bytes(value)
    if raw.startswith(b'"'):
        return _text.decode(raw)
    return None if raw[:1] in b"[{" or raw == b"null" else raw.decode()


def traits(db: Store = None, contract: str | None = None, *, hidden: bool = False) -> pd.DataFrame:
    """Return the traits of tokens: a row per token and trait.

    Shared parameters: see `nftsync.frames`. Traits come from `attributes`, `traits` or `properties`
    in a token's metadata, in the forms of ERC-721, ERC-1155, TZIP-21 and Metaplex, also as JSON
    text: a list of objects with `trait_type` (or `name`) and `value`, or an object that maps types
    to values. Each trait counts once per token; hidden tokens count nowhere. To find the rarest
    traits, sort by `share`.

    Returns:
        A row per token and trait, in the order of contract, token and metadata; columns:
        `frames.explain("traits")`.

    Warns:
        NftsyncWarning: the frame is empty because no metadata has traits.
    """
    with reading(db) as source:
        wanted = filters_of(source, contract=contract).contract
        tokens = read_tokens(source, [*NAMING, "extra"])
        left_out = hidden_rows(source, tokens.numbers, include=hidden)
    contracts, _ = contract_groups(tokens.content["contract_address"])
    extra = tokens.content["extra"]
    in_contract = tokens.in_contract(wanted, tokens.numbers)
    selected = flags(pc.match_substring_regex(extra, _HAS_TRAITS)) & in_contract
    hidden_tokens = selected & left_out
    places: list[int] = []
    pairs: list[Trait] = []
    for place in np.flatnonzero(selected & ~left_out).tolist():
        of_token = dict.fromkeys(traits_of(extra[place].as_py()))
        places += [place] * len(of_token)
        pairs += of_token
    if not pairs and not hidden_tokens.any():
        searched = counted(int(np.count_nonzero(in_contract)), "token")
        warnings.warn(
            f"no traits: the metadata of {searched} has no `attributes` with values",
            NftsyncWarning,
            stacklevel=3,
        )
    token = np.array(places, dtype=np.int64)
    type_column, value_column = (pa.array([pair[n] for pair in pairs], TEXT) for n in (0, 1))
    same = numbered_together(contracts[token], coded(type_column)[0], coded(value_column)[0])
    counts = np.bincount(same)[same] if len(same) else same
    totals = np.bincount(contracts[~left_out])[contracts[token]] if len(token) else token
    order = np.argsort(contracts[token], kind="stable")
    rows = pa.array(order)
    named = tokens.named(tokens.numbers[token[order]])
    frame = frame_of(
        {name: named[name] for name in _NAMES}
        | {"trait_type": text(type_column.take(rows)), "value": text(value_column.take(rows))}
        | {"tokens": counts[order], "share": counts[order] / np.maximum(totals[order], 1)}
    )
    return marked(frame, hidden_tokens)
