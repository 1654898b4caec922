"""A plain loop over the wallets with httpx and sqlite-utils, as in a first script.

python plain_loop.py BASE_URL WALLETS_FILE DATABASE [wal]

A second run on the same database updates it. `wal` turns on WAL mode, in which SQLite commits
faster.
"""

import json
import sys
import time
from pathlib import Path

import httpx
import sqlite_utils

base, wallets, database, *wal = sys.argv[1:]
began = time.perf_counter()
db = sqlite_utils.Database(database)
if wal:
    db.enable_wal()
with httpx.Client(base_url=base) as client:
    for wallet in Path(wallets).read_text().split():
        answer = client.get(f"/v1/wallets/{wallet}/nft-balances")
        answer.raise_for_status()
        entries = answer.json()["nftTokenBalances"]
        tokens = []
        for entry in entries:
            token = dict(entry["token"])
            tokens.append(token | token.pop("metadata", {}))
        db["tokens"].upsert_all(tokens, pk="id", alter=True)
        db["balances"].upsert_all(
            (
                {"walletId": wallet, "tokenId": entry["tokenId"], "amount": entry["amount"]}
                for entry in entries
            ),
            pk=("walletId", "tokenId"),
        )
seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "balances": db["balances"].count}))
