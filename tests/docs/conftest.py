"""A provider that holds the wallets of the examples, and a folder to run them in."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from nftsync.cli import nftsync
from nftsync.export.backup import write_snapshot
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.times import now
from tests.docs.runner import EXAMPLES, Runner, held
from tests.kit.inbox import Inbox, body_of
from tests.kit.mirrored_site import Site
from tests.kit.worlds import made_once


class History(NamedTuple):
    """A database with a past: `between` its last two syncs, NFTs changed hands."""

    database: Path
    between: str


def _give(world: World, giver: str, taker: str, count: int) -> None:
    for token, amount in [*held(world, giver).items()][:count]:
        world.transfer(giver, taker, token, amount)


@contextmanager
def serving() -> Iterator[SandboxServer]:
    world = generate(wallets=6, nfts=12, seed=3)
    with SandboxServer(world, time_scale=0.01) as server:
        givers = world.wallets()
        for place, wallet in enumerate(EXAMPLES):
            world.add_wallet(wallet)
            for giver in givers[2 * place : 2 * place + 2]:
                _give(world, giver, wallet, 6)
        yield server


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


def _make_past(folder: Path) -> None:
    database = folder / "nftsync.db"
    with serving() as provider:
        site = Site(provider, database)
        site.sync()
        _run("wallets", "label", EXAMPLES[0], "Treasury", "-d", database)
        _give(site.world, *reversed(EXAMPLES), 3)
        site.sync()
        (folder / "between").write_text(now())
        _give(site.world, *EXAMPLES, 5)
        site.world.mint(EXAMPLES[0], 2**255, {"name": "Ample"})
        site.sync()
        # An NFT changes hands between wallets that no page names, with webhooks.
        _give(site.world, *site.ids[:2], 1)
        told = [body_of(number, resourceId=wallet) for number, wallet in enumerate(site.ids[:2])]
        Inbox(database).receive(*told, body_of(2, resourceType="Transaction"), at=now())
        _run("replay", "--base-url", provider.url, "-d", database)


def _run(*words: object) -> None:
    ran = CliRunner().invoke(nftsync, [*map(str, words)])
    assert ran.exit_code == 0, ran.output


@pytest.fixture
def history(shared: Path, tmp_path: Path) -> History:
    past = made_once(shared, "lived", _make_past)
    database = tmp_path / "data" / "nftsync.db"
    database.parent.mkdir()
    write_snapshot(past / "nftsync.db", database)
    return History(database, (past / "between").read_text())
