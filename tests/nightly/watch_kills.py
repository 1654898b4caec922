"""Kill a `serve` that sends messages at random moments, and compare the received messages.

A sandbox provider has steady transfers. Four rules and a forward send to three consumers, one of
which fails at random, and to a command. In the end, each change was reported once to each
destination, each stored webhook was forwarded, and the messages of a wallet first came in order.
"""

from __future__ import annotations

import io
import json
import random
import stat
import sys
import threading
import time
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import chdir, redirect_stdout
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

import nftsync
from nftsync.sandbox.consumer import ConsumerFault, Slow
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
from tests.kit.worlds import run_command
from tests.nightly.rounds import edit, run_seeds, sandbox

CONSUMERS = ("first", "second", "faulty")
SECRET = "whsec_" + b64encode(bytes(range(32))).decode()
#: Every second or so the faulty consumer draws one of these.
FAULTS: list[ConsumerFault | None] = [
    *(None, 500, "redirect", "close", Slow(retry_after=1), Slow(slow=0.5))
]
IN_FLIGHT = "SELECT count(*) FROM messages WHERE state = 'running'"
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


def trade(server: SandboxServer, seed: int, serves: threading.Event, over: threading.Event) -> None:
    """Edit the provider's world; rarely without a `serve`, as large digests leave out changes."""
    rng = random.Random(seed)
    while not over.wait(rng.uniform(0.2, 1.0)):
        server.consumers.script({"faulty": [rng.choice(FAULTS)]})
        if serves.is_set() or rng.random() < 0.1:
            edit(server, rng)


def _configure(folder: Path, server: SandboxServer, wallets: list[str]) -> None:
    secret, append = folder / "secret", folder / "append"
    secret.write_text(SECRET)
    secret.chmod(stat.S_IRUSR)
    append.write_text(_APPEND.format(python=sys.executable, path=str(folder / "received")))
    append.chmod(stat.S_IRWXU)
    tables = [_CONSUMER.format(name=name, url=server.url, secret=secret) for name in CONSUMERS]
    tables.append(_RULES.format(append=json.dumps(str(append)), wallets=json.dumps(wallets)))
    (folder / "nftsync.toml").write_text("".join(tables))


def _kill(serve: Serve, database: Path, rng: random.Random) -> Counter[str]:
    """Kill a `serve` at a random moment, or while an attempt is in flight."""
    deadline, at_once = time.monotonic() + rng.uniform(0, 6), rng.random() < 0.5
    while time.monotonic() < deadline:
        if at_once and query(database, IN_FLIGHT) != [(0,)]:
            break
        time.sleep(rng.uniform(0, 0.05))
    assert serve.process.poll() is None, "serve ended"
    serve.kill()
    ((running,),) = query(database, IN_FLIGHT)
    return Counter({"kills": 1, "kills with attempts in flight": running > 0})


def _expire_leases(database: Path) -> None:
    """Set the clock of leases back, as if their 20 s had passed."""
    query(database, "UPDATE leases SET expires_at = '2020-01-01T00:00:00.000000Z'")


def run_seed(seed: int, folder: Path, *, kills: int) -> Counter[str]:
    """Kill a `serve` repeatedly, then compare."""
    rng, figures = random.Random(seed), Counter[str]()
    serves, over, database = threading.Event(), threading.Event(), folder / "nftsync.db"
    with (
        sandbox(8, 6, seed, time_scale=0.02, latency=0.01) as provider,
        redirect_stdout(io.StringIO()),
    ):
        received = Received(provider)
        provider.consumers.script({"second": Slow(slow=0.05)})
        wallets = provider.world.wallets()
        nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
        _configure(folder, provider, wallets[:3])
        with serving(folder, provider.url) as serve:  # its rules start here
            port = httpx.URL(serve.url).port or 0
            cursors = "SELECT count(*) FROM watch_cursors"
            wait_until(lambda: query(database, cursors) == [(5,)])
            configure(provider, serve.url)
        trading = threading.Thread(target=trade, args=(provider, seed, serves, over))
        trading.start()
        try:
            while figures["kills"] < kills:
                with serving(folder, provider.url, port=port) as serve:
                    serves.set()
                    figures += _kill(serve, database, rng)
                    serves.clear()
                if rng.random() < 0.5:
                    _expire_leases(database)
            with serving(folder, provider.url, port=port):
                serves.set()
                reached = "SELECT count(DISTINCT destination) FROM messages"
                wait_until(lambda: query(database, reached) == [(4,)])
                serves.clear()
        finally:
            over.set()
            trading.join()
        provider.sandbox.configure(b'{"enabled": false}')
        provider.consumers.script(dict.fromkeys(CONSUMERS))
        _drain(folder, provider, port)
        return figures + check(database, received, folder / "received", wallets[:3])


def _drain(folder: Path, provider: SandboxServer, port: int) -> None:
    database = folder / "nftsync.db"
    _expire_leases(database)
    due = "UPDATE messages SET next_attempt_at = created_at WHERE state IN ('failed', 'pending')"
    query(database, due)
    with serving(folder, provider.url, port=port) as serve:
        wait_until_done(database)
        wait_until(lambda: not query(database, UNSENT), lambda: query(database, UNSENT))
        assert serve.stop() == 0
    with chdir(folder):
        run_command("watch", "-d", database)
    assert query(database, UNSENT) == []


def check(database: Path, received: Received, file: Path, wallets: list[str]) -> Counter[str]:
    messages, changes = messages_of(database), changes_of(database)
    assert received.forged == []
    assert {message.state for message in messages} == {"done"}
    figures = Counter(messages=len(messages), changes=len(changes))
    ids = {
        message.body: message.message_id for message in messages if message.destination == "file"
    }
    arrived = received.requests
    arrived["file"] = [(ids[line], line) for line in file.read_bytes().splitlines()]
    for name in (*CONSUMERS, "file"):
        ours = [message for message in messages if message.destination == name]
        check_received(ours, arrived[name])
        figures["received again"] += len(arrived[name]) - len(ours)
    renamed = [number for (number,) in query(database, "SELECT change_id FROM token_changes")]
    wanted: dict[str, tuple[list[Any], Any]] = {
        "arrivals": (
            [one[1:3] for one in changes if one.new > one.old and one.wallet in wallets],
            itemgetter("to_wallet_id", "token_id"),
        ),
        "amounts": (
            [one.change_id for one in changes if one.old and one.new],
            itemgetter("change_id"),
        ),
        "metadata": (renamed, itemgetter("change_id")),
    }
    reports: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in messages:
        if message.rule not in {"all", "destinations"}:
            reports[message.rule, message.destination].append(message)
    for (rule, _), ours in reports.items():
        events, hidden = events_of(ours)
        figures.update(events=len(events), left_out=hidden)
        if rule == "moves":
            check_moves(changes, events, hidden)
        else:
            check_once(wanted[rule][0], events, wanted[rule][1], hidden)
    # Each stored webhook is a message with its bytes.
    ((database_id,),) = query(database, "SELECT database_id FROM mirror_state")
    forwarded = {one.message_id: one.body for one in messages if one.rule == "all"}
    webhooks = query(database, "SELECT webhook_id, body FROM webhooks")
    assert forwarded == {message_id(database_id, "all", "first", x): body for x, body in webhooks}
    return figures + Counter(forwarded=len(forwarded))


if __name__ == "__main__":
    run_seeds(__doc__, run_seed, kills=200)
