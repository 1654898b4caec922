"""nftsync in a plain script: one call.

python ours.py BASE_URL WALLETS_FILE DATABASE CONCURRENCY
"""

import json
import sys
import time

import sqlite_utils  # noqa: F401 - which `sync` imports for a new database, and peers up here

from nftsync import sync

base, wallets, database, concurrency = sys.argv[1:]
began = time.perf_counter()
result = sync(
    wallets_file=wallets,
    base_url=base,
    database=database,
    concurrency=int(concurrency),
    progress=False,
)
seconds = time.perf_counter() - began
if result.status != "ok":
    raise SystemExit(f"the sync did not go well: {result.failures[:3]}")
print(json.dumps({"seconds": seconds, "requests": result.requests}))
