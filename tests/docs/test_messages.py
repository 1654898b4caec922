"""Bring about each error in docs/operate/troubleshooting.md: users meet these messages."""

import json
import re
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from nftsync.errors import NftsyncError, RunInterrupted, StoreError
from nftsync.provider.config import ClientConfig
from nftsync.pull.process import Process
from nftsync.pull.reads import WalletTask
from nftsync.records import SequenceNumbers
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.store.database import explained, sync_lock
from nftsync.wsgi import enough_threads
from tests.docs.pages import ROOT, blocks
from tests.kit import provider as fake
from tests.kit.database import begun
from tests.kit.inbox import Inbox, body_of
from tests.kit.serve_process import free_port, query
from tests.kit.waiting import wait_until
from tests.kit.worlds import Command
from tests.versions.make_databases import REFUSED, unpacked

PAGE = ROOT / "docs" / "operate" / "troubleshooting.md"
WALLET = fake.wallet(1)
UNUSED = "http://127.0.0.1:9"

Run: TypeAlias = Callable[..., list[str]]


@pytest.fixture
def run(command: Command) -> Run:
    """Run nftsync in an empty folder, and return its error lines."""

    def call(*arguments: str, code: int | None = None) -> list[str]:
        done = command(*arguments)
        assert done.code if code is None else done.code == code
        return done.err.splitlines()

    return call


def _config(text: str) -> str:
    """The flag of a settings file with this text."""
    Path("example.toml").write_text(text)
    return "--config=example.toml"


def _settings(run: Run) -> list[str]:
    return [
        *run("sync", WALLET),
        *run("sync", "--base-url", UNUSED),
        *run("sync", WALLET, "--base-url", "api.example.com"),
        *run("sync", "0xabc", "--base-url", UNUSED),
        *run("sync", WALLET, _config('base_ur = "https://api.example.com"\n')),
        *run("routes", _config('[routes.Payment]\npath = "/v1/payments/{resourceId}"\n')),
        *run("serve", "--base-url", UNUSED),
        *run("holdings", "-d", "missing.db"),
    ]


def _tls(run: Run, certificate: str) -> list[str]:
    """What https says to a server without TLS, which answers or waits; and to a certificate."""

    def answer_plainly() -> None:
        connection, _ = plain.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(65_536)

    with socket.create_server(("127.0.0.1", 0)) as plain:
        threading.Thread(target=answer_plainly).start()
        said = run("sync", WALLET, "--base-url", f"https://127.0.0.1:{plain.getsockname()[1]}")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        said += run("sync", WALLET, "--timeout", "1", "--base-url", url)
    with fake.Provider(certificate=certificate) as secure:
        return said + run("sync", WALLET, "--base-url", secure.url)


def _provider(run: Run, certificate: str) -> list[str]:
    bad = {"tokenId": fake.token(3), "amount": 1}
    twice = fake.balances(fake.entry(fake.token(3), metadata={"attributes": {"Eyes": 1, "X": 2}}))
    answers = [
        *(fake.reply(status=status) for status in (401, 404, 429, 500, 400)),
        fake.reply(status=429, retry_after="301"),
        fake.reply(status=302, location="https://example.com"),
        fake.reply(b"<html>hello</html>"),
        fake.reply(fake.balances(nextCursor="abc")),
        fake.reply(fake.balances(*map(fake.entry, map(fake.token, range(3)), "111"), bad)),
    ]
    said, once = _tls(run, certificate), ("--retries", "1", "--base-url")
    with fake.Provider() as provider:
        for number, answer in enumerate(answers):
            provider.always(answer)
            said += run("sync", fake.wallet(number), *once, provider.url)
        provider.always(fake.reply(status=401))
        said += run("sync", WALLET, *once, provider.url, _config('api_token = "a-token"\n'))
        provider.always(fake.silence())
        said += run("sync", WALLET, "--timeout", "0.5", *once, provider.url)
    said += run("sync", WALLET, *once, f"http://127.0.0.1:{free_port()}")
    said += run("sync", WALLET, *once, "http://api.example.com", _config(f'proxy = "{UNUSED}"\n'))
    wallets = [fake.wallet(number) for number in range(40)]
    with fake.Provider() as provider:
        for held in (1, 0):
            for number, wallet in enumerate(wallets):
                provider.holds(wallet, *[fake.entry(fake.token(number))] * held)
            said += run("sync", *wallets, "--base-url", provider.url, code=0)
        provider.always(fake.reply(twice.replace(b'"X"', b'"Eyes"')))
        return said + run("sync", fake.wallet(99), "--base-url", provider.url, code=0)


class _ShutConnection(sqlite3.Connection):
    def execute(self, *_: object) -> sqlite3.Cursor:
        raise sqlite3.OperationalError("unable to open database file")


def _database(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with sync_lock(tmp_path / "locked.db"):
        said = run("sync", WALLET, "--base-url", UNUSED, "-d", "locked.db")
    query(tmp_path / "other.db", "CREATE TABLE cats (name)")
    said += run("holdings", "-d", "other.db")
    query(
        begun(tmp_path / "newer.db"),
        "UPDATE _sqlite_migrations SET name = 'from the future'"
        " WHERE id = (SELECT max(id) FROM _sqlite_migrations)",
    )
    said += run("holdings", "-d", "newer.db")
    unpacked("0.5.0", tmp_path / "earlier.db")
    said += run("status", "--max-age", "1s", "-d", "earlier.db")
    unpacked(REFUSED, tmp_path / "refused.db")
    said += run("status", "-d", "refused.db")
    begun(tmp_path / "shut.db")
    with monkeypatch.context() as patched:  # root may write everywhere, so no folder is shut to it
        patched.setattr("nftsync.store.database.sqlite3.connect", _ShutConnection)
        patched.setattr("nftsync.store.database.os.access", lambda *_: False)
        said += run("holdings", "-d", "shut.db")
    (tmp_path / "emptied.db").touch()
    (tmp_path / "emptied.db-wal").write_bytes(b"x" * 4096)
    said += run("holdings", "-d", "emptied.db")
    with pytest.raises(StoreError, match="locked by another program"), explained("locked.db"):
        raise sqlite3.OperationalError("database is locked")
    with pytest.raises(StoreError) as full, explained("full.db"):
        raise sqlite3.OperationalError("database or disk is full")
    return [*said, f"nftsync: {full.value}"]


def _webhooks(run: Run, command: Command, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken, monkeypatch.context() as patched:
        patched.setenv("NFTSYNC_WEBHOOK_SECRET", "a-secret-of-the-tests")
        said = run("serve", "--base-url", UNUSED, "--port", str(taken.getsockname()[1]))
        patched.setenv("NFTSYNC_WEBHOOK_SECRET", "short")
        said += command("check").out.splitlines()
    with pytest.raises(NftsyncError) as crowded, enough_threads():
        raise RuntimeError("can't start new thread")
    Inbox(Path("down.db")).fill(1)
    said += run("replay", "--retries", "1", "--base-url", UNUSED, "-d", "down.db")
    inbox = Inbox(Path("kept.db"))
    inbox.receive(
        body_of(1, resourceType="Transaction"),
        body_of(1, resourceType="Transaction", changes={"name": "other"}),
    )
    inbox.receive(body_of(2), organization=fake.wallet(3))
    with fake.Provider() as provider:
        run("replay", "--base-url", provider.url, "-d", "kept.db", code=0)
    said += [row[0] for row in inbox.run("SELECT last_error FROM webhooks")]
    monkeypatch.setenv("NFTSYNC_ORGANIZATION_ID", fake.wallet(3))
    said += run("inbox", "requeue", "--state", "quarantined", "-d", "kept.db")
    return [*said, f"nftsync: {crowded.value}"]


def _sandbox(caplog: pytest.LogCaptureFixture, certificate: str) -> list[str]:
    with fake.Provider(certificate=certificate) as secure, SandboxServer(World()) as server:
        config = {"url": f"{secure.url}/webhooks", "enabled": True, "sharedSecret": "a-secret"}
        server.sandbox.configure(json.dumps({**config, "webhookTypes": ["nft"]}).encode())
        server.sandbox.emit("nft", "Wallet", WALLET, "update")
        wait_until(lambda: server.sandbox.deliveries()[0]["attempts"])
    return [record.getMessage() for record in caplog.records]


def _reading_process(caplog: pytest.LogCaptureFixture) -> list[str]:
    """It ends each time, as its threads wait for longer than the clock's functions take."""
    with fake.Provider() as provider:
        provider.always(fake.reply(status=429))
        config = ClientConfig(base_url=provider.url, first_wait=1e300)
        with closing(Process(config, SequenceNumbers(0, 0), 1)) as reader:
            reader.submit([WalletTask(WALLET)])
            with pytest.raises(RunInterrupted):  # noqa: PT012 - one call of several
                while True:
                    reader.take(1, timeout=0.1)
    return [record.getMessage() for record in caplog.records]


def test_each_message_is_a_real_one(run, command, tmp_path, monkeypatch, certificates, caplog):
    said = [
        *_reading_process(caplog),
        *_sandbox(caplog, certificates.server),
        *_settings(run),
        *_provider(run, certificates.server),
        *_database(run, tmp_path, monkeypatch),
        *_webhooks(run, command, monkeypatch),
    ]
    messages = [block.text.strip() for block in blocks(PAGE)]
    assert [text for text in messages if not any(map(_pattern(text).fullmatch, said))] == [], said


def _pattern(message: str) -> re.Pattern[str]:
    """What matches a message in which `…` stands for any text.

    One that does not begin with the program's name stands behind a wallet's id on stderr, or in
    the inbox.
    """
    before = "" if message.startswith("nftsync: ") else "(?:nftsync: [0-9a-f-]{36}: )?"
    return re.compile(before + re.escape(message).replace("…", ".+"))
