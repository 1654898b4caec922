import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.provider import Peer, reply
from tests.kit.serve_process import environment
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE
from tests.sandbox.conftest import CONFIG, UNKNOWN, config_for, finished


class Running:
    """A running sandbox, with its address and its output."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self._file = folder / "said.txt"
        wait_until(lambda: "all calls" in self.text or process.poll() is not None, "start")
        assert process.poll() is None, self.text
        self.url = self.text.split()[0]

    @property
    def text(self) -> str:
        return self._file.read_text()

    def call(self, method: str, path: str, body: object = None) -> Any:
        answer = httpx.request(
            method, self.url + path, json=body, trust_env=False, verify=False, timeout=60
        )
        return answer.raise_for_status().json()


@contextmanager
def running(folder: Path, *arguments: object) -> Iterator[Running]:
    """Run a sandbox; kill it at the end."""
    words = [sys.executable, "-m", "nftsync", "sandbox", "--port", "0", *map(str, arguments)]
    with (
        (folder / "said.txt").open("wb") as file,
        subprocess.Popen(words, cwd=folder, env=environment(), stderr=file) as process,
    ):
        try:
            yield Running(folder, process)
        finally:
            process.kill()
            process.wait(PATIENCE)


@pytest.mark.parametrize("source", ["generated", "world", "state"])
def test_it_writes_a_wallets_file_and_names_working_commands(tmp_path, source):
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
        ids = sandbox.call("GET", "/sandbox/wallets")
        assert expected in (None, ids)
        assert (tmp_path / "my wallets.txt").read_text().split() == ids
        continuing = "Continuing with the data in my.state; --seed had no effect"
        assert (continuing in sandbox.text) == (source == "state")
        assert "webhook-config --base-url" in sandbox.text
        commands = re.findall(r"^  (.+ (?:sync|holdings) .+)$", sandbox.text, re.MULTILINE)
        assert len(commands) == 2
        for command in commands:
            words, pipe = shlex.split(command), subprocess.PIPE
            done = subprocess.run(
                words, cwd=tmp_path, env=environment(), stdout=pipe, text=True, check=True
            )
            if " sync " in command:
                assert f"{len(ids)} wallet{'s' * (len(ids) > 1)} read" in done.stdout
    assert (tmp_path / "sandbox.db").exists()
    assert not (tmp_path / "data").exists()


def test_flags_that_cannot_be_used_are_named(tmp_path, command):
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


def test_a_failure_is_printed_once_per_reason(tmp_path, receiver):
    receiver.always(lambda peer: reply(status=500 if peer.seen.number % 2 else 404)(peer))
    body = {"type": "nft", "resourceType": "X", "resourceId": UNKNOWN, "action": "create"}
    with running(tmp_path, "--time-scale", "0.0001") as sandbox:
        for to, count in ((receiver, 3), ("http://127.0.0.1:9/webhooks", 2)):
            sandbox.call("PATCH", CONFIG, config_for(to))
            for _ in range(count):
                sandbox.call("POST", "/sandbox/emit", body)
            wait_until(
                lambda: all(
                    one["state"] != "pending" for one in sandbox.call("GET", "/sandbox/deliveries")
                )
            )
        sent = sandbox.call("GET", "/sandbox/deliveries")
        assert [len(one["attempts"]) for one in sent] == [8] * 5
        lines = [line for line in sandbox.text.splitlines() if "cannot deliver" in line]
    said = f"cannot deliver webhooks to {receiver.url}/webhooks: it answered "
    assert sorted(lines[:2]) == [f"{said}404", f"{said}500"]
    [nobody] = lines[2:]
    assert nobody.startswith("cannot deliver webhooks to http://127.0.0.1:9/webhooks: no response")


def test_after_kill_9_every_acknowledged_edit_is_there_and_every_webhook_comes(tmp_path, receiver):
    made: list[dict[str, Any]] = []

    def refuse_once(peer: Peer) -> bool:
        is_first = [each.body for each in receiver.requests()].count(peer.seen.body) == 1
        return reply(status=500 if is_first else 200)(peer)

    def mint_until_it_dies() -> None:
        with suppress(httpx.TransportError):
            while True:
                made.append(sandbox.call("POST", "/sandbox/mint", body))

    receiver.always(refuse_once)
    minting = threading.Thread(target=mint_until_it_dies)
    with running(tmp_path, "--state", "state", "--time-scale", "0.1") as sandbox:
        sandbox.call("PATCH", CONFIG, config_for(receiver))
        wallet = sandbox.call("GET", "/sandbox/wallets")[0]
        body = {"walletId": wallet, "amount": 1, "metadata": {}}
        minting.start()
        wait_until(lambda: len(made) >= 40)
    minting.join()
    receiver.always(reply())
    with SandboxServer(pytest.fail, state=tmp_path / "state", time_scale=0.1) as server:
        finished(server)
        listed = (server.world.balances_body(wallet) or b"").decode()
        for answer in made:
            assert answer["tokenId"] in listed
            assert server.world.token_body(answer["tokenId"]) is not None
    came = [json.loads(each.body) for each in receiver.requests()]
    caused = {webhook for answer in made for webhook in answer["webhooks"]}
    assert len(caused) == 2 * len(made)
    assert caused <= {each["id"] for each in came}
    # Never a webhook of an edit that is not there.
    assert all(each["resourceId"] == wallet or each["resourceId"] in listed for each in came)
