"""Kill a `serve` that sends messages at random moments, and compare the received messages.

    python -m tests.nightly.watch_kills --kills 200
    python -m tests.nightly.watch_kills --kills 20 --seed 17     # one seed

A sandbox provider has steady transfers. Four rules and a forward send to three consumers, one of
which fails at random, and to a command. In the end, each change was reported once to each
destination, each stored webhook was forwarded, and the messages of a wallet first came in order.
"""

from __future__ import annotations

import io
import json
import random
import sqlite3
import stat
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import chdir, closing, contextmanager, redirect_stdout
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

import nftsync
from nftsync.sandbox.consumer import ConsumerFault, Slow
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.watch.events import message_id
from tests.kit.reported import (
    Message,
    changes_of,
    check_moves,
    check_once,
    check_received,
    events_of,
    messages_of,
)
from tests.kit.serve_process import Serve, configure, query, serving, wait_until_done
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed, run_command
from tests.nightly.rounds import run_rounds

WALLETS, NFTS = 8, 6
CONSUMERS = ("first", "second", "faulty")
SECRET = "whsec_" + b64encode(bytes(range(32))).decode()
#: Every second or so the faulty consumer draws one of these.
FAULTS: list[ConsumerFault] = [500, "redirect", "close", Slow(retry_after=1), Slow(slow=0.5)]
UNSENT = "SELECT * FROM messages WHERE state NOT IN ('done', 'dead')"

_APPEND = """#!{python} -SE
import os, sys
line = sys.stdin.buffer.read() + b"\\n"
os.write(os.open({path!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), line)
"""

_RULES = """
[destinations.file]
kind = "command"
command = [{append}]
[watch.moves]
on = ["sent", "received"]
to = ["first", "second"]
[watch.arrivals]
on = ["received"]
wallets = {wallets}
to = ["faulty", "file"]
[watch.amounts]
on = ["amount"]
to = ["second", "faulty"]
[watch.metadata]
on = ["metadata"]
to = ["file"]
[forward.all]
to = ["first"]
"""
_CONSUMER = """
[destinations.{name}]
kind = "webhook"
url = "{url}/sandbox/consumer/{name}"
secret_file = "{secret}"
"""


class Received:
    """The requests to consumers, in order, with checked signatures."""

    def __init__(self, server: SandboxServer) -> None:
        self.requests: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        self.forged: list[str] = []
        self._answer = server.consumers.receive
        server.consumers.receive = self._receive  # type: ignore[method-assign]

    def _receive(self, name: str, headers: Mapping[str, str], body: bytes) -> Any:
        self.requests[name].append((headers["webhook-id"], body))
        try:
            Webhook(SECRET).verify(body, {key.lower(): value for key, value in headers.items()})
        except WebhookVerificationError as error:
            self.forged.append(f"{name}: {error}")
        return self._answer(name, headers, body)


class Trade:
    """Steady edits of the provider's world, each of which sends webhooks.

    Attributes:
        serves: set while a `serve` runs; else edits are few, as large digests leave out changes.
    """

    def __init__(self, server: SandboxServer, rng: random.Random) -> None:
        self._server, self._rng = server, rng
        self._held = {key: int(amount) for key, amount in listed(server.world).items()}
        self._wallets = server.world.wallets()
        self.serves = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._faults = random.Random(rng.random())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._rng.uniform(0.2, 1.0)):
            fault = self._faults.choice([None, *FAULTS])
            self._server.consumers.script({"faulty": [fault]})
            if not self.serves.is_set() and self._rng.random() < 0.9:
                continue
            luck = self._rng.random()
            if luck < 0.15:
                self._mint()
            elif luck < 0.3:
                _, token = self._rng.choice(sorted(self._held))
                name = f"Renamed {self._rng.random()}"
                self._server.sandbox.edit_metadata(token, {"name": name})
            else:
                self._transfer()

    def _mint(self) -> None:
        wallet, amount = self._rng.choice(self._wallets), self._rng.randrange(1, 9)
        name = {"name": f"Minted {self._rng.random()}"}
        token, _ = self._server.sandbox.mint(wallet, amount, name)
        self._held[wallet, token] = amount

    def _transfer(self) -> None:
        giver, token = self._rng.choice([key for key in sorted(self._held) if self._held[key]])
        taker = self._rng.choice([wallet for wallet in self._wallets if wallet != giver])
        amount = self._rng.randint(1, self._held[giver, token])
        self._server.sandbox.transfer(giver, taker, token, amount)
        self._held[giver, token] -= amount
        self._held[taker, token] = self._held.get((taker, token), 0) + amount


def _configure(folder: Path, server: SandboxServer, wallets: list[str]) -> None:
    """Write the settings and the command."""
    secret, append = folder / "secret", folder / "append"
    secret.write_text(SECRET)
    secret.chmod(stat.S_IRUSR)
    append.write_text(_APPEND.format(python=sys.executable, path=str(folder / "received")))
    append.chmod(stat.S_IRWXU)
    tables = [_CONSUMER.format(name=name, url=server.url, secret=secret) for name in CONSUMERS]
    tables.append(_RULES.format(append=json.dumps(str(append)), wallets=json.dumps(wallets)))
    (folder / "nftsync.toml").write_text("".join(tables))


@contextmanager
def _quiet() -> Iterator[None]:
    with redirect_stdout(io.StringIO()) as said:
        try:
            yield
        except BaseException:
            sys.stderr.write(said.getvalue()[-20_000:])
            raise


def _kill(
    serve: Serve, trade: Trade, database: Path, rng: random.Random, figures: Counter[str]
) -> None:
    """Kill a `serve` at a random moment, or while an attempt is in flight."""
    trade.serves.set()
    in_flight = "SELECT count(*) FROM messages WHERE state = 'running'"
    deadline = time.monotonic() + rng.uniform(0, 6)
    at_once = rng.random() < 0.5
    while time.monotonic() < deadline and serve.process.poll() is None:
        if at_once and query(database, in_flight) != [(0,)]:
            break
        time.sleep(rng.uniform(0, 0.05))
    assert serve.process.poll() is None, "serve ended"
    serve.kill()
    trade.serves.clear()
    (running,) = query(database, in_flight)[0]
    figures.update({"kills": 1, "kills with attempts in flight": running > 0})


def _expire_leases(database: Path) -> None:
    """Set the clock of leases back, as if their 20 s had passed."""
    query(database, "UPDATE leases SET expires_at = '2020-01-01T00:00:00.000000Z'")


def run_seed(seed: int, kills: int, folder: Path) -> Counter[str]:
    """Kill a `serve` repeatedly; return figures.

    Raises:
        AssertionError: something was lost, reported twice, or out of order.
    """
    rng, figures = random.Random(seed), Counter[str]()
    database = folder / "nftsync.db"
    with (
        SandboxServer(
            lambda url: generate(wallets=WALLETS, nfts=NFTS, seed=seed, image_base=url),
            time_scale=0.02,
            latency=0.01,
        ) as provider,
        _quiet(),
    ):
        received = Received(provider)
        provider.consumers.script({"second": Slow(slow=0.05)})
        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
        _configure(folder, provider, wallets[:3])
        port = 0
        with serving(folder, provider.url) as serve:  # its rules start here
            port = httpx.URL(serve.url).port or 0
            cursors = "SELECT count(*) FROM watch_cursors"
            wait_until(lambda: query(database, cursors) == [(5,)])
            configure(provider, serve.url)
            with Trade(provider, random.Random(seed)) as trade:
                _kill(serve, trade, database, rng, figures)
                while figures["kills"] < kills:
                    if rng.random() < 0.5:
                        _expire_leases(database)
                    with serving(folder, provider.url, port=port) as again:
                        _kill(again, trade, database, rng, figures)
                with serving(folder, provider.url, port=port):
                    trade.serves.set()
                    reached = "SELECT count(DISTINCT destination) FROM messages"
                    wait_until(lambda: query(database, reached) == [(4,)])
                    trade.serves.clear()
        provider.sandbox.configure(b'{"enabled": false}')
        provider.consumers.script(dict.fromkeys(CONSUMERS))
        _drain(folder, provider, port)
        figures += check(database, received, folder / "received", wallets[:3])
    return figures


def _drain(folder: Path, provider: SandboxServer, port: int) -> None:
    """Let a last `serve` and `nftsync watch` send all messages."""
    database = folder / "nftsync.db"
    _expire_leases(database)
    at_once = (
        "UPDATE messages SET next_attempt_at = created_at WHERE state IN ('failed', 'pending')"
    )
    query(database, at_once)
    with serving(folder, provider.url, port=port) as serve:
        wait_until_done(database)
        wait_until(lambda: not query(database, UNSENT), lambda: query(database, UNSENT))
        assert serve.stop() == 0
    with chdir(folder):
        run_command("watch", "-d", database)
    assert query(database, UNSENT) == []


# Received messages -------------------------------------------------------------------------------


def check(database: Path, received: Received, file: Path, wallets: list[str]) -> Counter[str]:
    """Compare the received messages with the database."""
    messages = messages_of(database)
    assert received.forged == []
    assert {message.state for message in messages} <= {"done"}
    figures = Counter(messages=len(messages))
    for name in (*CONSUMERS, "file"):
        ours = [message for message in messages if message.destination == name]
        if name == "file":
            ids = {message.body: message.message_id for message in ours}
            assert len(ids) == len(ours)
            lines = file.read_bytes().splitlines()
            arrived = [(ids[line], line) for line in lines]
        else:
            arrived = received.requests[name]
        check_received(ours, arrived)
        figures["received again"] += len(arrived) - len(ours)
    figures += _check_changes(database, messages, wallets)
    return figures + _check_forwarded(database, messages)


def _check_changes(database: Path, messages: list[Message], wallets: list[str]) -> Counter[str]:
    """Each change that a rule must report was reported once to each of its destinations."""
    changes = changes_of(database)
    renamed = [number for (number,) in query(database, "SELECT change_id FROM token_changes")]
    figures = Counter(changes=len(changes), renamed=len(renamed))
    reports: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in messages:
        reports[message.rule, message.destination].append(message)
    for (rule, _), ours in reports.items():
        if rule in {"all", "destinations"}:
            continue
        events, hidden = events_of(ours)
        figures.update(events=len(events), left_out=hidden)
        if rule == "moves":
            check_moves(changes, events, hidden)
        elif rule == "arrivals":
            gains = [one[1:3] for one in changes if one.new > one.old and one.wallet in wallets]
            check_once(gains, events, itemgetter("to_wallet_id", "token_id"), hidden)
        else:
            amounts = [one.change_id for one in changes if one.old and one.new]
            expected = amounts if rule == "amounts" else renamed
            check_once(expected, events, itemgetter("change_id"), hidden)
    return figures


def _check_forwarded(database: Path, messages: list[Message]) -> Counter[str]:
    """Each stored webhook is a message with its bytes."""
    ((database_id,),) = query(database, "SELECT database_id FROM mirror_state")
    with closing(sqlite3.connect(database)) as connection:
        webhooks = dict(connection.execute("SELECT webhook_id, body FROM webhooks"))
    forwarded = {one.message_id: one.body for one in messages if one.rule == "all"}
    expected = {
        message_id(database_id, "all", "first", name): body for name, body in webhooks.items()
    }
    assert forwarded == expected
    return Counter(forwarded=len(forwarded))


def main() -> int:
    """The long run."""

    def run(seed: int, given: Any) -> Counter[str]:
        with tempfile.TemporaryDirectory() as folder:
            return run_seed(seed, given.kills, Path(folder))

    return run_rounds(__doc__, run, rounds=1, kills=200)


if __name__ == "__main__":
    sys.exit(main())
