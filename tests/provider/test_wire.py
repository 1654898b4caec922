"""Decoding of responses: no field lost or invented, and one message per refusal."""

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.errors import UnusableResponse
from nftsync.provider.new_fields import of_webhook
from nftsync.provider.wire import (
    CutShort,
    WalletList,
    decode_token,
    decode_wallet,
    without_duplicates,
)
from nftsync.records import CONTENT_COLUMNS, Content

ID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
OTHER = "6ec0bd7f-11c0-43da-975e-2a8ad9ebae0b"
TEXTS = ("name", "description", "image", "animationUrl", "externalUrl", "backgroundColor")
CREATOR = ("creatorName", "creatorImageUrl", "creatorExternalPageUrl")
DOCUMENTED_METADATA: dict[str, Any] = {
    name: {"editionId": 3, "totalEdition": 10}.get(name, name)
    for name in (*TEXTS, "editionId", "totalEdition", *CREATOR)
}


def wallet_body(token: str | None = None, **more: str) -> bytes:
    """A list of one entry, out of JSON texts."""
    fields = {"tokenId": f'"{ID}"', "amount": '"1"', **more}
    if token is not None:
        fields["token"] = token
    inner = ", ".join(f'"{name}": {value}' for name, value in fields.items())
    return f'{{"nftTokenBalances": [{{{inner}}}]}}'.encode()


def content_of(token: str) -> dict[str, Any]:
    """The columns that a token record fills, as read in a list."""
    (entry,) = decode_wallet(wallet_body(token)).entries
    assert entry[2] is not None
    columns = zip(CONTENT_COLUMNS, entry[2], strict=False)
    return {column: value for column, value in columns if value is not None}


def faults_of(token: str) -> dict[str, str]:
    """The unreadable fields of a token record, and the reasons."""
    ((_, _, content),) = decode_wallet(wallet_body(token)).entries
    assert content is not None
    return dict(json.loads(str(content[-1]))) if len(content) > len(CONTENT_COLUMNS) else {}


def refusal(body: bytes, **arguments: Any) -> str:
    with pytest.raises(UnusableResponse) as caught:
        decode_wallet(body, **arguments)
    assert "\n" not in str(caught.value)
    assert type(caught.value) is UnusableResponse, "called cut short"
    return str(caught.value)


def test_all_documented_fields_are_stored_in_columns():
    metadata = dict(DOCUMENTED_METADATA)
    record = {
        "id": ID.upper(),
        "organizationId": OTHER.upper(),
        "contractAddress": "0xAb",
        "blockchainTokenId": "007",
        "metadata": metadata,
    }
    expected = (OTHER, "0xAb", "007", *metadata.values(), None)
    body = wallet_body(json.dumps(record), tokenId=f'"{ID.upper()}"')
    assert decode_wallet(body).entries == [(ID, "1", expected)]
    assert decode_token(json.dumps(record).encode(), ID) == expected
    assert decode_wallet(b'{"nftTokenBalances": []}') == WalletList([])


ONCE = wallet_body()
REPEATED = {
    "nftTokenBalances": ONCE.replace(b"}]}", b'}], "nftTokenBalances": []}'),
    "tokenId": ONCE.replace(b'"amount"', b'"tokenId": "%s", "amount"' % OTHER.encode()),
    "amount": ONCE.replace(b'"amount"', b'"amount": "5", "amount"'),
}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "$: object missing required field nftTokenBalances"),
        (b'{"nftTokenBalances": null}', "$.nftTokenBalances: expected array, got null"),
        (b"[]", "$: expected object, got array"),
        (wallet_body(amount="1"),
         f"$.nftTokenBalances[0].amount (token {ID}): expected str, got int"),
        (wallet_body(amount='"1X"').replace(b"X", b"\xe2"),
         f"$.nftTokenBalances[0].amount (token {ID}): text that is not Unicode"),
        (wallet_body().replace(b"amount", b"other"),
         f"$.nftTokenBalances[0] (token {ID}): object missing required field amount"),
        (wallet_body().replace(b"tokenId", b"other"),
         "$.nftTokenBalances[0]: object missing required field tokenId"),
        (wallet_body(tokenId="7"), "$.nftTokenBalances[0].tokenId: expected str, got int"),
        *((wallet_body(tokenId=f'"{x}"'), f"$.nftTokenBalances[0].tokenId: '{x}' is not a UUID")
          for x in ("x", f"{ID},{ID}", f"{ID}\\n")),
        (b"  <!doctype html><p>Sorry", "…it looks like HTML…"),
        (b"NaN", "…not JSON…"),
        *((x, "…not JSON…") for x in (wallet_body() + b"{}", wallet_body() + b"\0")),
        (wallet_body().decode().encode("utf-16"), "…not JSON…"),
        (b"9" * 5_000, "$: …"),
        (wallet_body(amount="9" * 5_000), "$.nftTokenBalances[0].amount …: …"),
        *((body, f"…the key {key!r} appears twice…") for key, body in REPEATED.items()),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_a_missing_or_wrong_field_is_refused_with_its_path(body, message):
    pattern = ".*".join(map(re.escape, message.split("…")))
    for known in ({}, {"cursor_field": "next"}, {"known_fields": ["x"]}):
        assert re.fullmatch(pattern, refusal(body, **known))


def test_another_record_than_the_token_s_is_refused():
    other = json.dumps({"id": OTHER, "metadata": {}}).encode()
    for body, message in (
        (other, rf"^\$\.id: .*another token, '{OTHER}'$"),
        *((body, r"^\$: expected object, got ") for body in (b"null", b"[]", b'"x"', b"1")),
        (b'{"error": "not found"}', "no id and no metadata"),
        (b'{"error": "not found", "id": null, "metadata": null}', "no id and no metadata"),
    ):
        with pytest.raises(UnusableResponse, match=message) as caught:
            decode_token(body, ID)
        assert type(caught.value) is UnusableResponse


NUMBERS = ["9223372036854775808", "1.10", "1e400", "-0.0", "1E+2", "9" * 5_000]


@pytest.mark.parametrize(
    ("record", "columns", "extra"),
    [
        *((f'{{"x": {number}, "metadata": {{"y": [{number}], "name": "n"}}}}', {"name": "n"},
           f'{{"metadata":{{"y":[{number}]}},"x":{number}}}') for number in NUMBERS),
        *((f'{{"metadata": {{"editionId": {value}, "totalEdition": 5}}}}', {"total_edition": 5},
           f'{{"metadata":{{"editionId":{value}}}}}')
          for value in ("1.5", "9223372036854775808", "9" * 5_000, '"3"', "true", "[3]", "1e400")),
        *((f'{{"metadata": {{"editionId": {value}, "totalEdition": -1E0}}}}',
           {"edition_id": 150, "total_edition": -1}, None)
          for value in ("150", "150.0", "1.5e2", "1500e-1", "1.50E+02")),
        *((f'{{"contractAddress": {value}, "metadata": {{"name": {value}}}}}', {},
           f'{{"contractAddress":{value},"metadata":{{"name":{value}}}}}')
          for value in ("12", "true", "1.50", "{}")),
        *((f'{{"contractAddress": "c", "metadata": {value}}}', {"contract_address": "c"},
           f'{{"metadata":{value}}}') for value in ("[1]", '"text"', "7")),
        *((value, {}, f'{{"token":{value}}}') for value in ("[1]", '"text"', "7", "false")),
        (f'{{"id": "{OTHER}", "contractAddress": "c"}}', {"contract_address": "c"},
         f'{{"id":"{OTHER}"}}'),
        *((f'{{"id": {value}}}', {}, f'{{"id":{value}}}') for value in ("5", "[]", "9" * 5_000)),
        ('{"x": 1, "x": 2, "metadata": {"name": "a", "name": "b"}}', {}, None),
        ('{"metadata": {"name": "a", "name": "b", "x": {"y": 1}}}', {},
         '{"metadata":{"x":{"y":1}}}'),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_values_without_a_column_are_kept_exactly(record, columns, extra):
    assert content_of(record) == columns | ({} if extra is None else {"extra": extra})


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r"\ud83d\ude00", "😀"),
        ("\u202eevil\u202c", "\u202eevil\u202c"),
        (r"\udc00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\\ud800", "\\ud800"),
        (r"\\\ud800", "\\\ufffd"),
        (r"\uD800\\uDC00", "\ufffd\\uDC00"),
        (r"\"\uDBFF", '"\ufffd'),
    ],
)
def test_any_text_is_kept_and_a_lone_surrogate_is_replaced(written, text):
    assert content_of(f'{{"metadata": {{"name": "{written}"}}}}') == {"name": text}
    for field in ("x", "attributes"):
        record = f'{{"id": "{ID}", "metadata": {{"name": "{written}", "{field}": ["{written}"]}}}}'
        content = content_of(record)
        assert content["name"] == text
        assert json.loads(content["extra"]) == {"metadata": {field: [text]}}
        content["extra"].encode()
        ((_, _, listed),) = decode_wallet(wallet_body(record)).entries
        assert decode_token(record.encode(), ID) == listed


@pytest.mark.parametrize("key", ["name", "x"])
@pytest.mark.parametrize("spaced", ["", " "])
@pytest.mark.parametrize("beside", ["", '"y":null,', '"y":"\\u003a\\u003A:",', '"y":{"a":[1]},'])
def test_a_repeated_key_is_found_in_any_spelling_and_a_text_is_none(key, spaced, beside):
    field = f'{{"metadata":{{{beside}"{key}"{spaced}:'
    twice = f'{field}"a","{key}":"b"}}}}'
    assert faults_of(twice) == {f"metadata.{key}": f"the key '{key}' appears twice"}
    once = field + r'"\"tokenId\":1,\"amount\":null"}}'
    assert faults_of(once) == {}


def test_values_nested_too_deeply_are_named():
    """The thread that applies a read has a smaller stack than the one that decodes it."""
    reason = "nested more than 200 levels deep"
    nested = "[" * 201 + "]" * 201
    assert faults_of(f'{{"x": {nested}}}') == {"x": reason}
    assert content_of(f'{{"x": {nested}, "y": 1}}') == {"extra": '{"y":1}'}
    edge = "[" * 199 + "]" * 199
    assert faults_of(f'{{"metadata": {{"y": {edge}}}}}') == {"metadata.y": reason}
    in_text = "[" * 300 + "{" * 300 + '\\"'
    assert content_of(f'{{"x": ["{in_text}"]}}') == {"extra": f'{{"x":["{in_text}"]}}'}
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        deep = opening * 100_000 + "0" + closing * 100_000
        assert set(faults_of(deep).values()) == {reason}
        for record in (f'{{"x": {deep}}}', f'{{"metadata": {{"name": {deep}}}}}'):
            assert set(faults_of(record).values()) == {reason}
            named = record.replace("{", f'{{"id": "{ID}",', 1).encode()
            assert reason in str(decode_token(named, ID)[-1])


_WHOLE = {
    "nftTokenBalances": [
        {
            "tokenId": ID,
            "amount": "10",
            "token": {
                "id": ID,
                "x": [1, -2.5e-3, True, None, {"a": 'é😀"\\'}],
                "metadata": {"name": "é😀\0", "editionId": 12},
            },
        },
        {"tokenId": OTHER, "amount": "2"},
    ]
}


@pytest.mark.parametrize("plain", [True, False])
def test_a_body_cut_at_any_byte_is_called_cut_short(plain):
    document = json.loads(json.dumps(_WHOLE))
    if plain:
        del document["nftTokenBalances"][0]["token"]["x"]
    for ascii_only in (True, False):
        body = json.dumps(document, ensure_ascii=ascii_only).encode()
        assert len(decode_wallet(body).entries) == 2
        token = json.dumps(document["nftTokenBalances"][0]["token"], ensure_ascii=ascii_only)
        for whole, decode in (
            (body, decode_wallet),
            (token.encode(), lambda x: decode_token(x, ID)),
        ):
            for size in range(len(whole)):
                with pytest.raises(CutShort):
                    decode(whole[:size])
    with pytest.raises(CutShort, match="the body is empty"):
        decode_wallet(b" \n")


def test_an_unknown_top_level_field_is_named_unless_it_is_ignored():
    body = b'{"total": 1, "nftTokenBalances": [], "next": null}'
    named = "the unknown field {} beside nftTokenBalances".format
    assert decode_wallet(body).doubt == named("'total'")
    assert decode_wallet(body, known_fields=["total"]).doubt == named("'next'")
    assert decode_wallet(body, known_fields=["total", "next"]).doubt is None
    known = decode_wallet(body, known_fields=["total"], cursor_field="next")
    assert known == WalletList([])
    # Unknown fields of an entry do not make the list incomplete.
    page = decode_wallet(wallet_body('{"id": null}', frozen="true"))
    assert page[:2] == ([(ID, "1", (None,) * len(CONTENT_COLUMNS))], None)


#: JSON values and the names of their types.
TYPED = {'"x"': "text", "0": "integer", "-1.5": "number", "9e99": "number", "null": "null"}
TYPED |= {"true": "true or false", "false": "true or false", "[]": "list", "{}": "object"}
DOCUMENTED = {"id", "token", "tokenId", "metadata", "contractAddress", "blockchainTokenId"}
DOCUMENTED |= {"action", "resourceId", "resourceType", "createdAtUtc", "changes"}
TEXT_FIELDS = {"token": "organizationId", "metadata": "name", "balance": "amount", "webhook": "id"}


@given(
    st.sampled_from(sorted(TEXT_FIELDS)),
    st.dictionaries(st.text(), st.sampled_from(sorted(TYPED)), max_size=4),
    st.sampled_from(sorted(TYPED)),
)
def test_exactly_the_fields_beyond_the_document_are_new(place, unknown, other):
    """Whatever their names and types, and a documented field of another type, unless it is null."""
    documented = TEXT_FIELDS[place]
    # Top-level names that mean more than a further field.
    names = {*DOCUMENTED_METADATA, *TEXT_FIELDS.values(), *DOCUMENTED}
    values = {name: json.loads(value) for name, value in unknown.items() if name not in names}
    expected = {f"{place}.{name[:80]}": (TYPED[unknown[name]], None) for name in values}
    if place != "balance":  # a list without a readable amount is refused
        values[documented] = json.loads(other)
        if TYPED[other] not in {"text", "null"}:
            expected[f"{place}.{documented}"] = (TYPED[other], "text")
    entry: dict[str, Any] = {"tokenId": ID, "amount": "1", "token": {"id": ID, "metadata": {}}}
    into = {"balance": entry, "token": entry["token"], "metadata": entry["token"]["metadata"]}
    into.setdefault(place, {}).update(values)
    if place == "webhook":
        news = of_webhook(json.dumps(into[place]).encode(), ID)
    else:
        news = decode_wallet(json.dumps({"nftTokenBalances": [entry]}).encode()).new_fields
    assert {path: (one.type, one.documented_type) for path, one in news.items()} == expected
    assert {one.example_id for one in news.values()} <= {ID}


def test_a_cursor_is_a_text_or_a_whole_number_and_nothing_else():
    body = '{"nftTokenBalances": [], "next": %s}'
    for value, cursor in (
        ('"abc"', "abc"),
        (str(2**80), str(2**80)),
        ('""', None),
        ("null", None),
        ("false", None),
        ("0", "0"),
        (r'"\u00e9"', "é"),
    ):
        page = decode_wallet((body % value).encode(), cursor_field="next")
        assert page == WalletList([], cursor=cursor)
    for value in ("1.5", "true", "[]", "{}", "9" * 5_000):
        said = refusal((body % value).encode(), cursor_field="next")
        assert said.startswith("$.next: expected a cursor")
    for value, reason in (
        (r'"\ud800"', "text that is not Unicode"),
        ("NaN", "NaN is not a JSON"),
        ('1, "next": 2', "the key 'next' appears twice"),
    ):
        assert reason in refusal((body % value).encode(), cursor_field="next")


def test_a_repeated_token_is_listed_once():
    first, second = (("a",), ("b",))
    twice = [(ID, "1", first), (OTHER, "2", None), (ID, "1", second)]
    assert sorted(without_duplicates(twice)) == [(ID, "1", first), (OTHER, "2", None)]


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
_SCALARS = st.none() | st.booleans() | st.integers() | _TEXT
_FIELDS = st.sampled_from(
    ["nftTokenBalances", "tokenId", "amount", "token", "id", "metadata", "name", "editionId", "x"]
)
_NEARLY = st.recursive(
    _SCALARS | st.floats() | st.text(max_size=4) | st.just(ID) | st.just("1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FIELDS, inner, max_size=5),
    max_leaves=10,
)
_RECORDS = st.fixed_dictionaries(
    {}, optional={"id": _NEARLY, "contractAddress": _NEARLY, "metadata": _NEARLY, "x": _NEARLY}
)


def _damaged(changes: list[tuple[int, int]]) -> bytes:
    body = bytearray(json.dumps(_WHOLE, ensure_ascii=False).encode())
    for place, byte in changes:
        body[place % len(body)] = byte
    return bytes(body)


@settings(max_examples=200)
@given(
    st.binary(max_size=100)
    | _NEARLY.map(lambda x: json.dumps(x, ensure_ascii=False).encode(errors="surrogatepass"))
    | _RECORDS.map(lambda x: json.dumps(x).encode())
    | _RECORDS.map(lambda x: wallet_body(json.dumps(x)))
    | st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=3).map(_damaged)
)
def test_any_body_gives_readable_content_or_a_refusal(body):
    found: list[Content | None] = []
    for arguments in ({}, {"cursor_field": "x"}):
        with suppress(UnusableResponse):
            found += [content for _, _, content in decode_wallet(body, **arguments).entries]
    with suppress(UnusableResponse):
        found.append(decode_token(body, ID))
    for content in found:
        for text in () if content is None else content[len(CONTENT_COLUMNS) - 1 :]:
            assert text is None or json.loads(str(text))


_METADATA = {
    name: st.integers(-(2**63), 2**63 - 1) if isinstance(value, int) else _TEXT
    for name, value in DOCUMENTED_METADATA.items()
}
_RECORD = {
    "organizationId": st.uuids().map(str),
    "contractAddress": _TEXT,
    "blockchainTokenId": _TEXT,
}
_ANY = st.recursive(
    _SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=4,
)
_UNKNOWN = st.dictionaries(
    _TEXT.filter(lambda name: name not in {*_METADATA, *_RECORD, "id", "metadata"}),
    _ANY,
    max_size=2,
)


@st.composite
def _records(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record as a provider sends it, and the fields of it beyond the document."""
    beyond, beyond_metadata = draw(st.just(({}, {})) | st.tuples(_UNKNOWN, _UNKNOWN))
    if draw(st.booleans()):
        beyond_metadata = beyond_metadata | {
            "attributes": draw(_ANY.filter(lambda value: value is not None))
        }
    record = {**draw(st.fixed_dictionaries({}, optional=_RECORD)), **beyond}
    metadata = draw(st.fixed_dictionaries({}, optional=_METADATA)) | beyond_metadata
    extra = beyond | ({"metadata": beyond_metadata} if beyond_metadata else {})
    return record | ({"metadata": metadata} if metadata else {}), extra


def _reassemble(content: Content) -> dict[str, Any]:
    """Turn columns back into the record they came from."""
    named = dict(zip([*_RECORD, *_METADATA], content, strict=False))
    record = {name: named[name] for name in _RECORD if named[name] is not None}
    metadata = {name: named[name] for name in _METADATA if named[name] is not None}
    extra = json.loads(str(content[-1])) if content[-1] is not None else {}
    metadata |= extra.pop("metadata", {})
    return {**record, **extra, **({"metadata": metadata} if metadata else {})}


@settings(max_examples=80)
@given(
    st.dictionaries(st.uuids().map(str), st.tuples(_TEXT, st.none() | _records()), max_size=3),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_a_random_world_comes_back_exactly(world, ascii_only, shuffler):
    """And neither order nor spacing nor escapes of a record's fields matter."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {name: shuffled(value[name]) for name in shuffler.sample(list(value), len(value))}

    listed = [
        {"tokenId": token_id, "amount": amount} | ({} if drawn is None else {"token": drawn[0]})
        for token_id, (amount, drawn) in world.items()
    ]
    body = json.dumps({"nftTokenBalances": listed}, ensure_ascii=ascii_only).encode()
    page = decode_wallet(body)
    assert page.doubt is None
    amounts = [(token_id, amount) for token_id, (amount, _) in world.items()]
    assert [entry[:2] for entry in page.entries] == amounts
    for (_, _, content), (_, drawn) in zip(page.entries, world.values(), strict=True):
        assert (content is None) == (drawn is None)
        if content is not None:
            record, extra = drawn
            assert _reassemble(content) == record
            assert (json.loads(str(content[-1])) if content[-1] is not None else {}) == extra
            for form in ({}, {"indent": 3, "ensure_ascii": False}, {"separators": (",", ":")}):
                alone = json.dumps(shuffled({"id": ID} | record), **form).encode()
                assert decode_token(alone, ID) == content
