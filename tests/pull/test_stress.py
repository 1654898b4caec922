"""A writing thread, frames read in a loop beside it, and a second process that writes as well."""

from __future__ import annotations

import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pytest

import nftsync
from nftsync import frames
from nftsync.sandbox.server import SandboxServer
from tests.kit.processes import start_process
from tests.kit.worlds import PATIENCE, listed, mirrored, replayed

#: The other process: replay's place is taken by direct applications of reads to other wallets.
OTHER = """
import sys
from pathlib import Path
from nftsync.records import WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now

with Mirror(Path(sys.argv[1])) as mirror:
    for turn in range(40):
        read = WalletRead(
            wallet_id="99999999-9999-4999-8999-999999999999", sequence=mirror.numbers.take(),
            started_at=now(), outcome="ok", digest=str(turn),
            entries=[(f"99999999-9999-4999-8999-{n:012}", str(turn), None) for n in range(20)],
        )
        with mirror.transaction() as transaction:
            (applied,) = transaction.apply([read])
        assert applied.result == "ok"
"""


# The newest change may belong to the sync that is running.
@pytest.mark.filterwarnings("ignore:.* is within sync:nftsync.NftsyncWarning")
def test_readers_and_writers_in_two_processes_lose_nothing(
    sandbox: SandboxServer, database: Path
) -> None:
    wallets = sandbox.world.wallets()
    held = listed(sandbox.world)

    def one_turn(turn: int) -> None:
        """Give all tokens of a wallet one amount, a new one each turn, as name too; read them."""
        for wallet, token in held:
            amount = str(turn * 1000 + wallets.index(wallet))
            sandbox.world.set_amount(wallet, token, amount)
            sandbox.world.edit_metadata(token, {"name": amount})
        nftsync.sync(wallets, base_url=sandbox.url, database=database, progress=False)

    one_turn(0)
    other = start_process([sys.executable, "-c", OTHER, str(database)])
    with ThreadPoolExecutor(1) as pool, closing(sqlite3.connect(database)) as connection:
        writer = pool.submit(lambda: list(map(one_turn, range(1, 4))))
        for way in cycle((database, connection)):
            now = frames.holdings(way)
            then = frames.holdings(way, as_of=now["balance_updated_at"].max())
            # A transaction is visible completely or not at all.
            for holdings in (now, then):
                assert set(holdings.groupby("wallet_id")["amount_text"].nunique()) == {1}
                one = holdings.drop_duplicates("token_id", keep=False).dropna(subset="name")
                assert (one["name"] == one["amount_text"]).all()
                assert len(one) > 100  # the other tokens are in several wallets
            if writer.done():
                break
        writer.result()
    assert other.wait(PATIENCE) == 0
    last = frames.holdings(database, wallet="99999999-9999-4999-8999-999999999999")
    assert set(last["amount"]) == {39}
    assert len(last) == 20
    for number, wallet in enumerate(wallets):
        assert set(frames.holdings(database, wallet=wallet)["amount"]) == {3_000 + number}
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert replayed(database) == mirrored(database)
    changes = frames.changes(database)
    assert len(changes[changes["wallet_id"] == "99999999-9999-4999-8999-999999999999"]) == 40 * 20
