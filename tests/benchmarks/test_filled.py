"""Databases that are made large: as if nftsync itself had filled them."""

import sqlite3
from contextlib import closing

import nftsync
from benchmarks.filled import multiply
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer


def test_a_multiplied_database_is_sound_and_knows_its_wallets(tmp_path):
    original, large = tmp_path / "original.db", tmp_path / "large.db"
    world = generate(wallets=6, nfts=4, seed=1)
    with SandboxServer(world) as server:
        known = {"base_url": server.url, "wallets": world.wallets(), "progress": False}
        nftsync.sync(**known, database=original)
        multiply(original, large, 5)
        again = nftsync.sync(**known, database=large)
    assert (again.wallets.ok, again.wallets.unchanged) == (6, 6)
    assert (again.balances.added, again.tokens.added) == (0, 0)
    with closing(sqlite3.connect(large)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for table, count in (("wallets", 30), ("balances", 120), ("balance_changes", 120)):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)
        numbers = connection.execute("SELECT wallet_no FROM wallets ORDER BY 1").fetchall()
        word = connection.execute("SELECT name FROM tokens LIMIT 1").fetchone()[0].split()[0]
        found = connection.execute("SELECT rowid FROM tokens_fts(?)", (f'"{word}"',)).fetchall()
    assert len(numbers) == len(set(numbers)) == 30
    assert len(found) >= 5
