"""Copies of the live database: snapshots and dated backups, consistent, private and complete."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, takewhile
from pathlib import Path

import pytest

from nftsync import frames
from tests.kit.serve_process import query
from tests.kit.worlds import PATIENCE, Outcome, begin_work, dump, under_way


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let new files be readable by all, unless nftsync restricts them."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
def test_a_snapshot_is_private_equal_and_readable_in_a_read_only_directory(site, tmp_path, command):
    copy = tmp_path / "given" / "copy.db"
    command("snapshot", copy).tells("copy.db: 0.", " MB", code=0)
    assert mode(copy) == 0o600
    copy.parent.chmod(0o500)
    try:
        assert dump(copy) == dump(site.database)
        assert query(copy, "PRAGMA journal_mode") == [("delete",)]
        assert len(frames.holdings(copy)) == 20
        assert [path.name for path in copy.parent.iterdir()] == ["copy.db"]
    finally:
        copy.parent.chmod(0o700)
    command("snapshot", tmp_path / "second.db", "-d", copy).says()
    assert dump(tmp_path / "second.db") == dump(site.database)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere.db")
    for name in ("mine.txt", "link.db"):
        command("snapshot", name).says("already exists", code=2)
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
def test_a_file_that_appears_meanwhile_is_kept(site, tmp_path, monkeypatch, command, has_links):
    """Also on a file system without hard links."""
    link = os.link

    def late_link(source: Path, target: Path) -> None:
        if target.name == "late.db":
            target.write_text("theirs")
        if not has_links:
            raise PermissionError(1, "no links here")
        link(source, target)

    monkeypatch.setattr(os, "link", late_link)
    command("snapshot", "late.db").tells("already exists")
    assert (tmp_path / "late.db").read_text() == "theirs"
    command("snapshot", "copy.db").says()
    assert dump(tmp_path / "copy.db") == dump(site.database)
    assert not [*tmp_path.glob(".late*"), *tmp_path.glob(".copy*")]


@pytest.mark.parametrize("words", [("snapshot", "copy.db"), ("backup", ".", "--keep", "1")])
def test_a_copy_has_no_work_in_progress_and_its_database_continues(site, tmp_path, words, command):
    webhook = begin_work(site.database, site.ids[0])
    working = [("leases", 1), ("webhooks", 1), ("messages", 1), ("runs", 2)]
    assert under_way(site.database) == working
    command(*words).says()
    assert under_way(site.database) == working
    (copy,) = (path for path in tmp_path.glob("*.db") if path != site.database)
    assert under_way(copy) == [("leases", 0), ("webhooks", 0), ("messages", 0), ("runs", 0)]
    command("verify", "--sample", 0, "-d", copy).says("All ")
    assert command("replay", "--json", "-d", copy, "--base-url", site.server.url).json["done"] == 1
    command("inbox", "show", webhook, "-d", copy).says("done")
    resumed = command("sync", "--resume", "--json", "-d", copy, "--base-url", site.server.url)
    assert (resumed.code, resumed.json["wallets"]["total"]) == (0, 1)


def test_a_copy_during_writes_shows_one_moment(site, tmp_path, monkeypatch, command):
    """A writer adds to two tables in each transaction; a copy has the rows of both or of none."""
    monkeypatch.setattr("nftsync.export.backup.PAGES_PER_STEP", 1)
    stop, begun = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(site.database, isolation_level=None, timeout=30)) as writer:
            for number in takewhile(lambda _: not stop.is_set(), count()):
                writer.executescript(
                    f"""BEGIN IMMEDIATE;
                    INSERT INTO webhooks (webhook_id, received_at, state, body)
                    VALUES ('n{number:09}', 'now', 'done', zeroblob(5000));
                    INSERT INTO resources (resource_type, resource_id, body, fetched_at)
                    VALUES ('x', 'n{number:09}', '{{}}', 'now'); COMMIT"""
                )
                begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(PATIENCE)
        for number in range(5):
            copy = tmp_path / f"copy{number}.db"
            command("snapshot", copy).says()
            assert query(copy, "PRAGMA integrity_check") == [("ok",)]
            names = query(copy, "SELECT webhook_id FROM webhooks ORDER BY 1")
            assert query(copy, "SELECT resource_id FROM resources ORDER BY 1") == names
    finally:
        stop.set()
        thread.join()


def test_a_failed_snapshot_leaves_no_temporary_file(site, tmp_path, monkeypatch, command):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "file").touch()
    command("snapshot", "file/copy.db").tells("cannot write", code=1)
    (tmp_path / "text.db").write_bytes(b"no database" * 100)
    for name in ("text.db", "file"):
        command("snapshot", "copy.db", "-d", name).tells(name, code=1)
    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(Path, "replace", full)
    command("snapshot", "copy.db").tells("copy.db: No space left", code=1)
    assert not list(tmp_path.glob(".*copy*"))


def names(directory: Path) -> list[str]:
    """Return the names of files, without the lock's file."""
    return sorted(path.name for path in directory.iterdir() if path.suffix != ".lock")


def made_in(year: int, name: str) -> str:
    """Return a backup's name with another year."""
    stem, moment, mark = name.rsplit("-", 2)
    return f"{stem}-{year}{moment[4:]}-{mark}"


@pytest.fixture
def backup(command: Callable[..., Outcome]) -> Callable[..., str]:
    """Return a function that makes a backup and returns its name."""

    def make(database: Path, directory: Path, keep: int = 14) -> str:
        before = {*names(directory)} if directory.exists() else set()
        command("backup", directory, "--keep", keep, "-d", database).says()
        (name,) = {*names(directory)} - before
        return name

    return make


@pytest.mark.usefixtures("open_umask")
def test_backups_are_private_and_the_oldest_are_pruned(site, tmp_path, command):
    first = command("backup", "backups").tells("MB, intact (integrity_check)\n", code=0)
    backups = tmp_path / "backups"
    (name,) = names(backups)
    assert first.err.startswith(f"backups/{name}: 0.")
    assert (mode(backups), mode(backups / name)) == (0o700, 0o600)
    assert len(frames.holdings(backups / name)) == 20
    for year in range(2001, 2014):
        shutil.copy(backups / name, backups / made_in(year, name))
    command("backup", backups).says(f"Deleted 1 older backup (--keep 14): {made_in(2001, name)}\n")
    assert len(names(backups)) == 14
    assert name in names(backups)
    command("backup", backups, "--keep", 3).says("Deleted 12 older backups (--keep 3): ")
    assert (names(backups)[0], len(names(backups))) == (name, 3)
    assert command("backup", backups, "--keep", 0).code == 2


def test_files_with_other_names_are_kept(site, tmp_path, backup):
    other = tmp_path / "elsewhere" / site.database.name
    other.parent.mkdir()
    shutil.copy(site.database, other)
    directory = tmp_path / "backups"
    name = backup(site.database, directory)
    theirs = {"mine.db", f"{name}.gz", f"x{name}", name.replace("Z-", "-"), f".{name}.partial"}
    theirs |= {f".{name}.abc.partial.txt", f"{name}-journal"}
    for each in theirs:
        (directory / each).write_text("mine")
    link, folder = made_in(2001, name), made_in(2002, name)
    (directory / link).symlink_to(directory / "mine.db")
    (directory / folder).mkdir()
    of_other = backup(other, directory)
    last = backup(site.database, directory, keep=1)
    backup(other, directory)
    assert name not in names(directory)
    assert {*theirs, link, folder, of_other, last} < {*names(directory)}


def test_keep_1_keeps_the_new_backup_at_any_clock_and_after_a_restore(site, tmp_path, backup):
    first = backup(site.database, tmp_path / "b")
    (tmp_path / "b" / first).rename(tmp_path / "b" / made_in(2999, first))
    second = backup(site.database, tmp_path / "b", keep=1)
    assert names(tmp_path / "b") == [second]
    site.database.unlink()
    shutil.copy(tmp_path / "b" / second, site.database)
    third = backup(site.database, tmp_path / "b", keep=1)
    assert names(tmp_path / "b") == [third] != [second]


def test_a_damaged_copy_is_not_kept_and_prunes_no_older_one(site, tmp_path, command, monkeypatch):
    limit = "nftsync.export.backup.FULL_CHECK_LIMIT"
    monkeypatch.setattr(limit, 1)
    command("backup", tmp_path / "b", "--keep", 1).says("intact (quick_check)")
    before = names(tmp_path / "b")
    query(site.database, "PRAGMA wal_checkpoint(TRUNCATE)")
    index = "name = 'wallet_state_rows_by_wallet'"
    ((page,),) = query(site.database, f"SELECT rootpage FROM sqlite_schema WHERE {index}")
    ((size,),) = query(site.database, "PRAGMA page_size")
    with site.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    for large in (1, 2**40):
        monkeypatch.setattr(limit, large)
        failed = command("backup", tmp_path / "b", "--keep", 1)
        failed.tells("damaged", "nftsync check", code=1)
        assert failed.err.count("\n") == 1
    assert names(tmp_path / "b") == before


def test_the_next_backup_removes_the_rest_of_a_killed_one(site, tmp_path, command):
    """Its name is not that of a backup, and it does not block the next one."""
    query(
        site.database,
        "INSERT INTO resources (resource_type, resource_id, body, fetched_at)"
        " VALUES ('x', 'x', hex(zeroblob(40000000)), 'now')",
    )
    directory = tmp_path / "b"
    directory.mkdir()
    call = [sys.executable, "-m", "nftsync", "backup", directory]
    with subprocess.Popen(call, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + PATIENCE
        while not any(path.stat().st_size for path in directory.glob(".*partial/*")):
            assert time.monotonic() < deadline
            assert process.poll() is None
        process.kill()
    assert process.returncode == -signal.SIGKILL
    (left,) = names(directory)
    assert left.endswith(".nftsync-partial")
    command("backup", directory).says("Removed 1 unfinished file of interrupted backups.\n")
    (name,) = names(directory)
    assert name.endswith(".db")


def test_a_full_disk_keeps_the_older_backups(site, small_disk, command, backup):
    directory = small_disk / "b"
    older = backup(site.database, directory)
    free = os.statvfs(small_disk)
    room = free.f_bavail * free.f_frsize - site.database.stat().st_size // 2
    (small_disk / "ballast").write_bytes(b"x" * room)
    done = command("backup", directory, "--keep", 1).tells("no room left", code=1)
    assert done.err.count("\n") == 1
    assert names(directory) == [older]
    (small_disk / "ballast").unlink()
    command("backup", directory, "--keep", 1).says()
    (newer,) = names(directory)
    assert newer != older


def test_an_unusable_directory_is_one_error(site, tmp_path, command):
    (tmp_path / "file").touch()
    command("backup", "file").tells("nftsync: file is not a directory; name another\n")
    assert command("backup", "file/below").tells(code=1).err.count("\n") == 1
    command("backup", "b", "-d", "missing.db").tells(code=1)
    assert not (tmp_path / "b").exists()


def test_two_backups_at_once_do_not_disturb_each_other(site, tmp_path, command, monkeypatch):
    inner: list[Outcome] = []
    monkeypatch.setattr(os, "fsync", lambda _: inner.append(command("backup", "b")))
    command("backup", "b").says()
    inner[0].says("another backup", code=1)
    assert len(names(tmp_path / "b")) == 1
