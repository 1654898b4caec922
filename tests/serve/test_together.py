"""Provider, receiver and replay as commands of their own, and a secret that is rotated."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.serve_process import assert_settled, environment, serving, states
from tests.kit.serve_process import command as command_line
from tests.kit.waiting import wait_until
from tests.kit.worlds import Outcome, mirrored, replayed

OLD, NEW = "the-old-secret", "the-new-secret"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[httpx.Client]:
    """`nftsync sandbox` as a process; a client of it."""
    process = subprocess.Popen(
        command_line("sandbox", "--port", 0, "--wallets", 3, "--nfts", 2, "--time-scale", 0.01),
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    url = process.stderr.readline().partition(" ")[0]
    with process, httpx.Client(base_url=url, trust_env=False, verify=False, timeout=30) as client:
        yield client
        process.terminate()
        assert process.wait() == 0


def holdings(sandbox: httpx.Client) -> dict[tuple[str, str], str]:
    """What the provider lists."""
    found = {}
    for wallet in sandbox.get("/sandbox/wallets").json():
        for entry in sandbox.get(f"/v1/wallets/{wallet}/nft-balances").json()["nftTokenBalances"]:
            found[wallet, entry["tokenId"]] = entry["amount"]
    return found


def transfer(sandbox: httpx.Client) -> None:
    (giver, token), _ = next(iter(holdings(sandbox).items()))
    taker = next(w for w in sandbox.get("/sandbox/wallets").json() if w != giver)
    fields = {"fromWalletId": giver, "toWalletId": taker, "tokenId": token, "amount": "1"}
    sandbox.post("/sandbox/transfer", json=fields).raise_for_status()


def test_commands_work_together_and_a_rotated_secret_loses_no_webhook(
    sandbox: httpx.Client,
    tmp_path: Path,
    command: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = tmp_path / "nftsync.db"
    monkeypatch.setenv("NFTSYNC_DATABASE", str(database))
    monkeypatch.setenv("NFTSYNC_BASE_URL", str(sandbox.base_url).rstrip("/"))

    def nftsync(*words: object, secret: str = OLD) -> Outcome:
        monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", secret)
        done = command(*words)
        assert done.code == 0, done.err
        return done

    def replay() -> dict[str, Any]:
        result: dict[str, Any] = nftsync("replay", "--json").json
        del result["seconds"]
        return result

    def came(count: int) -> None:
        wait_until(lambda: len(states(database)) == count, lambda: states(database))

    came_to = ("done", "failed", "dead", "unrouted", "quarantined", "fetches", "held")
    nothing = dict.fromkeys(came_to, 0)
    wallets = sandbox.get("/sandbox/wallets").json()
    nftsync("sync", *wallets)
    assert replay() == nothing
    only_old = {"NFTSYNC_WEBHOOK_SECRET": OLD}
    with serving(tmp_path, None, "--no-replay", variables=only_old) as server:
        port = int(server.base.rpartition(":")[2])
        nftsync("webhook-config", "--url", server.url, "--type", "nft", "--enable", "--send-secret")
        transfer(sandbox)
        came(2)
        assert set(states(database).values()) == {"pending"}
        assert replay() == nothing | {"done": 2, "fetches": 2}
        assert mirrored(database) == holdings(sandbox)
        assert server.stop() == 0
    transfer(sandbox)  # while nobody receives
    both = {"NFTSYNC_WEBHOOK_SECRET": NEW, "NFTSYNC_WEBHOOK_SECRET_PREVIOUS": OLD}
    with serving(tmp_path, None, "--no-replay", port=port, variables=both) as server:
        came(4)
        nftsync("webhook-config", "--send-secret", secret=NEW)
        transfer(sandbox)
        came(6)
        assert server.stop() == 0
    assert not server.logged("refused a webhook")
    assert replay()["done"] == 4
    assert replay() == nothing
    assert mirrored(database) == replayed(database) == holdings(sandbox)
    delivered = sandbox.get("/sandbox/deliveries").json()
    assert [each["state"] for each in delivered] == ["delivered"] * 6
    assert_settled(database)
