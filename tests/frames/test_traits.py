"""Traits of tokens, with the tokens that share them."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from nftsync.frames._traits import traits_of
from tests.kit.database import Builder, rows_of, token_id

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


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


@given(st.dictionaries(st.text(), st.text() | st.integers()))
def test_a_list_and_an_object_of_the_same_attributes_have_the_same_traits(
    attributes: dict[str, Any],
) -> None:
    listed = [{"trait_type": key, "value": value} for key, value in attributes.items()]
    expected = [(key, str(value)) for key, value in attributes.items()]
    assert list(traits_of(document(attributes))) == expected
    assert list(traits_of(document(listed))) == expected
