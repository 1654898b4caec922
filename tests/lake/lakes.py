"""What the tests of lakes have in common: data of a provider, messages, and stopped processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nftsync.lake.bucket import bucket_of
from nftsync.lake.copies import export_lake, import_database
from tests.kit.lake_cluster import Amounts, environment
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import Outcome
from tests.lake.conftest import BUCKETS


def show(
    provider: Provider, wallets: Sequence[str], amount: str = "1", count: int = 1, **fields: Any
) -> Amounts:
    """Let each wallet hold some tokens of its own; return the amounts."""
    amounts = {}
    for number, each in enumerate(wallets):
        own = [token(count * number + place) for place in range(count)]
        provider.holds(each, *(entry(one, amount, **fields) for one in own))
        amounts |= {(each, one): amount for one in own}
    return amounts


def path_of(wallet_id: str) -> str:
    """Return the path of the requests for a wallet."""
    return f"/v1/wallets/{wallet_id}/nft-balances"


def wallets_of(bucket: int, count: int) -> list[str]:
    """Return some wallets of a bucket."""
    every = [each for each in map(wallet, range(200)) if bucket_of(each, BUCKETS) == bucket]
    return every[:count]


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """Check that a command ended with one line, which has some words."""
    assert (outcome.code, outcome.err.count("\n")) == (code, 1), outcome.said
    assert [word for word in words if word not in outcome.err] == [], outcome.err
    assert len(outcome.err) < 700


def lake_of(database: Path, folder: Path, buckets: int = BUCKETS) -> str:
    """Make a lake from a database, without a cluster."""
    import_database(database, str(folder), buckets=buckets)
    return str(folder)


def one_file(url: str, path: Path) -> Path:
    """Export the last run of a lake."""
    export_lake(url, path)
    return path


#: Runs code on the lake `url`, and ends by a signal after some changes of files below a folder.
_STOPPED = """
import os, sys, threading, time
url, code, number, least, below = *sys.argv[1:3], *map(int, sys.argv[3:5]), sys.argv[5]
def listed():
    return {(folder, name) for folder, _, names in os.walk(url) for name in names
            if below in folder}
def watch():
    known, seen = listed(), 0
    while seen < least:
        found = listed()
        seen += len(found ^ known)
        known = found
        time.sleep(0.001)
    os.kill(os.getpid(), number)
threading.Thread(target=watch, daemon=True).start()
exec(code)
"""


def stopped(code: str, url: str, number: int, changes: int, below: str = "") -> int:
    """Run code until some files of a lake have changed; return the exit code."""
    words = [sys.executable, "-c", _STOPPED, url, code, str(int(number)), str(changes), below]
    return subprocess.run(
        words, env=environment(), check=False, stderr=subprocess.DEVNULL
    ).returncode
