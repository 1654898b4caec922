"""No secret crosses the network to a scheduler: workers have their own."""

from __future__ import annotations

import base64
import json
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.forward_proxy import ForwardProxy
from tests.kit.lake_cluster import cluster_of, command, ended, held, start
from tests.kit.provider import Provider, wallet
from tests.kit.serve_process import free_port
from tests.kit.worlds import PATIENCE
from tests.lake.conftest import Sync
from tests.lake.lakes import refused, show
from tests.lake.wiretap import Wiretap

WALLETS = [wallet(number) for number in range(8)]
WORDS = ("--wallets-file", "wallets.txt", "--buckets", 2, "--base-url")
#: Dask sends payloads as they are, so that a record can be searched.
PLAIN = {"DASK_DISTRIBUTED__COMM__COMPRESSION": "False"}


@pytest.fixture(autouse=True)
def _wallets(tmp_path: Path) -> None:
    (tmp_path / "wallets.txt").write_text("\n".join(WALLETS))


@pytest.fixture
def provider(provider: Provider) -> Provider:
    show(provider, WALLETS)
    return provider


def headers(provider: Provider, since: int = 0) -> set[tuple[str | None, str | None]]:
    """Return the credentials of the requests since a number."""
    names = ("authorization", "x-key")
    return {
        (seen.headers.get(names[0]), seen.headers.get(names[1]))
        for seen in provider.requests()[since:]
    }


class Side:
    """The secrets of the driver, or of the workers."""

    def __init__(self, name: str, folder: Path, proxy: ForwardProxy, files: Any) -> None:
        def canary(what: str) -> str:
            return f"canary-{name}-{what}-4711"

        key = folder / f"{name}.key"
        key.write_text(Path(files.client_key_alone).read_text())
        kinds = ("token", "api_token", "argument", "headers", "password", "store")
        self.secrets = {kind: canary(kind) for kind in (*kinds, "webhook_secret")}
        self.secrets["client_key"] = next(x for x in key.read_text().splitlines() if "-" not in x)
        self.token, self.key = self.secrets["token"], self.secrets["headers"]
        self.proxy_credentials = f"me:{self.secrets['password']}"
        encoded = base64.b64encode(self.token.encode()).decode()
        self.variables = {
            "NFTSYNC_API_TOKEN": self.secrets["api_token"],
            # Only its output has the token.
            "NFTSYNC_TOKEN_COMMAND": f"sh -c 'echo {encoded} | base64 -d' {canary('argument')}",
            "NFTSYNC_HEADERS": json.dumps({"X-Key": self.key}),
            "NFTSYNC_PROXY": proxy.with_credentials(self.proxy_credentials),
            "NFTSYNC_WEBHOOK_SECRET": canary("webhook_secret"),
            "NFTSYNC_CA_FILE": files.ca,
            "NFTSYNC_CLIENT_CERTIFICATE": files.client_certificate_alone,
            "NFTSYNC_CLIENT_KEY": str(key),
            "AWS_ACCESS_KEY_ID": f"{canary('store')}-id",
            "AWS_SECRET_ACCESS_KEY": f"{canary('store')}-secret",
        }


def test_no_secret_crosses_the_network_to_a_scheduler(
    lake: Path, certificates: Any, tmp_path: Path
) -> None:
    """Neither of the driver nor of a worker; each worker signs in with its own."""
    with ExitStack() as stack:
        enter = stack.enter_context
        provider = enter(Provider(certificate=certificates.server))
        amounts = show(provider, WALLETS)
        proxy = enter(ForwardProxy())
        driving = Side("driver", tmp_path, proxy, certificates)
        working = Side("worker", tmp_path, proxy, certificates)
        proxy.credentials = working.proxy_credentials
        cluster = enter(cluster_of(tmp_path, 0, working.variables | PLAIN))
        host, port = cluster.address.removeprefix("tcp://").split(":")
        taps = [enter(Wiretap((host, int(port))))]
        for _ in range(2):
            own = free_port()
            taps.append(enter(Wiretap(("127.0.0.1", own))))
            addresses = ["--listen-address", f"tcp://127.0.0.1:{own}"]
            addresses += ["--contact-address", taps[-1].address]
            cluster.workers.append(cluster.start_worker(*addresses, scheduler=taps[0].address))
        where = ("--scheduler", taps[0].address)
        variables = driving.variables | PLAIN
        words = ("lake", "sync", lake, *where, *WORDS, provider.url)
        outcome = ended(start(*words, folder=tmp_path, variables=variables))
        sizes = [tap.size() for tap in taps]
        seen = {
            f"{name} of the {side}": sum(tap.count(secret) for tap in taps)
            for side, secrets in (("driver", driving.secrets), ("worker", working.secrets))
            for name, secret in secrets.items()
        }
        urls = taps[0].count(provider.url)
    # The records are readable: they have the addresses for the workers.
    assert all(size > 1_000 for size in sizes)
    assert urls
    assert not {name: count for name, count in seen.items() if count}
    assert outcome.code == 0, outcome.err
    assert headers(provider) == {(f"Bearer {working.token}", working.key)}
    assert held(lake) == amounts


#: Settings of a driver that it must not send.
OWN = {
    "NFTSYNC_API_TOKEN": "canary",
    "NFTSYNC_TOKEN_COMMAND": "echo canary",
    "NFTSYNC_HEADERS": '{"X-Key": "canary"}',
    "NFTSYNC_PROXY": "http://me:canary@127.0.0.1:9",
    "NFTSYNC_CA_FILE": "canary.pem",
    "NFTSYNC_CLIENT_CERTIFICATE": "canary.pem",
}


def test_a_worker_without_settings_of_the_driver_ends_the_run_with_one_line(
    provider: Provider, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in OWN.items():
        monkeypatch.setenv(variable, value)
    outcome = sync(WALLETS)
    refused(outcome, 2, *OWN, "worker tcp://127.0.0.1:")
    assert "canary" not in outcome.said
    assert not provider.requests()


def test_workers_read_their_own_files_or_name_themselves_and_the_missing_file(
    provider: Provider, sync: Sync, tmp_path: Path
) -> None:
    """A settings file, and the file of a secret; but the driver names the provider."""
    settings, secret = tmp_path / "settings.toml", tmp_path / "token"
    settings.write_text('base_url = "http://127.0.0.1:9"\n[headers]\nX-Key = "own"\n')
    (tmp_path / "driver.toml").write_text('api_token = "of-the-driver"\n')
    with cluster_of(tmp_path, 0) as cluster:
        where = ("--scheduler", cluster.address)
        cluster.variables = {"NFTSYNC_API_TOKEN_FILE": str(secret)}  # it is missing
        cluster.workers.append(cluster.start_worker("--name", "alice"))
        outcome = sync(WALLETS, *where)
        cluster.workers[0].kill()
        refused(outcome, 2, "worker alice (tcp://", "NFTSYNC_API_TOKEN_FILE", str(secret))
        cluster.variables = {**cluster.variables, "NFTSYNC_CONFIG": str(settings)}
        cluster.workers.append(cluster.start_worker())
        for text in ("from-a-file", "rotated"):  # the next run reads it again
            secret.write_text(f"{text}\n")
            asked = len(provider.requests())
            sync(WALLETS, *where, "--config", tmp_path / "driver.toml").says()
            assert headers(provider, asked) == {(f"Bearer {text}", "own")}


def test_workers_that_a_sync_starts_sign_in_as_it_does_and_write_for_the_owner_alone(
    lake: Path, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        more = ("--workers", 1, "--config", "own.toml")
        command("lake", "sync", lake, *WORDS, provider.url, *more).says()
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    writing.join(PATIENCE)
    assert headers(provider) == {("Bearer only-once", "from-settings")}
    assert lake.stat().st_mode & 0o777 == 0o755  # it is the user's
    assert len(list(lake.rglob("*.parquet"))) > 5
    assert not [path for path in lake.rglob("*") if path.stat().st_mode & 0o077]
