"""The errors in docs/troubleshooting.md are the ones that users meet: each is brought about."""

from __future__ import annotations

import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import provider as fake
import pytest
from docs_pages import ROOT, blocks

from nftsync.cli import main
from nftsync.errors import NftsyncError, StoreError
from nftsync.provider.webhooks import read_webhook
from nftsync.store.database import explained, sync_lock
from nftsync.store.inbox import Delivery, store
from nftsync.store.schema import open_store
from nftsync.times import now
from nftsync.wsgi import enough_threads

PAGE = ROOT / "docs" / "troubleshooting.md"
WALLET = fake.wallet(1)
UNUSED = "http://127.0.0.1:9"

Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run nftsync in an empty folder, and return what it says on stderr when it fails."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code not in {0, None}
        return capsys.readouterr().err.splitlines()

    return call


def _settings(run: Run) -> list[str]:
    said = run("sync", WALLET)
    said += run("sync", WALLET, "--base-url", "api.example.com")
    Path("nftsync.toml").write_text('base_ur = "https://api.example.com"\n')
    said += run("sync", WALLET)
    Path("nftsync.toml").unlink()
    return said


def _wallets(run: Run) -> list[str]:
    return run("sync", "--base-url", UNUSED) + run("sync", "0xabc", "--base-url", UNUSED)


def _proxy(run: Run) -> list[str]:
    Path("nftsync.toml").write_text(f'proxy = "{UNUSED}"\n')
    said = run("sync", WALLET, "--retries", "1", "--base-url", "http://api.example.com")
    Path("nftsync.toml").unlink()
    return said


def _provider(run: Run) -> list[str]:
    answers = {
        "refused": fake.reply(status=401),
        "unknown": fake.reply(status=404),
        "moved": fake.reply(status=302, location="https://example.com"),
        "too many": fake.reply(status=429),
        "silent": fake.silence(),
        "website": fake.reply(b"<html>hello</html>"),
        "paged": fake.reply(fake.balances(nextCursor="abc")),
    }
    said = []
    with fake.Provider() as provider:
        for number, answer in enumerate(answers.values()):
            provider.always(answer)
            flags = ("--retries", "1", "--timeout", "0.5", "--base-url", provider.url)
            said += run("sync", fake.wallet(number), *flags)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    return said + run("sync", WALLET, "--retries", "1", "--base-url", f"http://127.0.0.1:{port}")


def _empty_lists(run: Run) -> list[str]:
    wallets = [fake.wallet(number) for number in range(20)]
    with fake.Provider() as provider:
        for wallet in wallets:
            provider.holds(wallet, fake.entry(fake.token(1)))
        with pytest.raises(SystemExit):
            main(["sync", *wallets, "--base-url", provider.url])
        for wallet in wallets:
            provider.holds(wallet)
        return run("sync", "--base-url", provider.url)


def _database(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said = run("holdings", "-d", "missing.db")
    with sync_lock(tmp_path / "locked.db"):
        said += run("sync", WALLET, "--base-url", UNUSED, "-d", "locked.db")
    with closing(sqlite3.connect("other.db")) as connection:
        connection.execute("CREATE TABLE cats (name)")
    said += run("holdings", "-d", "other.db")
    with closing(open_store(tmp_path / "newer.db")) as connection:
        connection.execute(
            "UPDATE _sqlite_migrations SET name = 'from the future'"
            " WHERE id = (SELECT max(id) FROM _sqlite_migrations)"
        )
    said += run("holdings", "-d", "newer.db")
    open_store(tmp_path / "shut.db").close()
    with monkeypatch.context() as patched:  # root may write everywhere, so no folder is shut to it
        patched.setattr("nftsync.store.database.sqlite3.connect", _ShutConnection)
        patched.setattr("nftsync.store.database.os.access", lambda *_: False)
        said += run("holdings", "-d", "shut.db")
    with pytest.raises(StoreError) as full, explained("full.db"):
        raise sqlite3.OperationalError("database or disk is full")
    return [*said, f"nftsync: {full.value}"]


def _serve(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said = run("serve", "--base-url", UNUSED)
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", "a-secret-of-the-tests")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        said += run("serve", "--base-url", UNUSED, "--port", str(port))
    Path("nftsync.toml").write_text('[routes.Payment]\npath = "/v1/payments/{resourceId}"\n')
    said += run("routes")
    Path("nftsync.toml").unlink()
    with pytest.raises(NftsyncError) as crowded, enough_threads():
        raise RuntimeError("can't start new thread")
    return [*said, f"nftsync: {crowded.value}"]


def _webhooks(run: Run) -> list[str]:
    _receive("down.db", "Wallet")
    said = run("replay", "--retries", "1", "--base-url", UNUSED, "-d", "down.db")
    organization = ("NFTSYNC_ORGANIZATION_ID", fake.wallet(3))
    _receive("kept.db", "Transaction")
    _receive("kept.db", "Transaction", changes={"name": "other"})
    _receive("kept.db", "Wallet", webhook=2, wanted=organization[1])
    with fake.Provider() as provider:
        provider.always(fake.reply(status=404))
        with pytest.raises(SystemExit) as ended:
            main(["replay", "--base-url", provider.url, "-d", "kept.db"])
    assert ended.value.code == 0
    with closing(sqlite3.connect("kept.db")) as connection:
        said += [row[0] for row in connection.execute("SELECT last_error FROM webhooks")]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(*organization)
        return said + run("inbox", "requeue", "--state", "quarantined", "-d", "kept.db")


def _receive(
    database: str,
    resource_type: str,
    *,
    webhook: int = 1,
    changes: dict[str, str] | None = None,
    wanted: str | None = None,
) -> None:
    """Store a webhook as the receiver does."""
    body = msgspec.json.encode(
        {
            "organizationId": fake.wallet(9),
            "action": "create",
            "id": fake.token(webhook),
            "resourceId": WALLET,
            "resourceType": resource_type,
            "createdAtUtc": "2026-01-31T12:00:00.000000+00:00",
            "changes": changes,
        }
    )
    with closing(open_store(Path(database))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        store(connection, [Delivery(body, read_webhook(body, wanted))], now())
        connection.execute("COMMIT")


class _ShutConnection(sqlite3.Connection):
    def execute(self, *_: object) -> sqlite3.Cursor:
        raise sqlite3.OperationalError("unable to open database file")


def test_each_message_is_a_real_one(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = [
        *_settings(run),
        *_wallets(run),
        *_provider(run),
        *_proxy(run),
        *_empty_lists(run),
        *_database(run, tmp_path, monkeypatch),
        *_serve(run, monkeypatch),
        *_webhooks(run),
    ]
    messages = [block.text.strip() for block in blocks(PAGE)]
    unsaid = [each for each in messages if not any(map(_pattern(each).fullmatch, said))]
    assert not unsaid, said


def _pattern(message: str) -> re.Pattern[str]:
    """What matches a message in which `…` stands for any text.

    One that does not begin with the program's name stands behind a wallet's id on stderr, or in
    the inbox.
    """
    before = "" if message.startswith("nftsync: ") else "(?:nftsync: [0-9a-f-]{36}: )?"
    return re.compile(before + re.escape(message).replace("…", ".+"))
