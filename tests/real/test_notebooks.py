"""Notebooks and report on real holdings, of wallets without labels: no cell lacks what is known."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

import nftsync
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.notebooks.worlds import Run, texts_of
from tests.real.real_data import lines, needs_data

pytestmark = needs_data

_WALLETS, _MOST_BYTES = 300, 60_000
_MOVED = 12


def test_no_cell_shows_that_a_value_is_missing_where_an_id_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = (line for line in lines("wallets.jsonl.gz") if len(line) < _MOST_BYTES)
    (tmp_path / "world.jsonl").write_bytes(b"".join(islice(small, 1, 1 + _WALLETS)))
    database = tmp_path / "nftsync.db"
    with SandboxServer(World.load(tmp_path / "world.jsonl")) as server:
        world, wallets = server.world, server.world.wallets()

        def sync() -> None:
            result = nftsync.sync(wallets, base_url=server.url, database=database, progress=False)
            assert result.status == "ok"

        sync()
        held = world.state.run("SELECT wallet, token FROM holdings WHERE amount = '1' LIMIT 400")
        for wallet, token in held[:: len(held) // _MOVED]:
            world.transfer(wallet, wallets[-1], token, 1)
        world.mint(wallets[0], 2**200, {})
        sync()
    run = Run(database, monkeypatch)
    run.assert_quiet()
    assert run.without_a_value() == []
    moved = texts_of(run.shown("2-what-changed", "moves"))
    assert moved.count("transfer") > _MOVED // 2
    assert f"{2**200:,}" in moved
