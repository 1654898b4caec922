"""Metadata: traits of tokens, and missing and broken fields."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError, NftsyncWarning
from tests.gallery.gallery_frames import column
from tests.kit.database import Builder, begun, rows_of, token_id, wallet_id
from tests.kit.provider import Provider, entry

# Traits -------------------------------------------------------------------------------------------


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


# Quality ------------------------------------------------------------------------------------------


CID = "Qm" + "Y" * 44
GOOD = {"name": "One", "image": f"ipfs://{CID}/1.png"}


def problems(path: Path, **options: Any) -> list[tuple[str, str, str | None]]:
    found = rows_of(frames.quality(path, **options), ["field", "reason", "value"])
    return [(row["field"], row["reason"], row["value"]) for row in found]


BROKEN: list[tuple[str, str | int | None, str]] = [
    ("name", None, "missing"),
    ("image", None, "missing"),
    ("name", "", "blank"),
    ("description", " \t\n\u00a0", "blank"),
    ("external_url", "  ", "blank"),
    ("image", "javascript:alert(1)", "javascript: is not allowed"),
    ("image", "http://example.com/a.png", "http: is allowed only from the provider"),
    ("creator_image_url", "a.png", "relative address without a host"),
    ("animation_url", "ipfs://nothing", "ipfs: without a valid content id"),
    ("image", "https://example.com/\x00a", "contains a control character"),
    ("external_url", f"ipfs://{CID}", "not an http: or https: address"),
    ("external_url", "https://", "no host"),
    ("creator_external_page_url", "javascript:x", "not an http: or https: address"),
    ("creator_external_page_url", "http://a@example.com", "contains a user name or password"),
    ("name", "gn\u202epj.exe", "turns the direction of text"),
    ("creator_name", "a\u2066b", "turns the direction of text"),
    ("description", "a\u202eb\x07", "control characters"),
    ("name", "two\nlines", "control characters"),
    ("name", "a\x9bb", "control characters"),
    ("background_color", "\x1b[31m", "control characters"),
    ("contract_address", " ", "blank"),
    ("blockchain_token_id", "1\u202e2", "turns the direction of text"),
    ("edition_id", -1, "negative"),
    ("total_edition", -(2**63), "negative"),
]


def test_reasons(build: Builder) -> None:
    build.token(1, **GOOD)
    for number, (field, value, _) in enumerate(BROKEN, start=2):
        build.token(number, **{**GOOD, field: value})
    found = frames.quality(build.path)
    assert found["token_id"].tolist() == [token_id(n) for n, _ in enumerate(BROKEN, start=2)]
    for (field, value, reason), problem in zip(BROKEN, problems(build.path), strict=True):
        assert problem[1].startswith(reason)
        assert problem == (field, problem[1], None if value is None else str(value))


def test_tokens_with_several_problems_and_long_values(build: Builder) -> None:
    extra = '{"metadata":{"editionId":"x","name":1}}'
    build.token(1, image=GOOD["image"], extra=extra)
    build.token(2, image=None, extra=extra)
    build.token(3, **GOOD, edition_id=2**63 - 1, total_edition=-1)
    build.token(4, **GOOD, edition_id=5)
    build.token(5, **GOOD, description="\x07" * 100_000, creator_name="\x07" * 200)
    found = frames.quality(build.path)
    assert list(zip(found["token_id"], found["field"], found["reason"], strict=True)) == [
        (token_id(1), "name", "wrong type"),
        (token_id(1), "edition_id", "wrong type"),
        (token_id(2), "name", "wrong type"),
        (token_id(2), "image", "missing"),
        (token_id(2), "edition_id", "wrong type"),
        (token_id(3), "edition_id", "edition beyond its total"),
        (token_id(3), "total_edition", "negative"),
        (token_id(5), "description", "control characters"),
        (token_id(5), "creator_name", "control characters"),
    ]
    assert found["value"].tolist()[-4:-2] == [str(2**63 - 1), "-1"]
    assert found["value"].tolist()[-2:] == ["\x07" * 200 + "…", "\x07" * 200]


def test_options(build: Builder) -> None:
    build.token(1)
    build.token(2, name="One", image="http://127.0.0.1:8788/1.png")
    build.token(3, name="Three")
    build.wallet(1)
    build.balance(1, 1, "0")
    build.balance(1, 2, "1")
    fields = [field for field, *_ in problems(build.path)]
    assert fields == ["name", "image", "image", "image"]
    assert frames.quality(build.path, held_only=True)["token_id"].tolist() == [token_id(2)]
    own = {"base_url": "http://127.0.0.1:8788/api"}
    assert problems(build.path, required=(), **own) == []
    assert (
        problems(build.path, required="edition_id", **own) == [("edition_id", "missing", None)] * 3
    )
    with pytest.raises(InputError, match="required='image_url' is unknown; did you mean 'image'"):
        frames.quality(build.path, required=["image_url"])
    with pytest.raises(InputError, match="http"):
        frames.quality(build.path, base_url="file:///tmp")


def test_an_amount_that_is_not_a_number_is_a_problem_of_its_token(build: Builder) -> None:
    build.wallet(1)
    build.wallet(2)
    for number, amount in enumerate(["1", "0", "9" * 100, "-1", "1e3", "", "7" * 300], start=1):
        build.token(number, **GOOD)
        build.balance(1, number, amount)
        build.balance(2, number, "5")
    reason = "not 1 to 100 digits"
    for held_only in (False, True):
        assert problems(build.path, held_only=held_only) == [
            ("amount", reason, value) for value in ("-1", "1e3", "", "7" * 200 + "\u2026")
        ]


def test_usable_content_is_not_reported(build: Builder) -> None:
    contents: list[dict[str, Any]] = [
        {"image": "https://example.com/a.png"},
        {
            "image": CID,
            "animation_url": "https://[2606:4700::1]/",
            "creator_image_url": f"/ipfs/{CID}",
        },
        {"external_url": "http://a.example", "creator_external_page_url": "HTTPS://A.EXAMPLE"},
        {"description": "two\nlines\tand\r\nmore", "creator_name": "שלום"},
        {"creator_name": "\U0001f468\u200d\U0001f469"},
        {"edition_id": 0, "total_edition": 0},
        {"edition_id": 100, "total_edition": 100},
        {"extra": '{"rank":7,"metadata":{"attributes":[{"name":"editionId","value":null}]}}'},
        {"extra": '{"note":"\\"editionId\\":1"}'},
    ]
    for number, content in enumerate(contents, start=1):
        build.token(number, **{**GOOD, **content})
    assert problems(build.path) == []


def test_values_that_no_column_can_hold(lying: Provider, tmp_path: Path) -> None:
    """The field has the value of the response, and is not missing besides."""
    cases: list[tuple[dict[str, Any], dict[str, Any], tuple[str, str, str]]] = [
        ({}, {"name": 7}, ("name", "wrong type", "7")),
        ({}, {"image": {"url": "x"}}, ("image", "wrong type", '{"url":"x"}')),
        ({}, {"editionId": "7"}, ("edition_id", "wrong type", '"7"')),
        ({}, {"editionId": 2**63}, ("edition_id", "too large", str(2**63))),
        ({}, {"totalEdition": -(2**63) - 1}, ("total_edition", "too large", str(-(2**63) - 1))),
        ({}, {"creatorExternalPageUrl": []}, ("creator_external_page_url", "wrong type", "[]")),
        ({"contractAddress": 1}, {}, ("contract_address", "wrong type", "1")),
        ({"organizationId": True}, {}, ("organization_id", "wrong type", "true")),
        ({"id": 5}, {}, ("id", "wrong type", "5")),
    ]
    entries = []
    for number, (record, metadata, _) in enumerate(cases, start=1):
        body = {"metadata": {**GOOD, **metadata}, "rank": 5, **record}
        entries.append(entry(token_id(number), **body))
        entries[-1]["token"] |= record
    lying.holds(wallet_id(1), *entries)
    path = tmp_path / "nftsync.db"
    nftsync.sync([wallet_id(1)], base_url=lying.url, database=path, progress=False)
    assert problems(path) == [problem for *_, problem in cases]


def test_unusual_stored_extras_are_reported(build: Builder) -> None:
    broken = {
        '{"metadata":[1]}': ("metadata", "wrong type", "[1]"),
        '{"token":7}': ("token", "wrong type", "7"),
        '{"id":"another"}': ("id", "another token's id", '"another"'),
        "not written by nftsync": ("extra", "not a JSON object", "not written by nftsync"),
    }
    for number, extra in enumerate(broken, start=1):
        build.token(number, **GOOD, extra=extra)
    assert problems(build.path) == [*broken.values()]


def test_addresses_have_the_reason_that_a_gallery_shows(build: Builder) -> None:
    """A gallery checks each address; here, a pattern accepts most without that check."""
    chance = random.Random(4)
    plain = [
        *("https://images.example.com/a/b_c~d.e-f.png", "https://a.b.c.example/", "https://a.co"),
        *(f"ipfs://{CID}/1.png", f"ipfs://{CID}", "ipfs://b" + "a2" * 29 + "/x/_y.png/"),
    ]
    images = []
    for _ in range(400):
        address = chance.choice(plain)
        for _ in range(chance.randint(0, 2)):
            place = chance.randint(0, len(address))
            piece = chance.choice([*"aZ0./:-_~%?#@[]\\ é", "..", "//", "xn--", ".1", "%2e%2e", ""])
            address = address[:place] + piece + address[place + chance.randint(0, 3) :]
        images.append(address)
    pages = [address.replace("ipfs:", "https:") for address in images]
    for number, (image, page) in enumerate(zip(images, pages, strict=True), start=1):
        build.token(number, name="One", image=image, external_url=page)
    found = frames.quality(build.path).set_index(["field", "token_id"])["reason"].to_dict()
    shown = pd.DataFrame({"token_id": "t", "image": images + pages})
    gallery = nftsync.gallery(shown, pictures_first=False, page_size=500)
    reasons = column(gallery, "problem") or []
    for number, (image, page) in enumerate(zip(images, pages, strict=True), start=1):
        of_image, of_page = reasons[number - 1], reasons[number - 1 + len(images)]
        assert found.get(("image", token_id(number))) == of_image, image
        reason = found.get(("external_url", token_id(number)))
        if page.startswith("https:"):
            assert reason == of_page, page
        else:
            assert (reason is None) == (of_page is None and page.startswith("http:"))
