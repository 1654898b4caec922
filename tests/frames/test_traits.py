"""Traits of tokens, with the tokens that share them."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError, NftsyncWarning
from nftsync.frames._traits import traits_of
from nftsync.provider.wire import decode_wallet
from tests.kit.database import Builder, rows_of, token_id

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


#: Attributes as creators write them, and everything else that JSON can say.
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


@given(JSON, st.text())
def test_any_attributes_give_traits_of_text_and_no_json_none(attributes: Any, text: str) -> None:
    assert list(traits_of(f"x{text}")) == []
    for trait_type, value in traits_of(document(attributes)):
        assert isinstance(value, str)
        assert trait_type is None or isinstance(trait_type, str)


# An object with `files` has the media of Metaplex.
@given(st.dictionaries(st.text().filter(lambda x: x != "files"), st.text() | st.integers()))
def test_a_list_and_an_object_of_the_same_attributes_have_the_same_traits(
    attributes: dict[str, Any],
) -> None:
    listed = [{"trait_type": key, "value": value} for key, value in attributes.items()]
    expected = [(key, str(value)) for key, value in attributes.items()]
    assert list(traits_of(document(attributes))) == expected
    assert list(traits_of(document(listed))) == expected


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return None if value is None or isinstance(value, dict | list) else json.dumps(value)


def plain_traits(attributes: Any) -> list[tuple[str | None, str]]:
    """The traits, by a second implementation."""
    pairs = [*attributes.items()] if isinstance(attributes, dict) else []
    for attribute in attributes if isinstance(attributes, list) else []:
        if isinstance(attribute, dict):
            types = [attribute[name] for name in ("trait_type", "traitType") if name in attribute]
            pairs.append((_as_text(types[0]) if types else None, attribute.get("value")))
    read = ((trait_type, _as_text(value)) for trait_type, value in pairs)
    return list(dict.fromkeys((kind, value) for kind, value in read if value is not None))


@settings(max_examples=25)
@given(st.lists(ATTRIBUTES, min_size=1, max_size=6))
def test_whatever_creators_write_is_counted_and_shared_by_the_tokens_that_have_it(
    tmp_path_factory: pytest.TempPathFactory, everything: list[Any]
) -> None:
    """From the response to the frame."""
    build = Builder(tmp_path_factory.mktemp("traits") / "nft.db")
    for number, attributes in enumerate(everything, 1):
        token = {"metadata": {"attributes": attributes}}
        entry = {"tokenId": token_id(number), "amount": "1", "token": token}
        body = json.dumps({"nftTokenBalances": [entry]}).encode()
        ((_, _, content),) = decode_wallet(body).entries
        assert content is not None
        build.token(number, contract_address="KT1", extra=content[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NftsyncWarning)
        frame = frames.traits(build.close())
    wanted = [(token_id(n), *pair) for n, x in enumerate(everything, 1) for pair in plain_traits(x)]
    rows = rows_of(frame, ["token_id", "trait_type", "value"])
    assert sorted(map(str, (tuple(row.values()) for row in rows))) == sorted(map(str, wanted))
    counts = Counter(tuple(pair) for _, *pair in wanted)
    for row in rows_of(frame, ["trait_type", "value", "tokens", "share"]):
        tokens = counts[row["trait_type"], row["value"]]
        assert (row["tokens"], row["share"]) == (tokens, tokens / len(everything))


def test_huge_and_deep_attributes_are_values_like_any_or_refused(build: Builder) -> None:
    huge = {"digits": 10**4_000, "text": "\u202e<b>" * 50_000, "listed": [1] * 10_000}
    build.token(1, extra=document(huge))
    build.token(2, extra=document([{"trait_type": str(n), "value": n} for n in range(5_000)]))
    frame = frames.traits(build.path)
    assert frame["value"].head(2).tolist() == ["1" + "0" * 4_000, huge["text"]]
    assert len(frame) == 2 + 5_000


def test_no_traits_at_all_is_a_warning(build: Builder) -> None:
    build.token(1, extra=document(["a text", 5, None, [["nested"]]]))
    build.token(2)
    with pytest.warns(NftsyncWarning, match="no traits: the metadata of 2 tokens has no"):
        assert frames.traits(build.path).empty


#: The same two traits as each standard writes them.
_HAT, _LEVEL = ("Hat", "Red"), ("Level", "7")
_FORMS: dict[str, Any] = {
    "ERC-721": {
        "attributes": [{"trait_type": "Hat", "value": "Red"}, {"trait_type": "Level", "value": 7}]
    },
    "TZIP-21": {
        "attributes": [
            {"name": "Hat", "value": "Red"},
            {"name": "Level", "value": "7", "type": "integer"},
        ]
    },
    "Metaplex": {
        "attributes": [
            {"trait_type": "Hat", "value": "Red"},
            {"trait_type": "Level", "value": "7"},
        ],
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
    "OpenSea": {
        "traits": [{"trait_type": "Hat", "value": "Red"}, {"trait_type": "Level", "value": 7}]
    },
    "an object": {"attributes": {"Hat": "Red", "Level": 7}},
}


@pytest.mark.parametrize("form", _FORMS)
def test_traits_come_in_the_forms_of_each_standard_and_as_text(form: str, build: Builder) -> None:
    metadata = _FORMS[form]
    texts = {name: json.dumps(value) for name, value in metadata.items()}
    forms = (metadata, texts, json.dumps(metadata, indent=1))
    for number, one in enumerate(forms, start=1):
        build.token(number, contract_address="KT1", extra=json.dumps({"metadata": one}))
    rows = rows_of(frames.traits(build.path), ["token_id", "trait_type", "value", "tokens"])
    assert [tuple(row.values()) for row in rows] == [
        (token_id(number), *trait, 3) for number in (1, 2, 3) for trait in (_HAT, _LEVEL)
    ]


def test_metadata_without_traits_has_none() -> None:
    metaplex = {"attributes": [], "properties": {"files": [], "category": "image"}}
    for metadata in (metaplex, "[" * 100_000, {"attributes": "[" * 100_000}, "text", [1], None):
        assert list(traits_of(json.dumps({"metadata": metadata}))) == []
