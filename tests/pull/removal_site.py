"""A site for tests of the removal guard: a provider that lies, a database, and the commands."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nftsync.cli import main
from nftsync.times import shifted
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import mirrored, replayed

WALLETS, EACH = 100, 5
ALL = WALLETS * EACH
NAMED = {"metadata": {"name": "A name"}}


@dataclass
class Site:
    """A mirror of the lying provider, and the commands on it."""

    provider: Provider
    database: Path
    capsys: pytest.CaptureFixture[str] | None = None

    def fill(self, wallets: int = WALLETS, **fields: Any) -> None:
        for number in range(wallets):
            self.lists(number, *range(EACH), **fields)

    def lists(self, number: int, *places: int, amount: str = "4", **fields: Any) -> None:
        """Let a wallet list the tokens at some of its places."""
        tokens = (EACH * number + place for place in places)
        fields = {**NAMED, **fields}
        self.provider.holds(wallet(number), *(entry(token(n), amount, **fields) for n in tokens))

    def empty(self, numbers: Iterable[int] = range(WALLETS)) -> None:
        """Let wallets list nothing any more."""
        for number in numbers:
            self.lists(number)

    def groups(self, **wallets: Iterable[int]) -> str:
        """Write a wallets file with these groups; returns its name."""
        lines = [f"{wallet(n)},,{name}" for name, numbers in wallets.items() for n in numbers]
        text = "\n".join(["wallet_id,label,group", *lines])
        (self.database.parent / "wallets.csv").write_text(text)
        return "wallets.csv"

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--database", str(self.database)])
        assert self.capsys is not None
        said = self.capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    def sync(self, *arguments: str) -> int:
        """A sync's exit code; a run says `ok` only if nothing was held back."""
        code, out, _ = self.run("sync", "--json", "--retries", "1", *arguments)
        assert (code == 0) == (json.loads(out)["status"] == "ok")
        return code

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(statement).fetchall()

    @property
    def held(self) -> int:
        assert replayed(self.database) == mirrored(self.database)
        return self.query("SELECT count(*) FROM holdings WHERE held_since IS NOT NULL")[0][0]

    @property
    def names(self) -> int:
        return self.query("SELECT count(name) FROM tokens")[0][0]

    def held_back(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("removals", "--json")[1])
        return found

    def grow_older(self, by: timedelta) -> None:
        """Let everything that is stored have happened so much earlier."""
        columns = {
            "balance_change_rows": ("observed_at",),
            "token_change_rows": ("observed_at",),
            "wallet_state_rows": ("observed_at", "first_read_at", "last_read_at"),
            "sync_runs": ("started_at", "finished_at"),
        }
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.create_function("earlier", 1, lambda time: time and shifted(time, -by))
            for table, names in columns.items():
                sets = ", ".join(f"{name} = earlier({name})" for name in names)
                connection.execute(f"UPDATE {table} SET {sets}")
