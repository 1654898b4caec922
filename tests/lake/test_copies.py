"""A database becomes a lake, and a lake a database, without losses."""

from __future__ import annotations

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
from tests.kit.lake_cluster import Cluster, command
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import begin_work, made_once, mirrored, replayed, under_way
from tests.lake.lakes import refused, show, stopped
from tests.versions.make_databases import unpacked

HUGE = str(2**256 - 1)
IMPORT = """
from pathlib import Path
from nftsync.lake.copies import import_database
import_database(Path({!r}), url, buckets=2)
"""


def rows(database: Path, name: str) -> list[tuple[object, ...]]:
    """Return all public columns of a table, in an order that is the same in each database."""
    with closing(sqlite3.connect(database)) as connection:
        query = TABLES[name].select().split(" ORDER BY ")[0]
        return sorted(connection.execute(query), key=repr)


def differences(database: Path, other: Path) -> list[str]:
    """Return the names of the tables with other rows."""
    return [name for name in TABLES if rows(database, name) != rows(other, name)]


def exported(lake: Path) -> Path:
    """Export a lake, and check the rules of the database."""
    (back := lake.parent / "back.db").unlink(missing_ok=True)
    command("lake", "export", lake, back).says()
    assert [rule for rule in check_rules(back, now()) if rule.broken] == []
    return back


def show_token(provider: Provider, number: int, **fields: Any) -> None:
    """Let the provider answer for a token by its id."""
    body = json.dumps({"id": token(number), **fields}).encode()
    provider.bodies[f"/v1/tokens/{token(number)}"] = body


@pytest.fixture
def database(tmp_path: Path, shared: Path) -> Path:
    """A database with a history."""
    return Path(shutil.copy(made_once(shared, "past", make_past) / "past.db", tmp_path))


def make_past(folder: Path) -> None:
    """Make a database of new, changed and missing balances, failed reads, and held removals."""
    database = folder / "past.db"
    with Provider() as provider:
        file = folder / "wallets.csv"
        lines = [f"{wallet(n)},Wallet {n},{'east' if n % 2 else 'west'}" for n in range(30)]
        file.write_text("\n".join(["wallet_id,label,group", *lines]))

        def sync(*more: str) -> None:
            command("sync", "-d", database, "--base-url", provider.url, "--retries", "1", *more)

        named = {"metadata": {"name": "Tram 1"}, "contractAddress": "0x" + "aB" * 20}
        for n in range(30):
            own = (entry(token(5 * n + k), "4", **named) for k in range(5))
            provider.holds(wallet(n), entry(token(900), HUGE, **named), *own)
        show_token(provider, 0, blockchainTokenId="7", **named)
        sync("--wallets-file", str(file), "--tokens")
        provider.holds(wallet(1), entry(token(900), "1", metadata={"name": "Renamed"}))
        provider.holds(wallet(2), entry(token(5), "4", **named), another="field")
        provider.holds(wallet(3), entry(token(15), "9", metadata={"name": "Tram 2"}))
        sync()
        for n in range(10, 30):
            provider.holds(wallet(n))
        sync()


def test_a_database_comes_back_from_a_lake_as_it_was(database: Path, lake: Path) -> None:
    """Neither command writes over existing data."""
    refused(command("lake", "import", "none.db", lake), 1, "none.db")
    assert not Path("none.db").exists()
    command("lake", "import", database, lake, "--buckets", 2).says()
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


def test_a_lake_that_was_imported_syncs_and_has_no_unfinished_work(
    database: Path, lake: Path, cluster: Cluster, lying: Provider
) -> None:
    begin_work(database, wallet(1))
    command("lake", "import", database, lake, "--buckets", 2).says()
    amounts = {}
    for n in range(30):
        lying.holds(wallet(n), entry(token(900), "7"), entry(token(5 * n), "4"))
        amounts |= {(wallet(n), token(900)): "7", (wallet(n), token(5 * n)): "4"}
    words = ("--base-url", lying.url, "--allow-removals", "--scheduler", cluster.address)
    command("lake", "sync", lake, *words).says()
    back = exported(lake)
    assert mirrored(back) == replayed(back) == amounts
    numbers = [row[0] for row in rows(back, "balance_changes")]
    assert len(set(numbers)) == len(numbers)
    assert set(rows(database, "balance_changes")) < set(rows(back, "balance_changes"))
    assert under_way(back) == [("leases", 0), ("webhooks", 0), ("messages", 0), ("runs", 0)]


def test_an_interrupted_import_leaves_nothing_and_a_running_one_refuses_others(
    database: Path, lake: Path, cluster: Cluster
) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        assert stopped(IMPORT.format(str(database)), str(lake), number, 1, "buckets") == -number
        refused(command("lake", "export", lake, "back.db"), 2, "no finished run")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE wallets SET label = 'Other', wallet_group = 'other'")
        connection.execute("UPDATE tokens SET description = 'Other' WHERE token_id > ?", [token(0)])
    more = ("--buckets", 2, "--takeover-after", "1s")
    command("lake", "import", database, lake, *more).says()
    assert differences(database, exported(lake)) == []
    ledger = Ledger(Lake(str(other := lake.parent / "other")))
    with ledger.heartbeat(ledger.begin_import([], 2, 0.0), 0.4):
        refused(command("lake", "import", database, other, *more), 75)
        words = ("--base-url", "http://127.0.0.1:9", "--scheduler", cluster.address)
        refused(command("lake", "sync", other, *words, *more), 75)


def test_tokens_emptied_by_id_are_imported_and_synced(
    tmp_path: Path, lake: Path, cluster: Cluster, lying: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are held for review, under no wallet."""
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "2")
    database, wallets = tmp_path / "emptied.db", [wallet(n) for n in range(8)]
    show(lying, wallets, metadata={"name": "Tram"})
    for metadata in ({"name": "Tram"}, {}):
        for number in range(8):
            show_token(lying, number, metadata=metadata)
        command("sync", *wallets, "-d", database, "--base-url", lying.url, "--tokens")
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT count(*) FROM removal_rows WHERE held AND wallet_no = 0"
        assert connection.execute(query).fetchone() == (8,)
    command("lake", "import", database, lake, "--buckets", 2).says()
    words = ("--base-url", lying.url, "--scheduler", cluster.address)
    command("lake", "sync", lake, *words).says()
    assert rows(exported(lake), "tokens") == rows(database, "tokens")


def test_a_database_of_an_earlier_version_becomes_a_lake_and_stays_as_it_is(
    tmp_path: Path, lake: Path
) -> None:
    database = unpacked("0.5.0", tmp_path / "earlier" / "earlier.db")
    before = database.read_bytes()
    command("lake", "import", database, lake, "--buckets", 2).says("earlier version")
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]
    assert mirrored(exported(lake)) == mirrored(database)
