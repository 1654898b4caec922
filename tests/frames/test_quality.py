"""Missing and broken metadata, with the field and the reason."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from tests.gallery.gallery_frames import column
from tests.kit.database import Builder, rows_of, token_id, wallet_id
from tests.kit.provider import Provider, entry

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
