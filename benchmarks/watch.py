"""Cost of alerts: beside a first sync, with a destination that is down, for many changes at once.

    python -m benchmarks.watch [first down burst blocked] [--small]

Variants take turns. Each line shows two medians, and the median of the ratios of each turn. The
provider is the sandbox, in a process of its own; its processor time does not count.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

from benchmarks import commands
from benchmarks.webhooks import configure, transfer
from nftsync.settings import load
from nftsync.store.mirror import Mirror
from nftsync.store.outbox import Message, add, due_messages
from nftsync.times import now
from nftsync.watch.service import plan_continuously, watch_config

#: Names of measurements, the units, the values, and the values that they are compared with.
Measures = Iterator[tuple[str, Sequence[str], Sequence[float], Sequence[float]]]

_ONE = {"movements": ["sent", "received"]}
_FOUR = _ONE | {
    "trades": ["transfer", "amount"],
    "art": ["metadata"],
    "health": ["wallet_stale", "wallet_failed", "sync_failed", "removals_held"],
}


#: Of a command and its child processes; memory of the largest one.
_SPENT = ("s", "processor s", "MB")


def run(*arguments: str | Path) -> tuple[float, float, float]:
    """Run a command of nftsync; return `_SPENT`."""
    command = commands.program(*arguments)
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, arguments
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def write_settings(folder: Path, urls: dict[str, str], rules: dict[str, list[str]]) -> None:
    """Write the settings of later commands; each rule reports to all destinations."""
    text = ""
    for name, url in urls.items():
        os.environ[f"NFTSYNC_DESTINATIONS_{name.upper()}_SECRET"] = f"whsec_{'MDAw' * 8}"
        text += f'[destinations.{name}]\nkind = "webhook"\nurl = "{url}"\n'
    for name, kinds in rules.items():
        text += f"[watch.{name}]\non = {json.dumps(kinds)}\nto = {json.dumps([*urls])}\n"
    (folder / "nftsync.toml").write_text(text)


def copied(database: Path, name: str) -> Path:
    Path(f"{database.with_name(name)}-wal").unlink(missing_ok=True)
    return shutil.copyfile(database, database.with_name(name))


# Beside a first sync -----------------------------------------------------------------------------


def first(folder: Path, *, small: bool) -> Measures:
    wallets, nfts, rounds = (30, 3, 1) if small else (5_000, 20, 3)
    write_settings(folder, {"ops": "http://127.0.0.1:9/"}, _FOUR)
    empty, ids = folder / "empty.db", folder / "wallets.txt"
    Mirror(empty).close()
    run("watch", "-d", empty)  # the rules start before all changes
    with commands.sandbox(wallets, nfts) as base:
        commands.sync(base, ids.with_suffix(".db"))  # warms up, and writes the ids
        sync = ("sync", "--base-url", base, "--wallets-file", ids, "-d")
        for _ in range(rounds):
            alone, database = run(*sync, copied(empty, "alone.db")), copied(empty, "planned.db")
            # As `serve` plans, with its modules loaded.
            fork = multiprocessing.get_context("fork")
            stopped, config = fork.Event(), watch_config(load())
            planner = fork.Process(target=plan_continuously, args=(database, config, stopped))
            planner.start()
            beside, before = run(*sync, database), sum(os.times()[2:4])
            time.sleep(5)  # until the last changes are planned, too
            stopped.set()
            planner.join()
            cpu = sum(os.times()[2:4]) - before  # of ended child processes
            yield "first sync beside four rules", _SPENT[:2], (beside[0], beside[1] + cpu), alone
            database = copied(empty, "cron.db")
            synced, watched = run(*sync, database), run("watch", "-d", database)
            both = synced[0] + watched[0], synced[1] + watched[1]
            yield "first sync && watch", _SPENT[:2], both, alone


# A destination that is down ----------------------------------------------------------------------


def consumer(port: int) -> list[bytes]:
    """Start a destination that accepts each message; return the bodies, as they arrive."""
    bodies: list[bytes] = []

    class Consumer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.wfile.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    server = ThreadingHTTPServer(("127.0.0.1", port), Consumer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return bodies


def add_messages(database: Path, number: int, wallets: int) -> None:
    """Add messages to `down`, of wallets in turn."""
    body = {"type": "holding.sent", "timestamp": now(), "data": {"name": "n" * 300}}
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        for n in range(number):
            text = json.dumps(body | {"number": n}).encode()
            message = Message(f"msg_{n:032x}", "movements", "down", text, [f"wallet {n % wallets}"])
            add(transaction.connection, [message], now())


def delay(base: str, wallets: list[str], transfers: int) -> float:
    """Return the median of the seconds from transfers, three a second, until their messages."""
    at, waits = dict[str, float](), dict[str, float]()
    for giver, taker in zip(wallets[:transfers], wallets[transfers:], strict=False):
        at[transfer(base, giver, taker)] = time.time()  # before the transfer
        time.sleep(0.33)
    while len(waits) < 0.9 * len(at):  # a digest does not show all
        time.sleep(0.5)
        with urlopen(f"{base}/sandbox/consumer/good") as response:
            for record in json.load(response):
                arrived = datetime.fromisoformat(record["at"]).timestamp()
                seconds = {token: arrived - at[token] for token in at if token in record["body"]}
                waits = {token: wait for token, wait in seconds.items() if wait > 0} | waits
    return statistics.median(waits.values())


def catch_up(database: Path, port: int, wallets: int) -> None:
    """Start the destination, and print how its messages arrive."""
    left = "SELECT count(*) FROM messages WHERE destination = 'down' AND state <> 'done'"
    bodies = consumer(port)
    while not bodies:
        time.sleep(0.1)
    began = time.perf_counter()
    with closing(sqlite3.connect(database)) as connection:
        while connection.execute(left).fetchone()[0]:
            time.sleep(0.1)
    seconds = time.perf_counter() - began
    numbers = [one["number"] for body in bodies if "number" in (one := json.loads(body))]
    by_wallet = sorted(numbers, key=lambda number: number % wallets)  # keeps their order
    in_order = by_wallet == sorted(numbers, key=lambda number: (number % wallets, number))
    print(f"  up again: {len(numbers)} messages in {seconds:.0f} s, in order: {in_order}")


#: Measured beside a destination that is down; the delay is the other destination's.
_DOWN = ("ms p99 of the receiver", "s for a sync", "s from a transfer to its message")


def down(folder: Path, *, small: bool) -> Measures:
    number, wallets, rounds = (200, 40, 1) if small else (20_000, 500, 3)
    others: tuple[float, ...] = ()
    with commands.sandbox(wallets, 20) as base:
        plain, full = folder / "plain.db", folder / "full.db"
        commands.sync(base, plain)
        add_messages(copied(plain, full.name), number, wallets)
        port, known = commands.free_port(), commands.wallets_of(plain)
        good = {"good": f"{base}/sandbox/consumer/good"}
        for turn in range(2 * rounds):
            urls = good | ({"down": f"http://127.0.0.1:{port}/"} if turn % 2 else {})
            write_settings(folder, urls, _ONE)
            database = copied(full if turn % 2 else plain, "trial.db")
            with commands.serving(base, database) as url:
                configure(base, url)
                bodies = [commands.webhook("Wallet", wallet) for wallet in 3 * known]
                waits = commands.post_all(url, bodies, 100)
                with closing(sqlite3.connect(database, isolation_level=None)) as connection:
                    connection.execute("UPDATE wallets SET body_sha256 = NULL, etag = NULL")
                synced, *_ = run("sync", "--base-url", base, "-d", database)
                values = (
                    1000 * sorted(waits)[len(waits) * 99 // 100],
                    synced,
                    delay(base, known, 30),
                )
                if turn == 2 * rounds - 1:
                    catch_up(database, port, wallets)
            if turn % 2:
                yield "a destination is down, a week pending", _DOWN, values, others
            others = values


# Many changes at once, and many blocked messages -------------------------------------------------

_CHANGE = """INSERT INTO balance_change_rows
    (wallet_no, token_no, old_amount, new_amount, observed_at, baseline)
    SELECT {}, ?1, 0 FROM balance_rows LIMIT ?2"""
_SIDES = "wallet_no, token_no, amount, NULL", "wallet_no % 500 + 1, token_no, NULL, amount"


def burst(folder: Path, *, small: bool) -> Measures:
    """Plan and send messages about the losses and gains of many transfers at once."""
    original, (few, many) = folder / "original.db", (100, 200) if small else (1_000, 100_000)
    with commands.sandbox(2_500, 20) as base:
        commands.sync(base, original)
        urls = {name: f"{base}/sandbox/consumer/{name}" for name in ("one", "two")}
        write_settings(folder, urls, dict([*_FOUR.items()][:2]))
        run("watch", "-d", original)
        for _ in range(1 if small else 3):
            spent = []
            for size in (few, many):
                database = copied(original, "copy.db")
                with closing(sqlite3.connect(database, isolation_level=None)) as connection:
                    for side in _SIDES:
                        connection.execute(_CHANGE.format(side), (now(), size // 2))
                    used = run("watch", "-d", database)
                    sent = connection.execute("SELECT count(*) FROM messages").fetchone()
                    spent.append((*used, *sent))
            yield f"watch, {many:,} changes ({few:,})", (*_SPENT, "messages"), spent[1], spent[0]


def blocked(folder: Path, *, small: bool) -> Measures:
    """Find the due message of one wallet behind many of another, whose first one is stuck."""
    times = []
    for size in (10, 1_000 if small else 100_000):
        add_messages(database := folder / f"{size}.db", size, 1)
        with Mirror(database) as mirror, mirror.transaction() as transaction:
            connection = transaction.connection
            connection.execute("UPDATE messages SET state = 'running' WHERE message_no = 1")
            add(connection, [Message("msg_", "movements", "down", b"{}", ["wallet 2"])], now())
            began = time.perf_counter()
            assert due_messages(connection, "down", now(), 8) == [size + 1]
            times.append(1000 * (time.perf_counter() - began))
    yield f"due message behind {size:,} blocked ones (10)", ["ms"], (times[1],), (times[0],)


def main() -> None:
    trials = {"first": first, "down": down, "burst": burst, "blocked": blocked}
    for name in [name for name in sys.argv[1:] if name in trials] or trials:
        found: dict[str, list[tuple[float, float]]] = {}
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NFTSYNC_CONFIG"] = f"{folder}/nftsync.toml"
            write_settings(Path(folder), {}, {})
            for what, units, *both in trials[name](Path(folder), small="--small" in sys.argv):
                for unit, value, other in zip(units, *both, strict=False):
                    found.setdefault(f"{what}, {unit}", []).append((value, other))
        for line, pairs in found.items():
            value, other = map(statistics.median, zip(*pairs, strict=True))
            ratio = statistics.median(one / two for one, two in pairs)
            print(f"{line}: {value:.2f} ({other:.2f}), ratio {ratio:.3f}", flush=True)
        print(f"load average {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
