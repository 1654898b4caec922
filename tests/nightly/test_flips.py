"""Flipped bits and torn pages: one line of each command; a short profile of `make soak`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.nightly.flips import made_database, run_seed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    database = tmp_path_factory.mktemp("made") / "nftsync.db"
    with SandboxServer(lambda url: generate(wallets=4, nfts=30, seed=3, image_base=url)) as server:
        made_database(database, server)
        yield database, server.url


@pytest.mark.parametrize("seeds", [range(4), [4, 5, 31]])
def test_no_damage_ends_in_a_traceback_and_check_finds_what_sqlite_finds(
    made: tuple[Path, str], tmp_path: Path, seeds: list[int]
) -> None:
    original, url = made
    damaged = 0
    for seed in seeds:
        figures, fault = run_seed(seed, original, tmp_path / "damaged", url)
        assert fault is None, fault
        damaged += figures["damaged"]
    assert damaged
