"""nftsync in a plain script, timed until COUNT wallets are stored; the others may fail.

python ours_until_stored.py BASE_URL WALLETS_FILE DATABASE COUNT RETRIES
"""

import json
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import sqlite_utils  # noqa: F401 - which `sync` imports for a new database

from nftsync import sync

base, wallets, database, count, retries = sys.argv[1:]
stored: list[float] = []


def watch() -> None:
    """Note when the last of these wallets was stored."""
    while not Path(database).exists():
        time.sleep(0.02)
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        while True:
            try:
                (read,) = connection.execute("SELECT max(wallets_ok) FROM sync_runs").fetchone()
            except sqlite3.OperationalError:  # the file is only just being made
                read = 0
            if (read or 0) >= int(count):
                stored.append(time.perf_counter())
                return
            time.sleep(0.05)


watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
began = time.perf_counter()
result = sync(
    wallets_file=wallets,
    base_url=base,
    database=database,
    retries=int(retries),
    progress=False,
)
ended = time.perf_counter()
watcher.join(5)
if result.wallets.ok != int(count) or not stored:
    raise SystemExit(f"{result.wallets.ok} wallets were read: {result.failures[:3]}")
found = {"seconds": stored[0] - began, "until_the_end": ended - began, "requests": result.requests}
print(json.dumps(found))
