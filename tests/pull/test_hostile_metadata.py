"""One entry with unreadable metadata costs nothing but its own unreadable fields."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.provider.config import ClientConfig
from nftsync.pull.result import SyncResult
from nftsync.reports.status import read_status
from nftsync.reports.verification import verify
from nftsync.times import now
from tests.kit.provider import Provider, entry, reply, token, wallet
from tests.kit.worlds import mirrored
from tests.pull.runs import path_of

Sync = Callable[..., SyncResult]
DATABASE = Path("data/nftsync.db")
KNOWN = {
    "name": "Known",
    "description": "old",
    "attributes": [{"trait_type": "amount", "value": 5}],
}

#: A record's JSON, and the parts of it that cannot be read.
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


def body_of(*records: tuple[int, bytes]) -> bytes:
    """A wallet's list of tokens by number, each with its record's JSON."""
    entries = (
        b'{"tokenId":"%s","amount":"%d","token":%s}' % (token(number).encode(), number, record)
        for number, record in records
    )
    return b'{"nftTokenBalances":[%s]}' % b",".join(entries)


def holds(lying: Provider, *records: tuple[int, bytes]) -> None:
    lying.on(path_of(0), reply(body_of(*records)))


def parts(result: SyncResult) -> set[tuple[str, str]]:
    return {(part.token_id, part.field) for part in result.unreadable}


GOOD = json.dumps({"metadata": KNOWN}).encode()


NUMBERS = {what: number for number, what in enumerate(HOSTILE, 10)}
BAD = {what for what, (_, fields) in HOSTILE.items() if fields}


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_a_balance_counts_whatever_its_metadata_hold(
    lying: Provider, sync: Sync, held: Any, bom: bytes
) -> None:
    for what, number in NUMBERS.items():
        body = body_of((number, HOSTILE[what][0]), (number + 100, GOOD))
        lying.on(path_of(number), reply(bom + body))
    result = sync([wallet(number) for number in NUMBERS.values()])
    assert result.status == "ok"
    assert held() == {
        wallet(number): {token(n): str(n) for n in (number, number + 100)}
        for number in NUMBERS.values()
    }
    assert parts(result) == {
        (token(NUMBERS[what]), field) for what, (_, fields) in HOSTILE.items() for field in fields
    }
    assert parts(sync()) == parts(result)  # also where the response is unchanged
    status, _ = read_status(DATABASE, now())
    assert status.unreadable == result.unreadable
    quality = frames.quality(DATABASE)
    named = quality[quality["reason"].str.startswith("unreadable: ")]
    assert set(named["token_id"]) == {token(NUMBERS[what]) for what in BAD}
    names = frames.tokens(DATABASE).set_index("token_id")["name"]
    assert {names[token(number + 100)] for number in NUMBERS.values()} == {"Known"}


@pytest.mark.parametrize("by_id", [False, True])
def test_known_fields_stay_until_they_can_be_read_again(
    lying: Provider, sync: Sync, query: Any, *, by_id: bool
) -> None:
    more = {"tokens": by_id, "toml": "removal_limit = 0.0\nremoval_rows = 0"}
    refused = {"a list as token", "a text as token", "another token's record"} & BAD
    what_of = {token(NUMBERS[what]): what for what in BAD}

    def show(records: dict[str, bytes]) -> None:
        for what, number in NUMBERS.items():
            record = records.get(what, GOOD)
            lying.on(path_of(number), reply(body_of((number, GOOD if by_id else record))))
            path = f"/v1/tokens/{token(number)}"
            is_whole = b'"id"' in record or not by_id
            own = b"{" if is_whole else b'{"id":"%s",' % token(number).encode()
            lying.on(path, reply(record.replace(b"{", own, 1)))

    def columns() -> dict[str, tuple[str, str]]:
        rows = query("SELECT token_id, name, extra ->> '$.metadata.attributes' FROM tokens")
        return {what_of[one]: tuple(rest) for one, *rest in rows if one in what_of}

    show({})
    assert sync([wallet(number) for number in NUMBERS.values()], **more).status == "ok"
    before = columns()
    show({what: record for what, (record, fields) in HOSTILE.items() if fields})
    result = sync(**more)
    assert result.status == ("partial" if by_id else "ok")
    assert {failure.token_id for failure in result.failures} == {
        token(NUMBERS[what]) for what in refused if by_id
    }
    assert parts(result) == {
        (token(NUMBERS[what]), field)
        for what in BAD - (refused if by_id else set())
        for field in HOSTILE[what][1]
    }
    assert {what: name for what, (name, _) in columns().items()} == dict.fromkeys(BAD, "Known")
    kept = {what for what in BAD if HOSTILE[what][1] & {"token", "metadata", "metadata.attributes"}}
    assert {what: columns()[what] for what in kept} == {what: before[what] for what in kept}
    show({})
    assert parts(sync(**more)) == set()
    assert columns() == before


ENTRIES: dict[str, tuple[bytes, str]] = {
    "no amount": (b'"tokenId":"%s"', "[1] (token TOKEN): object missing required field amount"),
    "a number": (b'"tokenId":"%s","amount":5', "[1].amount (token TOKEN): expected str, got int"),
    "an amount twice": (b'"tokenId":"%s","amount":"1","amount":"2"',
                        "[1].amount (token TOKEN): the key 'amount' appears twice"),
    "a broken amount": (b'"tokenId":"%s","amount":"1\xe2"',
                        "[1].amount (token TOKEN): text that is not Unicode"),
    "an id twice": (b'"tokenId":"%s","tokenId":"x","amount":"1"',
                    "[1].tokenId: the key 'tokenId' appears twice"),
    "no id": (b'"amount":"1"', "[1]: object missing required field tokenId"),
    "an id of another kind": (b'"tokenId":7,"amount":"1"', "[1].tokenId: expected str, got int"),
    "a short id": (b'"tokenId":"7","amount":"1"', "[1].tokenId: '7' is not a UUID"),
}  # fmt: skip


def test_an_entry_without_id_or_amount_fails_its_wallet_and_is_named(
    lying: Provider, sync: Sync, held: Any
) -> None:
    good = b'{"tokenId":"%s","amount":"1","token":{"x":NaN}}' % token(2).encode()
    for number, (fields, _) in enumerate(ENTRIES.values(), 1):
        bad = fields.replace(b"%s", token(1).encode())
        lying.on(path_of(number), reply(b'{"nftTokenBalances":[%s,{%s}]}' % (good, bad)))
    lying.holds(wallet(0), entry(token(3)))
    result = sync([wallet(number) for number in range(len(ENTRIES) + 1)])
    assert {failure.wallet_id: failure.error for failure in result.failures} == {
        wallet(number): f"$.nftTokenBalances{message}".replace("TOKEN", token(1))
        for number, (_, message) in enumerate(ENTRIES.values(), 1)
    }
    assert held() == {wallet(0): {token(3): "1"}}


def test_commands_name_the_token_and_the_reason(lying: Provider, sync: Sync) -> None:
    holds(lying, (1, HOSTILE["a trait twice"][0]))
    sync([wallet(0)])
    reason = f"{token(1)}: metadata.attributes: the key 'Eyes' appears twice"
    base = [sys.executable, "-m", "nftsync"]
    options = ["-d", str(DATABASE), "--base-url", lying.url]
    ran = subprocess.run([*base, "sync", *options], capture_output=True, text=True, check=True)
    assert reason in ran.stderr
    ran = subprocess.run([*base, "sync", "--json", *options], capture_output=True, check=True)
    (part,) = json.loads(ran.stdout)["unreadable"]
    assert part == {"token_id": token(1), "field": "metadata.attributes",
                    "reason": "the key 'Eyes' appears twice"}  # fmt: skip
    ran = subprocess.run(
        [*base, "status", *options[:2]], capture_output=True, text=True, check=True
    )
    assert reason in ran.stdout


def test_verify_finds_no_difference_in_unreadable_fields(lying: Provider, sync: Sync) -> None:
    wallets = [wallet(number) for number in NUMBERS.values()]
    for records in (
        dict.fromkeys(HOSTILE, GOOD),
        {what: one for what, (one, _) in HOSTILE.items()},
    ):
        for what, number in NUMBERS.items():
            lying.on(path_of(number), reply(body_of((number, records[what]))))
        assert sync(wallets).status == "ok"
        report = verify(DATABASE, ClientConfig(base_url=lying.url), sample=None, progress=False)
        assert report.differences == []
        assert report.is_right


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
    """Beside hostile records, records with any bytes as a name."""
    chosen = [
        (number, HOSTILE[one][0] if isinstance(one, str)
         else GOOD if one else b'{"metadata":{"name":"%s"}}' % name)
        for number, one in enumerate(records, 1)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Provider() as lying:
        lying.on(path_of(0), reply(bom + body_of(*chosen)))
        database = Path(folder, "nftsync.db")
        result = nftsync.sync(
            [wallet(0)], base_url=lying.url, database=database, progress=False, retries=1
        )
        assert result.status == "ok"
        expected = {(wallet(0), token(number)): str(number) for number, _ in chosen}
        assert mirrored(database) == expected
    try:
        name.decode()
        broken = False
    except UnicodeDecodeError:
        broken = True
    bad = {
        token(number)
        for number, one in enumerate(records, 1)
        if isinstance(one, str) or (not one and broken)
    }
    assert {part.token_id for part in result.unreadable} == bad
