from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import nftsync
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit.worlds import alone
from tests.real.real_data import ART_BLOCKS_FIRST, DATA, REAS, Slice, write_slice
from tests.real.real_history import Facts, History, play


@pytest.fixture(scope="session")
def shared(shared: Path) -> Path:
    """The same, where there is real data."""
    if not DATA.is_dir():
        pytest.skip("the real holdings are not beside the project (../shared/data)")
    return shared


@pytest.fixture(scope="session")
def facts(shared: Path) -> Facts:
    return Facts()


@pytest.fixture(scope="session")
def history(facts: Facts, shared: Path) -> History:
    """The played history."""
    note = shared / "history.json"
    with alone(shared, "history"):
        if not note.exists():
            note.write_bytes(msgspec.json.encode(play(facts, shared / "history.db")))
    return msgspec.json.decode(note.read_bytes(), type=History)


@pytest.fixture(scope="session")
def real_slice(shared: Path) -> Slice:
    """Wallets with a first Art Block or a work of Casey Reas, mirrored."""
    database, world, done = shared / "slice.db", shared / "slice.jsonl", shared / "slice.done"
    with alone(shared, "slice"):
        if not done.exists():
            write_slice(world, [ART_BLOCKS_FIRST, REAS])
            with SandboxServer(World.load(world)) as server:
                result = nftsync.sync(
                    server.world.wallets(), base_url=server.url, database=database, progress=False
                )
            assert result.status == "ok"
            done.touch()
    return Slice(database, [msgspec.json.decode(line) for line in world.read_bytes().splitlines()])
