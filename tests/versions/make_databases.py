"""Make the database of an earlier version that stands beside this file, with that version.

The commands of a checkout of its commit make it, against that checkout's own sandbox: two syncs,
labels and groups, transfers, changed metadata, webhooks and held removals. By hand:

    git worktree add --detach /tmp/nftsync-0.5.0 74803b2
    .venv/bin/python -m tests.versions.make_databases 0.5.0 /tmp/nftsync-0.5.0
    git worktree remove --force /tmp/nftsync-0.5.0
"""

import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

#: A version from before the first one for users, whose database is refused.
REFUSED = "0.4.0"

SECRET = "a secret of the tests, and of nothing else"
BOUND = 60.0
CUSTOMERS = 5


def packed(version: str) -> Path:
    """Return the file of a version's database, compressed."""
    return Path(__file__).with_name(f"{version}.db.gz")


def unpacked(version: str, path: Path) -> Path:
    """Write a version's database to a path, and return that."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.decompress(packed(version).read_bytes()))
    return path


class Version:
    """The commands of a checkout, on one database."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "nftsync.db"
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(checkout),
            "PYTHONWARNINGS": "ignore",
            "NFTSYNC_DATABASE": str(self.database),
            "NFTSYNC_WEBHOOK_SECRET": SECRET,
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "nftsync", *words]

    def run(self, *words: str, codes: tuple[int, ...] = (0,), **more: str) -> str:
        done = subprocess.run(
            self.command(*words),
            env=self.environment | more,
            cwd=self.folder,
            text=True,
            capture_output=True,
        )
        if done.returncode not in codes:
            raise SystemExit(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    @contextmanager
    def running(self, *words: str) -> Iterator[None]:
        with subprocess.Popen(
            self.command(*words), env=self.environment, cwd=self.folder
        ) as process:
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(BOUND)

    def rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query).fetchall()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, up to a generous bound."""
    ends = time.monotonic() + BOUND
    while not condition():
        if time.monotonic() > ends:
            raise SystemExit("it did not come")
        time.sleep(0.1)


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def history(version: Version, port: int) -> None:
    """A small organization's history: what each table has rows of."""
    provider = f"http://127.0.0.1:{port}"
    version.environment["NFTSYNC_BASE_URL"] = provider

    @contextmanager
    def sandbox(*world: str) -> Iterator[None]:
        with version.running("sandbox", "--port", str(port), *world):
            until(lambda: answers(f"{provider}/sandbox/wallets"))
            yield

    def write_world(name: str, lists: dict[str, Any]) -> str:
        file = version.folder / name
        worlds = [{"walletId": wallet, "nftTokenBalances": lists[wallet]} for wallet in lists]
        file.write_text("\n".join(map(json.dumps, worlds)))
        return str(file)

    with sandbox("--wallets", str(CUSTOMERS + 1), "--nfts", "4", "--seed", "5"):
        treasury, *customers = sorted(ask(f"{provider}/sandbox/wallets"))
        lines = [f"{treasury},Treasury,house"]
        lines += [f"{wallet},Customer {n},customers" for n, wallet in enumerate(customers, 1)]
        file = version.folder / "wallets.csv"
        file.write_text("\n".join(["wallet_id,label,group", *lines]))
        version.run("sync", "--wallets-file", str(file), "--tokens")
        lists = {
            wallet: ask(f"{provider}/v1/wallets/{wallet}/nft-balances")["nftTokenBalances"]
            for wallet in (treasury, *customers)
        }
    moved, renamed, sold, *_ = lists[treasury]
    lists[treasury].remove(moved)
    of_one = [entry for entry in lists[customers[0]] if entry["tokenId"] != moved["tokenId"]]
    lists[customers[0]] = [*of_one, moved]
    for entry in (entry for entries in lists.values() for entry in entries):
        if entry["tokenId"] == renamed["tokenId"]:
            entry["token"]["metadata"]["name"] = "Renamed"
    with sandbox("--world", write_world("changed.jsonl", lists)):
        version.run("sync", "--tokens")
        parties = {"fromWalletId": treasury, "toWalletId": customers[1]}
        sale = {**parties, "tokenId": sold["tokenId"], "amount": sold["amount"]}
        receive(version, provider, port + 1, sale)
    with sandbox("--world", write_world("empty.jsonl", {wallet: [] for wallet in customers})):
        version.run("sync", *customers, codes=(1,), NFTSYNC_REMOVAL_ROWS="1")


def receive(version: Version, provider: str, port: int, sale: dict[str, str]) -> None:
    """Webhooks of a sale, and one without a route."""
    receiver = f"http://127.0.0.1:{port}"
    with version.running("serve", "--port", str(port)):
        until(lambda: answers(f"{receiver}/healthz"))
        types = ("--type", "nft", "--type", "transaction")
        url = ("--url", f"{receiver}/webhooks", "--enable", "--send-secret", "--yes")
        version.run("webhook-config", *types, *url)
        ask(f"{provider}/sandbox/transfer", sale)
        emitted = {
            "type": "transaction",
            "resourceType": "Transaction",
            "resourceId": "0f0f0f0f-0000-4000-8000-00000000aaaa",
            "action": "Created",
        }
        ask(f"{provider}/sandbox/emit", emitted)
        counts = "SELECT state, count(*) FROM webhooks GROUP BY state"
        until(lambda: dict(version.rows(counts)) == {"done": 2, "unrouted": 1})


def main(name: str, checkout: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        version = Version(checkout, Path(folder))
        history(version, 28_788)
        small = Path(folder, "small.db")
        version.rows(f"VACUUM INTO '{small}'")
        with closing(sqlite3.connect(small)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # as the file that is in use has it
        made = packed(name)
        made.write_bytes(gzip.compress(small.read_bytes(), mtime=0))
        print(f"{made}: {made.stat().st_size:,} bytes of {small.stat().st_size:,}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
