"""Short runs of damaged databases, faulty networks, kills and power cuts; `make` runs long ones."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import nftsync
from nftsync.store.schema import open_store
from tests.kit.faults import GOOD
from tests.kit.forward_proxy import AT_ONCE, WITHIN, Fault, Relay
from tests.kit.provider import reply, wallet
from tests.nightly import flips, powercuts, watch_kills
from tests.nightly.network import run_service, run_syncs, struck
from tests.nightly.recorded_disk import can_record
from tests.nightly.rounds import sandbox
from tests.versions.make_databases import unpacked


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Iterator[tuple[Path, str]]:
    with sandbox(4, 30, 3) as server:
        path = tmp_path_factory.mktemp("original") / "original.db"
        yield flips.make_database(path, server), server.url


@pytest.mark.parametrize("seeds", [range(4), [4, 5, 31]])
def test_a_damaged_database_causes_no_traceback_and_is_found(original, tmp_path, seeds):
    damaged = 0
    for seed in seeds:
        (folder := tmp_path / str(seed)).mkdir()
        damaged += flips.run_seed(seed, folder, *original)["damaged"]
    assert damaged


@pytest.mark.parametrize("seed", range(4))
def test_after_syncs_over_a_faulty_network_the_mirror_is_correct(seed, tmp_path):
    assert struck(run_syncs(seed, tmp_path)) >= 10


def test_tls_detects_changed_bytes(certificates, tmp_path):
    files = certificates.ca, certificates.server
    assert struck(run_syncs(1, tmp_path, certificates=files)) >= 10


def test_a_service_over_a_faulty_network_has_a_correct_mirror_in_the_end(tmp_path):
    figures = run_service(1, tmp_path, seconds=1.0, least=6)
    assert figures["webhooks"] > 4


def test_check_ends_in_a_line_for_each_fault_of_the_network(lying, command):
    lying.always(reply(GOOD))
    for kind in (*AT_ONCE, *WITHIN):
        fault = Fault(kind, 30)
        with Relay(lying.url, lambda fault=fault: fault) as relay:
            base = ("--base-url", relay.url, "--timeout", "0.3", "--retries", "1")
            done = command("check", wallet(1), *base)
        assert (done.code == 0) == (kind == "late"), (kind, done.said)
        assert "Traceback" not in done.said
        assert "API: wallet" in done.out


def test_killed_senders_lose_no_message_and_report_each_change_once(tmp_path):
    figures = watch_kills.run_seed(1, tmp_path, kills=2)
    assert figures["kills"] == 2
    assert figures["forwarded"] >= 1
    assert figures["events"] >= 1


recorded_only = pytest.mark.skipif(
    not can_record(), reason="strace is not there, or may trace nothing here"
)
COPIES = """
from pathlib import Path
database, data = sys.argv[1:]
for words in (["snapshot", data + "/copy.db"], ["export", data + "/tables", "--format", "csv"],
              ["backup", data + "/backups"]):
    try:
        main([*words, "-d", database])
    except SystemExit as ended:
        assert ended.code == 0
with whole_files.whole_file(Path(data) / "page.html", replace=True) as partial:
    partial.write_text("new" * 5000)
"""
OPEN = """
from pathlib import Path
from nftsync.store.schema import open_store
open_store(Path(sys.argv[1])).close()
"""


@recorded_only
def test_acknowledged_webhooks_survive_and_the_mirror_is_consistent():
    figures = powercuts.run_seed(1, webhooks=90, cuts=90)
    assert figures["answered"] >= 90
    assert figures["syncs"] >= 30
    assert figures["torn"] >= 5


@recorded_only
def test_the_cuts_find_webhooks_that_are_answered_before_a_sync():
    """Otherwise, cuts without any loss would pass."""
    with pytest.raises(AssertionError, match="answered 200 are lost"):
        powercuts.run_seed(2, webhooks=40, cuts=200, bug=powercuts.ANSWERED_TOO_EARLY)


def partial_files(left: Path, whole: Path, *, all_there: bool) -> list[str]:
    """Return partial files, and at the end also missing ones."""
    found = []
    for path in whole.rglob("*"):
        mine = left / path.relative_to(whole)
        if path.is_file() and path.suffix != ".lock" and (all_there or mine.exists()):
            content = mine.read_bytes() if mine.exists() else b""
            old = path.name == "page.html" and not all_there and content == b"old" * 5000
            if content != path.read_bytes() and not old:
                found.append(path.name)
    if (tables := left / "tables").exists():
        found += {x.name for x in (whole / "tables").iterdir()} - {x.name for x in tables.iterdir()}
    return found


def cut_copies(folder: Path, bug: str = "") -> list[str]:
    """Cut the power of commands that write files at once; return the partial files."""
    database, data = folder / "nftsync.db", folder / "data"
    data.mkdir()
    with sandbox(3, 5, 2) as provider:
        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
    (data / "page.html").write_text("old" * 5000)
    disk = powercuts.recorded(folder, bug + COPIES, database, data)
    return [
        f"{name} after {cut}"
        for cut in disk.cuts(150, random.Random(5), folder)
        for name in partial_files(cut.left, data, all_there=cut.at == disk.end)
    ]


@recorded_only
def test_copies_exports_and_pages_are_complete_or_missing(tmp_path):
    assert cut_copies(tmp_path.resolve()) == []


@recorded_only
def test_the_cuts_find_files_that_are_renamed_before_a_sync(tmp_path):
    assert cut_copies(tmp_path.resolve(), powercuts.RENAMED_TOO_EARLY)


@recorded_only
def test_a_migration_leaves_the_old_or_the_new_database_and_a_complete_copy(tmp_path):
    database = tmp_path.resolve() / "data" / "nftsync.db"
    unpacked("0.5.0", database)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany(
            "INSERT INTO tokens"
            " (token_id, name, first_seen_at, updated_at, sequence, changed_sequence)"
            " VALUES (?, hex(zeroblob(900)), '', '', 1, 1)",
            [(f"t{number}",) for number in range(100)],
        )
    disk = powercuts.recorded(database.parents[1], OPEN, database)
    for cut in disk.cuts(75, random.Random(5), database.parents[1]):
        copy = cut.left / f"nftsync.db.before-{nftsync.__version__}"
        assert copy.exists() or cut.at < disk.end
        opened = [sqlite3.connect(copy)] if copy.exists() else []
        for connection in (*opened, open_store(cut.left / "nftsync.db")):
            with closing(connection):
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                tokens = "SELECT count(*) FROM tokens WHERE token_id LIKE 't%'"
                assert connection.execute(tokens).fetchone() == (100,)
