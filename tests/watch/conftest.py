"""A mirror whose reads a test makes, its rules, and their messages."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nftsync.alerts import Destination, Quiet, WatchRule
from nftsync.provider.config import ClientConfig
from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now, shifted
from nftsync.watch.delivery import Channel, Outgoing, SendResult, open_delivery
from nftsync.watch.planner import Planner
from tests.kit.database import begun, token_id, wallet_id
from tests.kit.worlds import PATIENCE, Command

#: Accepts every message.
OPS = '[destinations.ops]\nkind = "command"\ncommand = ["true"]\n'


class Watched:
    """A database, `nftsync.toml`, and the command `watch`."""

    def __init__(self, database: Path, command: Command) -> None:
        self.database = database
        self.content: dict[int, dict[str, Any]] = {}
        self._command = command
        database.parent.mkdir(exist_ok=True)
        begun(database)

    def read(
        self, *reads: Mapping[int, Mapping[int, str]], outcome: Any = "ok", **more: Any
    ) -> None:
        """Apply reads of wallets' balances, each mapping in one transaction."""
        with Mirror(self.database, write_gap=0.0) as mirror:
            for read in reads:
                self.apply(mirror, read, outcome, **more)

    def apply(
        self,
        mirror: Mirror,
        read: Mapping[int, Mapping[int, str]],
        outcome: Any = "ok",
        **more: Any,
    ) -> None:
        with mirror.transaction() as transaction:
            transaction.apply(
                [
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
            )

    def _content(self, token: int) -> tuple[Any, ...]:
        values = {"name": f"Token {token}", **self.content.get(token, {})}
        return tuple(map(values.get, CONTENT_COLUMNS))

    @contextmanager
    def planning(self, *rules: Mapping[str, Any], most: int = 200_000) -> Iterator[Planning]:
        """Plan messages of rules for `ops`, as `serve` does."""
        with Mirror(self.database, write_gap=0.0) as mirror:
            yield Planning(self, mirror, *rules, most=most)

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database, timeout=30)) as connection, connection:
            return connection.execute(statement, parameters).fetchall()

    def configure(self, text: str) -> None:
        """Write the settings file: these tables, and the destination `ops`."""
        Path("nftsync.toml").write_text(OPS + text)

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

    def newest(self) -> int:
        return int(self.run("SELECT coalesce(max(message_no), 0) FROM messages")[0][0])

    def messages(self, after: int = 0) -> list[dict[str, Any]]:
        """Return the bodies of messages, each with the rule's name."""
        query = "SELECT rule, body FROM messages WHERE message_no > ? ORDER BY message_no"
        return [{"rule": rule, **json.loads(body)} for rule, body in self.run(query, after)]

    def states(self, column: str = "state") -> list[Any]:
        return [row[0] for row in self.run(f"SELECT {column} FROM messages ORDER BY message_no")]


class Planning:
    """A running planner, whose mirror takes reads meanwhile."""

    def __init__(
        self, watched: Watched, mirror: Mirror, *rules: Mapping[str, Any], most: int
    ) -> None:
        self._mirror = mirror
        self._watched = watched
        made = []
        for rule in rules:
            quiet = Quiet(*rule["quiet"]) if "quiet" in rule else None
            fields = {"name": "moves", "to": ["ops"], **rule, "quiet": quiet}
            made.append(WatchRule(**fields))
        self._planner = Planner(mirror, made, [], most=most)
        self.newest = self._planner.newest

    def read(self, *reads: Mapping[int, Mapping[int, str]]) -> None:
        """Apply reads, each mapping in one transaction."""
        for read in reads:
            self._watched.apply(self._mirror, read)

    def plan(self, until: Any = None, **options: Any) -> int:
        """Store the messages up to a position, by default the newest; return their number."""
        return self._planner.plan(until or self.newest(), **options)


def ago(hours: float) -> str:
    return shifted(now(), -timedelta(hours=hours))


def types(messages: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in messages]


@pytest.fixture
def watched(tmp_path: Path, command: Command) -> Watched:
    """The default database of commands, without wallets."""
    return Watched(tmp_path / "data" / "nftsync.db", command)


# Channels ---------------------------------------------------------------------------------------

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
            network = ClientConfig(**NETWORK, ca_file=ca)
            destination = Destination(name="ops", kind=kind, **of)
            return stack.enter_context(
                closing(open_delivery(destination, network, timeout=timeout))
            )

        yield make


def send_in_thread(delivery: Channel) -> Callable[[], SendResult]:
    """Send the message in a thread; return a function that waits for the result."""
    outcomes: list[SendResult] = []
    thread = threading.Thread(target=lambda: outcomes.append(delivery.send(MESSAGE)), daemon=True)
    thread.start()

    def outcome() -> SendResult:
        thread.join(PATIENCE)
        return outcomes[0]

    return outcome


def mail_to(server: str, port: int, **of: Any) -> dict[str, Any]:
    people = {"sender": "nftsync <alerts@example.com>", "recipients": ("ops@example.org",)}
    return {"server": server, "port": port, "username": "me", "password": PASSWORD} | people | of
