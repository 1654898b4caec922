"""What the tests of the documentation share: the wallets of the examples, and a shell session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from docs_pages import ROOT

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
        self._environment = {
            **clean,
            "PATH": f"{_BIN}{os.pathsep}{clean.get('PATH', '')}",
            "HOME": str(folder),
        }
        self._servers: list[subprocess.Popen[str]] = []

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
            timeout=60,
        )
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        pairs = kept.read_text().split("\0")[:-1]
        self._environment = dict(pair.split("=", 1) for pair in pairs)
        return ran.stdout

    def make(self, script: str) -> str:
        """See what `make` would do: it is what runs these tests."""
        return self.run(script.replace("make ", f"make --no-print-directory -nC {ROOT} "))

    def serve(self, command: str) -> str:
        """Start a sandbox as a page does, on a free port; returns its address."""
        server = subprocess.Popen(
            [*command.split(), "--port", "0"],
            cwd=self.folder,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._servers.append(server)
        assert server.stderr is not None
        return server.stderr.readline().split()[0]

    def close(self) -> None:
        for server in self._servers:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=10)
            assert server.returncode == 0
