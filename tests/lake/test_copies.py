"""A database becomes a lake, and a lake a database, without losses."""

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from nftsync.store.catalog import TABLES
from nftsync.store.rules import check_rules
from nftsync.times import now
from tests.kit.lake_cluster import lake_of, refused, show, stopped
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import begin_work, made_once, mirrored, replayed, under_way
from tests.kit.worlds import run_command as command
from tests.versions.make_databases import unpacked

HUGE = str(2**256 - 1)
WALLETS = [wallet(number) for number in range(30)]
LINES = [f"{wallet(n)},Wallet {n},{'east' if n % 2 else 'west'}" for n in range(30)]


def rows(database: Path, name: str) -> list[tuple[object, ...]]:
    """Return all public columns of a table, in an order that is the same in each database."""
    with closing(sqlite3.connect(database)) as connection:
        query = TABLES[name].select().split(" ORDER BY ")[0]
        return sorted(connection.execute(query), key=repr)


def differences(database: Path, other: Path) -> list[str]:
    return [name for name in TABLES if rows(database, name) != rows(other, name)]


def exported(lake: Path) -> Path:
    """Export a lake, and check the rules of the database."""
    (back := lake.parent / "back.db").unlink(missing_ok=True)
    command("lake", "export", lake, back).says()
    assert [rule for rule in check_rules(back, now()) if rule.broken] == []
    return back


def show_token(provider: Provider, number: int, **fields: Any) -> None:
    body = json.dumps({"id": token(number), **fields}).encode()
    provider.bodies[f"/v1/tokens/{token(number)}"] = body


@pytest.fixture
def database(tmp_path, shared) -> Path:
    return Path(shutil.copy(made_once(shared, "past", make_past) / "past.db", tmp_path))


def make_past(folder: Path) -> None:
    """Make a database of new, changed and missing balances, failed reads, and held removals."""
    (file := folder / "wallets.csv").write_text("\n".join(["wallet_id,label,group", *LINES]))
    named = {"metadata": {"name": "Tram 1"}, "contractAddress": "0x" + "aB" * 20}
    with Provider() as provider:
        words = ("sync", "-d", folder / "past.db", "--base-url", provider.url, "--retries", "1")
        for n, each in enumerate(WALLETS):
            own = (entry(token(5 * n + k), "4", **named) for k in range(5))
            provider.holds(each, entry(token(900), HUGE, **named), *own)
        show_token(provider, 0, blockchainTokenId="7", **named)
        command(*words, "--wallets-file", file, "--tokens")
        provider.holds(wallet(1), entry(token(900), "1", metadata={"name": "Renamed"}))
        provider.holds(wallet(2), entry(token(5), "4", **named), another="field")
        provider.holds(wallet(3), entry(token(15), "9", metadata={"name": "Tram 2"}))
        command(*words)
        for each in WALLETS[10:]:
            provider.holds(each)
        command(*words)


def test_a_database_comes_back_from_a_lake_as_it_was(database, lake):
    """Neither command writes over existing data."""
    refused(command("lake", "import", "none.db", lake), 1, "none.db")
    assert not Path("none.db").exists()
    lake_of(database, lake)
    refused(command("lake", "import", database, lake), 2, "already has runs")
    assert "expired" not in command("lake", "runs", lake).out, "a database's runs pinned nothing"
    (mine := lake.parent / "back.db").write_text("mine")
    refused(command("lake", "export", lake, mine), 2)
    assert mine.read_text() == "mine"
    back = exported(lake)
    assert differences(database, back) == []
    for name in ("balance_changes", "token_changes", "sync_runs"):
        assert rows(back, name), f"the past has no {name}"
    lists = [command("removals", "-d", x, "--json").json for x in (database, back)]
    assert sorted(lists[0], key=repr) == sorted(lists[1], key=repr) != []


def test_a_lake_that_was_imported_syncs_and_has_no_unfinished_work(database, lake, sync, lying):
    begin_work(database, wallet(1))
    lake_of(database, lake)
    amounts = {}
    for n, each in enumerate(WALLETS):
        lying.holds(each, entry(token(900), "7"), entry(token(5 * n), "4"))
        amounts |= {(each, token(900)): "7", (each, token(5 * n)): "4"}
    sync(None, "--allow-removals").says()
    back = exported(lake)
    assert mirrored(back) == replayed(back) == amounts
    numbers = [row[0] for row in rows(back, "balance_changes")]
    assert len(set(numbers)) == len(numbers)
    assert set(rows(database, "balance_changes")) < set(rows(back, "balance_changes"))
    assert under_way(back) == [("leases", 0), ("webhooks", 0), ("messages", 0), ("runs", 0)]


def test_an_interrupted_import_leaves_nothing_and_a_running_one_is_alone(database, lake, sync):
    words = ("lake", "import", database, lake, "--buckets", 2)
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        assert stopped(lake, number, 1, "buckets", *words, "--takeover-after", "1s") == code
        refused(command("lake", "export", lake, "back.db"), 2, "no finished run")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE wallets SET label = 'Other', wallet_group = 'other'")
        connection.execute("UPDATE tokens SET description = 'Other' WHERE token_id > ?", [token(0)])
    command(*words, "--takeover-after", "1s").says()
    assert differences(database, exported(lake)) == []
    ledger = Ledger(Lake(str(other := lake.parent / "other")))
    with ledger.heartbeat(ledger.begin_import([], 2, 0.0), 0.4):
        refused(command("lake", "import", database, other, "--takeover-after", "1s"), 75)
        refused(sync(None, "--takeover-after", "1s", to=other), 75)


def test_tokens_emptied_by_id_are_imported_and_synced(tmp_path, lake, sync, lying, monkeypatch):
    """They are held for review, under no wallet."""
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "2")
    database = tmp_path / "emptied.db"
    show(lying, WALLETS[:8], metadata={"name": "Tram"})
    for metadata in ({"name": "Tram"}, {}):
        for number in range(8):
            show_token(lying, number, metadata=metadata)
        command("sync", *WALLETS[:8], "-d", database, "--base-url", lying.url, "--tokens")
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT count(*) FROM removal_rows WHERE held AND wallet_no = 0"
        assert connection.execute(query).fetchone() == (8,)
    lake_of(database, lake)
    sync().says()
    assert rows(exported(lake), "tokens") == rows(database, "tokens")


def test_a_database_of_an_earlier_version_becomes_a_lake_and_stays_as_it_is(tmp_path, lake):
    database = unpacked("0.5.0", tmp_path / "earlier" / "earlier.db")
    before = database.read_bytes()
    command("lake", "import", database, lake, "--buckets", 2).says("earlier version")
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]
    assert mirrored(exported(lake)) == mirrored(database)
