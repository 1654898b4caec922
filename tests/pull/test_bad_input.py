"""Unusable arguments, files, disks and metadata: no data is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nftsync import frames
from nftsync.errors import SettingsError, StoreError
from tests.kit.provider import balances, entry, one_token_each, path_of, reply, token, wallet
from tests.pull.mirror import MANY, Mirror

WALLET = "8d1cc10a-7fbf-42e7-b58d-5110899866aa"
NOBODY = ("--base-url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["sync", *NOBODY], 2, "no wallets"),
        (["sync", *NOBODY, WALLET, "-d", "file"], 1, "not a SQLite database"),
        (["sync", *NOBODY, WALLET, "-d", "file/nftsync.db"], 1, "file/nftsync.db"),
        (["demo", "-d", "file"], 2, "not made by a demo"),
    ],
)
def test_no_file_is_harmed_by_unusable_input(command, arguments, code, says):
    Path("file").write_text("years of work")
    command(*arguments).tells(says, code=code)
    assert Path("file").read_text() == "years of work"


def test_a_read_only_disk_is_named_in_the_error(lying, small_disk):
    mirror = Mirror(lying, small_disk / "nftsync.db")
    lying.always(one_token_each)
    mirror.sync([wallet(1)])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="Read-only"):
        mirror.sync()
    with pytest.raises(StoreError, match="nftsync snapshot"):
        frames.holdings(mirror.database)


@pytest.mark.parametrize("count", [3, MANY], ids=["", "in a process of its own"])
def test_a_failing_token_command_ends_the_run_with_its_reason(mirror, count):
    with pytest.raises(SettingsError, match="exit code 7"):
        mirror.sync(map(wallet, range(count)), toml="token_command = 'sh -c \"exit 7\"'")
    run = frames.runs(mirror.database).iloc[0]
    assert run["status"] == "failed"
    assert "exit code 7" in run["error"]


def test_a_large_sync_imports_nothing_from_the_working_directory(mirror):
    Path("httpx.py").write_text("raise SystemExit('ran a file of the folder')")
    mirror.provider.always(one_token_each)
    assert mirror.sync(map(wallet, range(MANY))).wallets.ok == MANY


def test_a_wallet_read_with_a_fast_clock_is_read_again(mirror):
    mirror.provider.always(one_token_each)
    mirror.sync([wallet(1)])
    mirror.query("UPDATE wallets SET synced_at = '2999-01-01T00:00:00.000000Z'")
    assert mirror.sync(older_than="1h").wallets.ok == 1


def test_json_is_utf_8_in_any_encoding_of_the_terminal(mirror):
    mirror.provider.holds(wallet(1), entry(token(1), metadata={"name": "\N{ROCKET}"}))
    mirror.sync([wallet(1)])
    command = [sys.executable, "-m", "nftsync", "holdings", "-d", mirror.database]
    variables = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    for more, shown in ([], b"\\U0001f680"), (["--json"], "\N{ROCKET}".encode()):
        assert shown in subprocess.check_output([*command, *more], env=variables)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_database_that_is_removed_or_replaced_during_a_sync_is_an_error(mirror, how):
    """Writes to a deleted file are not a success."""
    other = Path("other.db")
    other.touch()

    def answer(peer):
        if how == "removed":
            mirror.database.unlink()
        else:
            other.rename(mirror.database)
        return reply(balances(entry(token(1))))(peer)

    mirror.provider.always(answer)
    with pytest.raises(StoreError, match=r"nftsync\.db was moved, removed or replaced"):
        mirror.sync([wallet(1)])


KNOWN = {
    "name": "Known",
    "description": "old",
    "attributes": [{"trait_type": "amount", "value": 5}],
}

#: Records as JSON, and their unreadable parts.
HOSTILE = {
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
    "deep": (b'{"metadata":{"name":"Known","x":%s}}' % (b"[" * 200 + b"]" * 200), {"metadata.x"}),
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


def body_of(*records):
    """Return a list of tokens by number, each with its record's JSON."""
    entries = (
        b'{"tokenId":"%s","amount":"%d","token":%s}' % (token(number).encode(), number, record)
        for number, record in records
    )
    return b'{"nftTokenBalances":[%s]}' % b",".join(entries)


def parts(result):
    return {(part.token_id, part.field) for part in result.unreadable}


def fields_of(kinds):
    return {(token(NUMBERS[what]), field) for what in kinds for field in HOSTILE[what][1]}


def test_a_balance_counts_whatever_its_metadata(mirror, command):
    for what, number in NUMBERS.items():
        body = body_of((number, HOSTILE[what][0]), (number + 100, GOOD))
        mark = b"\xef\xbb\xbf" * (number % 2)
        mirror.provider.on(path_of(number), reply(mark + body))
    result = mirror.sync(WALLETS)
    assert result.status == "ok"
    assert mirror.held() == {
        wallet(number): {token(n): str(n) for n in (number, number + 100)}
        for number in NUMBERS.values()
    }
    assert parts(result) == fields_of(BAD)
    assert parts(mirror.sync()) == parts(result)  # also for unchanged responses
    where = ("-d", mirror.database)
    shown = command("status", "--json", *where).json["unreadable"]
    assert [tuple(part.values()) for part in shown] == [
        (part.token_id, part.field, part.reason) for part in result.unreadable
    ]
    source = ("--base-url", mirror.provider.url, *where)
    reasons = {(part.token_id, part.reason) for part in result.unreadable}
    assert (token(NUMBERS["a trait twice"]), "the key 'Eyes' appears twice") in reasons
    first = "{}: {}: {}".format(*shown[0].values())
    for arguments in (("sync", *source), ("status", *where)):
        command(*arguments).says(first)
    quality = frames.quality(mirror.database)
    named = quality[quality["reason"].str.startswith("unreadable: ")]
    assert set(named["token_id"]) == {token(NUMBERS[what]) for what in BAD}
    names = frames.tokens(mirror.database).set_index("token_id")["name"]
    assert {names[token(number + 100)] for number in NUMBERS.values()} == {"Known"}
    for change in (False, True):  # the second sync of readable records repairs them
        assert command("verify", "--json", *source).says().json["differences"] == []
        if not change:
            for number in NUMBERS.values():
                mirror.provider.on(path_of(number), reply(body_of((number, GOOD))))
            assert mirror.sync(allow_removals=True).unreadable == []


@pytest.mark.parametrize("by_id", [False, True], ids=["lists", "reads by id"])
def test_stored_fields_stay_until_they_are_readable_again(mirror, by_id):
    more = {"tokens": by_id, "toml": "removal_limit = 0.0\nremoval_rows = 0"}
    refused = {"a list as token", "a text as token", "another token's record"} if by_id else set()
    what_of = {token(NUMBERS[what]): what for what in BAD}

    def show(records):
        for what, number in NUMBERS.items():
            record = records.get(what, GOOD)
            body = body_of((number, GOOD if by_id else record))
            mirror.provider.on(path_of(number), reply(body))
            own = b"{" if b'"id"' in record else b'{"id":"%s",' % token(number).encode()
            path = f"/v1/tokens/{token(number)}"
            mirror.provider.on(path, reply(record.replace(b"{", own, 1)))

    def columns():
        attributes = "extra ->> '$.metadata.attributes'"
        rows = mirror.query(f"SELECT token_id, name, {attributes} FROM tokens")
        return {what_of[one]: tuple(rest) for one, *rest in rows if one in what_of}

    show({})
    assert mirror.sync(WALLETS, **more).status == "ok"
    before = columns()
    show({what: HOSTILE[what][0] for what in BAD})
    result = mirror.sync(**more)
    assert result.status == ("partial" if by_id else "ok")
    failed = {token(NUMBERS[what]) for what in refused}
    assert {failure.token_id for failure in result.failures} == failed
    assert parts(result) == fields_of(BAD - refused)
    assert {what: name for what, (name, _) in columns().items()} == dict.fromkeys(BAD, "Known")
    kept = {what for what in BAD if HOSTILE[what][1] & {"token", "metadata", "metadata.attributes"}}
    assert {what: columns()[what] for what in kept} == {what: before[what] for what in kept}
    show({})
    assert parts(mirror.sync(**more)) == set()
    assert columns() == before
