"""An analyst's question, answered three ways: what did a wallet hold on a day, and who says so?"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import nftsync
from nftsync import frames
from nftsync.sandbox.server import SandboxServer
from nftsync.times import now


def evidence(database: Path, wallet: str, at: str) -> dict:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nftsync", "evidence", wallet, "--at", at),
            *("--json", "-d", str(database)),
        ],
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


#: The question in SQL alone, over the tables of the contract.
QUERY = """
SELECT token_id, new_amount FROM (
    SELECT token_id, new_amount, max(change_id) FROM balance_changes
    WHERE wallet_id = :wallet AND observed_at <= :at GROUP BY token_id
) WHERE new_amount IS NOT NULL
"""


def test_three_ways_give_one_answer_and_say_what_proves_it(
    provider: SandboxServer, database: Path
) -> None:
    wallet, other = provider.world.wallets()[:2]

    def sync() -> None:
        nftsync.sync([wallet, other], base_url=provider.url, database=database, progress=False)

    before_all = now()
    sync()
    between_same = now()
    sync()
    before_move = now()
    token = json.loads(provider.world.balances_body(wallet))["nftTokenBalances"][0]
    provider.world.transfer(wallet, other, token["tokenId"], 1)
    sync()
    after_all = now()

    for at, certainty in [
        (between_same, "bracketed"),
        (before_move, "gap"),
        (after_all, "open"),
    ]:
        said = evidence(database, wallet, at)
        frame = frames.holdings(database, wallet=wallet, as_of=at)
        with closing(sqlite3.connect(database)) as connection:
            rows = connection.execute(QUERY, {"wallet": wallet, "at": at}).fetchall()
            reads = connection.execute(
                "SELECT first_read_at, last_read_at FROM wallet_states WHERE wallet_id = ?"
                " ORDER BY first_read_at",
                (wallet,),
            ).fetchall()
        by_frame = dict(zip(frame["token_id"], frame["amount_text"], strict=True))
        assert by_frame == dict(rows)
        assert by_frame == {x["token_id"]: x["amount"] for x in said["holdings"]}
        assert said["certainty"] == certainty
        assert set(frame["certainty"]) == {certainty}
        proofs = {moment for row in reads for moment in row}
        assert said["confirmed_before"] in proofs
        assert said["confirmed_before"] <= at
        if certainty == "open":
            assert said["confirmed_after"] is None
        else:
            assert said["confirmed_after"] in proofs
            assert said["confirmed_after"] > at

    unknown = evidence(database, wallet, before_all)
    assert unknown["certainty"] == "unknown"
    assert unknown["holdings"] == []
    assert unknown["confirmed_before"] is None
    assert len(frames.holdings(database, wallet=wallet, as_of=before_all)) == 0
