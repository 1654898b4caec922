"""From an answer's bytes to entries and content: nothing lost, nothing invented, one refusal."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.errors import UnusableAnswer
from nftsync.provider.wire import CutShort, WalletPage, decode_token, decode_wallet, each_token_once
from nftsync.records import CONTENT_COLUMNS, Content

ID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
OTHER = "6ec0bd7f-11c0-43da-975e-2a8ad9ebae0b"
DOCUMENTED_METADATA = {
    "name": "n",
    "description": "d",
    "image": "i",
    "animationUrl": "a",
    "externalUrl": "e",
    "backgroundColor": "b",
    "editionId": 3,
    "totalEdition": 10,
    "creatorName": "c",
    "creatorImageUrl": "ci",
    "creatorExternalPageUrl": "ce",
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
    return shown(entry[2])


def shown(content: Content) -> dict[str, Any]:
    return {
        column: value
        for column, value in zip(CONTENT_COLUMNS, content, strict=True)
        if value is not None
    }


def refusal(body: bytes, **arguments: Any) -> str:
    with pytest.raises(UnusableAnswer) as caught:
        decode_wallet(body, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What is required -------------------------------------------------------------------------------


def test_the_whole_of_the_document_lands_in_its_columns() -> None:
    metadata = dict(DOCUMENTED_METADATA)
    record = {
        "id": ID,
        "organizationId": OTHER,
        "contractAddress": "0xAb",
        "blockchainTokenId": "007",
        "metadata": metadata,
    }
    expected = (OTHER, "0xAb", "007", *metadata.values(), None)
    assert decode_wallet(wallet_body(json.dumps(record))).entries == [(ID, "1", expected)]
    assert decode_token(json.dumps(record).encode(), ID) == expected


def test_an_empty_list_is_an_answer() -> None:
    assert decode_wallet(b'{"nftTokenBalances": []}') == WalletPage([], None, None)


@pytest.mark.parametrize(
    "amount", ["0012", "", "-1", "1e3", "115792089237316195423570985008687907"]
)
def test_an_amount_is_kept_as_sent(amount: str) -> None:
    body = wallet_body(amount=json.dumps(amount))
    assert decode_wallet(body).entries == [(ID, amount, None)]


def test_all_but_the_required_fields_may_be_absent_or_null() -> None:
    names = ("id", "organizationId", "contractAddress", "blockchainTokenId", "metadata")
    metadata = ("name", "editionId", "creatorExternalPageUrl")
    nulls = json.dumps(dict.fromkeys(names))
    assert content_of("{}") == content_of(nulls) == {}
    assert content_of(json.dumps({"metadata": dict.fromkeys(metadata)})) == {}
    for record in ("null", None):
        assert decode_wallet(wallet_body(record)).entries == [(ID, "1", None)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "$: object missing required field nftTokenBalances"),
        (b'{"nftTokenBalances": null}', "$.nftTokenBalances: expected array, got null"),
        (b"[]", "$: expected object, got array"),
        (b"null", "$: expected object, got null"),
        (b'{"nftTokenBalances": [1]}', "$.nftTokenBalances[0]: expected object, got int"),
        (
            b'{"nftTokenBalances": [{"tokenId": "x"}]}',
            "$.nftTokenBalances[0]: object missing required field amount",
        ),
        (wallet_body(amount="1"), "$.nftTokenBalances[0].amount: expected str, got int"),
        (wallet_body(amount="null"), "$.nftTokenBalances[0].amount: expected str, got null"),
        (wallet_body(tokenId='"x"'), "$.nftTokenBalances[0].tokenId: 'x' is not a UUID"),
        (
            wallet_body(tokenId=f'"{ID},{ID}"'),
            f"$.nftTokenBalances[0].tokenId: '{ID},{ID}' is not a UUID",
        ),
        (
            wallet_body(tokenId=f'"{ID}\\n"'),
            f"$.nftTokenBalances[0].tokenId: '{ID}\\n' is not a UUID",
        ),
    ],
)
def test_what_misses_a_required_field_is_refused_with_its_path(body: bytes, message: str) -> None:
    assert refusal(body) == message
    assert refusal(body, cursor_field="next") == message


def test_ids_are_lower_cased() -> None:
    record = json.dumps({"id": ID.upper(), "organizationId": OTHER.upper()})
    body = wallet_body(record, tokenId=f'"{ID.upper()}"')
    (entry,) = decode_wallet(body).entries
    assert entry[0] == ID
    assert shown(entry[2] or ()) == {"organization_id": OTHER}
    assert shown(decode_token(record.encode(), ID)) == {"organization_id": OTHER}


# What is kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    ["9223372036854775808", "-9223372036854775809", "1.10", "1e400", "-0.0", "1E+2", "9" * 5_000],
)
def test_unknown_fields_keep_numbers_to_the_digit(number: str) -> None:
    content = content_of(f'{{"x": {number}, "metadata": {{"y": [{number}], "name": "n"}}}}')
    assert content == {"name": "n", "extra": f'{{"metadata":{{"y":[{number}]}},"x":{number}}}'}


@pytest.mark.parametrize(
    "value", ["1.5", "9223372036854775808", "1e400", "9" * 5_000, '"3"', "true", "[3]", '{"a":3}']
)
def test_what_is_no_64_bit_integer_stays_out_of_an_integer_column(value: str) -> None:
    content = content_of(f'{{"metadata": {{"editionId": {value}, "totalEdition": 5}}}}')
    assert content == {"total_edition": 5, "extra": f'{{"metadata":{{"editionId":{value}}}}}'}


@pytest.mark.parametrize("value", ["12", "true", "1.50", "[]", "{}"])
def test_a_text_field_of_another_type_leaves_its_column_empty(value: str) -> None:
    content = content_of(f'{{"contractAddress": {value}, "metadata": {{"name": {value}}}}}')
    extra = f'{{"contractAddress":{value},"metadata":{{"name":{value}}}}}'
    assert content == {"extra": extra}


@pytest.mark.parametrize("value", ["[1]", '"text"', "7", "false"])
def test_metadata_or_a_record_that_is_no_object_is_kept_whole(value: str) -> None:
    assert content_of(f'{{"contractAddress": "c", "metadata": {value}}}') == {
        "contract_address": "c",
        "extra": f'{{"metadata":{value}}}',
    }
    assert content_of(value) == {"extra": f'{{"token":{value}}}'}


def test_a_record_of_another_token_in_a_list_keeps_its_id() -> None:
    assert content_of(f'{{"id": "{OTHER}", "contractAddress": "c"}}') == {
        "contract_address": "c",
        "extra": f'{{"id":"{OTHER}"}}',
    }


@pytest.mark.parametrize("value", ["5", "[]", "9" * 5_000])
def test_an_id_of_another_type_in_a_record_is_kept(value: str) -> None:
    assert content_of(f'{{"id": {value}}}') == {"extra": f'{{"id":{value}}}'}
    assert shown(decode_token(f'{{"id": {value}}}'.encode(), ID)) == {"extra": f'{{"id":{value}}}'}


def test_of_a_key_named_twice_the_last_counts_in_both_passes() -> None:
    twice = '{"metadata": {"name": "a", "name": "b"}}'
    assert content_of(twice) == {"name": "b"}
    twice = '{"x": 1, "x": 2, "metadata": {"name": "a", "name": "b"}}'
    assert content_of(twice) == {"name": "b", "extra": '{"x":2}'}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r"\ud83d\ude00", "😀"),
        ("\u202eevil\u202c", "\u202eevil\u202c"),
        (r"\ud800", "\ufffd"),
        (r"\udc00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\\ud800", "\\ud800"),
        (r"\\\ud800", "\\\ufffd"),
        (r"\uD800\\uDC00", "\ufffd\\uDC00"),
        (r"\"\uDBFF", '"\ufffd'),
    ],
)
def test_any_text_is_kept_and_a_lone_surrogate_is_replaced(written: str, text: str) -> None:
    assert content_of(f'{{"metadata": {{"name": "{written}"}}}}') == {"name": text}
    content = content_of(f'{{"metadata": {{"name": "{written}", "x": "{written}"}}}}')
    assert content["name"] == text
    assert json.loads(content["extra"]) == {"metadata": {"x": text}}
    content["extra"].encode()


def test_values_deeper_than_others_can_read_again_fail_the_wallet() -> None:
    """The thread that applies the read has less stack left than the one that decoded it."""
    nested = "[" * 201 + "]" * 201
    with pytest.raises(UnusableAnswer, match="nested"):
        content_of(f'{{"x": {nested}}}')
    in_text = "[" * 300 + "{" * 300 + '\\"'
    assert content_of(f'{{"x": ["{in_text}"]}}') == {"extra": f'{{"x":["{in_text}"]}}'}


# The single token -------------------------------------------------------------------------------


def test_the_record_of_another_token_is_refused() -> None:
    body = json.dumps({"id": OTHER, "metadata": {"name": "n"}}).encode()
    with pytest.raises(UnusableAnswer, match=rf"^\$\.id: .*another token, '{OTHER}'$"):
        decode_token(body, ID)


@pytest.mark.parametrize("body", [b"null", b"[]", b'"x"', b"1"])
def test_a_single_token_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(UnusableAnswer, match=r"^\$: expected object, got "):
        decode_token(body, ID)


# What is no answer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<!doctype html><p>Sorry", "it looks like HTML"),
        (b"  <html></html>", "it looks like HTML"),
        (b"NaN", "not JSON"),
        (wallet_body('{"x": NaN}'), "not JSON"),
        (wallet_body("{}") + b"{}", "not JSON"),
        (wallet_body("{}") + b"\0", "not JSON"),
        (b"\xef\xbb\xbf" + wallet_body("{}"), "not JSON"),
        (wallet_body("{}").decode().encode("utf-16"), "not UTF-8"),
        (wallet_body('{"x": "\u00e9"}').decode().encode("latin-1"), "not UTF-8"),
        (b'{"nftTokenBalances": [], "x": "\xed\xa0\x80"}', "not UTF-8"),
        (b"9" * 5_000, "$: "),
        (wallet_body(amount="9" * 5_000), "$.nftTokenBalances[0].amount: "),
        (b'{"nftTokenBalances":' + b"9" * 5_000 + b"}", "$.nftTokenBalances: "),
    ],
)
def test_another_kind_of_body_is_refused_and_not_called_cut_short(
    body: bytes, message: str
) -> None:
    with pytest.raises(UnusableAnswer) as caught:
        decode_wallet(body)
    assert message in str(caught.value)
    assert not isinstance(caught.value, CutShort)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("place", ['{"x": %s}', '{"metadata": {"name": %s}}', "%s"])
def test_100000_levels_are_refused(opening: str, closing: str, place: str) -> None:
    deep = opening * 100_000 + "0" + closing * 100_000
    assert refusal(wallet_body(place % deep)) == "the body is nested too deeply"
    with pytest.raises(UnusableAnswer):
        decode_token((place % deep).encode(), ID)


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


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_a_body_cut_at_any_byte_is_called_cut_short(ascii_only: bool, plain: bool) -> None:
    document = json.loads(json.dumps(_WHOLE))
    if plain:
        del document["nftTokenBalances"][0]["token"]["x"]
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert len(decode_wallet(body).entries) == 2
    for size in range(len(body)):
        with pytest.raises(CutShort):
            decode_wallet(body[:size])
    record = json.dumps(document["nftTokenBalances"][0]["token"], ensure_ascii=ascii_only).encode()
    for size in range(len(record)):
        with pytest.raises(CutShort):
            decode_token(record[:size], ID)


def test_an_empty_body_is_called_empty() -> None:
    for body in (b"", b" \n"):
        with pytest.raises(CutShort, match="the body is empty"):
            decode_wallet(body)


# Top-level fields and cursors -------------------------------------------------------------------


def test_an_unknown_top_level_field_is_named_until_it_is_known() -> None:
    body = b'{"total": 1, "nftTokenBalances": [], "next": null}'
    assert decode_wallet(body).unknown_field == "total"
    assert decode_wallet(body, known_fields=["total"]).unknown_field == "next"
    assert decode_wallet(body, known_fields=["total", "next"]).unknown_field is None
    known = decode_wallet(body, known_fields=["total"], cursor_field="next")
    assert known == WalletPage([], None, None)


def test_unknown_fields_of_an_entry_do_not_make_the_list_a_part() -> None:
    page = decode_wallet(wallet_body('{"id": null}', frozen="true"))
    assert page == WalletPage([(ID, "1", (None,) * len(CONTENT_COLUMNS))], None, None)


@pytest.mark.parametrize(
    ("value", "cursor"),
    [
        ('"abc"', "abc"),
        ("7", "7"),
        (str(2**80), str(2**80)),
        ("null", None),
        (r'"\ud800"', "\ufffd"),
    ],
)
def test_a_cursor_is_a_text_or_a_whole_number(value: str, cursor: str | None) -> None:
    body = f'{{"nftTokenBalances": [], "next": {value}}}'.encode()
    assert decode_wallet(body, cursor_field="next") == WalletPage([], None, cursor)


@pytest.mark.parametrize("value", ["1.5", "true", "[]", "{}", '""', "9" * 5_000])
def test_a_cursor_of_another_kind_is_refused(value: str) -> None:
    body = f'{{"nftTokenBalances": [], "next": {value}}}'.encode()
    assert refusal(body, cursor_field="next").startswith("$.next: expected a cursor")


# A token named twice ----------------------------------------------------------------------------


def test_a_token_named_twice_with_one_amount_is_listed_once() -> None:
    entries = [(ID, "1", None), (OTHER, "2", None), (ID, "1", None)]
    assert sorted(each_token_once(entries)) == [(ID, "1", None), (OTHER, "2", None)]


def test_of_a_token_named_twice_the_first_record_counts() -> None:
    first, second = (("a",), ("b",))
    assert each_token_once([(ID, "1", first), (ID, "1", second)]) == [(ID, "1", first)]


def test_a_token_named_twice_with_different_amounts_is_refused() -> None:
    with pytest.raises(UnusableAnswer, match=f"{ID} is listed twice.*'1' and '2'"):
        each_token_once([(ID, "1", None), (OTHER, "2", None), (ID, "2", None)])


# Properties -------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_FIELDS = st.sampled_from(
    ["nftTokenBalances", "tokenId", "amount", "token", "id", "metadata", "name", "editionId", "x"]
)
_NEARLY = st.recursive(
    _JSON | st.just(ID) | st.just("1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FIELDS, inner, max_size=6),
    max_leaves=20,
)
_TOKEN_LIKE = st.fixed_dictionaries(
    {}, optional={"id": _NEARLY, "contractAddress": _JSON, "metadata": _NEARLY, "x": _JSON}
)


def _check_total(body: bytes) -> None:
    for arguments in ({}, {"cursor_field": "x"}):
        try:
            page = decode_wallet(body, **arguments)
        except UnusableAnswer:
            continue
        for _, _, content in page.entries:
            if content is not None and content[-1] is not None:
                assert json.loads(str(content[-1]))
    try:
        content = decode_token(body, ID)
    except UnusableAnswer:
        return
    if content[-1] is not None:
        assert json.loads(str(content[-1]))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_result_or_a_refusal(body: bytes) -> None:
    _check_total(body)


@given(_NEARLY, st.booleans())
def test_any_json_gives_a_result_or_a_refusal(document: Any, ascii_only: bool) -> None:
    _check_total(json.dumps(document, ensure_ascii=ascii_only).encode(errors="surrogatepass"))


@given(_TOKEN_LIKE)
def test_any_record_of_a_token_is_kept_or_refused(record: Any) -> None:
    entry = {"tokenId": ID, "amount": "1", "token": record}
    _check_total(json.dumps({"nftTokenBalances": [entry]}).encode())
    _check_total(json.dumps(record).encode())


@given(st.data())
def test_a_damaged_document_gives_a_result_or_a_refusal(data: st.DataObject) -> None:
    body = bytearray(json.dumps(_WHOLE, ensure_ascii=False).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    _check_total(bytes(body))


_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_I64 = st.integers(-(2**63), 2**63 - 1)
_METADATA = {
    name: _I64 if name.endswith(("nId", "Edition")) else _TEXT for name in DOCUMENTED_METADATA
}
_RECORD = {
    "contractAddress": _TEXT,
    "blockchainTokenId": _TEXT,
    "organizationId": st.uuids().map(str),
}
_UNKNOWN = st.dictionaries(
    _TEXT.filter(lambda name: name not in {*_METADATA, *_RECORD, "id", "metadata"}),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | _TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@st.composite
def _records(draw: st.DrawFn, *, unknown: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record as a provider sends it, and the fields of it beyond the document."""
    known = draw(st.fixed_dictionaries({}, optional=_RECORD))
    metadata = draw(st.fixed_dictionaries({}, optional=_METADATA))
    beyond = draw(_UNKNOWN) if unknown else {}
    beyond_metadata = draw(_UNKNOWN) if unknown else {}
    record: dict[str, Any] = {**known, **beyond}
    extra = dict(beyond)
    if metadata or beyond_metadata:
        record["metadata"] = {**metadata, **beyond_metadata}
    if beyond_metadata:
        extra["metadata"] = beyond_metadata
    return record, extra


def _reassemble(content: Content) -> dict[str, Any]:
    """Turn columns back into the record they came from."""
    record: dict[str, Any] = {}
    names = ["organizationId", "contractAddress", "blockchainTokenId", *_METADATA]
    metadata = {}
    for position, (name, value) in enumerate(zip(names, content, strict=False)):
        if value is not None:
            (record if position < 3 else metadata)[name] = value
    extra = json.loads(str(content[-1])) if content[-1] is not None else {}
    metadata |= extra.pop("metadata", {})
    return {**record, **extra, **({"metadata": metadata} if metadata else {})}


@pytest.mark.parametrize("unknown", [False, True])
def test_a_random_world_comes_back_exactly(unknown: bool) -> None:
    @given(
        st.dictionaries(
            st.uuids().map(str),
            st.tuples(_TEXT, st.none() | _records(unknown=unknown)),
            max_size=4,
        ),
        st.booleans(),
    )
    @settings(deadline=None)
    def check(world: dict[str, Any], ascii_only: bool) -> None:
        listed = []
        for token_id, (amount, drawn) in world.items():
            listed.append({"tokenId": token_id, "amount": amount})
            if drawn is not None:
                listed[-1]["token"] = drawn[0]
        body = json.dumps({"nftTokenBalances": listed}, ensure_ascii=ascii_only).encode()
        page = decode_wallet(body)
        assert page.unknown_field is None
        assert [entry[:2] for entry in page.entries] == [
            (token_id, amount) for token_id, (amount, _) in world.items()
        ]
        for (_, _, content), (_, drawn) in zip(page.entries, world.values(), strict=True):
            if drawn is None:
                assert content is None
                continue
            record, extra = drawn
            assert content is not None
            assert _reassemble(content) == record
            assert (json.loads(str(content[-1])) if content[-1] is not None else {}) == extra
            assert decode_token(json.dumps(record).encode(), ID)[:-1] == content[:-1]

    check()


@given(_records(unknown=True), st.randoms(use_true_random=False))
def test_neither_order_nor_spacing_nor_escapes_of_fields_matter(
    drawn: Any, shuffler: random.Random
) -> None:
    record, _ = drawn

    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        if not isinstance(value, dict):
            return value
        names = list(value)
        shuffler.shuffle(names)
        return {name: shuffled(value[name]) for name in names}

    body = json.dumps(record).encode()
    for other in (
        json.dumps(shuffled(record)),
        json.dumps(shuffled(record), indent=3, ensure_ascii=False),
        json.dumps(shuffled(record), separators=(",", ":")),
    ):
        assert decode_token(other.encode(), ID) == decode_token(body, ID)
