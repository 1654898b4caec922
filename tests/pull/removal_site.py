"""A provider double, its mirror, and commands: the site of tests of the removal guard."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from tests.kit.inbox import Inbox, body_of
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import Outcome, mirrored, replayed, run_command

WALLETS, EACH = 100, 5
ALL = WALLETS * EACH
NAMED = {"metadata": {"name": "A name"}}


@dataclass
class Site:
    """A mirror of the provider double, and the commands on it."""

    provider: Provider
    database: Path
    _webhooks: count[int] = field(default_factory=count)

    def fill(self, wallets: int = WALLETS, **fields: Any) -> None:
        """Let each wallet list its own five tokens."""
        for number in range(wallets):
            self.lists(number, *range(EACH), **fields)

    def lists(self, number: int, *places: int, amount: str = "4", **fields: Any) -> None:
        """Let a wallet list the tokens at some of its places."""
        tokens = (EACH * number + place for place in places)
        fields = {**NAMED, **fields}
        self.provider.holds(wallet(number), *(entry(token(n), amount, **fields) for n in tokens))

    def empty(self, numbers: Iterable[int] = range(WALLETS)) -> None:
        """Let wallets list nothing."""
        for number in numbers:
            self.lists(number)

    def post(self, numbers: Iterable[int]) -> None:
        """Store a webhook for each of some wallets, and replay them."""
        bodies = [
            body_of(next(self._webhooks), resourceType="Wallet", resourceId=wallet(number))
            for number in numbers
        ]
        Inbox(self.database).receive(*bodies)
        self.run("replay")

    def groups(self, **wallets: Iterable[int]) -> str:
        """Write a wallets file with these groups; return its path."""
        lines = [f"{wallet(n)},,{name}" for name, numbers in wallets.items() for n in numbers]
        file = self.database.with_name("wallets.csv")
        file.write_text("\n".join(["wallet_id,label,group", *lines]))
        return str(file)

    def run(self, *arguments: str) -> Outcome:
        return run_command(*arguments, "--database", self.database)

    def sync(self, *arguments: str) -> int:
        """Sync; return the exit code, which is 0 only if no removal was held."""
        done = self.run("sync", "--json", "--retries", "1", *arguments)
        assert (done.code == 0) == (done.json["status"] == "ok")
        return done.code

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            return connection.execute(statement, parameters).fetchall()

    @property
    def held(self) -> int:
        """The number of holdings; the change log matches them."""
        assert replayed(self.database) == mirrored(self.database)
        return int(self.query("SELECT count(*) FROM holdings WHERE held_since IS NOT NULL")[0][0])

    @property
    def names(self) -> int:
        return int(self.query("SELECT count(name) FROM tokens")[0][0])

    def review(self) -> list[dict[str, Any]]:
        """Return the removals held for review."""
        found: list[dict[str, Any]] = self.run("removals", "--json").json
        return found

    def grow_older(self, by: timedelta) -> None:
        """Move all stored times into the past."""
        columns = {
            "balance_change_rows": ("observed_at",),
            "token_change_rows": ("observed_at",),
            "wallet_state_rows": ("observed_at", "first_read_at", "last_read_at"),
            "sync_runs": ("started_at", "finished_at"),
        }

        def earlier(time: str | None) -> str | None:
            at = time and datetime.fromisoformat(time) - by
            return f"{at:%Y-%m-%dT%H:%M:%S.%fZ}" if at else None

        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.create_function("earlier", 1, earlier)
            for table, names in columns.items():
                sets = ", ".join(f"{name} = earlier({name})" for name in names)
                connection.execute(f"UPDATE {table} SET {sets}")
