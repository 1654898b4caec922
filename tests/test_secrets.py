"""Every secret is a canary: no command, log, file, page or traceback sings; files are private."""

import json
import os
import stat
import traceback
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import click
import dask
import httpx
import pytest
from distributed import LocalCluster

import nftsync
from nftsync import frames
from nftsync.cli import nftsync as commands
from nftsync.errors import NftsyncError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import Inbox, Outbox, body_of, message, webhook
from tests.kit.provider import Provider, reply
from tests.kit.serve_process import free_port, serving, wait_until_done
from tests.kit.serve_process import webhook as webhook_of
from tests.kit.waiting import wait_until

TOKEN, ARGUMENT, SECRET, PREVIOUS, HEADER, PASSWORD, SLACK, MAIL, QUERY, PAGER, PING = CANARIES = [
    f"canary-{name}-4711"
    for name in (
        *("token", "argument", "secret", "previous", "header"),
        *("proxy", "slack", "mail", "query", "pager", "ping"),
    )
]
SIGNING = b64encode(b"canary-signing-4711-" * 2).decode()
CANARIES.append(SIGNING)
VARIABLES = {
    "NFTSYNC_API_TOKEN": TOKEN,
    "NFTSYNC_TOKEN_COMMAND": f"sh -c 'echo {ARGUMENT}'",
    "NFTSYNC_WEBHOOK_SECRET": SECRET,
    "NFTSYNC_WEBHOOK_SECRET_PREVIOUS": PREVIOUS,
    "NFTSYNC_RETRIES": "1",
    "NFTSYNC_HEADERS": json.dumps({"X-Key": HEADER}),
    "NFTSYNC_PING_URL": f"http://127.0.0.1:9/{PING}?key={PING}",
}
#: Commands that run until they are stopped, or have no secrets; `serve` has its own test.
ELSEWHERE = {"demo", "lake", "notebook", "sandbox", "serve"}


def sings(text: str | bytes) -> bool:
    held = text.encode() if isinstance(text, str) else text
    return any(canary.encode() in held for canary in CANARIES)


def contents(file: Path) -> Iterator[bytes]:
    yield file.read_bytes()
    if file.suffix == ".xlsx":
        with zipfile.ZipFile(file) as book:
            yield from map(book.read, book.namelist())


def assert_all_private_and_silent(folder: Path) -> int:
    """Only the owner may read files, whatever the umask; they contain no secret.

    Of a lake, the folder of which is the owner's alone, Delta writes the files.
    """
    found = [*folder.rglob("*")]
    lakes = {path for path in found if (path / "runs" / "_delta_log").exists()}
    for path in found:
        if lakes.isdisjoint(path.parents):
            assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
        if path.is_file():
            assert not any(map(sings, contents(path))), path
    return len(found)


def alerts(folder: Path, accepts: str, refuses: str) -> Path:
    """Write settings with a destination of each kind, and return the file."""
    (folder / "signing").write_text(f"whsec_{SIGNING}\n")
    (folder / "slack").write_text(f"{refuses}/services/{SLACK}\n")
    (folder / "mail").write_text(MAIL)
    file = folder / "alerts.toml"
    file.write_text(f"""
        [destinations]
        ops = {{ kind = "webhook", url = "{accepts}?key={QUERY}", secret_file = "signing" }}
        slack = {{ kind = "slack", url_file = "slack" }}
        pager = {{ kind = "command", command = ["sh", "-c", "echo $0 >&2; exit 7", "{PAGER}"] }}
        [destinations.mail]
        kind = "email"
        server = "127.0.0.1"
        port = 9
        security = "none"
        from = "a@example.com"
        recipients = ["b@example.com"]
        username = "a"
        password_file = "mail"
        [watch.moves]
        on = ["received", "wallet_stale", "wallet_failed"]
        to = ["ops", "slack", "pager", "mail"]
        max_age = "1s"
        baseline = true
        [forward.all]
        to = ["ops", "slack", "pager", "mail"]
        original_signature = true
        """)
    return file


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder of one's own, with all secrets set, and a umask that hides nothing."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    before = os.umask(0)
    (tmp_path / "out").mkdir(mode=0o700)
    yield tmp_path / "out"
    os.umask(before)


def leaves(command: click.Command, *names: str) -> set[str]:
    """Every command, as it is typed."""
    found = {" ".join(names)} - {""}
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                found |= leaves(command.get_command(context, name), *names, name)
    return found


@pytest.fixture
def on_cluster() -> Iterator[str]:
    """Flags that let a lake be synced by a worker of this process."""
    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),  # stands still in 3.11
        LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
        ) as cluster,
    ):
        yield f"--scheduler {cluster.scheduler_address}"


def test_no_command_shows_or_stores_a_secret(canaries, command, monkeypatch, on_cluster, tmp_path):
    """Successful commands, and commands that the provider or a proxy refuses."""
    database, lake = canaries / "nftsync.db", canaries / "lake"
    with (
        SandboxServer(lambda url: generate(wallets=3, nfts=3, image_base=url)) as server,
        Provider() as echo,
    ):
        echo.always(lambda peer: reply(f"{peer.seen.path} {peer.seen.headers}".encode(), 403)(peer))
        settings = alerts(tmp_path, f"{server.url}/sandbox/consumer/ops", echo.url)
        monkeypatch.setenv("NFTSYNC_CONFIG", str(settings))
        first, second, third = server.world.wallets()
        listed = json.loads(server.world.balances_body(first) or b"")["nftTokenBalances"]
        contract = listed[0]["token"]["contractAddress"]
        wallets = tmp_path / "wallets.txt"
        wallets.write_text(f"{first}\n{second}\n")
        (tmp_path / "list.csv").write_text(f"wallet,token_id\nStranger,{listed[0]['tokenId']}\n")
        given = {
            "sync": f"{first} {second} --tokens",
            "wallets add": third,
            "wallets label": f"{first} Treasury",
            "wallets untrack": third,
            "evidence": f"{first} --at today",
            "collections label": f"{contract} Name",
            "compare": "list.csv",
            "find": "a",
            "hide": contract,
            "unhide": contract,
            "statement": "--from yesterday --to today",
            **dict.fromkeys(("inbox show", "inbox requeue"), webhook(1)),
            **dict.fromkeys(("inbox prune", "outbox prune"), "--older-than 1s"),
            "watch": "--since 1d",
            "watch test": "moves",
            "watch send": "slack",
            **dict.fromkeys(("outbox show", "outbox requeue"), message(0)),
            "export": canaries / "export",
            "report": canaries / "report.html",
            "snapshot": canaries / "copy.db",
            "backup": canaries / "backups",
            "webhook-config": "--type nft --send-secret --yes",
            "check": first,
            "verify": "--all --repair",
            "lake sync": f"{lake} --wallets-file {wallets} --buckets 2 {on_cluster}",
            "lake import": f"{database} {canaries / 'imported'} --buckets 2",
            "lake export": f"{lake} {canaries / 'exported.db'}",
            "lake fetch": f"{lake} 0 {canaries / 'bucket.db'}",
        }
        every = leaves(commands) - ELSEWHERE
        assert given.keys() <= every
        order = [*given, *sorted(every - given.keys())]
        Inbox(database).receive(body_of(1), body_of(2, resourceType="Payment"))
        Outbox(database).fill(1)
        out = ""
        json_too = {"sync", "status", "holdings", "changes", "evidence", "compare"} | {
            "inbox",
            "verify",
        }
        monkeypatch.setenv("NFTSYNC_BASE_URL", server.url)
        monkeypatch.setenv("NFTSYNC_DATABASE", str(database))
        for name in order:
            for flags in ((), ("--json",))[: 1 + (name in json_too)]:
                own = lake if name.startswith("lake ") else ""
                done = command(*f"{name} {given.get(name, own)}".split(), *flags)
                out += done.said
                checks = (sings(done.said), "Traceback" in done.err, done.code in (0, 1))
                assert checks == (False, False, True), (name, done)
        assert len(server.consumers.records("ops")) > 1
        assert {seen.path for seen in echo.requests()} == {f"/services/{SLACK}"}
        errors = frames.messages(database)["last_error"].dropna()
        for part in ("HTTP 403", "exit code 7", "127.0.0.1:9"):
            assert errors.str.contains(part).any(), part
        for form in ("csv", "xlsx"):
            assert command("export", canaries / form, "--format", form).code == 0
        nftsync.gallery(frames.holdings(database), base_url=server.url).save(canaries / "g.html")
        frames.save(frames.holdings(database), canaries / "held.xlsx")
    with Provider() as refusing:  # its answers repeat the request
        refusing.always(lambda peer: reply(json.dumps(dict(peer.seen.headers)).encode(), 400)(peer))
        for name in ("sync", "check", "verify", "replay", "lake sync"):
            more = f"{lake} {on_cluster}" if name.startswith("lake") else ""
            done = command(*f"{name} {more} --base-url {refusing.url}".split())
            # Whether replay has something to read again by then is a question of seconds.
            assert (done.code == 1 or name == "replay", sings(done.said)) == (True, False), done
        sent = [seen.headers for seen in refusing.requests()]
        assert {each["authorization"] for each in sent} == {f"Bearer {ARGUMENT}"}
    monkeypatch.setenv("NFTSYNC_PROXY", f"http://me:{PASSWORD}@127.0.0.1:9")
    for words in (["sync"], ["check"], ["verify"], ["webhook-config", "--enable"]):
        done = command(*words)
        assert (done.code, sings(done.said)) == (1, False), done
    with pytest.raises(NftsyncError) as caught:
        nftsync.sync([first], timeout=-1)
    assert not sings("".join(traceback.format_exception(caught.value)))
    assert len(out) > 10_000
    assert assert_all_private_and_silent(canaries) > 30


def test_serve_logs_and_tells_no_secret(canaries, tmp_path):
    """Log, metrics, replies and files, with good and bad signatures."""
    metrics = free_port()
    with (
        SandboxServer(lambda url: generate(wallets=2, nfts=2, image_base=url)) as server,
        Provider() as echo,
    ):
        echo.always(lambda peer: reply(f"{peer.seen.path} {peer.seen.headers}".encode(), 403)(peer))
        settings = alerts(tmp_path, f"{server.url}/sandbox/consumer/ops", echo.url)
        wallet = server.world.wallets()[0]
        with serving(
            *(canaries, server.url, "--metrics-port", metrics),
            variables={**VARIABLES, "NFTSYNC_CONFIG": str(settings)},
        ) as serve:
            bodies = [webhook_of("Wallet", wallet), webhook_of("Payment", wallet)]
            assert [serve.post(bodies[0], SECRET), serve.post(bodies[1], PREVIOUS)] == [200, 200]
            assert serve.post(bodies[0], TOKEN) == 401
            wait_until_done(canaries / "nftsync.db", json.loads(bodies[0])["id"])
            wait_until(lambda: len(server.consumers.records("ops")) >= 2)
            wait_until(lambda: len(serve.logged("a message was not delivered")) >= 3)
            told = httpx.get(f"http://127.0.0.1:{metrics}/metrics", trust_env=False).text
            assert serve.stop() == 0
        assert not sings(told + "".join(serve.raw))
        assert len(serve.raw) > 2
    assert assert_all_private_and_silent(canaries) >= 1
