"""Run the blocks of a page in order in a folder, as a shell session."""

import ast
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from nftsync import settings
from nftsync.sandbox.world import World
from tests.docs.pages import ROOT, Block
from tests.kit.worlds import PATIENCE

#: The wallets that the pages name.
EXAMPLES = ("8d1cc10a-7fbf-42e7-b58d-5110899866aa", "c0ffee00-0000-4000-8000-000000000002")
#: Programs that a page uses and a machine may lack; there its block is not run.
_BESIDE = ("curl", "sqlite3")
#: Commands that stay open.
_SERVERS = re.compile(r"^(nftsync (?:sandbox|serve)\b.*\n)", re.M)


class Runner:
    """Run blocks by language; later blocks see exported variables.

    Attributes:
        replace: texts of the pages, and what to run in their place.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "data" / "nftsync.db"
        self.replace: dict[str, str] = {}
        clean = {name: value for name, value in os.environ.items() if "NFTSYNC" not in name}
        path = f"{Path(sys.executable).parent}{os.pathsep}{clean.get('PATH', '')}"
        self._environment = {**clean, "PATH": path, "HOME": str(folder)}
        self._servers: list[subprocess.Popen[str]] = []
        self._receiver: tuple[str, int] | None = None

    def run(self, block: Block) -> object:
        return getattr(self, f"_{block.language}")(block.text)

    def replaced(self, text: str) -> str:
        for old, new in self.replace.items():
            text = text.replace(old, new)
        return text

    def begin(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(words, cwd=self.folder, env=self._environment, text=True, **options)

    def begin_script(self, script: str, **options: Any) -> subprocess.Popen[str]:
        words = ("bash", "-euo", "pipefail", "-c", self.replaced(script))
        return self.begin(*words, stdout=subprocess.PIPE, **options)

    def shell(self, script: str) -> str:
        kept = self.folder / ".environment"
        ran = self.begin_script(f"{script}\nenv -0 > {kept}", stderr=subprocess.PIPE)
        out, err = ran.communicate(timeout=PATIENCE)
        assert ran.returncode == 0, f"{script}\n{out}\n{err}"
        pairs = kept.read_text().split("\0")[:-1]
        self._environment = dict(pair.split("=", 1) for pair in pairs)
        return out

    def serve(self, command: str, port: int = 0) -> str:
        """Start a server as a page does; returns the first line it prints."""
        words = [*shlex.split(self.replaced(command), comments=True), "--port", str(port)]
        server = self.begin(*words, stderr=subprocess.PIPE)
        self._servers.append(server)
        assert server.stderr is not None
        return server.stderr.readline()

    def receive(self, command: str = "") -> None:
        """Start a receiver on a free port; later ones start where it was."""
        if self._receiver is None:
            self._receiver = command, 0
        command, port = self._receiver
        url: str = json.loads(self.serve(command, port))["url"]
        self._receiver = command, int(url.split(":")[2].partition("/")[0])
        self.replace["https://hooks.example.com/webhooks"] = url
        self.replace["http://127.0.0.1:8787"] = url.removesuffix("/webhooks")

    def close(self) -> None:
        """Stop all servers; each must end well."""
        while self._servers:
            server = self._servers.pop()
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=PATIENCE)
            assert server.returncode == 0

    def _text(self, text: str) -> None:
        """Skip the output of a program."""

    def _csv(self, text: str) -> None:
        (self.folder / "wallets.csv").write_text(text)

    def _sh(self, text: str) -> object:
        if text.startswith("make "):  # only shown: it is what runs these tests
            return self.shell(text.replace("make ", f"make --no-print-directory -nC {ROOT} "))
        parts = [part for part in _SERVERS.split(text) if part]
        if parts[1:]:
            return [self._sh(part) for part in parts][-1]
        if text.startswith("nftsync sandbox"):
            self.replace["http://127.0.0.1:8788"] = self.serve(text).split()[0]
        elif text.startswith("nftsync serve"):
            self.receive(text)
        elif all(shutil.which(name) or not re.match(rf"{name}\b", text) for name in _BESIDE):
            return self.shell(text)
        return None

    def _python(self, text: str) -> object:
        return evaluated(self.replaced(text), {"__name__": "snippet"})

    def _sql(self, text: str) -> object:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            rows = connection.execute(self.replaced(text)).fetchall()
        assert rows, f"no rows:\n{text}"
        return rows

    def _toml(self, text: str) -> None:
        file = self.folder / "example" / "nftsync.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        loaded = settings.load(config=file, environ={}, directory=self.folder)
        assert f"file {file}" in loaded.sources.values()


def evaluated(text: str, names: dict[str, object]) -> Any:
    """Run Python; returns the value of its last line, if that is an expression."""
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "snippet", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "snippet", "eval"), names)


def held(world: World, wallet: str) -> dict[str, int]:
    return {token: amount for token, amount in world.amounts(wallet).items() if amount}
