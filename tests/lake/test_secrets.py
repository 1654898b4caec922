"""No secret crosses the network to a scheduler: workers have their own."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.forward_proxy import ForwardProxy
from tests.kit.lake_cluster import cluster_of, driver, held
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.serve_process import free_port
from tests.kit.worlds import PATIENCE, Outcome
from tests.lake.conftest import Sync, refused
from tests.lake.wiretap import Wiretap

WALLETS = [wallet(number) for number in range(8)]
#: Dask sends payloads as they are, so that a record can be searched.
PLAIN = {"DASK_DISTRIBUTED__COMM__COMPRESSION": "False"}


def fill(provider: Provider) -> Provider:
    for number, each in enumerate(WALLETS):
        provider.holds(each, entry(token(number)))
    return provider


@pytest.fixture
def provider(provider: Provider) -> Provider:
    return fill(provider)


def authorizations(provider: Provider) -> set[str | None]:
    return {seen.headers.get("authorization") for seen in provider.requests()}


class Side:
    """All secrets of the driver, or of the workers."""

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
            # Nothing but its output has the token.
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
        provider = fill(enter(Provider(certificate=certificates.server)))
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
        (tmp_path / "wallets.txt").write_text("\n".join(WALLETS))
        more = ("--base-url", provider.url, "--wallets-file", "wallets.txt", "--buckets", 2)
        process = driver(lake, *where, *more, folder=tmp_path, variables=driving.variables | PLAIN)
        _, err = process.communicate(timeout=PATIENCE)
        sizes = [tap.size() for tap in taps]
        seen = {
            f"{name} of the {side}": sum(tap.count(secret) for tap in taps)
            for side, secrets in (("driver", driving.secrets), ("worker", working.secrets))
            for name, secret in secrets.items()
        }
        urls = taps[0].count(provider.url)
    # All that passes can be read: what the workers are told is there.
    assert all(size > 1_000 for size in sizes)
    assert urls
    assert not {name: count for name, count in seen.items() if count}
    assert process.returncode == 0, err
    assert authorizations(provider) == {f"Bearer {working.token}"}
    assert {each.headers["x-key"] for each in provider.requests()} == {working.key}
    assert len(held(lake)) == len(WALLETS)


#: What a driver may have in its environment and must not send.
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
    done = sync(provider.url, WALLETS)
    refused(done, 2, *OWN, "worker tcp://127.0.0.1:")
    assert "canary" not in done.said
    assert not provider.requests()


def test_workers_read_their_own_files_or_say_with_their_name_what_is_wrong_with_them(
    provider: Provider, sync: Sync, tmp_path: Path
) -> None:
    """A settings file, and the file of a secret; but the driver says which provider, and how."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "settings.toml").write_text(
        'base_url = "http://127.0.0.1:9"\nconcurrency = 1\n[headers]\nX-Key = "from-settings"\n'
    )
    (tmp_path / "driver.toml").write_text('api_token = "of-the-driver"\n')
    with cluster_of(tmp_path, 0) as cluster:
        where = ("--scheduler", cluster.address, "--config", tmp_path / "driver.toml")
        cluster.variables = {"NFTSYNC_API_TOKEN_FILE": str(own / "token")}  # it is missing
        cluster.workers.append(cluster.start_worker("--name", "alice"))
        done = sync(provider.url, WALLETS, *where[:2])
        cluster.workers[-1].kill()
        words = ("NFTSYNC_API_TOKEN_FILE", str(own / "token"))
        refused(done, 2, "worker alice (tcp://127.0.0.1:", *words)
        cluster.variables = {
            "NFTSYNC_CONFIG": str(own / "settings.toml"),
            "NFTSYNC_API_TOKEN_FILE": str(own / "token"),
        }
        cluster.workers.append(cluster.start_worker())
        for secret in ("from-a-file", "rotated"):  # the next run reads it again
            (own / "token").write_text(f"{secret}\n")
            count = len(provider.requests())
            done = sync(provider.url, WALLETS, *where)
            assert done.code == 0, done.err
            seen = [each.headers for each in provider.requests()[count:]]
            assert {each["authorization"] for each in seen} == {f"Bearer {secret}"}
            assert {each["x-key"] for each in seen} == {"from-settings"}


def test_workers_that_a_sync_starts_itself_sign_in_as_it_does_and_write_for_the_owner_alone(
    lake: Path,
    provider: Provider,
    tmp_path: Path,
    command: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with secrets that can be read only once, or that only this command's flags lead to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=("only-once\n",), daemon=True)
    writing.start()
    (tmp_path / "own.toml").write_text('[headers]\nX-Key = "from-settings"\n')
    (tmp_path / "nftsync.toml").write_text('[headers]\nX-Key = "not-this"\n')
    (tmp_path / "wallets.txt").write_text("\n".join(WALLETS))
    monkeypatch.setenv("NFTSYNC_API_TOKEN_FILE", str(pipe))
    lake.mkdir()
    lake.chmod(0o755)
    words = ("--base-url", provider.url, "--wallets-file", "wallets.txt", "--config", "own.toml")
    before = os.umask(0)
    try:
        done = command("lake", "sync", lake, *words, "--workers", 1, "--buckets", 2)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    writing.join(PATIENCE)
    assert done.code == 0, done.err
    assert authorizations(provider) == {"Bearer only-once"}
    assert {each.headers["x-key"] for each in provider.requests()} == {"from-settings"}
    assert lake.stat().st_mode & 0o777 == 0o755  # it is the user's
    assert len(list(lake.rglob("*.parquet"))) > 5
    assert not [path for path in lake.rglob("*") if path.stat().st_mode & 0o077]
