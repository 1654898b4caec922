"""Traits of tokens, and the number of tokens that share each."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError, NftsyncWarning
from tests.kit.database import Builder, begun, rows_of, token_id, wallet_id
from tests.kit.provider import Provider, entry

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


#: Attributes as creators write them, and any other JSON.
NAMES = st.sampled_from(["trait_type", "traitType", "value", "display_type", "attributes"])
TRAIT = st.dictionaries(NAMES, JSON, max_size=3)


ATTRIBUTES = JSON | st.lists(TRAIT | JSON, max_size=4) | st.dictionaries(st.text(), JSON)


def document(attributes: Any) -> str:
    return json.dumps({"metadata": {"attributes": attributes}}, separators=(",", ":"))


def test_each_trait_of_a_token_counts_the_known_tokens_that_share_it(build: Builder) -> None:
    """Of four tokens of one contract three have traits; one is of another contract."""
    blue = {"trait_type": "Background", "value": "Blue"}
    contents: list[tuple[str, Any]] = [
        ("0x" + "aB" * 20, [blue, {"trait_type": "Level", "value": 7}, blue]),
        ("0x" + "Ab" * 20, {"Background": "Blue", "Level": 7.10}),
        ("0x" + "ab" * 20, [{"value": "one of one"}, "noise", {"trait_type": "Empty"}]),
        ("0x" + "ab" * 20, "a text"),
        ("KT1", [blue]),
    ]
    for number, (address, attributes) in enumerate(contents, 1):
        build.token(
            number, contract_address=address, name=f"Kite #{number}", extra=document(attributes)
        )
    frame = frames.traits(build.path)
    columns = ["token_id", "trait_type", "value", "tokens", "share"]
    assert [tuple(row.values()) for row in rows_of(frame, columns)] == [
        (token_id(1), "Background", "Blue", 2, 0.5),
        (token_id(1), "Level", "7", 1, 0.25),
        (token_id(2), "Background", "Blue", 2, 0.5),
        (token_id(2), "Level", "7.1", 1, 0.25),
        (token_id(3), None, "one of one", 1, 0.25),
        (token_id(5), "Background", "Blue", 1, 1.0),
    ]

    of_one = frames.traits(build.path, "0x" + "AB" * 20)
    pd.testing.assert_frame_equal(of_one, frame[:-1])
    with pytest.raises(InputError, match="nope"):
        frames.traits(build.path, "nope")


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return None if value is None or isinstance(value, dict | list) else json.dumps(value)


def plain_traits(attributes: Any) -> list[tuple[str | None, str]]:
    """Return the traits by a second implementation."""
    pairs = [*attributes.items()] if isinstance(attributes, dict) else []
    for attribute in attributes if isinstance(attributes, list) else []:
        if isinstance(attribute, dict):
            types = [attribute[name] for name in ("trait_type", "traitType") if name in attribute]
            pairs.append((_as_text(types[0]) if types else None, attribute.get("value")))
    read = ((trait_type, _as_text(value)) for trait_type, value in pairs)
    return list(dict.fromkeys((kind, value) for kind, value in read if value is not None))


def test_huge_attributes_are_values_like_others(build: Builder) -> None:
    huge = {"digits": 10**4_000, "text": "\u202e<b>" * 50_000, "listed": [1] * 10_000}
    build.token(1, extra=document(huge))
    build.token(2, extra=document([{"trait_type": str(n), "value": n} for n in range(5_000)]))
    frame = frames.traits(build.path)
    assert frame["value"].head(2).tolist() == ["1" + "0" * 4_000, huge["text"]]
    assert len(frame) == 2 + 5_000


@settings(max_examples=25)
@given(st.lists(ATTRIBUTES, min_size=1, max_size=6))
def test_any_attributes_of_a_response_are_traits_with_the_tokens_that_share_them(
    tmp_path_factory: pytest.TempPathFactory, lying: Provider, everything: list[Any]
) -> None:
    tokens = {token_id(number): attributes for number, attributes in enumerate(everything, 1)}
    entries = [
        entry(token, contractAddress="KT1", metadata={"attributes": attributes})
        for token, attributes in tokens.items()
    ]
    lying.holds(wallet_id(1), *entries)
    path = begun(tmp_path_factory.getbasetemp() / "traits.db")
    nftsync.sync([wallet_id(1)], base_url=lying.url, database=path, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NftsyncWarning)
        frame = frames.traits(path)
    wanted = [(token, *pair) for token, x in tokens.items() for pair in plain_traits(x)]
    rows = rows_of(frame, ["token_id", "trait_type", "value"])
    assert sorted(map(str, (tuple(row.values()) for row in rows))) == sorted(map(str, wanted))
    counts = Counter(tuple(pair) for _, *pair in wanted)
    for row in rows_of(frame, ["trait_type", "value", "tokens", "share"]):
        count = counts[row["trait_type"], row["value"]]
        assert (row["tokens"], row["share"]) == (count, count / len(everything))


def test_metadata_without_traits_is_a_warning(build: Builder) -> None:
    metaplex = {"attributes": [], "properties": {"files": [], "category": "image"}}
    texts = {"attributes": ["a text", 5, None, [["nested"]]]}
    deep = ("[" * 100_000, {"attributes": "[" * 100_000})
    for number, metadata in enumerate((metaplex, texts, *deep, "text", [1], None), start=1):
        build.token(number, extra=json.dumps({"metadata": metadata}))
    build.token(8)
    build.token(9, extra="not JSON")
    with pytest.warns(NftsyncWarning, match="no traits: the metadata of 9 tokens has no"):
        assert frames.traits(build.path).empty


_LISTED = [{"trait_type": "Hat", "value": "Red"}, {"trait_type": "Level", "value": 7}]
#: The same two traits as each standard writes them.
_FORMS: dict[str, Any] = {
    "ERC-721": {"attributes": _LISTED},
    "TZIP-21": {
        "attributes": [
            {"name": "Hat", "value": "Red"},
            {"name": "Level", "value": "7", "type": "integer"},
        ]
    },
    "Metaplex": {
        "attributes": [_LISTED[0], {"trait_type": "Level", "value": "7"}],
        "properties": {"files": [{"uri": "a"}], "category": "image", "creators": []},
    },
    "ERC-1155": {
        "properties": {
            "Hat": "Red",
            "Level": {"name": "Level", "value": 7, "css": {}},
            "array": {"value": [1]},
        }
    },
    "ERC-1155 with keys": {
        "attributes": None,
        "properties": {"Hat": {"value": "Red"}, "Level": {"value": 7}},
    },
    "OpenSea": {"traits": _LISTED},
    "an object": {"attributes": {"Hat": "Red", "Level": 7}},
}


@pytest.mark.parametrize("form", _FORMS)
def test_traits_have_the_form_of_any_standard_also_as_text(form: str, build: Builder) -> None:
    metadata = _FORMS[form]
    texts = {name: json.dumps(value) for name, value in metadata.items()}
    forms = (metadata, texts, json.dumps(metadata, indent=1))
    for number, one in enumerate(forms, start=1):
        build.token(number, contract_address="KT1", extra=json.dumps({"metadata": one}))
    rows = rows_of(frames.traits(build.path), ["token_id", "trait_type", "value", "tokens"])
    assert [tuple(row.values()) for row in rows] == [
        (token_id(number), *trait, 3)
        for number in (1, 2, 3)
        for trait in (("Hat", "Red"), ("Level", "7"))
    ]
