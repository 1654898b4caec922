"""A mirror whose reads a test makes, its rules, and the messages that they cause."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nftsync.records import CONTENT_COLUMNS, WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now
from tests.kit.database import begun, token_id, wallet_id
from tests.kit.worlds import Outcome

#: Accepts every message.
OPS = '[destinations.ops]\nkind = "command"\ncommand = ["true"]\n'


class Watched:
    """A database, `nftsync.toml`, and the command `watch`."""

    def __init__(self, database: Path, command: Callable[..., Outcome]) -> None:
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


def types(messages: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in messages]


@pytest.fixture
def watched(tmp_path: Path, command: Callable[..., Outcome]) -> Watched:
    """The database that commands use by default, without any wallet."""
    return Watched(tmp_path / "data" / "nftsync.db", command)
