"""What the tests of the documentation share: the wallets of the examples, and a shell session."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.docs.pages import ROOT
from tests.kit.worlds import PATIENCE, listed

#: The wallets that the pages name.
EXAMPLES = ("8d1cc10a-7fbf-42e7-b58d-5110899866aa", "c0ffee00-0000-4000-8000-000000000002")

_BIN = str(Path(sys.executable).parent)


class History(NamedTuple):
    """A database with a past: `between` its last two syncs, NFTs changed hands."""

    database: Path
    between: str


class Session:
    """A shell session in a folder of its own: what a block exports, the next ones see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replace: dict[str, str] = {}
        clean = {name: value for name, value in os.environ.items() if "NFTSYNC" not in name}
        path = f"{_BIN}{os.pathsep}{clean.get('PATH', '')}"
        self._environment = {**clean, "PATH": path, "HOME": str(folder)}
        self._servers: list[subprocess.Popen[str]] = []
        self._receiver: tuple[str, int] | None = None

    def replaced(self, text: str) -> str:
        for old, new in self.replace.items():
            text = text.replace(old, new)
        return text

    def run(self, script: str) -> str:
        """Run a script; it must succeed."""
        kept = self.folder / ".environment"
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{self.replaced(script)}\nenv -0 > {kept}"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        pairs = kept.read_text().split("\0")[:-1]
        self._environment = dict(pair.split("=", 1) for pair in pairs)
        return ran.stdout

    def make(self, script: str) -> str:
        """See what `make` would do: it is what runs these tests."""
        return self.run(script.replace("make ", f"make --no-print-directory -nC {ROOT} "))

    def begin(self, script: str) -> subprocess.Popen[str]:
        """Start a script that goes on until it is ended, in a process group of its own."""
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", self.replaced(script)],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def serve(self, command: str, port: int = 0) -> str:
        """Start a server as a page does; returns the first thing it says."""
        server = subprocess.Popen(
            [*self.replaced(command).split(), "--port", str(port)],
            cwd=self.folder,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._servers.append(server)
        assert server.stderr is not None
        return server.stderr.readline()

    def receive(self, command: str) -> str:
        """Start a receiver, on a free port the first time; returns its address."""
        port = 0 if self._receiver is None else self._receiver[1]
        url: str = json.loads(self.serve(command, port))["url"]
        self._receiver = command, int(url.split(":")[2].partition("/")[0])
        return url

    def receive_again(self) -> None:
        """Start the receiver that was stopped, where it was."""
        assert self._receiver is not None
        self.receive(self._receiver[0])

    def close(self) -> None:
        """Stop all servers; each must end well."""
        while self._servers:
            server = self._servers.pop()
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=PATIENCE)
            assert server.returncode == 0


def hand_over(
    provider: SandboxServer, database: Path, wallets: tuple[str, str] | None = None
) -> None:
    """Let an NFT change hands between two wallets, and wait until webhooks have told of it."""
    world = provider.world
    others = [wallet for wallet in world.wallets() if wallet not in EXAMPLES]
    taker, giver = sorted(wallets or others[-2:], key=lambda wallet: len(held(world, wallet)))
    webhook_ids = provider.sandbox.transfer(giver, taker, next(iter(held(world, giver))), 1)
    assert webhook_ids
    deadline = time.monotonic() + PATIENCE
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        while time.monotonic() < deadline:
            rows = connection.execute("SELECT webhook_id, state FROM webhooks").fetchall()
            if all((webhook_id, "done") in rows for webhook_id in webhook_ids):
                return
            time.sleep(0.02)
    raise AssertionError(f"webhooks were not worked off: {rows}, {provider.sandbox.deliveries()}")


def held(world: World, wallet: str) -> dict[str, str]:
    """How much of which token a wallet holds."""
    found = listed(world).items()
    return {
        token: amount for (holder, token), amount in found if holder == wallet and amount != "0"
    }
