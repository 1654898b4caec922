"""docs/gallery.md says what is so."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import nftsync
from nftsync.provider.client import ClientConfig
from nftsync.pull.plan import SyncRequest
from nftsync.pull.run import sync_wallets
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.store.wallets import WalletLine

PAGE = Path(__file__).parents[2] / "docs" / "gallery.md"


def test_the_example_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "nftsync.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NFTSYNC_DATABASE", str(database))
    with SandboxServer(lambda url: generate(wallets=2, nfts=5, image_base=url)) as provider:
        first, second = provider.world.wallets()
        lines = [WalletLine(first, "Treasury", ""), WalletLine(second, "Auctions", "")]
        config = ClientConfig(base_url=provider.url)
        sync_wallets(database, config, SyncRequest(wallets=lines), progress=False)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, "gallery.md", "exec"), {})
    written = (tmp_path / "treasury.html").read_text(encoding="utf-8")
    assert first in written
    assert second not in written


def test_each_argument_is_described_with_its_default() -> None:
    rows = dict(re.findall(r"^\| (`.+?) \| (.+?) \|", PAGE.read_text(encoding="utf-8"), re.M))
    described = {name: default for names, default in rows.items() for name in names.split(", ")}
    arguments = inspect.signature(nftsync.gallery).parameters
    assert [name.strip("`") for name in described] == list(arguments)
    for name, argument in arguments.items():
        if argument.default is not None:
            assert described[f"`{name}`"] == str(argument.default).lower()
