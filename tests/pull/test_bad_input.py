"""Unusable input, files and disks: one line with advice, an exit code, and no lost data."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nftsync
from nftsync import frames
from nftsync.errors import SettingsError, StoreError
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit.provider import Peer, Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import Outcome

WALLET = "8d1cc10a-7fbf-42e7-b58d-5110899866aa"
NOBODY = ("--base-url", "http://127.0.0.1:9")
Command = Callable[..., Outcome]


def sync(
    sandbox: SandboxServer, database: Path, wallets: Sequence[str] | None = None, **more: Any
) -> nftsync.SyncResult:
    return nftsync.sync(
        wallets, base_url=sandbox.url, database=database, **{"progress": False, **more}
    )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["sync", *NOBODY], 2, "no wallets"),
        (["sync", *NOBODY, WALLET, "-d", "file"], 1, "not a SQLite database"),
        (["sync", *NOBODY, WALLET, "-d", "file/nftsync.db"], 1, "file/nftsync.db"),
        (["demo", "-d", "file"], 2, "not made by a demo"),
    ],
)
def test_no_file_is_harmed_by_unusable_input(
    command: Command, arguments: list[str], code: int, says: str
) -> None:
    Path("file").write_text("years of work")
    command(*arguments).tells(says, code=code)
    assert Path("file").read_text() == "years of work"


def test_a_read_only_disk_is_named_in_the_error(sandbox: SandboxServer, small_disk: Path) -> None:
    database = small_disk / "nftsync.db"
    wallets = sandbox.world.wallets()[:2]
    sync(sandbox, database, wallets)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="Read-only"):
        sync(sandbox, database, wallets)
    with pytest.raises(StoreError, match="nftsync snapshot"):
        nftsync.frames.holdings(database)


@pytest.mark.parametrize("count", [3, 600])
def test_a_failing_token_command_ends_the_run_with_its_reason(database: Path, count: int) -> None:
    """Also in a process of its own."""
    wallets = [f"00000000-0000-4000-8000-{n:012}" for n in range(count)]
    (database.parent / "nftsync.toml").write_text("token_command = 'sh -c \"exit 7\"'")
    with pytest.raises(SettingsError, match="exit code 7"):
        nftsync.sync(wallets, base_url="http://127.0.0.1:9", database=database, progress=False)
    run = frames.runs(database).iloc[0]
    assert run["status"] == "failed"
    assert "exit code 7" in run["error"]


def test_a_large_sync_imports_nothing_from_the_working_directory(
    sandbox: SandboxServer, database: Path
) -> None:
    (database.parent / "httpx.py").write_text("raise SystemExit('ran a file of the folder')")
    wallets = [*sandbox.world.wallets(), *(f"00000000-0000-4000-8000-{n:012}" for n in range(470))]
    counts = sync(sandbox, database, wallets).wallets
    assert (counts.ok, counts.failed) == (30, 470)


def test_a_wallet_read_with_a_fast_clock_is_read_again(
    sandbox: SandboxServer, database: Path
) -> None:
    wallets = sandbox.world.wallets()
    sync(sandbox, database, wallets)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE wallets SET synced_at = '2999-01-01T00:00:00.000000Z'")
        connection.commit()
    assert sync(sandbox, database, older_than="1h").wallets.ok == len(wallets)


def test_json_is_utf_8_in_any_encoding_of_the_terminal(database: Path) -> None:
    world = World()
    holder = world.add_wallet()
    world.mint(holder, 1, {"name": "\N{ROCKET}"})
    with SandboxServer(world) as server:
        sync(server, database, [holder])
    script = (
        "import sys; from contextlib import suppress; from nftsync.cli import main\n"
        "for more in [], ['--json']:\n with suppress(SystemExit): main(sys.argv[1:] + more)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "holdings", "-d", str(database)],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    )
    assert b"\\U0001f680" in done.stdout
    assert "\N{ROCKET}".encode() in done.stdout


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_database_that_is_removed_or_replaced_during_a_sync_is_an_error(
    database: Path, how: str
) -> None:
    """Writes to a deleted file are not a success."""
    other = database.with_name("other.db")
    other.touch()

    def answer(peer: Peer) -> bool:
        if how == "removed":
            database.unlink()
        else:
            other.rename(database)
        return reply(balances(entry(token(1))))(peer)

    with Provider() as lying:
        lying.always(answer)
        with pytest.raises(StoreError, match=r"nftsync\.db was moved, removed or replaced"):
            nftsync.sync(wallets=[wallet(1)], base_url=lying.url, database=database)
