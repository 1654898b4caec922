"""A provider that holds the wallets of the examples, and a folder to run them in."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import nftsync
from nftsync.cli import nftsync as nftsync_command
from nftsync.export.backup import write_snapshot
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.times import now
from tests.docs.runner import EXAMPLES, Runner, held
from tests.kit.inbox import Inbox, body_of
from tests.kit.worlds import made_once


class History(NamedTuple):
    """A database with a past: `between` its last two syncs, NFTs changed hands."""

    database: Path
    between: str


@contextmanager
def serving() -> Iterator[SandboxServer]:
    world = generate(wallets=6, nfts=12, seed=3)
    with SandboxServer(world, time_scale=0.01) as server:
        givers = iter(world.wallets())
        for wallet in EXAMPLES:
            world.add_wallet(wallet)
            for giver in (next(givers), next(givers)):
                _give(world, giver, wallet, 6)
        yield server


def _give(world: World, giver: str, taker: str, count: int) -> None:
    for token, amount in [*held(world, giver).items()][:count]:
        world.transfer(giver, taker, token, amount)


@pytest.fixture
def provider() -> Iterator[SandboxServer]:
    with serving() as server:
        yield server


@pytest.fixture
def runner(tmp_path: Path, provider: SandboxServer) -> Iterator[Runner]:
    runner = Runner(tmp_path)
    runner.replace["https://api.example.com"] = provider.url
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def lived(shared: Path) -> History:
    """A database with a past, to be copied."""
    folder = made_once(shared, "lived", make_past)
    return History(folder / "nftsync.db", (folder / "between").read_text())


def make_past(folder: Path) -> None:
    database = folder / "nftsync.db"
    with serving() as provider:
        world = provider.world

        def sync() -> None:
            wallets = world.wallets()
            result = nftsync.sync(wallets, base_url=provider.url, database=database, progress=False)
            assert result.status == "ok"

        sync()
        named = ["wallets", "label", EXAMPLES[0], "Treasury", "-d", str(database)]
        assert CliRunner().invoke(nftsync_command, named).exit_code == 0
        _give(world, *reversed(EXAMPLES), 3)
        sync()
        (folder / "between").write_text(now())
        _give(world, *EXAMPLES, 5)
        world.mint(EXAMPLES[0], 2**255, {"name": "Ample"})
        sync()
        # An NFT changes hands between wallets that no page names, with webhooks.
        wallets = world.wallets()[:2]
        _give(world, *wallets, 1)
        told = [body_of(number, resourceId=wallet) for number, wallet in enumerate(wallets)]
        Inbox(database).receive(*told, body_of(2, resourceType="Transaction"), at=now())
        replay = ["replay", "--base-url", provider.url, "-d", str(database)]
        ran = CliRunner().invoke(nftsync_command, replay)
        assert ran.exit_code == 0, ran.output


@pytest.fixture
def history(lived: History, tmp_path: Path) -> History:
    database = tmp_path / "data" / "nftsync.db"
    database.parent.mkdir()
    write_snapshot(lived.database, database)
    return lived._replace(database=database)
