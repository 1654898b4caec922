"""No secret crosses the network to a scheduler: workers have their own."""

from __future__ import annotations

import base64
import json
import os
import socket
import socketserver
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit import lakes
from tests.kit.forward_proxy import ForwardProxy
from tests.kit.lake_cluster import cluster_of, refused, show, sync_words
from tests.kit.processes import ended, start
from tests.kit.provider import Provider, wallet
from tests.kit.serve_process import free_port
from tests.kit.servers import ThreadServer, carry
from tests.kit.worlds import PATIENCE
from tests.kit.worlds import run_command as command

WALLETS = [wallet(number) for number in range(8)]
#: Dask sends payloads as they are, so that a record can be searched.
PLAIN = {"DASK_DISTRIBUTED__COMM__COMPRESSION": "False"}


@pytest.fixture
def provider(provider) -> Provider:
    show(provider, WALLETS)
    return provider


def headers(provider: Provider, since: int = 0) -> set[tuple[str | None, ...]]:
    seen = provider.requests()[since:]
    return {tuple(one.headers.get(name) for name in ("authorization", "x-key")) for one in seen}


class Tapped(socketserver.BaseRequestHandler):
    server: Wiretap

    def handle(self) -> None:
        here, sent, received = self.request, bytearray(), bytearray()
        self.server.records += [sent, received]
        with suppress(OSError), socket.create_connection(self.server.target) as there:
            back = threading.Thread(target=carry, args=(there, here, received.extend), daemon=True)
            back.start()
            carry(here, there, sent.extend)
            back.join()


class Wiretap(ThreadServer):
    """A proxy that records each direction of each connection to a port."""

    def __init__(self, port: int) -> None:
        super().__init__(Tapped)
        self.target, self.address = ("127.0.0.1", port), f"tcp://127.0.0.1:{self.port}"
        self.records: list[bytearray] = []

    def count(self, text: str) -> int:
        return sum(bytes(record).count(form) for record in self.records for form in forms_of(text))


def forms_of(text: str) -> set[bytes]:
    """Return a text in plain and in base64, but for letters that depend on the bytes around it."""
    plain = text.encode()
    starts = {before: base64.b64encode(bytes(before) + plain) for before in range(3)}
    return {plain} | {
        encoded[(8 * before + 5) // 6 : (before + len(plain)) * 8 // 6]
        for before, encoded in starts.items()
    }


def variables_of(name: str, folder: Path, proxy: ForwardProxy, files: Any) -> dict[str, str]:
    """Return the settings of the driver or of the workers; secrets start with `canary-NAME-`."""
    key = folder / f"{name}.key"
    key.write_text(Path(files.client_key_alone).read_text())
    token = base64.b64encode(f"canary-{name}-token-4711".encode()).decode()
    return {
        "NFTSYNC_API_TOKEN": f"canary-{name}-api-4711",
        # Only its output has the token.
        "NFTSYNC_TOKEN_COMMAND": f"sh -c 'echo {token} | base64 -d' canary-{name}-argument-4711",
        "NFTSYNC_HEADERS": json.dumps({"X-Key": f"canary-{name}-headers-4711"}),
        "NFTSYNC_PROXY": proxy.with_credentials(f"me:canary-{name}-password-4711"),
        "NFTSYNC_WEBHOOK_SECRET": f"canary-{name}-webhook-4711",
        "NFTSYNC_CA_FILE": files.ca,
        "NFTSYNC_CLIENT_CERTIFICATE": files.client_certificate_alone,
        "NFTSYNC_CLIENT_KEY": str(key),
        "AWS_ACCESS_KEY_ID": f"canary-{name}-store-id",
        "AWS_SECRET_ACCESS_KEY": f"canary-{name}-store-secret",
    }


def test_no_secret_crosses_the_network_to_a_scheduler(lake, certificates, tmp_path):
    """Neither of the driver nor of a worker; each worker signs in with its own."""
    with ExitStack() as stack:
        enter = stack.enter_context
        provider = enter(Provider(certificate=certificates.server))
        amounts = show(provider, WALLETS)
        proxy = enter(ForwardProxy())
        driving, working = (
            PLAIN | variables_of(name, tmp_path, proxy, certificates)
            for name in ("driver", "worker")
        )
        proxy.credentials = "me:canary-worker-password-4711"
        cluster = enter(cluster_of(tmp_path, 0, working))
        taps = [enter(Wiretap(int(cluster.address.rpartition(":")[2])))]
        for _ in range(2):
            taps.append(enter(Wiretap(free_port())))
            own = f"tcp://127.0.0.1:{taps[-1].target[1]}"
            addresses = ("--listen-address", own, "--contact-address", taps[-1].address)
            cluster.start_worker(*addresses, scheduler=taps[0].address)
        words = sync_words(lake, WALLETS, provider.url, taps[0].address)
        outcome = ended(start(*words, folder=tmp_path, variables=driving))
        private = [
            x for x in Path(certificates.client_key_alone).read_text().split() if len(x) > 30
        ]
        seen = {
            secret: sum(tap.count(secret) for tap in taps)
            for secret in ("canary-driver-", "canary-worker-", private[0])
        }
        # The records are readable: they have the addresses for the workers.
        assert all(sum(map(len, tap.records)) > 1_000 for tap in taps)
        assert taps[0].count(provider.url)
    assert not {secret: count for secret, count in seen.items() if count}
    assert outcome.code == 0, outcome.err
    token, key = "Bearer canary-worker-token-4711", "canary-worker-headers-4711"
    assert headers(provider) == {(token, key)}
    assert lakes.held(lake) == amounts


#: Settings of a driver that it must not send.
OWN = {
    "NFTSYNC_API_TOKEN": "canary",
    "NFTSYNC_TOKEN_COMMAND": "echo canary",
    "NFTSYNC_HEADERS": '{"X-Key": "canary"}',
    "NFTSYNC_PROXY": "http://me:canary@127.0.0.1:9",
    "NFTSYNC_CA_FILE": "canary.pem",
    "NFTSYNC_CLIENT_CERTIFICATE": "canary.pem",
}


def test_a_worker_without_settings_of_the_driver_ends_the_run(provider, sync, monkeypatch):
    for variable, value in OWN.items():
        monkeypatch.setenv(variable, value)
    outcome = sync(WALLETS)
    refused(outcome, 2, *OWN, "worker tcp://127.0.0.1:")
    assert "canary" not in outcome.said
    assert not provider.requests()


def test_workers_read_their_own_files_or_name_a_missing_one(provider, sync, tmp_path):
    """A settings file, and the file of a secret; but the driver names the provider."""
    settings, secret = tmp_path / "settings.toml", tmp_path / "token"
    settings.write_text('base_url = "http://127.0.0.1:9"\n[headers]\nX-Key = "own"\n')
    (tmp_path / "driver.toml").write_text('api_token = "of-the-driver"\n')
    with cluster_of(tmp_path, 0) as cluster:
        where = ("--scheduler", cluster)
        cluster.variables = {"NFTSYNC_API_TOKEN_FILE": str(secret)}  # it is missing
        cluster.start_worker("--name", "alice")
        outcome = sync(WALLETS, *where)
        cluster.kill()
        refused(outcome, 2, "worker alice (tcp://", "NFTSYNC_API_TOKEN_FILE", str(secret))
        cluster.variables = {**cluster.variables, "NFTSYNC_CONFIG": str(settings)}
        cluster.start_worker()
        for text in ("from-a-file", "rotated"):  # the next run reads it again
            secret.write_text(f"{text}\n")
            asked = len(provider.requests())
            sync(WALLETS, *where, "--config", tmp_path / "driver.toml").says()
            assert headers(provider, asked) == {(f"Bearer {text}", "own")}


def test_started_workers_sign_in_as_the_sync_and_write_for_the_owner(
    lake, provider, tmp_path, monkeypatch
):
    """Also with a secret that can be read only once, and a settings file of the command's flag."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=("only-once\n",), daemon=True)
    writing.start()
    (tmp_path / "own.toml").write_text('[headers]\nX-Key = "from-settings"\n')
    (tmp_path / "nftsync.toml").write_text('[headers]\nX-Key = "not-this"\n')
    monkeypatch.setenv("NFTSYNC_API_TOKEN_FILE", str(pipe))
    lake.mkdir()
    lake.chmod(0o755)
    before = os.umask(0)
    try:
        words = sync_words(lake, WALLETS, provider.url)
        command(*words, "--workers", 1, "--config", "own.toml").says()
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    writing.join(PATIENCE)
    assert headers(provider) == {("Bearer only-once", "from-settings")}
    assert lake.stat().st_mode & 0o777 == 0o755  # it is the user's
    assert len(list(lake.rglob("*.parquet"))) > 5
    assert not [path for path in lake.rglob("*") if path.stat().st_mode & 0o077]
