"""Dated backups: whole, checked, pruned, and nobody else's files among what goes."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from nftsync import frames
from nftsync.export import backup
from nftsync.export.backup import write_backup
from tests.kit.mirrored_site import run
from tests.kit.worlds import PATIENCE, Outcome


def names(directory: Path) -> list[str]:
    """What there is, but for the lock's file."""
    return sorted(path.name for path in directory.iterdir() if path.suffix != ".lock")


def kept(database: Path, directory: Path, keep: int = 14) -> str:
    return write_backup(database, directory, keep=keep).file.name


def made_in(year: int, name: str) -> str:
    """A backup's name with another year."""
    stem, moment, mark = name.rsplit("-", 2)
    return f"{stem}-{year}{moment[4:]}-{mark}"


def test_each_night_it_copies_into_the_same_directory_and_the_oldest_go(site, tmp_path, command):
    umask = os.umask(0)
    try:
        first = command("backup", "backups")
    finally:
        os.umask(umask)
    assert (first.code, first.out) == (0, "")
    backups = tmp_path / "backups"
    (name,) = names(backups)
    assert first.err.startswith(f"backups/{name}: 0.")
    assert first.err.endswith("MB, intact (integrity_check)\n")
    assert stat.S_IMODE(backups.stat().st_mode) == 0o700
    assert stat.S_IMODE((backups / name).stat().st_mode) == 0o600
    assert len(frames.holdings(backups / name)) == 20
    for year in range(2001, 2014):
        shutil.copy(backups / name, backups / made_in(year, name))
    command("backup", backups).says(f"Removed 1 older, to keep 14: {made_in(2001, name)}\n")
    assert len(names(backups)) == 14
    assert name in names(backups)
    fewer = command("backup", backups, "--keep", 3)
    assert "Removed 12 older, to keep 3: " in fewer.err
    assert (names(backups)[0], len(names(backups))) == (name, 3)
    assert command("backup", backups, "--keep", 0).code == 2


def test_what_backup_did_not_name_itself_stays(site, tmp_path):
    other = tmp_path / "elsewhere" / site.database.name
    other.parent.mkdir()
    shutil.copy(site.database, other)
    directory = tmp_path / "backups"
    name = kept(site.database, directory)
    theirs = {
        *("mine.db", f"{name}.gz", f"x{name}", name.replace("Z-", "-")),
        *(f".{name}.partial", f".{name}.abc.partial.txt", f"{name}-journal"),
    }
    for each in theirs:
        (directory / each).write_text("mine")
    link, folder = made_in(2001, name), made_in(2002, name)
    (directory / link).symlink_to(directory / "mine.db")
    (directory / folder).mkdir()
    of_other = kept(other, directory)
    last = [kept(site.database, directory, keep=1), kept(other, directory)][0]
    assert name not in names(directory)
    assert {*theirs, link, folder, of_other, last} < {*names(directory)}


def test_keep_1_leaves_the_new_one_whatever_the_clock_said_and_after_a_restore(site, tmp_path):
    first = kept(site.database, tmp_path / "b")
    (tmp_path / "b" / first).rename(tmp_path / "b" / made_in(2999, first))
    second = kept(site.database, tmp_path / "b", keep=1)
    assert names(tmp_path / "b") == [second]
    site.database.unlink()
    shutil.copy(tmp_path / "b" / second, site.database)
    third = kept(site.database, tmp_path / "b", keep=1)
    assert names(tmp_path / "b") == [third] != [second]


def test_a_damaged_copy_is_not_kept_and_takes_no_older_one_s_place(
    site, tmp_path, command, monkeypatch
):
    monkeypatch.setattr(backup, "FULL_CHECK_LIMIT", 1)
    done = write_backup(site.database, tmp_path / "b", keep=1)
    assert (done.check, names(tmp_path / "b")) == ("quick_check", [done.file.name])
    run(site.database, "PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(sqlite3.connect(site.database)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'wallet_state_rows_by_wallet'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with site.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    for large in (1, 2**40):
        monkeypatch.setattr(backup, "FULL_CHECK_LIMIT", large)
        failed = command("backup", tmp_path / "b", "--keep", 1)
        failed.tells("damaged", "nftsync check", code=1)
        assert failed.err.count("\n") == 1
    assert names(tmp_path / "b") == [done.file.name]


def test_what_a_killed_backup_left_goes_with_the_next(site, tmp_path, command):
    """It has no name to be taken for a backup by, and holds nobody up."""
    with closing(sqlite3.connect(site.database, timeout=30)) as connection, connection:
        connection.execute(
            "INSERT INTO resources (resource_type, resource_id, body, fetched_at)"
            " VALUES ('x', 'x', hex(zeroblob(40000000)), 'now')"
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


def test_two_at_once_do_not_get_into_each_other_s_way(site, tmp_path, command, monkeypatch):
    inner: list[Outcome] = []

    def meanwhile(_: int) -> None:
        inner.append(command("backup", "b"))

    monkeypatch.setattr(os, "fsync", meanwhile)
    name = kept(site.database, tmp_path / "b")
    assert inner[0].code == 1
    assert "another backup" in inner[0].err
    assert names(tmp_path / "b") == [name]


def test_a_full_disk_keeps_the_older_ones(site, small_disk, command):
    directory = small_disk / "b"
    older = kept(site.database, directory)
    free = os.statvfs(small_disk)
    room = free.f_bavail * free.f_frsize - site.database.stat().st_size // 2
    (small_disk / "ballast").write_bytes(b"x" * room)
    done = command("backup", directory, "--keep", 1)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "no room left" in done.err
    assert names(directory) == [older]
    (small_disk / "ballast").unlink()
    assert command("backup", directory, "--keep", 1).code == 0
    assert len(names(directory)) == 1
    assert older not in names(directory)


def test_where_it_cannot_write_it_says_so(site, tmp_path, command):
    (tmp_path / "file").touch()
    done = command("backup", "file")
    done.tells("nftsync: file is not a directory; name another\n")
    below = command("backup", "file/below")
    assert (below.code, below.err.count("\n")) == (1, 1)
    none = command("backup", "b", "-d", "missing.db")
    assert (none.code, (tmp_path / "b").exists()) == (1, False)
