"""Programs of other authors: Prism as the provider, and promtool as a reader of the metrics."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.kit.provider import wallet
from tests.kit.serve_process import free_port, serving
from tests.kit.waiting import wait_until
from tests.kit.worlds import run_command

DESCRIPTION = Path(__file__).parents[2] / "docs/reference/provider.yaml"
WALLETS = [wallet(number) for number in range(20)]


@contextmanager
def prism(folder: Path, *options: str) -> Iterator[str]:
    """Run Prism on the description of the provider; it answers 422 to what this forbids."""
    program = os.environ.get("PRISM") or shutil.which("prism")
    if program is None:
        pytest.skip("Prism is not installed: npm install --global @stoplight/prism-cli")
    port = free_port()
    command = [program, "mock", "--errors", *options, "--port", str(port), str(DESCRIPTION)]
    log = folder / "prism.log"
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as mock:
        try:
            wait_until(lambda: "Prism is listening" in log.read_text(), log.read_text)
            yield f"http://127.0.0.1:{port}"
        finally:
            mock.terminate()


def test_prism_accepts_the_requests_of_nftsync_and_nftsync_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", "a secret of many characters")
    with prism(tmp_path) as url:
        run_command("sync", *WALLETS, "--tokens", "--base-url", url).says("20 wallets read")
        config = ("--url", "https://hooks.example.com/webhooks", "--type", "nft", "--enable")
        run_command("webhook-config", *config, "--send-secret", "--yes", "--base-url", url).says()
        path = f"/v1/wallets/{WALLETS[0]}/nft-balances"
        (shown,) = httpx.get(url + path, trust_env=False).json()["nftTokenBalances"]
    holdings = run_command("holdings", "--json").says().json
    stored = {(x["wallet_id"], x["token_id"], x["amount"]) for x in holdings}
    assert stored == {(wallet_id, shown["tokenId"], shown["amount"]) for wallet_id in WALLETS}


def test_random_answers_of_prism_are_stored_or_named(tmp_path: Path) -> None:
    """Some have an unknown field beside the list, which nftsync takes for a page of several."""
    with prism(tmp_path, "--dynamic") as url:
        outcome = run_command("sync", *WALLETS, "--base-url", url, "--json")
    assert outcome.code in {0, 1}
    for failure in outcome.json["failures"]:
        assert "may be one page of several" in failure["error"]
    stored = run_command("holdings", "--json").says().json
    assert len(stored) == outcome.json["balances"]["added"]
    assert len(stored) > 0


def test_promtool_finds_no_problem_in_the_metrics(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: on Debian, apt install prometheus")
    port = free_port()
    with serving(tmp_path, "http://127.0.0.1:9", "--metrics-port", port):
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).content
    assert metrics.count(b"# TYPE nftsync_") > 30
    checked = subprocess.run([promtool, "check", "metrics"], input=metrics, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
