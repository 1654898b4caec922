"""Power cuts: no acknowledged webhook is lost, and all files are complete or missing.

`make powercuts` makes a long run.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from nftsync import __version__
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.store.schema import open_store
from tests.nightly.powercuts import left_by, recorded, run_seed
from tests.nightly.recorded_disk import Disk, How, can_record
from tests.versions.make_databases import unpacked

pytestmark = pytest.mark.skipif(
    not can_record(), reason="strace is not there, or may trace nothing here"
)

COPIES = """
from nftsync.cli import main
database, data = sys.argv[1:]
for words in (["snapshot", data + "/copy.db"], ["export", data + "/tables", "--format", "csv"],
              ["backup", data + "/backups"]):
    try:
        main([*words, "-d", database])
    except SystemExit as ended:
        assert ended.code == 0
from pathlib import Path
with whole_files.whole_file(Path(data) / "page.html", replace=True) as partial:
    partial.write_text("new" * 5000)
"""
OPEN = """
from pathlib import Path
from nftsync.store.schema import open_store
open_store(Path(sys.argv[1])).close()
"""


def test_acknowledged_webhooks_survive_and_the_mirror_is_consistent() -> None:
    figures, fault = run_seed(seed=1, webhooks=90, cuts=90)
    assert fault is None
    assert figures["answered"] >= 90
    assert figures["syncs"] >= 30
    assert figures["torn"] >= 5


def test_the_cuts_find_webhooks_that_are_answered_before_a_sync() -> None:
    """Otherwise, cuts without any loss would pass."""
    mistake = "webhooks are answered before they are synced"
    _, fault = run_seed(seed=2, webhooks=40, cuts=200, mutation=mistake)
    assert fault is not None
    assert "answered 200 are lost" in fault


def cuts(disk: Disk, number: int) -> list[tuple[int, How, random.Random]]:
    """Return random moments and ways, some after a sync, and the end without unsynced writes."""
    rng = random.Random(5)
    chosen = [(rng.randrange(disk.end), rng.choice(get_args(How)), rng) for _ in range(number)]
    after = [(rng.choice(disk.syncs), "none", rng) for _ in range(number // 4)]
    return [*chosen, *after, (disk.end, "none", rng)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path.resolve()


def copied(folder: Path, mutation: str = "") -> tuple[Disk, Path]:
    """Record the commands that write files at once."""
    database = folder / "nftsync.db"
    with SandboxServer(lambda url: generate(wallets=3, nfts=5, seed=2, image_base=url)) as provider:
        import nftsync

        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
    (folder / "data" / "page.html").write_text("old" * 5000)
    return recorded(folder, COPIES, database, folder / "data", mutation=mutation), folder / "data"


def halves(left: Path, whole: Path, *, all_there: bool) -> list[str]:
    """Return partial files, and at the end also missing ones."""
    found = []
    for path in whole.rglob("*"):
        mine = left / path.relative_to(whole)
        if path.is_file() and (all_there or mine.exists()):
            content = mine.read_bytes() if mine.exists() else b""
            old = path.name == "page.html" and not all_there and content == b"old" * 5000
            if content != path.read_bytes() and not old and path.suffix != ".lock":
                found.append(str(mine))
    tables = left / "tables"
    if tables.exists() and len(list(tables.iterdir())) < len(list((whole / "tables").iterdir())):
        found.append(str(tables))
    return found


def test_copies_exports_and_pages_are_complete_or_missing(folder: Path) -> None:
    disk, whole = copied(folder)
    for at, how, rng in cuts(disk, 120):
        left = left_by(disk, at, how, rng, folder / "left")
        assert not halves(left, whole, all_there=at == disk.end), (at, how)


def test_the_cuts_find_files_that_are_renamed_before_a_sync(folder: Path) -> None:
    disk, whole = copied(folder, "files get their names before they are synced")
    assert any(
        halves(left_by(disk, at, how, rng, folder / "left"), whole, all_there=at == disk.end)
        for at, how, rng in cuts(disk, 120)
    )


def test_a_migration_leaves_the_old_or_the_new_database_and_a_complete_copy(folder: Path) -> None:
    database = folder / "data" / "nftsync.db"
    unpacked("0.5.0", database)
    with closing(sqlite3.connect(database)) as connection:
        connection.executemany(
            "INSERT INTO tokens"
            " (token_id, name, first_seen_at, updated_at, sequence, changed_sequence)"
            " VALUES (?, hex(zeroblob(900)), '', '', 1, 1)",
            [(f"t{number}",) for number in range(100)],
        )
        connection.commit()
    disk = recorded(folder, OPEN, database)
    tokens = "SELECT count(*) FROM tokens WHERE token_id LIKE 't%'"
    for at, how, rng in cuts(disk, 60):
        left = left_by(disk, at, how, rng, folder / "left")
        copy = left / f"nftsync.db.before-{__version__}"
        assert copy.exists() or at < disk.end
        if copy.exists():
            with closing(sqlite3.connect(copy)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                assert connection.execute(tokens).fetchone() == (100,)
        with closing(open_store(left / "nftsync.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert connection.execute(tokens).fetchone() == (100,)
