"""A database becomes a lake, and a lake a database: nothing of either is lost on the way."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from nftsync import frames
from nftsync.errors import InputError
from nftsync.lake.bucket import bucket_of, settle, store_database
from nftsync.lake.copies import export_lake, fetch_bucket, import_database
from nftsync.lake.frames import tokens
from nftsync.lake.ledger import Ledger
from nftsync.lake.manifest import write_manifest
from nftsync.lake.pinned import pinned
from nftsync.lake.storage import Lake
from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.catalog import TABLES
from nftsync.store.mirror import Mirror
from nftsync.store.rules import check_rules
from nftsync.times import now
from tests.kit.lake_cluster import Cluster
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import Outcome, begin_work, made_once, mirrored, replayed, under_way
from tests.lake.conftest import refused
from tests.lake.lakes import stopped
from tests.versions.make_databases import unpacked

HUGE = str(2**256 - 1)


def rows(database: Path, name: str) -> list[tuple[object, ...]]:
    """All public columns of a table, in an order that is the same in each database."""
    with closing(sqlite3.connect(database)) as connection:
        query = TABLES[name].select().split(" ORDER BY ")[0]
        return sorted(connection.execute(query), key=repr)


@pytest.fixture
def past(tmp_path: Path, shared: Path, command: Callable[..., Outcome]) -> tuple[Path, str]:
    """A database with history, and where to put its lake."""
    shutil.copy(made_once(shared, "past", partial(make_past, command)) / "past.db", tmp_path)
    return tmp_path / "past.db", str(tmp_path / "lake")


def make_past(command: Callable[..., Outcome], folder: Path) -> None:
    """What came, changed, left, failed, and is held back."""
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
        by_id = {"id": token(0), "blockchainTokenId": "7", **named}
        provider.bodies[f"/v1/tokens/{token(0)}"] = json.dumps(by_id).encode()
        sync("--wallets-file", str(file), "--tokens")
        provider.holds(wallet(1), entry(token(900), "1", metadata={"name": "Renamed"}))
        provider.holds(wallet(2), entry(token(5), "4", **named), another="field")
        provider.holds(wallet(3), entry(token(15), "9", metadata={"name": "Tram 2"}))
        sync()
        for n in range(10, 30):
            provider.holds(wallet(n))
        sync()


def test_a_database_comes_back_from_a_lake_as_it_was(
    past: tuple[Path, str], tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    """Not over what is there; columns have the names by which all versions read them."""
    database, lake = past
    back = tmp_path / "back.db"
    refused(command("lake", "import", tmp_path / "none.db", lake), 1, "none.db")
    assert not (tmp_path / "none.db").exists()
    assert command("lake", "import", database, lake, "--buckets", 2).code == 0
    refused(command("lake", "import", database, lake), 2, "already has runs")
    assert "expired" not in command("lake", "runs", lake).out, "a database's runs pinned nothing"
    back.write_text("mine")
    refused(command("lake", "export", lake, back), 2)
    assert back.read_text() == "mine"
    back.unlink()
    assert command("lake", "export", lake, back).code == 0
    for name in TABLES:
        assert rows(back, name) == rows(database, name), name
    for name in ("balance_changes", "token_changes", "sync_runs"):
        assert rows(back, name), f"the past has no {name}"
    assert [rule for rule in check_rules(back, now()) if rule.broken] == []
    held = [
        sorted(json.loads(command("removals", "-d", each, "--json").out), key=repr)
        for each in (database, back)
    ]
    assert held[0] == held[1] != []


def test_a_lake_that_was_imported_is_synced_as_any(
    past: tuple[Path, str],
    tmp_path: Path,
    command: Callable[..., Outcome],
    cluster: Cluster,
) -> None:
    database, lake = past
    assert command("lake", "import", database, lake, "--buckets", 2).code == 0
    with Provider() as provider:
        for n in range(30):
            provider.holds(wallet(n), entry(token(900), "7"), entry(token(5 * n), "4"))
        done = command(
            *("lake", "sync", lake, "--base-url", provider.url, "--allow-removals", "--json"),
            *("--scheduler", cluster.address),
        )
    assert done.code == 0, done.said
    back = tmp_path / "back.db"
    assert command("lake", "export", lake, back).code == 0
    assert mirrored(back) == replayed(back)
    assert {(row[0], row[1]): row[2] for row in rows(back, "balances")} == {
        (wallet(n), token(t)): amount for n in range(30) for t, amount in ((900, "7"), (5 * n, "4"))
    }
    assert [rule for rule in check_rules(back, now()) if rule.broken] == []
    numbers = [row[0] for row in sorted(rows(back, "balance_changes"))]
    assert len(set(numbers)) == len(numbers)
    assert set(rows(database, "balance_changes")) < set(rows(back, "balance_changes"))


def test_what_imports_that_were_cut_off_left_is_no_part_of_the_next(
    past: tuple[Path, str], tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    database, lake = past
    code = "from nftsync.lake.copies import import_database as run; from pathlib import Path;"
    code += f"run(Path({str(database)!r}), url, buckets=2)"
    back = tmp_path / "back.db"
    for number in (signal.SIGINT, signal.SIGKILL):
        assert stopped(code, lake, number, 1, "buckets") == -number
        refused(command("lake", "export", lake, back), 2, "no finished run")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE wallets SET label = 'Other', wallet_group = 'other'")
        connection.execute("UPDATE tokens SET description = 'Other'")
    again = command("lake", "import", database, lake, "--buckets", 2, "--takeover-after", "1s")
    assert again.code == 0, again.said
    assert command("lake", "export", lake, back).code == 0
    for name in TABLES:
        assert rows(back, name) == rows(database, name), name


def test_an_import_keeps_others_away(
    past: tuple[Path, str], command: Callable[..., Outcome], cluster: Cluster
) -> None:
    database, lake = past
    ledger = Ledger(Lake(lake))
    run = ledger.begin_import([], 2, 0.0)
    with ledger.heartbeat(run, 0.4):
        for words in (
            ("import", database, lake),
            ("sync", lake, "--base-url", "http://127.0.0.1:9", "--scheduler", cluster.address),
        ):
            refused(command("lake", *words, "--takeover-after", "1s"), 75)


def test_a_token_emptied_by_its_id_comes_along_and_a_sync_goes_on(
    tmp_path: Path,
    command: Callable[..., Outcome],
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is emptied is held for review, under no wallet."""
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "2")
    database, lake = tmp_path / "emptied.db", str(tmp_path / "lake")
    with Provider() as provider:
        wallets = [wallet(n) for n in range(8)]
        for emptied in (False, True):
            for n, each in enumerate(wallets):
                named = {"metadata": {"name": f"Tram {n}"}}
                provider.holds(each, entry(token(n), "1", **named))
                shown = {"id": token(n), **({"metadata": {}} if emptied else named)}
                provider.bodies[f"/v1/tokens/{token(n)}"] = json.dumps(shown).encode()
            command("sync", *wallets, "-d", database, "--base-url", provider.url, "--tokens")
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute(
                "SELECT count(*) FROM removal_rows WHERE held AND wallet_no = 0"
            ).fetchone() == (8,)
        assert command("lake", "import", database, lake, "--buckets", 2).code == 0
        done = command(
            *("lake", "sync", lake, "--base-url", provider.url, "--json"),
            *("--scheduler", cluster.address),
        )
    assert done.code == 0, done.said
    back = tmp_path / "back.db"
    assert command("lake", "export", lake, back).code == 0
    assert rows(back, "tokens") == rows(database, "tokens")


def test_in_a_lake_s_database_nothing_is_under_way(
    past: tuple[Path, str], tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    database, lake = past
    begin_work(database, wallet(1))
    assert command("lake", "import", database, lake, "--buckets", 2).code == 0
    back = tmp_path / "back.db"
    assert command("lake", "export", lake, back).code == 0
    assert under_way(back) == [("leases", 0), ("webhooks", 0), ("messages", 0), ("runs", 0)]
    proved = command("verify", "--sample", 0, "-d", back)
    assert (proved.code, proved.out[:4]) == (0, "All "), proved.said


def test_a_database_of_an_earlier_version_becomes_a_lake_and_stays_as_it_is(
    tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    database, lake = unpacked("0.5.0", tmp_path / "earlier" / "earlier.db"), tmp_path / "lake"
    before = database.read_bytes()
    done = command("lake", "import", database, lake, "--buckets", 2)
    assert (done.code, "earlier version" in done.err) == (0, True)
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]
    assert command("lake", "export", lake, tmp_path / "back.db").code == 0
    assert mirrored(tmp_path / "back.db") == mirrored(database)


def content_of(**fields: str) -> tuple[str | None, ...]:
    return tuple(map(fields.get, CONTENT_COLUMNS))


def test_a_token_is_as_it_was_confirmed_last(tmp_path: Path) -> None:
    """In an export and in a frame, whatever its row in another bucket; a change counts once."""
    database, url = tmp_path / "whole.db", str(tmp_path / "lake")
    one, two = next(
        (wallet(n), wallet(n + 1))
        for n in range(50)
        if bucket_of(wallet(n), 2) < bucket_of(wallet(n + 1), 2)
    )

    def listing(mirror: Mirror, wallet_id: str, description: str) -> WalletRead:
        content = content_of(name="Tram", description=description)
        return WalletRead(
            wallet_id=wallet_id,
            sequence=mirror.numbers.take(),
            started_at=now(),
            outcome="ok",
            entries=[(token(1), "1", content)],
            digest=description,
        )

    with Mirror(database) as mirror:
        with mirror.transaction() as transaction:
            transaction.apply([listing(mirror, each, "old") for each in (one, two)])
        import_database(database, url, buckets=2)
        with mirror.transaction() as transaction:
            transaction.apply([listing(mirror, each, "new") for each in (one, two)])
    lake, pin = Lake(url), pinned(url)
    for bucket, shown in enumerate((["old"], ["new", "newer", "new"])):
        path = tmp_path / f"{bucket}.db"
        pin.open(bucket, path)
        with Mirror(path, searchable=False) as mirror, mirror.transaction() as transaction:
            for description in shown:
                transaction.apply([listing(mirror, (one, two)[bucket], description)])
            greatest = pin.manifest.change, pin.manifest.state, pin.manifest.token_change
            first = [number + bucket + 1 for number in greatest]
            settle(transaction.connection, pin.manifest.buckets[bucket], first, 2)
            pin.manifest.sequence = max(pin.manifest.sequence, mirror.numbers.take())
        pin.manifest.buckets[bucket].file = store_database(lake, bucket, path)
    ledger = Ledger(lake)
    run = ledger.begin("", None, 0.0)
    run.manifest = write_manifest(lake, pin.manifest, run.run_id)
    run.status, run.finished_at = "ok", now()
    ledger.save(run)
    export_lake(url, tmp_path / "back.db")
    fetch_bucket(url, 1, tmp_path / "one.db")
    names = [x for x in TABLES["tokens"].columns if x != "updated_at"]
    query = f"SELECT {', '.join(names)} FROM tokens"
    found = [
        sqlite3.connect(path).execute(query).fetchall() for path in (database, tmp_path / "back.db")
    ]
    assert found[0] == found[1]
    frame = tokens(url).compute(scheduler="synchronous")
    assert_frame_equal(frame, frames.tokens(tmp_path / "back.db"))
    for name in ("back.db", "one.db"):
        assert [rule for rule in check_rules(tmp_path / name, now()) if rule.broken] == []
    assert rows(tmp_path / "one.db", "wallets")[0][0] == two
    with pytest.raises(InputError, match="has no bucket 2"):
        fetch_bucket(url, 2, tmp_path / "none.db")
