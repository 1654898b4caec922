"""Two processes write a mirror while frames read it."""

import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle

import pytest

import nftsync
from nftsync import frames
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.processes import start_process
from tests.kit.provider import wallet
from tests.kit.worlds import PATIENCE, listed, mirrored, replayed

#: As a replay does, another process applies reads of a wallet.
OTHER = f"""
import sys
from pathlib import Path
from nftsync.records import WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now

with Mirror(Path(sys.argv[1])) as mirror:
    for turn in range(40):
        read = WalletRead(
            wallet_id="{wallet(99)}", sequence=mirror.numbers.take(),
            started_at=now(), outcome="ok", digest=str(turn),
            entries=[(f"99999999-9999-4999-8999-{{n:012}}", str(turn), None) for n in range(20)],
        )
        with mirror.transaction() as transaction:
            (applied,) = transaction.apply([read])
        assert applied.result == "ok"
"""


# The newest change may belong to the sync that is running.
@pytest.mark.filterwarnings("ignore:.* is within sync:nftsync.NftsyncWarning")
def test_frames_see_whole_transactions_of_two_writing_processes_which_lose_nothing(database):
    with SandboxServer(generate(wallets=30, nfts=8, seed=3)) as server:
        wallets = server.world.wallets()

        def sync_turn(turn: int) -> None:
            """Give all tokens of a wallet a new amount, also as name; sync."""
            for wallet_id, token_id in listed(server.world):
                amount = str(turn * 1000 + wallets.index(wallet_id))
                server.world.set_amount(wallet_id, token_id, amount)
                server.world.edit_metadata(token_id, {"name": amount})
            nftsync.sync(wallets, base_url=server.url, database=database, progress=False)

        sync_turn(0)
        other = start_process([sys.executable, "-c", OTHER, str(database)])
        with ThreadPoolExecutor(1) as pool, closing(sqlite3.connect(database)) as connection:
            writer = pool.submit(lambda: list(map(sync_turn, range(1, 4))))
            for way in cycle((database, connection)):
                now = frames.holdings(way)
                then = frames.holdings(way, as_of=now["balance_updated_at"].max())
                for holdings in (now, then):
                    assert set(holdings.groupby("wallet_id")["amount_text"].nunique()) == {1}
                    single = holdings.drop_duplicates("token_id", keep=False).dropna(subset="name")
                    assert (single["name"] == single["amount_text"]).all()
                    assert len(single) > 100  # the other tokens are in several wallets
                if writer.done():
                    break
            writer.result()
    assert other.wait(PATIENCE) == 0
    amounts = {wallet_id: 3_000 + number for number, wallet_id in enumerate(wallets)}
    last = frames.holdings(database).groupby("wallet_id")["amount"].agg(["min", "max", "size"])
    for wallet_id, amount in (amounts | {wallet(99): 39}).items():
        assert [*last.loc[wallet_id, ["min", "max"]]] == [amount, amount]
    assert last.loc[wallet(99), "size"] == 20
    assert replayed(database) == mirrored(database)
    assert len(frames.changes(database, wallet=wallet(99))) == 40 * 20
