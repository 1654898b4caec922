"""Damaged files of a lake: one line says so, and the next sync repairs what counts for nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from nftsync.errors import StoreError
from nftsync.lake import holdings
from nftsync.lake.ledger import Ledger
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import check_lake, held
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import Outcome, made_once
from tests.lake.conftest import Sync, refused

WALLETS = [wallet(number) for number in range(6)]
Damage = Callable[[Path], object]


@pytest.fixture
def provider(provider: Provider) -> Provider:
    for number, each in enumerate(WALLETS):
        provider.holds(each, entry(token(number), "1"))
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


def emptied(path: Path) -> None:
    path.write_bytes(b"")


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
    (name,) = (action["add"]["path"] for action in actions if "add" in action)
    (path.parents[1] / name).unlink()


@pytest.mark.parametrize(
    "damage",
    [cut, emptied, zeroed, less_a_line, without_rows, Path.unlink],
    ids=lambda x: x.__name__,
)
def test_a_damaged_newest_entry_of_the_ledger_is_reported_and_repaired(
    synced: Path,
    lake: Path,
    sync: Sync,
    command: Callable[..., Outcome],
    damage: Damage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(newest(lake))
    gone = damage is Path.unlink  # nothing is left that could be damaged
    status = command("lake", "status", lake, "--json")
    assert (status.code, status.json["run"]) == (0 if gone else 1, 1)
    assert (status.json["problem"] is None) == gone
    assert ("is damaged" in caplog.text) != gone
    assert len(held(lake)) == len(WALLETS)
    outcome = sync()
    assert (outcome.code, outcome.json["run_id"]) == (0, 3), outcome.err
    assert ("is set aside" in caplog.text) != gone
    assert held(lake) == {(each, token(n)): "1" for n, each in enumerate(WALLETS)}
    check_lake(lake)
    assert command("lake", "status", lake).code == 0
    assert [run.status for run in Ledger(Lake(str(lake))).runs()][-1] == "ok"


def test_a_sync_meets_what_a_power_cut_and_an_earlier_version_left(
    synced: Path, lake: Path, sync: Sync
) -> None:
    """What a run wrote and never pinned is damaged."""
    # Workers have another umask, and yet write where only the owner may look.
    assert not [path for path in synced.iterdir() if path.stat().st_mode & 0o077]
    for number, name in enumerate(("balances", "wallets", "tokens")):
        last = newest(lake, name)
        after = last.with_name(f"{int(last.stem) + 1:020}.json")
        (cut, emptied, zeroed)[number](Path(shutil.copy(last, after)))
        last.with_name(f"{int(last.stem) + 1:020}.checkpoint.parquet").write_bytes(b"PAR1")
        last.with_name("_last_checkpoint").write_bytes(b"\0" * 60)
    table = DeltaTable(str(lake / "runs"))
    rows = pa.table(table.scan()).drop_columns(["provider", "approved_at", "folder"])
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")
    outcome = sync()
    assert (outcome.code, outcome.json["run_id"]) == (0, 3), outcome.err
    assert Ledger(Lake(str(lake))).finished().provider
    assert len(held(lake)) == len(WALLETS)
    check_lake(lake)


def test_on_a_full_disk_a_sync_changes_nothing_and_says_so(
    small_disk: Path, provider: Provider, sync: Sync
) -> None:
    lake, ballast = small_disk / "lake", small_disk / "ballast"
    assert sync(to=lake).code == 0
    before = held(lake)
    provider.holds(WALLETS[0], entry(token(9), "2"))
    free = os.statvfs(small_disk)
    ballast.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 8192))
    refused(sync(to=lake), 1, "no room left on the disk. Free some space")
    ballast.unlink()
    assert held(lake) == before
    assert sync(to=lake).code == 0
    assert held(lake)[WALLETS[0], token(9)] == "2"
    check_lake(lake)


def test_a_lake_whose_creation_was_cut_off_is_created(lake: Path, sync: Sync) -> None:
    for name in ("balances", "runs"):
        log = lake / name / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_bytes(b'{"protocol":{"minRead')
    assert sync("--buckets", 2).code == 0
    assert len(held(lake)) == len(WALLETS)
    check_lake(lake)


def without_digests(lake: Path) -> None:
    """A lake of a release whose commits had none."""
    for entry_file in lake.glob("*/_delta_log/*.json"):
        text = entry_file.read_text()
        entry_file.write_text(re.sub(r',"nftsync_\w+":"\w+"', "", text))


def pinned_file(lake: Path) -> Path:
    """A data file of the balances."""
    return max(lake.glob("balances/bucket=*/*.parquet"))


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize(
    ("damage", "path"),
    [(cut, newest), (emptied, newest), (Path.unlink, newest), (flipped, pinned_file)],
)
def test_damage_of_what_is_pinned_is_one_line_and_never_an_answer(
    synced: Path,
    lake: Path,
    sync: Sync,
    provider: Provider,
    command: Callable[..., Outcome],
    damage: Damage,
    path: Callable[..., Path],
    earlier: bool,
) -> None:
    if earlier:
        without_digests(lake)
        assert len(held(lake)) == len(WALLETS)
    for each in WALLETS:
        provider.holds(each)
    of_log = path is newest
    damage(newest(lake, "balances") if of_log else pinned_file(lake))
    for words in (("export", lake.parent / "copy.db"), ("compact",), ("status",)):
        if of_log or words[0] == "export":
            outcome = command("lake", words[0], lake, *words[1:])
            refused(outcome, 1, str(lake))
            assert len(outcome.err) < 600
    assert not (lake.parent / "copy.db").exists()
    with pytest.raises(StoreError, match=str(lake)):
        holdings(lake).compute()
    outcome = sync("--allow-removals")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1


def test_rows_that_contradict_each_other_are_one_line(
    synced: Path, lake: Path, command: Callable[..., Outcome]
) -> None:
    """Of a lake whose digests do not tell it."""
    without_digests(lake)
    last = newest(lake, "wallets")
    kept = [line for line in last.read_text().splitlines() if '"remove"' not in line]
    last.write_text("\n".join(kept) + "\n")
    refused(command("lake", "export", lake, lake.parent / "copy.db"), 1, "wallets.wallet_id")
    with pytest.raises(StoreError, match=r"a file is damaged .*wallets\.wallet_id"):
        holdings(lake).compute()


def test_damage_before_the_newest_entry_of_the_ledger_loses_no_run(
    synced: Path, lake: Path, sync: Sync, command: Callable[..., Outcome]
) -> None:
    last = newest(lake)
    damaged = last.with_name(f"{int(last.stem) - 1:020}.json")
    whole = damaged.read_bytes()
    emptied(damaged)
    for outcome in (command("lake", "runs", lake), command("lake", "status", lake), sync()):
        refused(outcome, 1, f"entry {int(damaged.stem)} of the ledger", "backup")
        assert "power cut" not in outcome.err
    damaged.write_bytes(whole)
    assert command("lake", "status", lake, "--json").json["run"] == 2


def test_a_lake_of_a_newer_version_is_refused_and_names_the_version(
    synced: Path, lake: Path, sync: Sync, command: Callable[..., Outcome]
) -> None:
    DeltaTable(str(lake / "runs")).alter.set_table_properties(
        {"nftsync.format": "2", "nftsync.needed": "9.9"}, raise_if_not_exists=False
    )
    copy = lake.parent / "copy.db"
    for words in (("status",), ("runs",), ("compact",), ("export", copy)):
        refused(command("lake", words[0], lake, *words[1:]), 1, "format 2", "nftsync 9.9 or later")
    refused(sync(), 1, "nftsync 9.9 or later")
    with pytest.raises(StoreError, match="nftsync 9.9 or later"):
        holdings(lake)


def test_damage_of_what_is_pinned_and_of_a_whole_ledger_is_one_line(
    synced: Path, lake: Path, sync: Sync, command: Callable[..., Outcome]
) -> None:
    cut(newest(lake, "balances"))
    for words in (("status",), ("compact",), ("export", lake.parent / "copy.db")):
        outcome = command("lake", words[0], lake, *words[1:])
        refused(outcome, 1, "damaged")
        assert len(outcome.err) < 600
    assert sync().code == 1
    for file in (lake / "runs").glob("*.parquet"):
        cut(file)
    for outcome in (command("lake", "status", lake), sync()):
        refused(outcome, 1)
        assert len(outcome.err) < 600
