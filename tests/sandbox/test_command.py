"""`nftsync sandbox` as a process: its files and its output."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.serve_process import environment
from tests.kit.waiting import wait_until
from tests.kit.webhook_receiver import CONFIG, SECRET, UNKNOWN, Receiver
from tests.kit.worlds import PATIENCE, Command

FAST = ("--time-scale", "0.0001")


class Said:
    """A running sandbox, with its address and its output."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self._file = folder / "said.txt"
        wait_until(lambda: "all calls" in self.text or process.poll() is not None, "start")
        assert process.poll() is None, self.text
        self.url = self.text.split()[0]

    @property
    def text(self) -> str:
        return self._file.read_text()

    def send(self, url: str, number: int) -> list[dict[str, Any]]:
        """Send webhooks to a receiver; returns them once no attempt is left."""
        config = {"url": url, "enabled": True, "sharedSecret": SECRET, "webhookTypes": ["nft"]}
        body = {"type": "nft", "resourceType": "X", "resourceId": UNKNOWN, "action": "create"}
        with httpx.Client(base_url=self.url, trust_env=False, timeout=60) as client:
            client.patch(CONFIG, json=config).raise_for_status()
            for _ in range(number):
                client.post("/sandbox/emit", json=body).raise_for_status()

            def sent() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = client.get("/sandbox/deliveries").json()
                return found

            wait_until(lambda: all(one["state"] != "pending" for one in sent()))
            return sent()


@contextmanager
def running(folder: Path, *arguments: object, **variables: str) -> Iterator[Said]:
    words = [sys.executable, "-m", "nftsync", "sandbox", "--port", "0", *map(str, arguments)]
    with (
        (folder / "said.txt").open("wb") as file,
        subprocess.Popen(words, cwd=folder, env=environment(**variables), stderr=file) as process,
    ):
        try:
            yield Said(folder, process)
        finally:
            process.kill()
            process.wait(PATIENCE)


@pytest.mark.parametrize("source", ["generated", "world", "state"])
def test_it_writes_a_wallets_file_and_names_working_commands(tmp_path: Path, source: str) -> None:
    """They sync all wallets into a database of their own, and show them; no token is needed."""
    line = json.dumps({"walletId": UNKNOWN, "label": "x", "nftTokenBalances": []})
    (tmp_path / "world.jsonl").write_text(line)
    with SandboxServer(generate(wallets=3), state=tmp_path / "my.state") as server:
        stored = server.world.wallets()
    options, expected = {
        "generated": (["--wallets", "4"], None),
        "world": (["--world", "world.jsonl"], [UNKNOWN]),
        "state": (["--state", "my.state", "--seed", "4"], stored),
    }[source]
    with running(tmp_path, *options, "--wallets-out", "my wallets.txt") as sandbox:
        ids = httpx.get(f"{sandbox.url}/sandbox/wallets", trust_env=False).json()
        assert expected in (None, ids)
        assert (tmp_path / "my wallets.txt").read_text().split() == ids
        continuing = "Continuing with the data in my.state; --seed had no effect"
        assert (continuing in sandbox.text) == (source == "state")
        assert "webhook-config --base-url" in sandbox.text
        commands = re.findall(r"^  (.+ (?:sync|holdings) .+)$", sandbox.text, re.MULTILINE)
        assert len(commands) == 2
        for command in commands:
            done = subprocess.run(
                shlex.split(command),
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            if " sync " in command:
                assert f"{len(ids)} wallet{'s' * (len(ids) > 1)} read" in done.stdout
    assert (tmp_path / "sandbox.db").exists()
    assert not (tmp_path / "data").exists()


def test_flags_that_cannot_be_used_are_named(tmp_path: Path, command: Command) -> None:
    mine = tmp_path / "wallets.csv"
    mine.write_text("mine")
    for arguments, message in (
        (["--wallets-out", mine], "wallets.csv already exists; name a new file"),
        (["--world", tmp_path / "gone"], "cannot read"),
        (["--latency-ms", "nan"], "finite numbers"),
    ):
        failed = command("sandbox", "--port", "0", *arguments).tells(message)
        assert failed.err.count("\n") == 1
    assert mine.read_text() == "mine"
    for line in (
        *("--world x --wallets 5", "--world x --nfts 5", "--fail-rate 1.5", "--rate-limit 0"),
        *("--latency-ms -1", "--port 99999", "--time-scale 0"),
    ):
        assert command("sandbox", *line.split()).code == 2


def test_a_failure_is_printed_once_per_reason(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answer = lambda _received, number: 500 if number % 2 else 404
    with running(tmp_path, *FAST) as sandbox:
        attempts = [one["attempts"] for one in sandbox.send(receiver.url, 3)]
        assert [len(made) for made in attempts] == [8, 8, 8]
        sandbox.send("http://127.0.0.1:9/webhooks", 2)
        told = [line for line in sandbox.text.splitlines() if "cannot deliver" in line]
    said = f"cannot deliver webhooks to {receiver.url}: it answered "
    assert sorted(told[:2]) == [f"{said}404", f"{said}500"]
    [nobody] = told[2:]
    assert nobody.startswith("cannot deliver webhooks to http://127.0.0.1:9/webhooks: no response")
