"""Holdings of a sandbox, of a mirror and of its change log; and results of commands."""

from __future__ import annotations

import fcntl
import io
import json
import shutil
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from nftsync.provider.webhooks import read_webhook
from nftsync.sandbox.world import World
from nftsync.store.inbox import Delivery, ObjectKey, claim, store
from nftsync.store.leases import renew_lease, take_lease
from nftsync.store.mirror import Mirror
from nftsync.store.runs import start_run
from nftsync.times import now

#: Seconds, a limit for conditions on a busy machine.
PATIENCE = 240.0


class Outcome(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        return self.out + self.err

    def says(self, *texts: str, code: int = 0) -> Outcome:
        """Check the exit code, and that the output has each text."""
        assert self.code == code, self.said
        assert [text for text in texts if text not in self.said] == [], self.said
        return self

    def tells(self, *texts: str, code: int = 2) -> Outcome:
        """Check the exit code, and that only stderr has output, with each text."""
        assert self.out == ""
        return self.says(*texts, code=code)


#: The fixture `command`.
Command: TypeAlias = Callable[..., Outcome]


def run_command(*words: object) -> Outcome:
    """Run a command in this process."""
    from nftsync.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            texts = (stream.buffer.getvalue().decode() for stream in (out, err))
            return Outcome(int(ended.code or 0), *texts)
    raise AssertionError("a command ends with an exit code")


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Lock a name among all processes of a test run."""
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(shared: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that one process of a test run fills for all."""
    made, making = shared / name, shared / f"{name}.part"
    with alone(shared, name):
        if not made.exists():
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            make(making)
            making.rename(made)
    return made


def listed(world: World) -> dict[tuple[str, str], str]:
    """Return a sandbox's amounts by wallet and token."""
    return {
        (wallet, entry["tokenId"]): entry["amount"]
        for wallet in world.wallets()
        for entry in json.loads(world.balances_body(wallet) or b"")["nftTokenBalances"]
    }


def mirrored(database: Path) -> dict[tuple[str, str], str]:
    """Return a mirror's amounts by wallet and token."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT wallet_id, token_id, amount FROM balances")
        return {row[:2]: row[2] for row in rows}


def dump(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


def begin_work(database: Path, wallet: str) -> str:
    """Leave a webhook and a message running, and a sync; return the webhook's id."""
    webhook_id = "0f0f0f0f-0000-4000-8000-000000000001"
    body = {
        "id": webhook_id,
        "organizationId": "0f0f0f0f-0000-4000-8000-000000000002",
        "action": "update",
        "resourceType": "Wallet",
        "resourceId": wallet,
        "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
    }
    at = now()
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        connection = transaction.connection
        raw = json.dumps(body).encode()
        store(connection, [Delivery(raw, read_webhook(raw, None))], at)
        lease = take_lease(connection, at)
        replay = start_run(connection, "replay", 0, at)
        renew_lease(connection, lease, at, run_id=replay.run_id)
        claimed = claim(connection, lease, [ObjectKey("Wallet", wallet)], at, at)
        assert list(claimed.claims.values()) == [webhook_id]
        connection.execute(
            "INSERT INTO messages (message_id, rule, destination, created_at, keys, state,"
            " lease_no) VALUES ('m', 'r', 'd', ?, '[]', 'running', ?)",
            (at, lease),
        )
        start_run(connection, "sync", 0, at, plan=array("q", [1]))
    return webhook_id


def under_way(database: Path) -> list[tuple[str, int]]:
    """Count the leases and the running webhooks, messages and runs."""
    working = "WHERE state = 'running' OR lease_no IS NOT NULL"
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(
            "SELECT 'leases', count(*) FROM leases"
            f" UNION ALL SELECT 'webhooks', count(*) FROM webhooks {working}"
            f" UNION ALL SELECT 'messages', count(*) FROM messages {working}"
            " UNION ALL SELECT 'runs', count(*) FROM sync_runs WHERE status = 'running'"
        ).fetchall()


def replayed(database: Path) -> dict[tuple[str, str], str]:
    """Return the amounts that result from the change log."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT wallet_id, token_id, old_amount, new_amount FROM balance_changes"
            " ORDER BY change_id"
        ).fetchall()
    found: dict[tuple[str, str], str] = {}
    for wallet, token, old, new in rows:
        assert found.get((wallet, token)) == old
        if new is None:
            del found[wallet, token]
        else:
            found[wallet, token] = new
    return found
