"""Damaged files and full disks: one line says so, and the next sync repairs what can be."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from nftsync.errors import StoreError
from nftsync.lake import holdings
from tests.kit.lake_cluster import check_lake, cluster_of, files, held, published
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import Outcome, made_once
from tests.lake.conftest import Sync, refused

WALLETS = [wallet(number) for number in range(6)]
HELD = {(each, token(number)): "1" for number, each in enumerate(WALLETS)}
Damage = Callable[[Path], object]


@pytest.fixture
def provider(provider: Provider) -> Provider:
    for (each, nft), amount in HELD.items():
        provider.holds(each, entry(nft, amount))
    return provider


@pytest.fixture
def sync(sync: Sync, provider: Provider) -> Sync:
    return partial(sync, provider.url, WALLETS, "--takeover-after", "1s")


@pytest.fixture
def synced(sync: Sync, lake: Path, shared: Path) -> Path:
    """A lake after two syncs."""

    def make(folder: Path) -> None:
        for _ in range(2):
            # Without renewals in between, which would let Delta write a checkpoint.
            assert sync("--takeover-after", "1h", to=folder / "lake").code == 0

    return shutil.copytree(made_once(shared, "damage", make) / "lake", lake)


def newest(lake: Path, table: str = "runs") -> Path:
    """The newest entry of a table's log."""
    return max((lake / table / "_delta_log").glob("*.json"))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zeroed(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def flipped(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def less_a_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().rstrip(b"\n").rpartition(b"\n")[0])


def without_rows(path: Path) -> None:
    """The file of rows that the entry names is gone."""
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    name = next(action["add"]["path"] for action in actions if "add" in action)
    (path.parents[1] / name).unlink()


# The ledger ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [cut, zeroed, less_a_line, without_rows])
def test_a_damaged_newest_entry_of_the_ledger_is_reported_and_repaired(
    synced: Path,
    sync: Sync,
    command: Callable[..., Outcome],
    damage: Damage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(newest(synced))
    status = command("lake", "status", synced, "--json")
    assert (status.code, status.json["run"]) == (1, 1)
    assert status.json["problem"]
    assert "is damaged" in caplog.text
    assert held(synced) == HELD
    outcome = sync()
    assert (outcome.code, outcome.json["run_id"]) == (0, 3), outcome.err
    assert "is set aside" in caplog.text
    assert held(synced) == HELD
    check_lake(synced)
    assert command("lake", "status", synced).code == 0
    assert command("lake", "runs", synced, "--json").json[-1]["status"] == "ok"


def test_damage_before_the_newest_entry_of_the_ledger_loses_no_run(
    synced: Path, lake: Path, sync: Sync, command: Callable[..., Outcome]
) -> None:
    last = newest(lake)
    damaged = last.with_name(f"{int(last.stem) - 1:020}.json")
    whole = damaged.read_bytes()
    cut(damaged)
    refused(sync(), 1, "a file is damaged", "backup")
    assert command("lake", "runs", lake, "--json").json[-1]["status"] == "ok"
    status = command("lake", "status", lake, "--json")
    assert (status.code, status.json["run"], status.json["problem"]) == (0, 2, None)
    damaged.write_bytes(whole)
    assert sync().json["run_id"] == 3
    for file in (lake / "runs").glob("*.parquet"):
        cut(file)
    for outcome in (command("lake", "status", lake), sync()):
        refused(outcome, 1)
        assert len(outcome.err) < 600


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
def test_a_lake_of_another_version_is_refused_and_names_the_way(
    synced: Path,
    lake: Path,
    sync: Sync,
    command: Callable[..., Outcome],
    change: Damage,
    words: tuple[str, ...],
) -> None:
    change(lake)
    copy = lake.parent / "copy.db"
    for own in (("status",), ("runs",), ("removals",), ("compact",), ("export", copy)):
        refused(command("lake", own[0], lake, *own[1:]), 1, *words)
    refused(sync(), 1, *words)
    with pytest.raises(StoreError, match=words[1]):
        holdings(lake)


# Other files --------------------------------------------------------------------------------------


def test_damage_of_what_was_never_pinned_counts_for_nothing(
    synced: Path, sync: Sync, caplog: pytest.LogCaptureFixture
) -> None:
    # Workers have another umask, and yet write where only the owner may look.
    assert not [path for path in synced.iterdir() if path.stat().st_mode & 0o077]
    for name, damage in (("balances", cut), ("tokens", zeroed), ("balance_changes", flipped)):
        last = newest(synced, name)
        after = last.with_name(f"{int(last.stem) + 1:020}.json")
        damage(Path(shutil.copy(last, after)))
    for folder in ("buckets", "manifests"):
        cut(Path(shutil.copy(max((synced / folder).iterdir()), synced / folder / "9-torn")))
    outcome = sync()
    assert (outcome.code, outcome.json["run_id"]) == (0, 3), outcome.err
    assert held(synced) == HELD
    check_lake(synced)


@pytest.mark.parametrize("damage", [cut, flipped, Path.unlink])
@pytest.mark.parametrize("kind", ["manifest", "bucket"])
def test_damage_of_what_is_pinned_is_one_line_and_never_an_answer(
    synced: Path,
    sync: Sync,
    provider: Provider,
    command: Callable[..., Outcome],
    damage: Damage,
    kind: str,
) -> None:
    """Runs with other files stay readable."""
    copy = synced.parent / "copy.db"
    for each in WALLETS:
        provider.holds(each)
    # Who has read a manifest does not read it again.
    named = max((synced / "manifests").glob("2-*")) if kind == "manifest" else None
    path = named or synced / str(files(synced)[0])
    whole = path.read_bytes()
    damage(path)
    copies = ("export", copy), ("fetch", 0, copy)
    every = (*copies, ("status",), ("removals",), ("compact",))
    for words in every if kind == "manifest" else copies:
        outcome = command("lake", words[0], synced, *words[1:])
        refused(outcome, 1, str(synced), path.name)
        assert len(outcome.err) < 600
    assert not copy.exists()
    with pytest.raises(StoreError, match=path.name):
        holdings(synced).compute()
    if kind == "manifest":
        assert len(holdings(synced, run=1).compute()) == len(HELD)
    refused(sync("--allow-removals"), 1, path.name)
    path.write_bytes(whole)
    assert sync("--allow-removals").code == 0
    assert not held(synced)


def names_other_numbers(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"numRecords", b"numRecord5"))


def with_a_torn_next_entry(path: Path) -> None:
    path.with_name(f"{int(path.stem) + 1:020}.json").write_bytes(b"")
    names_other_numbers(path)


@pytest.mark.parametrize(
    ("table", "damage"),
    [
        *(("balances", cut), ("tokens", without_rows), ("balance_changes", names_other_numbers)),
        *(("tokens", with_a_torn_next_entry), ("balances", lambda x: shutil.rmtree(x.parents[1]))),
    ],
)
def test_a_damaged_published_table_is_published_again_by_the_next_sync_with_one_warning(
    synced: Path, sync: Sync, table: str, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    damage(newest(synced, table))
    assert held(synced) == HELD
    for again in (True, False):
        caplog.clear()
        assert sync().code == 0
        said = [x for x in caplog.messages if f"published table {table} was damaged" in x]
        assert len(said) == again
        assert published(synced) == HELD
        assert DeltaTable(str(synced / table)).to_pyarrow_table().num_rows == len(HELD)
    check_lake(synced)


# Full disks ---------------------------------------------------------------------------------------


def fill(folder: Path, left: int = 8192) -> Path:
    """Leave so many bytes free on a disk."""
    free = os.statvfs(folder)
    (folder / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_frsize - left))
    return folder / "ballast"


def test_on_a_full_disk_a_sync_changes_nothing_and_says_so(
    small_disk: Path, provider: Provider, sync: Sync, command: Callable[..., Outcome]
) -> None:
    lake = small_disk / "lake"
    assert sync(to=lake).code == 0
    before = held(lake)
    provider.holds(WALLETS[0], entry(token(9), "2"))
    ballast = fill(small_disk)
    refused(sync(to=lake), 1, "no room left on the disk. Free some space")
    assert held(lake) == before
    assert command("lake", "status", lake, "--json").json["run"] == 1
    ballast.unlink()
    assert sync(to=lake).code == 0
    assert held(lake)[WALLETS[0], token(9)] == "2"
    check_lake(lake)


def test_a_worker_whose_temporary_disk_is_full_says_so_and_changes_nothing(
    small_disk: Path, provider: Provider, sync: Sync, lake: Path, tmp_path: Path
) -> None:
    with cluster_of(tmp_path, 0) as cluster:
        cluster.workers.append(cluster.start_worker("--local-directory", str(small_disk)))
        where = "--scheduler", cluster.address
        assert sync(*where).code == 0
        provider.holds(WALLETS[0], entry(token(9), "3"))
        before, ballast = held(lake), fill(small_disk)
        refused(sync(*where), 1, "no room left on the disk. Free some space")
        assert held(lake) == before
        ballast.unlink()
        assert sync(*where).code == 0
    assert held(lake)[WALLETS[0], token(9)] == "3"
    check_lake(lake)
