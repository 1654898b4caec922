"""Unreadable metadata of a token: only its unreadable fields are lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from tests.kit.provider import Provider, entry, path_of, reply, token, wallet
from tests.kit.worlds import Outcome, mirrored
from tests.pull.mirror import Mirror, errors

KNOWN = {
    "name": "Known",
    "description": "old",
    "attributes": [{"trait_type": "amount", "value": 5}],
}

#: Records as JSON, and their unreadable parts.
HOSTILE: dict[str, tuple[bytes, set[str]]] = {
    "a trait twice": (
        b'{"metadata":{"name":"Known","attributes":{"Eyes":"Blue","Eyes":"Green"}}}',
        {"metadata.attributes"},
    ),
    "metadata twice": (b'{"metadata":{"name":"a"},"metadata":{"name":"b"}}', {"metadata"}),
    "an unknown field twice": (b'{"x":1,"x":2,"metadata":{"name":"Known"}}', {"x"}),
    "a name twice": (b'{"metadata":{"name":"a","name":"b"}}', {"metadata.name"}),
    "a cut character": (b'{"metadata":{"name":"Kno\xe2\x82"}}', {"metadata.name"}),
    "another encoding": (
        b'{"metadata":{"name":"Zo\xeb","x":["\xeb"]}}',
        {"metadata.name", "metadata.x"},
    ),
    "half a character": (rb'{"metadata":{"name":"\ud83d"}}', {"metadata.name"}),
    "half a character in a key": (
        rb'{"metadata":{"name":"Known","\ud83d":1}}',
        {"metadata.\ufffd"},
    ),
    "deep": (
        b'{"metadata":{"name":"Known","x":%s}}' % (b"[" * 200 + b"]" * 200),
        {"metadata.x"},
    ),
    "very deep": (
        b'{"metadata":{"name":%s}}' % (b'{"a":' * 99_999 + b"1" + b"}" * 99_999),
        {"metadata.name"},
    ),
    "not a number": (b'{"metadata":{"name":"Known","x":[NaN]}}', {"metadata.x"}),
    "infinite": (b'{"metadata":{"name":"Known","editionId":-Infinity}}', {"metadata.editionId"}),
    "a list as token": (b"[1]", {"token"}),
    "a text as token": (b'"x"', {"token"}),
    "metadata as a text": (b'{"metadata":"{}"}', {"metadata"}),
    "metadata as a list": (b'{"metadata":[{"name":"x"}]}', {"metadata"}),
    "another token's record": (
        b'{"id":"%s","metadata":{"name":"x"}}' % token(9).encode(),
        {"token"},
    ),
    # Odd, but readable:
    "no token": (b"null", set()),
    "long numbers": (
        b'{"metadata":{"name":"Known","x":%s,"editionId":1e999999999}}' % (b"9" * 9_999),
        set(),
    ),
    "control characters": (b'{"metadata":{"name":"Known","description":"a\x01\n\tb"}}', set()),
    "texts like keys": (b'{"metadata":{"name":"Known","a":"\\"amount\\":","b":"tokenId"}}', set()),
}


#: The numbers of the wallets and tokens of these records.
NUMBERS = {what: number for number, what in enumerate(HOSTILE, 10)}
WALLETS = [wallet(number) for number in NUMBERS.values()]
BAD = {what for what, (_, fields) in HOSTILE.items() if fields}
GOOD = json.dumps({"metadata": KNOWN}).encode()


def body_of(*records: tuple[int, bytes]) -> bytes:
    """Return a list of tokens by number, each with its record's JSON."""
    entries = (
        b'{"tokenId":"%s","amount":"%d","token":%s}' % (token(number).encode(), number, record)
        for number, record in records
    )
    return b'{"nftTokenBalances":[%s]}' % b",".join(entries)


def parts(result: nftsync.SyncResult) -> set[tuple[str, str]]:
    return {(part.token_id, part.field) for part in result.unreadable}


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_a_balance_counts_whatever_its_metadata(
    mirror: Mirror, command: Callable[..., Outcome], bom: bytes
) -> None:
    for what, number in NUMBERS.items():
        body = body_of((number, HOSTILE[what][0]), (number + 100, GOOD))
        mirror.provider.on(path_of(number), reply(bom + body))
    result = mirror.sync(WALLETS)
    assert result.status == "ok"
    assert mirror.held() == {
        wallet(number): {token(n): str(n) for n in (number, number + 100)}
        for number in NUMBERS.values()
    }
    assert parts(result) == {
        (token(NUMBERS[what]), field) for what, (_, fields) in HOSTILE.items() for field in fields
    }
    assert parts(mirror.sync()) == parts(result)  # also for unchanged responses
    where = ("-d", mirror.database)
    shown = command("status", "--json", *where).json["unreadable"]
    assert [tuple(part.values()) for part in shown] == [
        (part.token_id, part.field, part.reason) for part in result.unreadable
    ]
    quality = frames.quality(mirror.database)
    named = quality[quality["reason"].str.startswith("unreadable: ")]
    assert set(named["token_id"]) == {token(NUMBERS[what]) for what in BAD}
    names = frames.tokens(mirror.database).set_index("token_id")["name"]
    assert {names[token(number + 100)] for number in NUMBERS.values()} == {"Known"}
    for change in (False, True):  # the second sync of readable records repairs them
        options = ("--base-url", mirror.provider.url, "--json", *where)
        checked = command("verify", *options).says().json
        assert checked["differences"] == []
        if not change:
            for number in NUMBERS.values():
                mirror.provider.on(path_of(number), reply(body_of((number, GOOD))))
            assert mirror.sync(allow_removals=True).unreadable == []


@pytest.mark.parametrize("by_id", [False, True])
def test_stored_fields_stay_until_they_are_readable_again(mirror: Mirror, *, by_id: bool) -> None:
    more: dict[str, Any] = {"tokens": by_id, "toml": "removal_limit = 0.0\nremoval_rows = 0"}
    refused = {"a list as token", "a text as token", "another token's record"} & BAD
    what_of = {token(NUMBERS[what]): what for what in BAD}

    def show(records: dict[str, bytes]) -> None:
        for what, number in NUMBERS.items():
            record = records.get(what, GOOD)
            body = body_of((number, GOOD if by_id else record))
            mirror.provider.on(path_of(number), reply(body))
            is_whole = b'"id"' in record or not by_id
            own = b"{" if is_whole else b'{"id":"%s",' % token(number).encode()
            path = f"/v1/tokens/{token(number)}"
            mirror.provider.on(path, reply(record.replace(b"{", own, 1)))

    def columns() -> dict[str, tuple[str, str]]:
        attributes = "extra ->> '$.metadata.attributes'"
        rows = mirror.query(f"SELECT token_id, name, {attributes} FROM tokens")
        return {what_of[one]: tuple(rest) for one, *rest in rows if one in what_of}

    show({})
    assert mirror.sync(WALLETS, **more).status == "ok"
    before = columns()
    show({what: record for what, (record, fields) in HOSTILE.items() if fields})
    result = mirror.sync(**more)
    assert result.status == ("partial" if by_id else "ok")
    failed = {token(NUMBERS[what]) for what in refused if by_id}
    assert {failure.token_id for failure in result.failures} == failed
    assert parts(result) == {
        (token(NUMBERS[what]), field)
        for what in BAD - (refused if by_id else set())
        for field in HOSTILE[what][1]
    }
    assert {what: name for what, (name, _) in columns().items()} == dict.fromkeys(BAD, "Known")
    kept = {what for what in BAD if HOSTILE[what][1] & {"token", "metadata", "metadata.attributes"}}
    assert {what: columns()[what] for what in kept} == {what: before[what] for what in kept}
    show({})
    assert parts(mirror.sync(**more)) == set()
    assert columns() == before


def test_an_entry_without_a_valid_amount_fails_its_wallet(mirror: Mirror) -> None:
    good = b'{"tokenId":"%s","amount":"1","token":{"x":NaN}}' % token(2).encode()
    bad = b'{"tokenId":"%s","amount":5}' % token(1).encode()
    mirror.provider.on(path_of(1), reply(b'{"nftTokenBalances":[%s,%s]}' % (good, bad)))
    mirror.provider.holds(wallet(0), entry(token(3)))
    result = mirror.sync(map(wallet, range(2)))
    message = f"$.nftTokenBalances[1].amount (token {token(1)}): expected str, got int"
    assert errors(result) == {wallet(1): message}
    assert mirror.held() == {wallet(0): {token(3): "1"}}


def test_commands_name_the_token_and_the_reason(
    mirror: Mirror, command: Callable[..., Outcome]
) -> None:
    mirror.provider.on(path_of(0), reply(body_of((1, HOSTILE["a trait twice"][0]))))
    mirror.sync([wallet(0)])
    reason = f"{token(1)}: metadata.attributes: the key 'Eyes' appears twice"
    where = ("-d", mirror.database)
    assert reason in command("sync", *where, "--base-url", mirror.provider.url).says().err
    assert reason in command("status", *where).out


_SURE = ["a trait twice", "a cut character", "half a character", "deep", "not a number",
         "a list as token", "metadata twice", "metadata as a text"]  # fmt: skip


@settings(max_examples=int(os.environ.get("HOSTILE_EXAMPLES", "25")), deadline=None)
@given(
    st.lists(st.booleans() | st.sampled_from(_SURE), min_size=1, max_size=6),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.binary(max_size=12).filter(lambda text: not {*b'"\\'} & {*text}),
)
def test_every_balance_is_stored_and_every_bad_token_is_named(
    records: list[bool | str], bom: bytes, name: bytes
) -> None:
    """Records are hostile, or have any bytes as a name."""
    chosen = [
        (number, HOSTILE[one][0] if isinstance(one, str)
         else GOOD if one else b'{"metadata":{"name":"%s"}}' % name)
        for number, one in enumerate(records, 1)
    ]  # fmt: skip
    with TemporaryDirectory() as folder, Provider() as lying:
        lying.on(path_of(0), reply(bom + body_of(*chosen)))
        database = Path(folder, "nftsync.db")
        options: dict[str, Any] = {
            "base_url": lying.url,
            "database": database,
            "retries": 1,
            "progress": False,
        }
        result = nftsync.sync([wallet(0)], **options)
        assert result.status == "ok"
        expected = {(wallet(0), token(number)): str(number) for number, _ in chosen}
        assert mirrored(database) == expected
    broken = name.decode(errors="ignore").encode() != name
    bad = {
        token(number)
        for number, one in enumerate(records, 1)
        if isinstance(one, str) or (not one and broken)
    }
    assert {part.token_id for part in result.unreadable} == bad
