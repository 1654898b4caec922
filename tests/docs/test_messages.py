"""Bring about each error in docs/operate/troubleshooting.md: users meet these messages."""

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
from tests.kit.serve_process import configure, free_port, query
from tests.kit.waiting import wait_until
from tests.kit.worlds import Command
from tests.versions.make_databases import unpacked

PAGE = ROOT / "docs" / "operate" / "troubleshooting.md"
WALLET = fake.wallet(1)
UNUSED = "http://127.0.0.1:9"
ONCE = ("--retries", "1", "--base-url")

Run: TypeAlias = Callable[..., object]


@pytest.fixture
def said() -> list[str]:
    """All lines that commands printed."""
    return []


@pytest.fixture
def run(command: Command, said: list[str]) -> Run:
    """Run nftsync in an empty folder."""

    def call(*arguments: str, fails: bool = True) -> None:
        done = command(*arguments)
        assert bool(done.code) == fails
        said.extend(done.said.splitlines())

    return call


def _config(text: str) -> str:
    Path("example.toml").write_text(text)
    return "--config=example.toml"


def _settings(run: Run) -> None:
    run("sync", WALLET)
    run("sync", "--base-url", UNUSED)
    run("sync", WALLET, "--base-url", "api.example.com")
    run("sync", "0xabc", "--base-url", UNUSED)
    run("sync", WALLET, _config('base_ur = "https://api.example.com"\n'))
    run("routes", _config('[routes.Payment]\npath = "/v1/payments/{resourceId}"\n'))
    run("serve", "--base-url", UNUSED)
    run("holdings", "-d", "missing.db")


def _network(run: Run, certificate: str) -> None:
    """https to servers without TLS, one of which answers; a certificate; no server; no proxy."""

    def answer_plainly() -> None:
        connection, _ = plain.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(65_536)

    with socket.create_server(("127.0.0.1", 0)) as plain:
        threading.Thread(target=answer_plainly).start()
        run("sync", WALLET, "--base-url", f"https://127.0.0.1:{plain.getsockname()[1]}")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        run("sync", WALLET, "--timeout", "1", "--base-url", url)
    with fake.Provider(certificate=certificate) as secure:
        run("sync", WALLET, "--base-url", secure.url)
    run("sync", WALLET, *ONCE, f"http://127.0.0.1:{free_port()}")
    run("sync", WALLET, *ONCE, "http://api.example.com", _config(f'proxy = "{UNUSED}"\n'))


def _provider(run: Run) -> None:
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
    with fake.Provider() as provider:
        for number, answer in enumerate(answers):
            provider.always(answer)
            run("sync", fake.wallet(number), *ONCE, provider.url)
        provider.always(fake.reply(status=401))
        run("sync", WALLET, *ONCE, provider.url, _config('api_token = "a-token"\n'))
        provider.always(fake.silence())
        run("sync", WALLET, "--timeout", "0.5", *ONCE, provider.url)
        provider.always(fake.reply(twice.replace(b'"X"', b'"Eyes"')))
        run("sync", fake.wallet(99), *ONCE, provider.url, fails=False)
    wallets = [fake.wallet(number) for number in range(40)]
    with fake.Provider() as provider:
        for held in (1, 0):
            for number, wallet in enumerate(wallets):
                provider.holds(wallet, *[fake.entry(fake.token(number))] * held)
            run("sync", *wallets, *ONCE, provider.url, fails=not held)


class _ShutConnection(sqlite3.Connection):
    def execute(self, *_: object) -> sqlite3.Cursor:
        raise sqlite3.OperationalError("unable to open database file")


def _database(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync_lock(tmp_path / "locked.db"):
        run("sync", WALLET, "--base-url", UNUSED, "-d", "locked.db")
    query(tmp_path / "other.db", "CREATE TABLE cats (name)")
    run("holdings", "-d", "other.db")
    query(
        begun(tmp_path / "newer.db"),
        "UPDATE _sqlite_migrations SET name = 'from the future'"
        " WHERE id = (SELECT max(id) FROM _sqlite_migrations)",
    )
    run("holdings", "-d", "newer.db")
    unpacked("0.5.0", tmp_path / "earlier.db")
    run("status", "--max-age", "1s", "-d", "earlier.db")
    unpacked("0.4.0", tmp_path / "refused.db")
    run("status", "-d", "refused.db")
    begun(tmp_path / "shut.db")
    with monkeypatch.context() as patched:  # root may write everywhere, so no folder is shut to it
        patched.setattr("nftsync.store.database.sqlite3.connect", _ShutConnection)
        patched.setattr("nftsync.store.database.os.access", lambda *_: False)
        run("holdings", "-d", "shut.db")
    (tmp_path / "emptied.db").touch()
    (tmp_path / "emptied.db-wal").write_bytes(b"x" * 4096)
    run("holdings", "-d", "emptied.db")


def _webhooks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken, monkeypatch.context() as patched:
        patched.setenv("NFTSYNC_WEBHOOK_SECRET", "a-secret-of-the-tests")
        run("serve", "--base-url", UNUSED, "--port", str(taken.getsockname()[1]))
        patched.setenv("NFTSYNC_WEBHOOK_SECRET", "short")
        run("check")
    Inbox(Path("down.db")).fill(1)
    run("replay", "--retries", "1", "--base-url", UNUSED, "-d", "down.db")
    inbox = Inbox(Path("kept.db"))
    inbox.receive(
        body_of(1, resourceType="Transaction"),
        body_of(1, resourceType="Transaction", changes={"name": "other"}),
    )
    inbox.receive(body_of(2), organization=fake.wallet(3))
    with fake.Provider() as provider:
        run("replay", "--base-url", provider.url, "-d", "kept.db", fails=False)
    monkeypatch.setenv("NFTSYNC_ORGANIZATION_ID", fake.wallet(3))
    run("inbox", "requeue", "--state", "quarantined", "-d", "kept.db")


def _explained(message: str) -> str:
    with pytest.raises(StoreError) as raised, explained("named.db"):
        raise sqlite3.OperationalError(message)
    return f"nftsync: {raised.value}"


def _sandbox(certificate: str) -> None:
    with fake.Provider(certificate=certificate) as secure, SandboxServer(World()) as server:
        configure(server, f"{secure.url}/webhooks")
        server.sandbox.emit("nft", "Wallet", WALLET, "update")
        wait_until(lambda: server.sandbox.deliveries()[0]["attempts"])


def _reading_process() -> None:
    """It ends each time, as its threads wait for longer than the clock's functions take."""
    with fake.Provider() as provider:
        provider.always(fake.reply(status=429))
        config = ClientConfig(base_url=provider.url, first_wait=1e300)
        with closing(Process(config, SequenceNumbers(0, 0), 1)) as reader:
            reader.submit([WalletTask(WALLET)])
            with pytest.raises(RunInterrupted):  # noqa: PT012 - one call of several
                while True:
                    reader.take(1, timeout=0.1)


def test_each_message_is_a_real_one(run, said, tmp_path, monkeypatch, certificates, caplog):
    _reading_process()
    _sandbox(certificates.server)
    said += [record.getMessage() for record in caplog.records]
    _settings(run)
    _network(run, certificates.server)
    _provider(run)
    _database(run, tmp_path, monkeypatch)
    _webhooks(run, monkeypatch)
    said += [error for (error,) in query(Path("kept.db"), "SELECT last_error FROM webhooks")]
    assert "locked by another program" in _explained("database is locked")
    said.append(_explained("database or disk is full"))
    with pytest.raises(NftsyncError) as crowded, enough_threads():
        raise RuntimeError("can't start new thread")
    said.append(f"nftsync: {crowded.value}")
    messages = [block.text.strip() for block in blocks(PAGE) if block.language == "text"]
    assert [text for text in messages if not any(map(_pattern(text).fullmatch, said))] == [], said


def _pattern(message: str) -> re.Pattern[str]:
    """What matches a message in which `…` stands for any text.

    One that does not begin with the program's name stands behind a wallet's id on stderr, or in
    the inbox.
    """
    before = "" if message.startswith("nftsync: ") else "(?:nftsync: [0-9a-f-]{36}: )?"
    return re.compile(before + re.escape(message).replace("…", ".+"))
