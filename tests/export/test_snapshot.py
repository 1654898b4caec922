"""A copy of the live database: consistent, private, whole or not there at all."""

import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from nftsync import frames
from nftsync.errors import InputError, StoreError
from nftsync.export import backup
from nftsync.export.backup import write_snapshot
from tests.kit.worlds import PATIENCE, begin_work, under_way


def dump(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


def test_the_copy_is_its_owner_s_and_says_the_same_also_in_a_read_only_directory(site, tmp_path):
    copy = tmp_path / "given" / "copy.db"
    umask = os.umask(0)
    try:
        size = write_snapshot(site.database, copy)
        assert (copy.stat().st_size, stat.S_IMODE(copy.stat().st_mode)) == (size, 0o600)
        copy.parent.chmod(0o500)
        assert dump(copy) == dump(site.database)
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert len(frames.holdings(copy)) == 20
        assert [path.name for path in copy.parent.iterdir()] == ["copy.db"]
    finally:
        os.umask(umask)
        copy.parent.chmod(0o700)
    write_snapshot(copy, tmp_path / "second.db")
    assert dump(tmp_path / "second.db") == dump(site.database)


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
def test_a_file_that_appears_meanwhile_is_kept(site, tmp_path, monkeypatch, has_links):
    """On a file system without links, too, which gets its copy where no file is."""
    link = os.link

    def late_link(source: Path, target: Path) -> None:
        if target.name == "late.db":
            target.write_text("theirs")
        if not has_links:
            raise PermissionError(1, "no links here")
        link(source, target)

    monkeypatch.setattr(os, "link", late_link)
    with pytest.raises(InputError, match="already exists"):
        write_snapshot(site.database, tmp_path / "late.db")
    assert (tmp_path / "late.db").read_text() == "theirs"
    write_snapshot(site.database, tmp_path / "copy.db")
    assert dump(tmp_path / "copy.db") == dump(site.database)
    assert not [*tmp_path.glob(".late*"), *tmp_path.glob(".copy*")]


@pytest.mark.parametrize("words", [("snapshot", "copy.db"), ("backup", ".", "--keep", "1")])
def test_in_a_copy_nothing_is_under_way_and_its_database_goes_on(site, tmp_path, words, command):
    webhook = begin_work(site.database, site.ids[0])
    working = [("leases", 1), ("webhooks", 1), ("messages", 1), ("runs", 2)]
    assert under_way(site.database) == working
    assert command(*words).code == 0
    assert under_way(site.database) == working
    (copy,) = (path for path in tmp_path.glob("*.db") if path != site.database)
    assert under_way(copy) == [("leases", 0), ("webhooks", 0), ("messages", 0), ("runs", 0)]
    proved = command("verify", "--sample", 0, "-d", copy)
    assert (proved.code, proved.out[:4]) == (0, "All "), proved.said
    assert command("replay", "--json", "-d", copy, "--base-url", site.server.url).json["done"] == 1
    assert command("inbox", "show", webhook, "-d", copy).out.count("done")
    resumed = command("sync", "--resume", "--json", "-d", copy, "--base-url", site.server.url)
    assert (resumed.code, resumed.json["wallets"]["total"]) == (0, 1)


def test_a_copy_taken_while_others_write_is_of_one_moment(site, tmp_path, monkeypatch):
    """A writer adds to two tables in each transaction; a copy never has one without the other."""
    monkeypatch.setattr(backup, "PAGES_PER_STEP", 1)
    stop, begun = threading.Event(), threading.Event()

    def write() -> None:
        commits = 0
        with closing(sqlite3.connect(site.database, isolation_level=None, timeout=30)) as writer:
            while not stop.is_set():
                commits += 1
                name = f"n{commits:09}"
                writer.executescript(
                    f"""BEGIN IMMEDIATE;
                    INSERT INTO webhooks (webhook_id, received_at, state, body)
                    VALUES ('{name}', 'now', 'done', zeroblob(5000));
                    INSERT INTO resources (resource_type, resource_id, body, fetched_at)
                    VALUES ('x', '{name}', '{{}}', 'now'); COMMIT"""
                )
                begun.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(PATIENCE)
        for number in range(5):
            copy = tmp_path / f"copy{number}.db"
            write_snapshot(site.database, copy)
            with closing(sqlite3.connect(copy)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                webhooks = connection.execute("SELECT webhook_id FROM webhooks ORDER BY 1")
                resources = connection.execute("SELECT resource_id FROM resources ORDER BY 1")
                assert webhooks.fetchall() == resources.fetchall()
    finally:
        stop.set()
        thread.join()


def test_what_goes_wrong_leaves_nothing_behind(site, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        write_snapshot(site.database, tmp_path / "file" / "copy.db")
    (tmp_path / "text.db").write_bytes(b"no database" * 100)
    for name in ("text.db", "file"):
        with pytest.raises(StoreError, match=name):
            write_snapshot(tmp_path / name, tmp_path / "copy.db")
    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StoreError, match=r"copy\.db: No space left"):
        write_snapshot(site.database, tmp_path / "copy.db")
    assert not list(tmp_path.glob(".*copy*"))


def test_the_command_says_how_large_it_is_and_writes_over_nothing(site, tmp_path, command):
    command("snapshot", "copy.db").tells("copy.db: 0.", " MB", code=0)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere.db")
    for name in ("copy.db", "mine.txt", "link.db"):
        command("snapshot", name).says("already exists", code=2)
    assert (tmp_path / "mine.txt").read_text() == "mine"
