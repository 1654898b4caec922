"""Missing and broken metadata: which fields, and why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from frames_database import Builder, token_id
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from nftsync.frames import _quality
from nftsync.provider.images import image_address
from nftsync.provider.wire import decode_token
from nftsync.records import CONTENT_COLUMNS

CID = "Qm" + "Y" * 44
GOOD = {"name": "One", "image": f"ipfs://{CID}/1.png"}


def problems(path: Path, **options: Any) -> list[tuple[str, str, str | None]]:
    frame = frames.quality(path, **options)
    return [
        (field, reason, None if pd.isna(value) else value)
        for field, reason, value in zip(
            frame["field"], frame["reason"], frame["value"], strict=True
        )
    ]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("name", None, "missing"),
        ("image", None, "missing"),
        ("name", "", "blank"),
        ("description", " \t\n\u00a0", "blank"),
        ("animation_url", "", "blank"),
        ("external_url", "  ", "blank"),
        ("image", "javascript:alert(1)", "javascript: is not shown"),
        ("image", "file:///etc/passwd", "file: is not shown"),
        ("image", "http://example.com/a.png", "http: is shown only from the provider"),
        ("creator_image_url", "a.png", "relative: names no host"),
        ("animation_url", "ipfs://nothing", "ipfs: without a valid content id"),
        ("image", "https://example.com/\x00a", "holds a control character"),
        ("external_url", f"ipfs://{CID}", "not an http: or https: address"),
        ("external_url", "example.com", "not an http: or https: address"),
        ("external_url", "https://", "names no host"),
        ("creator_external_page_url", "javascript:x", "not an http: or https: address"),
        ("creator_external_page_url", "http://a@example.com", "holds a user name or password"),
        ("name", "gn\u202epj.exe", "turns the direction of text"),
        ("creator_name", "a\u2066b", "turns the direction of text"),
        ("description", "a\u202eb\x07", "control characters"),
        ("name", "two\nlines", "control characters"),
        ("name", "a\x00b", "control characters"),
        ("name", "a\x9bb", "control characters"),
        ("background_color", "\x1b[31m", "control characters"),
        ("contract_address", " ", "blank"),
        ("blockchain_token_id", "1\u202e2", "turns the direction of text"),
        ("edition_id", -1, "negative"),
        ("total_edition", -(2**63), "negative"),
    ],
)
def test_reasons(build: Builder, field: str, value: str | int | None, reason: str) -> None:
    build.token(1, **GOOD)
    build.token(2, **{**GOOD, field: value})
    found = frames.quality(build.path)
    assert found["token_id"].tolist() == [token_id(2)]
    assert problems(build.path)[0][:2] == (field, _as_worded(field, value, reason))
    assert problems(build.path)[0][2] == (None if value is None else str(value))


def _as_worded(field: str, value: Any, reason: str) -> str:
    """The reason, in the words of `image_address` where it is the one that says it."""
    if field in {"image", "animation_url", "creator_image_url"} and value and value.strip():
        return image_address(value).problem or reason
    return reason


@pytest.mark.parametrize(
    "content",
    [
        {"image": "https://example.com/a.png"},
        {"image": CID, "animation_url": "https://[::1]/", "creator_image_url": f"/ipfs/{CID}"},
        {"external_url": "http://example.com", "creator_external_page_url": "HTTPS://EXAMPLE.com"},
        {"description": "two\nlines\tand\r\nmore", "creator_name": "שלום"},
        {"creator_name": "\U0001f468\u200d\U0001f469"},
        {"edition_id": 0, "total_edition": 0},
        {"edition_id": 100, "total_edition": 100},
        {"extra": '{"rank":7,"metadata":{"attributes":[{"name":"editionId","value":null}]}}'},
        {"extra": '{"note":"\\"editionId\\":1"}'},
    ],
)  # fmt: skip
def test_what_is_fine(build: Builder, content: dict[str, Any]) -> None:
    build.token(1, **{**GOOD, **content})
    assert problems(build.path) == []


def test_an_edition_beyond_its_total(build: Builder) -> None:
    build.token(1, **GOOD, edition_id=101, total_edition=100)
    build.token(2, **GOOD, edition_id=2**63 - 1, total_edition=-1)
    build.token(3, **GOOD, edition_id=5)
    assert problems(build.path) == [
        ("edition_id", "edition beyond its total", "101"),
        ("edition_id", "edition beyond its total", str(2**63 - 1)),
        ("total_edition", "negative", "-1"),
    ]


RECORD = {"id": token_id(1), "metadata": {"name": "One", "image": f"ipfs://{CID}"}}


@pytest.mark.parametrize(
    ("record", "metadata", "found"),
    [
        ({}, {"name": 7}, [("name", "wrong type", "7")]),
        ({}, {"image": {"url": "x"}}, [("image", "wrong type", '{"url":"x"}')]),
        ({}, {"editionId": "7"}, [("edition_id", "wrong type", '"7"')]),
        ({}, {"editionId": 1.5}, [("edition_id", "wrong type", "1.5")]),
        ({}, {"editionId": 2**63}, [("edition_id", "too large", str(2**63))]),
        ({}, {"totalEdition": -(2**63) - 1}, [("total_edition", "too large", str(-(2**63) - 1))]),
        ({}, {"creatorExternalPageUrl": []}, [("creator_external_page_url", "wrong type", "[]")]),
        ({"contractAddress": 1}, {}, [("contract_address", "wrong type", "1")]),
        ({"blockchainTokenId": 12}, {}, [("blockchain_token_id", "wrong type", "12")]),
        ({"organizationId": True}, {}, [("organization_id", "wrong type", "true")]),
        ({"id": 5}, {}, [("id", "wrong type", "5")]),
        ({"rank": 5}, {"rank": "high"}, []),
    ],
)
def test_values_that_no_column_can_hold(
    build: Builder, record: dict[str, Any], metadata: dict[str, Any], found: list[Any]
) -> None:
    """As the wire keeps them in `extra`; that the field is missing is not said besides."""
    body = {**RECORD, **record, "metadata": {**RECORD["metadata"], **metadata}}
    content = decode_token(msgspec.json.encode(body), token_id(1))
    build.token(1, **dict(zip(CONTENT_COLUMNS, content, strict=True)))
    assert problems(build.path) == found


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        ('{"metadata":[1]}', ("metadata", "wrong type", "[1]")),
        ('{"token":7}', ("token", "wrong type", "7")),
        ('{"id":"another"}', ("id", "another token's id", '"another"')),
        ("not written by nftsync", ("extra", "not a JSON object", "not written by nftsync")),
    ],
)
def test_broken_records(build: Builder, extra: str, found: tuple[str, str, str]) -> None:
    build.token(1, **GOOD, extra=extra)
    assert problems(build.path) == [found]


def test_many_tokens_with_the_same_and_several_problems(build: Builder) -> None:
    extra = '{"metadata":{"editionId":"x","name":1}}'
    for number in (1, 2, 3):
        build.token(number, image=None if number == 2 else GOOD["image"], extra=extra)
    found = frames.quality(build.path)
    assert list(zip(found["token_id"], found["field"], found["reason"], strict=True)) == [
        (token_id(1), "name", "wrong type"),
        (token_id(1), "edition_id", "wrong type"),
        (token_id(2), "name", "wrong type"),
        (token_id(2), "image", "missing"),
        (token_id(2), "edition_id", "wrong type"),
        (token_id(3), "name", "wrong type"),
        (token_id(3), "edition_id", "wrong type"),
    ]


def test_long_values_are_cut_short(build: Builder) -> None:
    build.token(1, **GOOD, description="\x07" * 100_000, creator_name="\x07" * 200)
    values = frames.quality(build.path).set_index("field")["value"]
    assert values["description"] == "\x07" * 200 + "…"
    assert values["creator_name"] == "\x07" * 200


def test_which_fields_are_required(build: Builder) -> None:
    build.token(1)
    assert [field for field, *_ in problems(build.path)] == ["name", "image"]
    assert problems(build.path, required=()) == []
    assert problems(build.path, required="edition_id") == [("edition_id", "missing", None)]
    with pytest.raises(InputError, match=r"'image_url' is not a field .* 'image'"):
        frames.quality(build.path, required=["image_url"])


def test_the_providers_own_images(build: Builder) -> None:
    build.token(1, name="One", image="http://127.0.0.1:8788/1.png")
    assert len(problems(build.path)) == 1
    assert problems(build.path, base_url="http://127.0.0.1:8788/api") == []
    with pytest.raises(InputError, match="http"):
        frames.quality(build.path, base_url="file:///tmp")


def test_only_held_tokens(build: Builder) -> None:
    build.wallet(1)
    for number in (1, 2, 3):
        build.token(number, image=GOOD["image"])
    build.balance(1, 1, "1")
    build.balance(1, 2, "0")
    assert frames.quality(build.path)["token_id"].nunique() == 3
    assert frames.quality(build.path, held=True)["token_id"].tolist() == [token_id(1)]


def _python(pattern: str) -> str:
    return pattern.replace(r"\z", r"\Z")


@settings(max_examples=60)
@given(address=st.from_regex(re.compile(_python(_quality._PLAIN_URL), re.ASCII)))
def test_addresses_that_get_no_closer_look_would_pass_it(address: str) -> None:
    assert image_address(address).problem is None
    assert _quality._page_problem(address) is None


@settings(max_examples=30)
@given(address=st.from_regex(re.compile(_python(_quality._PLAIN_IPFS), re.ASCII)))
def test_content_ids_that_get_no_closer_look_would_pass_it(address: str) -> None:
    assert image_address(address).problem is None


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quality") / "nftsync.db"


ADDRESSES = st.one_of(
    st.from_regex(r"\A(https?|ipfs|HTTPS)://[a-z0-9.:@\[\]-]{0,12}/?[a-z./%#?\\ -]{0,6}\Z"),
    st.just(f"ipfs://{CID}/../x"),
    st.text(max_size=4),
)


@settings(max_examples=30)
@given(images=st.lists(st.none() | ADDRESSES, max_size=8))
def test_images_are_judged_as_one_by_one(path: Path, images: list[str | None]) -> None:
    build = Builder(path)
    build.connection.execute("DELETE FROM tokens")
    for number, image in enumerate(images):
        encodable = None if image is None else image.encode(errors="replace").decode()
        build.token(number + 1, name="One", image=encodable)
    build.close()
    found = frames.quality(path).set_index("token_id")["reason"].to_dict()
    for number, image in enumerate(images):
        expected = "missing"
        if image is not None:
            image = image.encode(errors="replace").decode()
            expected = image_address(image).problem if image.strip() else "blank"
        hidden = {None, "control characters", "turns the direction of text"}
        assert found.get(token_id(number + 1)) in ({expected} if expected else hidden)
