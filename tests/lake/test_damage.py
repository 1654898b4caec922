"""Damaged files and full disks: one line reports them, and the next sync repairs unpinned files."""

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from nftsync.errors import StoreError
from nftsync.lake import holdings
from tests.kit import lakes
from tests.kit.lake_cluster import cluster_of, refused, show
from tests.kit.provider import entry, token, wallet
from tests.kit.worlds import made_once
from tests.kit.worlds import run_command as command
from tests.lake.conftest import Sync

WALLETS = [wallet(number) for number in range(6)]
HELD = {(each, token(number)): "1" for number, each in enumerate(WALLETS)}
Damage = Callable[[Path], object]


@pytest.fixture
def sync(sync, provider) -> Sync:
    show(provider, WALLETS)
    return partial(sync, WALLETS, "--takeover-after", "1s")


@pytest.fixture
def synced(sync, lake, shared) -> Path:
    def make(folder: Path) -> None:
        for _ in range(2):
            # Heartbeats would let Delta write a checkpoint.
            sync("--takeover-after", "1h", to=folder / "lake").says()

    return shutil.copytree(made_once(shared, "damage", make) / "lake", lake)


def newest(lake: Path, table: str = "runs") -> Path:
    return max((lake / table / "_delta_log").glob("*.json"))


def without_rows(path: Path) -> None:
    """Delete the file of rows that the entry names."""
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    name = next(action["add"]["path"] for action in actions if "add" in action)
    (path.parents[1] / name).unlink()


def with_a_torn_next_entry(path: Path) -> None:
    path.with_name(f"{int(path.stem) + 1:020}.json").write_bytes(b"")
    DAMAGES["other numbers"](path)


def edited(edit: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(edit(path.read_bytes()))


DAMAGES: dict[str, Damage] = {
    "cut": edited(lambda content: content[: len(content) // 2]),
    "a flipped bit": edited(lambda content: bytes([content[0] ^ 4]) + content[1:]),
    "no last line": edited(lambda content: content.rstrip(b"\n").rpartition(b"\n")[0]),
    "other numbers": edited(lambda content: content.replace(b"numRecords", b"numRecord5")),
    "no rows": without_rows,
    "torn next entry": with_a_torn_next_entry,
    "no table": lambda path: shutil.rmtree(path.parents[1]),
    "deleted": Path.unlink,
}


@pytest.mark.parametrize("damage", ["cut", "no last line", "no rows"])
def test_damage_of_the_newest_entry_of_the_ledger_is_reported_and_repaired(
    synced, sync, damage, caplog
):
    DAMAGES[damage](newest(synced))
    status = command("lake", "status", synced, "--json")
    assert (status.code, status.json["run"]) == (1, 1)
    assert status.json["problem"]
    assert "is damaged" in caplog.text
    assert lakes.held(synced) == HELD
    assert sync().says().json["run_id"] == 3
    assert "is set aside" in caplog.text
    assert lakes.held(synced) == HELD
    lakes.check_lake(synced)
    command("lake", "status", synced).says()


def test_damage_before_the_newest_entry_of_the_ledger_loses_no_run(synced, sync):
    *_, damaged, _ = sorted((synced / "runs" / "_delta_log").glob("*.json"))
    whole = damaged.read_bytes()
    DAMAGES["cut"](damaged)
    refused(sync(), 1, "a file is damaged", "backup")
    assert command("lake", "runs", synced, "--json").json[-1]["status"] == "ok"
    status = command("lake", "status", synced, "--json").says()
    assert (status.json["run"], status.json["problem"]) == (2, None)
    damaged.write_bytes(whole)
    assert sync().json["run_id"] == 3
    for file in (synced / "runs").glob("*.parquet"):
        DAMAGES["cut"](file)
    for outcome in (command("lake", "status", synced), sync()):
        refused(outcome, 1)


def of_a_newer_nftsync(lake: Path) -> None:
    DeltaTable(str(lake / "runs")).alter.set_table_properties(
        {"nftsync.format": "2", "nftsync.needed": "9.9"}, raise_if_not_exists=False
    )


def of_nftsync_0_5(lake: Path) -> None:
    rows = pa.table(DeltaTable(str(lake / "runs")).scan()).rename_columns({"manifest": "versions"})
    write_deltalake(str(lake / "runs"), rows, mode="overwrite", schema_mode="overwrite")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_a_newer_nftsync, ("format 2", "nftsync 9.9 or later")),
        (of_nftsync_0_5, ("lake of nftsync 0.5", "`nftsync lake export`", "`nftsync lake import`")),
    ],
)
def test_a_lake_of_another_version_is_refused_with_a_remedy(synced, sync, change, words):
    change(synced)
    for name, *more in (("status",), ("runs",), ("removals",), ("compact",), ("export", "copy.db")):
        refused(command("lake", name, synced, *more), 1, *words)
    refused(sync(), 1, *words)
    with pytest.raises(StoreError, match=words[1]):
        holdings(synced)


@pytest.mark.parametrize(("kind", "damage"), [("manifest", "deleted"), ("bucket", "a flipped bit")])
def test_damage_of_pinned_files_is_one_line_and_no_answer(synced, sync, provider, kind, damage):
    """Runs with other files stay readable."""
    for each in WALLETS:
        provider.holds(each)
    # A process reads a manifest once, so this may not use it before.
    manifest = max((synced / "manifests").glob("2-*"))
    path = manifest if kind == "manifest" else synced / str(lakes.files(synced)[0])
    whole = path.read_bytes()
    DAMAGES[damage](path)
    every = [("export", "copy.db"), ("fetch", 0, "copy.db")]
    every += [("status",), ("removals",), ("compact",)] if kind == "manifest" else []
    for name, *more in every:
        refused(command("lake", name, synced, *more), 1, str(synced), path.name)
    assert not Path("copy.db").exists()
    with pytest.raises(StoreError, match=path.name):
        holdings(synced).compute()
    if kind == "manifest":
        assert len(holdings(synced, run=1).compute()) == len(HELD)
    refused(sync("--allow-removals"), 1, path.name)
    path.write_bytes(whole)
    sync("--allow-removals").says()
    assert not lakes.held(synced)


def test_the_next_sync_publishes_damaged_tables_again_with_a_warning_each(synced, sync, caplog):
    for damaged in (
        {"balances": "cut", "tokens": "no rows", "balance_changes": "other numbers"},
        {"balances": "no table", "tokens": "torn next entry"},
        {},
    ):
        caplog.clear()
        for table, damage in damaged.items():
            DAMAGES[damage](newest(synced, table))
        assert lakes.held(synced) == HELD
        sync().says()
        warned = re.findall(r"published table (\w+) was damaged", caplog.text)
        assert sorted(warned) == sorted(damaged)
        assert lakes.published(synced) == HELD
        for table in ("tokens", "balance_changes"):
            assert len(lakes.published_rows(synced, table)) == len(HELD)
    lakes.check_lake(synced)


@pytest.mark.parametrize("disk", ["of the lake", "of a worker's temporary files"])
def test_a_sync_on_a_full_disk_only_reports_it(small_disk, provider, sync, tmp_path, disk):
    lake = (small_disk if disk == "of the lake" else tmp_path) / "lake"
    run = partial(sync, to=lake)
    with ExitStack() as stack:
        if disk != "of the lake":
            cluster = stack.enter_context(cluster_of(tmp_path, 0))
            cluster.start_worker("--local-directory", str(small_disk))
            run = partial(run, "--scheduler", cluster)
        run().says()
        before = lakes.held(lake)
        provider.holds(WALLETS[0], entry(token(9), "2"))
        free, ballast = os.statvfs(small_disk), small_disk / "ballast"
        ballast.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 8_192))
        refused(run(), 1, "no room left on the disk. Free some space")
        assert lakes.held(lake) == before
        assert command("lake", "status", lake, "--json").json["run"] == 1
        ballast.unlink()
        run().says()
    assert lakes.held(lake)[WALLETS[0], token(9)] == "2"
    lakes.check_lake(lake)
