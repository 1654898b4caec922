"""A provider on a real port, databases that real syncs made of it, and commands to read them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mirrored_site import Site, start

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer


@pytest.fixture(autouse=True)
def _own_settings(own_settings: None) -> None:
    """All tests here."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Four wallets of five NFTs each, mirrored once; edit the world and sync again."""
    with SandboxServer(lambda url: generate(wallets=4, nfts=5, image_base=url)) as server:
        made = Site(server, tmp_path / "mirror.db")
        made.sync()
        yield made


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
