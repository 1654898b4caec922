"""A mirror whose reads a test makes, its rules, and their messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nftsync.alerts import Destination, WatchRule
from nftsync.provider.config import ClientConfig
from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now, shifted
from nftsync.watch.delivery import Channel, Outgoing, SendResult, open_delivery
from nftsync.watch.planner import Planner
from tests.kit.database import begun, token_id, wallet_id
from tests.kit.serve_process import query
from tests.kit.worlds import PATIENCE, Command

#: Accepts every message.
OPS = '[destinations.ops]\nkind = "command"\ncommand = ["true"]\n'


class Watched:
    """A database, `nftsync.toml`, and the command `watch`."""

    def __init__(self, database: Path, command: Command) -> None:
        self.database = database
        self.content: dict[int, dict[str, Any]] = {}
        self.run = partial(query, database)
        self._command = command
        self._mirror: Mirror | None = None  # of a planner
        database.parent.mkdir(exist_ok=True)
        begun(database)

    def read(
        self, *reads: Mapping[int, Mapping[int, str]], outcome: Any = "ok", **more: Any
    ) -> None:
        """Apply reads of wallets' balances, each mapping in one transaction."""
        with ExitStack() as stack:
            mirror = self._mirror or stack.enter_context(Mirror(self.database, write_gap=0.0))
            for read in reads:
                wallets = [
                    WalletRead(
                        wallet_id=wallet_id(wallet),
                        sequence=mirror.numbers.take(),
                        started_at=now(),
                        outcome=outcome,
                        entries=[
                            (token_id(token), amount, self._content(token))
                            for token, amount in amounts.items()
                        ],
                        digest=repr((amounts, self.content)),
                        **more,
                    )
                    for wallet, amounts in read.items()
                ]
                with mirror.transaction() as transaction:
                    transaction.apply(wallets)

    def _content(self, token: int) -> tuple[Any, ...]:
        values = {"name": f"Token {token}", **self.content.get(token, {})}
        return tuple(map(values.get, CONTENT_COLUMNS))

    @contextmanager
    def planning(self, *rules: Mapping[str, Any], most: int = 200_000) -> Iterator[Planner]:
        """Plan messages of rules for `ops`, as `serve` does."""
        made = [WatchRule(**{"name": "moves", "to": ["ops"], **rule}) for rule in rules]
        with Mirror(self.database, write_gap=0.0) as self._mirror:
            yield Planner(self._mirror, made, [], most=most)
        self._mirror = None

    def configure(self, *tables: str) -> None:
        """Write the settings file: these tables, and the destination `ops`."""
        Path("nftsync.toml").write_text("".join([OPS, *tables]))

    def rule(self, name: str, **keys: object) -> str:
        """Return the table of a rule for `ops`."""
        shown = {"to": ["ops"], **keys}
        lines = [f"{key} = {json.dumps(value)}" for key, value in shown.items()]
        return "\n".join([f"[watch.{name}]", *lines, ""])

    def watch(self, *words: object) -> list[dict[str, Any]]:
        """Run `nftsync watch`, and return the new messages."""
        before = self.newest()
        self._command("watch", *words).says("new message")
        return self.messages(before)

    def start(self, *tables: str, read: Mapping[int, Mapping[int, str]] | None = None) -> None:
        """Configure rules, read holdings, by default none of the first wallet, and start them."""
        self.configure(*tables)
        self.read(read or {1: {}})
        assert self.watch() == []

    def newest(self) -> int:
        return int(self.run("SELECT coalesce(max(message_no), 0) FROM messages")[0][0])

    def messages(self, after: int = 0) -> list[dict[str, Any]]:
        """Return the bodies of messages, each with the rule's name."""
        rows = "SELECT rule, body FROM messages WHERE message_no > ? ORDER BY message_no"
        return [{"rule": rule, **json.loads(body)} for rule, body in self.run(rows, after)]

    def states(self, column: str = "state") -> list[Any]:
        return [row[0] for row in self.run(f"SELECT {column} FROM messages ORDER BY message_no")]


def plan(planner: Planner) -> int:
    """Store the messages up to the newest change; return their number."""
    return planner.plan(planner.newest())


def ago(hours: float) -> str:
    return shifted(now(), -timedelta(hours=hours))


def types(messages: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in messages]


@pytest.fixture
def watched(tmp_path: Path, command: Command) -> Watched:
    """The default database of commands, without wallets."""
    return Watched(tmp_path / "data" / "nftsync.db", command)


PASSWORD = "hush-C4n4ry-4711"
BODY = b'{"type":"holding.sent","data":{}}'
MESSAGE = Outgoing("msg_" + "5" * 32, BODY, "Wallet sent an NFT", "One line.\nAnother.")
NETWORK = {
    "base_url": "https://provider.invalid",
    "api_token": "canary-token",
    "headers": {"X-Key": "canary-key"},
}


@pytest.fixture
def opened() -> Iterator[Callable[..., Channel]]:
    """Open channels to destinations of any kind."""
    with ExitStack() as stack:

        def make(kind: str = "webhook", *, timeout: float = 15.0, ca: str | None = None, **of: Any):
            destination = Destination(name="ops", kind=kind, **of)
            channel = open_delivery(
                destination, ClientConfig(**NETWORK, ca_file=ca), timeout=timeout
            )
            return stack.enter_context(closing(channel))

        yield make


def send_in_thread(delivery: Channel) -> Callable[[], SendResult]:
    """Send the message in a thread; return a function that waits for the result."""
    pool = ThreadPoolExecutor(1)
    sent = pool.submit(delivery.send, MESSAGE)
    pool.shutdown(wait=False)
    return partial(sent.result, PATIENCE)


def mail_to(server: str, port: int, **of: Any) -> dict[str, Any]:
    people = {"sender": "nftsync <alerts@example.com>", "recipients": ("ops@example.org",)}
    return {"server": server, "port": port, "username": "me", "password": PASSWORD} | people | of
