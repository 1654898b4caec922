"""A provider on a real port, databases that real syncs made of it, and commands to read them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nftsync
from nftsync.cli import main
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World

ROOT = str(Path(nftsync.__file__).parents[1])

#: What no test inherits: settings of whoever runs it.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("NFTSYNC_")}


class Site:
    """A provider, and a database that mirrors it."""

    def __init__(self, server: SandboxServer, database: Path) -> None:
        self.server = server
        self.world: World = server.world
        self.ids = self.world.wallets()
        self.database = database

    def sync(self, *wallets: str, **options: Any) -> Any:
        return nftsync.sync(
            list(wallets) or self.ids,
            base_url=self.server.url,
            database=self.database,
            progress=False,
            **options,
        )

    def held(self, wallet: str) -> list[str]:
        """The tokens that the provider lists for a wallet, in its order."""
        body = json.loads(self.world.balances_body(wallet) or b"{}")
        return [entry["tokenId"].lower() for entry in body["nftTokenBalances"]]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of this machine: a working directory of its own, and no variables."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("NFTSYNC_"):
            monkeypatch.delenv(name)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Four wallets of five NFTs each, mirrored once; edit the world and sync again."""
    with SandboxServer(lambda url: generate(wallets=4, nfts=5, image_base=url)) as server:
        made = Site(server, tmp_path / "mirror.db")
        made.sync()
        yield made


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command in this process."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, captured.out, captured.err)

    return run


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """Start a command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "nftsync", *map(str, arguments)],
        cwd=cwd,
        env={**CLEAN, "PYTHONPATH": ROOT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start commands in processes of their own, which end with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        started.append(start(*arguments, cwd=tmp_path))
        return started[-1]

    yield run
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()
