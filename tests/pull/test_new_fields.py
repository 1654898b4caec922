"""A field that the provider's document does not have, or has with another type, is news once."""

import json
import subprocess
import sys

import pytest

from nftsync import frames
from nftsync.records import NewField, WalletRead
from nftsync.store import mirror as store
from nftsync.times import now
from tests.kit.provider import balances, entry, path_of, reply, token, wallet
from tests.pull.mirror import MANY

COLUMNS = "field, type, documented_type, example_id"


def serve(mirror, number, metadata, **fields):
    """Let a wallet hold the token of its number."""
    shown = {**entry(token(number), metadata=metadata), **fields}
    mirror.provider.on(path_of(number), reply(balances(shown)))


def news(mirror):
    return mirror.query(f"SELECT {COLUMNS} FROM new_fields ORDER BY field")


@pytest.mark.parametrize("count", [3, MANY], ids=["", "in a process of its own"])
def test_a_new_field_and_another_type_are_one_line_each_once(mirror, command, count):
    for number in range(count):
        serve(mirror, number, {"name": "A", "editionId": 1})
    mirror.sync(map(wallet, range(count)))
    assert news(mirror) == []
    assert "new fields" not in command("status", "-d", mirror.database).out
    for amount in ("1", "2"):
        for number in range(1, count):
            fields = {"amount": amount, "lockedUntil": None}
            serve(mirror, number, {"rarity": "rare", "editionId": "1"}, **fields)
        mirror.sync(map(wallet, range(1, count)))
        found = news(mirror)
        assert [row[:3] for row in found] == [
            ("balance.lockedUntil", "null", None),
            ("metadata.editionId", "text", "integer"),
            ("metadata.rarity", "text", None),
        ]
        examples = {row[3] for row in found}
        assert examples <= {token(number) for number in range(1, count)}
    source = ("-d", mirror.database, "--base-url", mirror.provider.url)
    words = [sys.executable, "-m", "nftsync", "sync", wallet(1), *map(str, source)]
    subprocess.run(words, check=True, capture_output=True)
    assert news(mirror) == found
    (line,) = (x for x in command("status", *source[:2]).out.splitlines() if "rarity" in x)
    assert line.startswith("new fields   ")
    assert "metadata.rarity (text), first in 0000000b…" in line
    assert "metadata.editionId is text instead of integer, first in" in line
    shown = command("status", "--json", *source[:2]).json["new_fields"]
    assert {one["field"] for one in shown} == {row[0] for row in found}
    quality = frames.quality(mirror.database).query("reason == 'new field'")
    assert {*quality["field"]} == {"balance.lockedUntil", "metadata.rarity"}
    assert {*quality["token_id"]} <= examples
    mirror.query("UPDATE new_fields SET first_seen_at = '2020-01-01T00:00:00.000000Z'")
    assert command("status", "--json", *source[:2]).json["new_fields"] == []


def test_names_from_strangers_fill_neither_the_table_nor_the_screen(mirror, command):
    evil = "\x1b[2J\n" + "x" * 10_000
    serve(mirror, 1, {evil: 1, **{f"field {n}": n for n in range(300)}}, **{"\ud800": 1})
    mirror.sync([wallet(1)])
    stored = {row[0] for row in news(mirror)}
    assert len(stored) == 200
    assert {f"metadata.{evil[:80]}", "balance.\ufffd"} <= stored
    shown = command("status", "-d", mirror.database).says("197 more in the table new_fields").out
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) < 600


def test_pages_and_reads_by_id_show_new_fields_and_volatile_ones_are_known(mirror):
    record = {"id": token(1), "lastSyncedAt": 1, "rank": 7, "metadata": {"seen": 1, "mood": {}}}
    first = balances(entry(token(1), metadata={"page": 1.5}), next="b")
    mirror.provider.on(path_of(1), reply(first), reply(balances()))
    mirror.provider.on(f"/v1/tokens/{token(1)}", reply(json.dumps(record).encode()))
    toml = 'volatile_fields = ["lastSyncedAt", "metadata.seen"]\n'
    toml += '[paging]\nnext = "next"\nparam = "after"'
    mirror.sync([wallet(1)], tokens=True, toml=toml)
    assert news(mirror) == [
        ("metadata.mood", "object", None, token(1)),
        ("metadata.page", "number", None, token(1)),
        ("token.rank", "integer", None, token(1)),
    ]


def test_a_field_is_stored_in_the_transaction_of_its_read(database):
    with store.Mirror(database, write_gap=0.0) as opened:

        def store_one(*, fail):
            fields = [NewField("metadata.rarity", "text", None, token(1))]
            sequence = opened.numbers.take()
            read = {"sequence": sequence, "started_at": now(), "outcome": "ok"}
            with opened.transaction() as transaction:
                transaction.apply([WalletRead(wallet_id=wallet(1), new_fields=fields, **read)])
                if fail:
                    raise ZeroDivisionError

        def stored():
            return opened.connection.execute("SELECT field FROM new_fields").fetchall()

        with pytest.raises(ZeroDivisionError):
            store_one(fail=True)
        assert stored() == []
        store_one(fail=False)
        assert stored() == [("metadata.rarity",)]
