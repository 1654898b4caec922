"""A provider double, its mirror, and commands: the site of tests of the removal guard."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from tests.kit.inbox import Inbox, body_of
from tests.kit.provider import entry, token, wallet
from tests.kit.worlds import Outcome, mirrored, replayed, run_command
from tests.pull.mirror import Mirror

WALLETS, EACH = 100, 5
ALL = WALLETS * EACH
NAMED = {"metadata": {"name": "A name"}}


class Site(Mirror):
    """A mirror of the provider double, and the commands on it."""

    _webhooks = count()

    def fill(self, **fields: Any) -> None:
        """Let each wallet list its own five tokens."""
        for number in range(WALLETS):
            self.lists(number, *range(EACH), **fields)

    def lists(self, number: int, *places: int, amount: str = "4", **fields: Any) -> None:
        """Let a wallet list the tokens at some of its places."""
        fields = {**NAMED, **fields}
        tokens = [token(EACH * number + place) for place in places]
        self.provider.holds(wallet(number), *(entry(each, amount, **fields) for each in tokens))

    def empty(self, numbers: Iterable[int] = range(WALLETS)) -> None:
        """Let wallets list nothing."""
        for number in numbers:
            self.lists(number)

    def post(self, numbers: Iterable[int]) -> None:
        """Store a webhook for each of some wallets, and replay them."""
        about = [{"resourceType": "Wallet", "resourceId": wallet(number)} for number in numbers]
        Inbox(self.database).receive(*(body_of(next(self._webhooks), **x) for x in about))
        self.command("replay")

    def groups(self, **wallets: Iterable[int]) -> str:
        """Write a wallets file with these groups; return its path."""
        lines = [f"{wallet(n)},,{name}" for name, numbers in wallets.items() for n in numbers]
        file = self.database.with_name("wallets.csv")
        file.write_text("\n".join(["wallet_id,label,group", *lines]))
        return str(file)

    def command(self, *arguments: str) -> Outcome:
        return run_command(*arguments, "--database", self.database)

    def code(self, *arguments: str) -> int:
        """Sync; return the exit code, which is 0 only if no removal was held."""
        done = self.command("sync", "--json", "--retries", "1", *arguments)
        assert (done.code == 0) == (done.json["status"] == "ok")
        return done.code

    @property
    def holdings(self) -> int:
        """The number of holdings; the change log matches them."""
        assert replayed(self.database) == mirrored(self.database)
        return int(self.query("SELECT count(*) FROM holdings WHERE held_since IS NOT NULL")[0][0])

    def review(self) -> list[dict[str, Any]]:
        """Return the removals held for review."""
        found: list[dict[str, Any]] = self.command("removals", "--json").json
        return found
