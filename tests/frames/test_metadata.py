"""Metadata: traits of tokens, and missing and broken fields."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError, NftsyncWarning
from tests.gallery.gallery_frames import column
from tests.kit.database import Builder, rows_of, token_id, wallet_id
from tests.kit.provider import entry

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(-1e300, 1e300), st.text())
JSON = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
#: Attributes as creators write them, and any other JSON.
NAMES = st.sampled_from(["trait_type", "traitType", "value", "display_type", "attributes"])
TRAIT = st.dictionaries(NAMES, JSON, max_size=3)
ATTRIBUTES = JSON | st.lists(TRAIT | JSON, max_size=4) | st.dictionaries(st.text(), JSON)
TRAITS = ["token_id", "trait_type", "value", "tokens", "share"]


def document(attributes: Any) -> str:
    return json.dumps({"metadata": {"attributes": attributes}}, separators=(",", ":"))


def test_each_trait_of_a_token_counts_the_known_tokens_that_share_it(build):
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
        build.token(number, contract_address=address, extra=document(attributes))
    frame = frames.traits(build.path)
    assert [tuple(row.values()) for row in rows_of(frame, TRAITS)] == [
        (token_id(1), "Background", "Blue", 2, 0.5),
        (token_id(1), "Level", "7", 1, 0.25),
        (token_id(2), "Background", "Blue", 2, 0.5),
        (token_id(2), "Level", "7.1", 1, 0.25),
        (token_id(3), None, "one of one", 1, 0.25),
        (token_id(5), "Background", "Blue", 1, 1.0),
    ]
    pd.testing.assert_frame_equal(frames.traits(build.path, "0x" + "AB" * 20), frame[:-1])
    with pytest.raises(InputError, match="nope"):
        frames.traits(build.path, "nope")


def plain_traits(attributes: Any) -> list[tuple[str | None, str]]:
    """Return the traits by a second implementation."""

    def text(value):
        if isinstance(value, str | None):
            return value
        return None if isinstance(value, dict | list) else json.dumps(value)

    pairs = [*attributes.items()] if isinstance(attributes, dict) else []
    for attribute in attributes if isinstance(attributes, list) else []:
        if isinstance(attribute, dict):
            types = [attribute[name] for name in ("trait_type", "traitType") if name in attribute]
            pairs.append((text(types[0]) if types else None, attribute.get("value")))
    read = ((kind, text(value)) for kind, value in pairs)
    return list(dict.fromkeys((kind, value) for kind, value in read if value is not None))


def test_huge_attributes_are_values_like_others(build):
    huge = {"digits": 10**4_000, "text": "\u202e<b>" * 50_000, "listed": [1] * 10_000}
    build.token(1, extra=document(huge))
    build.token(2, extra=document([{"trait_type": str(n), "value": n} for n in range(5_000)]))
    values = frames.traits(build.path)["value"].tolist()
    assert (values[:2], len(values)) == (["1" + "0" * 4_000, huge["text"]], 2 + 5_000)


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
@settings(max_examples=25)
@given(everything=st.lists(ATTRIBUTES, min_size=1, max_size=6))
@example(everything=[{"files": "many"}])
def test_any_attributes_are_traits_with_the_tokens_that_share_them(tmp_path_factory, everything):
    build = Builder(tmp_path_factory.getbasetemp() / "traits.db")
    for number, attributes in enumerate(everything, 1):
        build.token(number, contract_address="KT1", extra=document(attributes))
    traits = [(token_id(n), *pair) for n, x in enumerate(everything, 1) for pair in plain_traits(x)]
    counts = Counter(trait[1:] for trait in traits)
    rows = rows_of(frames.traits(build.close()), TRAITS)
    assert sorted(map(str, (tuple(row.values()) for row in rows))) == sorted(
        str((*trait, counts[trait[1:]], counts[trait[1:]] / len(everything))) for trait in traits
    )


def test_metadata_without_traits_is_a_warning(build):
    metaplex = {"attributes": [], "properties": {"files": [], "category": "image"}}
    texts = {"attributes": ["a text", 5, None, [["nested"]]]}
    deep = ("[" * 100_000, {"attributes": "[" * 100_000})
    for number, metadata in enumerate((metaplex, texts, *deep, "text", [1], None), start=1):
        build.token(number, extra=json.dumps({"metadata": metadata}))
    build.token(8)
    build.token(9, extra="not JSON")
    with pytest.warns(NftsyncWarning, match="no traits: the metadata of 9 tokens has no"):
        assert frames.traits(build.path).empty


LISTED = [{"trait_type": "Hat", "value": "Red"}, {"trait_type": "Level", "value": 7}]
#: The same two traits as each standard writes them.
FORMS: dict[str, Any] = {
    "ERC-721": {"attributes": LISTED},
    "TZIP-21": {
        "attributes": [
            {"name": "Hat", "value": "Red"},
            {"name": "Level", "value": "7", "type": "integer"},
        ]
    },
    "Metaplex": {
        "attributes": [LISTED[0], {"trait_type": "Level", "value": "7"}],
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
    "OpenSea": {"traits": LISTED},
    "an object": {"attributes": {"Hat": "Red", "Level": 7}},
}


def test_traits_have_the_form_of_any_standard_also_as_text(build):
    for number, metadata in enumerate(FORMS.values()):
        texts = {name: json.dumps(value) for name, value in metadata.items()}
        for other, form in enumerate((metadata, texts, json.dumps(metadata, indent=1)), start=1):
            build.token(3 * number + other, extra=json.dumps({"metadata": form}))
    rows = rows_of(frames.traits(build.path), TRAITS[:3])
    assert [tuple(row.values()) for row in rows] == [
        (token_id(number), *trait)
        for number in range(1, 1 + 3 * len(FORMS))
        for trait in (("Hat", "Red"), ("Level", "7"))
    ]


CID = "Qm" + "Y" * 44
GOOD = {"name": "One", "image": f"ipfs://{CID}/1.png"}


def problems(path: Path, *, of: bool = False, **options: Any) -> list[tuple[str | None, ...]]:
    """Return fields, reasons and values, `of` tokens."""
    columns = ["token_id", "field", "reason", "value"][not of :]
    return [tuple(row.values()) for row in rows_of(frames.quality(path, **options), columns)]


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
EXTRA = '{"metadata":{"editionId":"x","name":1}}'
NAME, EDITION = ("name", "wrong type", "1"), ("edition_id", "wrong type", '"x"')
BEYOND = ("edition_id", "edition beyond its total", str(2**63 - 1))
LONG = [(name, "control characters", "\x07" * 200) for name in ("description", "creator_name")]
#: Tokens with several problems, long values, or fields that no column can have.
SEVERAL = [
    ({"name": None, "extra": EXTRA}, [NAME, EDITION]),
    ({"name": None, "image": None, "extra": EXTRA}, [NAME, ("image", "missing", None), EDITION]),
    ({"edition_id": 2**63 - 1, "total_edition": -1}, [BEYOND, ("total_edition", "negative", "-1")]),
    ({"description": "\x07" * 200, "creator_name": "\x07" * 200}, LONG),
    ({"name": "\x07" * 100_000}, [("name", "control characters", "\x07" * 200 + "…")]),
    ({"extra": '{"metadata":[1]}'}, [("metadata", "wrong type", "[1]")]),
    ({"extra": '{"token":7}'}, [("token", "wrong type", "7")]),
    ({"extra": '{"id":"another"}'}, [("id", "another token's id", '"another"')]),
    ({"extra": "not nftsync's"}, [("extra", "not a JSON object", "not nftsync's")]),
]
USABLE: list[dict[str, Any]] = [
    {},
    {"image": "https://example.com/a.png"},
    {"image": CID, "animation_url": "https://[2606:4700::1]/"},
    {"creator_image_url": f"/ipfs/{CID}"},
    {"external_url": "http://a.example", "creator_external_page_url": "HTTPS://A.EXAMPLE"},
    {"description": "two\nlines\tand\r\nmore", "creator_name": "שלום"},
    {"creator_name": "\U0001f468\u200d\U0001f469"},
    {"edition_id": 5},
    *({"edition_id": count, "total_edition": count} for count in (0, 100)),
    {"extra": '{"rank":7,"metadata":{"attributes":[{"name":"editionId","value":null}]}}'},
    {"extra": '{"note":"\\"editionId\\":1"}'},
]
TOKENS: list[tuple[dict[str, Any], list[tuple[str, str, str | None]]]] = [
    *(({name: x}, [(name, reason, None if x is None else str(x))]) for name, x, reason in BROKEN),
    *((content, []) for content in USABLE),
    *SEVERAL,
]


def test_each_token_has_the_problems_of_its_content(build):
    for number, (content, _) in enumerate(TOKENS, 1):
        build.token(number, **{**GOOD, **content})
    found = problems(build.path, of=True)
    expected = [(token_id(n), *one) for n, (_, own) in enumerate(TOKENS, 1) for one in own]
    for one, (token, field, reason, value) in zip(found, expected, strict=True):
        assert one == (token, field, one[2], value)
        assert one[2].startswith(reason)


def test_options(build):
    build.token(1)
    build.token(2, name="One", image="http://127.0.0.1:8788/1.png")
    build.token(3, name="Three")
    build.wallet(1)
    build.balance(1, 1, "0")
    build.balance(1, 2, "1")
    fields = [field for field, *_ in problems(build.path)]
    assert fields == ["name", "image", "image", "image"]
    assert [token for token, *_ in problems(build.path, of=True, held_only=True)] == [token_id(2)]
    own = {"base_url": "http://127.0.0.1:8788/api"}
    for required, missing in (((), []), ("edition_id", [("edition_id", "missing", None)] * 3)):
        assert problems(build.path, required=required, **own) == missing
    with pytest.raises(InputError, match="required='image_url' is unknown; did you mean 'image'"):
        frames.quality(build.path, required=["image_url"])
    with pytest.raises(InputError, match="http"):
        frames.quality(build.path, base_url="file:///tmp")


def test_an_amount_that_is_not_a_number_is_a_problem_of_its_token(build):
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


#: Fields of a record, its metadata, and the problem.
NOT_STORED: list[tuple[dict[str, Any], dict[str, Any], tuple[str, str, str]]] = [
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


def test_values_that_no_column_can_hold(lying, tmp_path):
    """The field has the value of the response, and is not missing besides."""
    entries = []
    for number, (record, metadata, _) in enumerate(NOT_STORED, start=1):
        entries.append(entry(token_id(number), metadata={**GOOD, **metadata}, rank=5))
        entries[-1]["token"] |= record
    lying.holds(wallet_id(1), *entries)
    path = tmp_path / "nftsync.db"
    nftsync.sync([wallet_id(1)], base_url=lying.url, database=path, progress=False)
    found = problems(path)
    assert [one for one in found if one[1] != "new field"] == [one for *_, one in NOT_STORED]
    assert found.count(("token.rank", "new field", "integer")) == 1


def test_addresses_have_the_reason_that_a_gallery_shows(build):
    """A gallery checks each address; here, a pattern accepts most without that check."""
    chance = random.Random(4)
    plain = [
        *("https://images.example.com/a/b_c~d.e-f.png", "https://a.b.c.example/", "https://a.co"),
        *(f"ipfs://{CID}/1.png", f"ipfs://{CID}", "ipfs://b" + "a2" * 29 + "/x/_y.png/"),
    ]
    images = []
    for number in range(1, 401):
        image = chance.choice(plain)
        for _ in range(chance.randint(0, 2)):
            place = chance.randint(0, len(image))
            piece = chance.choice([*"aZ0./:-_~%?#@[]\\ é", "..", "//", "xn--", ".1", "%2e%2e", ""])
            image = image[:place] + piece + image[place + chance.randint(0, 3) :]
        images.append(image)
        build.token(number, name="One", image=image, external_url=image.replace("ipfs:", "https:"))
    found = {(token, field): reason for token, field, reason, _ in problems(build.path, of=True)}
    pages = [image.replace("ipfs:", "https:") for image in images]
    shown = pd.DataFrame({"token_id": "t", "image": images + pages})
    gallery = nftsync.gallery(shown, pictures_first=False, page_size=500)
    for number, (address, reason) in enumerate(
        zip(images + pages, column(gallery, "problem") or [], strict=True)
    ):
        field = "image" if number < 400 else "external_url"
        own = found.get((token_id(1 + number % 400), field))
        if field == "image" or address.startswith("https:"):
            assert own == reason, address
        else:
            assert (own is None) == (reason is None and address.startswith("http:"))
