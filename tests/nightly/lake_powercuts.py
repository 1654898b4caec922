"""Cut the power of `lake sync` into a folder at many moments, and check the lake.

A recording has some runs of a driver and its worker, between which the provider changes. After each
cut, the lake must show the newest run whose `ok` was printed, or a newer one, with the rows of that
run. After some cuts, the next sync must succeed.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nftsync.errors import NftsyncError
from nftsync.lake.pinned import pinned
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.sandbox.server import SandboxServer
from tests.kit import lakes
from tests.kit.lake_cluster import Cluster, cluster_of, sync_words
from tests.kit.serve_process import environment
from tests.kit.worlds import listed
from tests.kit.worlds import run_command as command
from tests.nightly.recorded_disk import Cut, Disk, recording
from tests.nightly.rounds import MEMORY, run_seeds, sandbox

RUNS = 3
_OK = re.compile(rb'"run_id": (\d+),\s+"status": "ok"')
#: Syncs several times on one worker; between two runs, it asks the provider for changes.
_RUNS = """
import json, sys, urllib.request
from distributed import LocalCluster
from nftsync import whole_files
from nftsync.lake import ledger_table
{bug}
from nftsync.cli import main
def run():
    url, moves, *words = sys.argv[1:]
    own = {{"dashboard_address": "127.0.0.1:0", "preload": ["nftsync.lake.cluster"]}}
    with LocalCluster(n_workers=1, threads_per_worker=1, **own) as cluster:
        for of_run in json.loads(moves):
            try:
                main([*words, "--scheduler", cluster.scheduler_address])
            except SystemExit as ended:
                assert not ended.code, ended.code
            sys.stdout.flush()
            for path, body in of_run:
                urllib.request.urlopen(urllib.request.Request(
                    url + "/sandbox/" + path, json.dumps(body).encode(),
                    {{"content-type": "application/json"}}))
if __name__ == "__main__":
    run()
"""
#: Bugs that the cuts must find.
BUGS = ("whole_files.sync_to_disk = lambda _: None", "ledger_table.sync_table = lambda *_: None")


def _moves(provider: SandboxServer, rng: random.Random) -> list[list[tuple[str, Any]]]:
    every = []
    for ((giver, token), amount), (taker, other) in zip(
        rng.sample(sorted(listed(provider.world).items()), RUNS),
        rng.sample(sorted(listed(provider.world)), RUNS),
        strict=True,
    ):
        minted = {"walletId": giver, "amount": "2", "metadata": {"name": "Minted"}}
        moves: list[tuple[str, Any]] = [("mint", minted)]
        moves.append((f"tokens/{other}", {"metadata": {"name": f"N{rng.random()}"}}))
        if giver != taker:
            move = {"fromWalletId": giver, "toWalletId": taker, "tokenId": token}
            moves.append(("transfer", move | {"amount": amount}))
        every.append(moves)
    return every


def recorded_lake(folder: Path, provider: SandboxServer, seed: int, bug: str) -> Disk:
    (folder / "data").mkdir(parents=True)
    (folder / "runs.py").write_text(_RUNS.format(bug=bug))
    words = sync_words(folder / "data" / "lake", provider.world.wallets(), provider.url)
    moves = json.dumps(_moves(provider, random.Random(seed)))
    call = [sys.executable, folder / "runs.py", provider.url, moves, *words]
    subprocess.run(
        [*recording(folder), *map(str, call), "--allow-removals", "--json"],
        env=environment(),
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
    )
    return Disk(folder)


def sync_again(lake: Path, provider: SandboxServer, cluster: Cluster, *more: str) -> None:
    words = sync_words(lake, provider.world.wallets(), provider.url, cluster)
    done = command(*words, "--allow-removals", "--takeover-after", "1s", *more)
    if "damaged or missing" not in done.said or not more:
        done.says()
        lakes.check_lake(lake)
        # A resumed run may have reads from before the provider's last changes.
        assert more or lakes.held(lake) == listed(provider.world)
        assert lakes.published(lake) == lakes.held(lake)
    if more:
        sync_again(lake, provider, cluster)


def run_seed(seed: int, cluster: Cluster, *, cuts: int, every: int, bug: str = "") -> Counter[str]:
    """Cut a new recording; sync again after one of `every` cuts."""
    rng, figures = random.Random(seed), Counter[str]()

    def check(cut: Cut) -> None:
        lake, run = cut.left / "lake", 0
        least = max((number for number, at in ended.items() if at < cut.at), default=0)
        try:
            run = pinned(lake).run.run_id
            assert run >= least, f"run {run} is shown"
            assert lakes.held(lake) == lakes.played(lake) == rows[run]
        except (*STORE_ERRORS, NftsyncError, AssertionError) as error:
            if least:
                raise AssertionError(f"run {least} was ok: {error!r}") from error
        figures.update({"checked": 1, f"run {run} shown": 1})
        if figures["checked"] % every == 0:
            sync_again(lake, provider, cluster, *rng.choice([[], ["--resume"]]))

    with tempfile.TemporaryDirectory(dir=MEMORY) as name, sandbox(8, 3, seed) as provider:
        folder = Path(name).resolve()
        disk, lake = recorded_lake(folder, provider, seed, bug), folder / "data" / "lake"
        rows = {run.run_id: lakes.held(lake, run.run_id) for run in lakes.runs_of(lake)}
        results = [(_OK.search(printed), at) for at, printed in disk.printed]
        ended = {int(found[1]): at for found, at in results if found}
        assert len(ended) == len(rows) == RUNS
        after = [at + 1 for at in ended.values()]
        return figures + disk.check_cuts(check, cuts, rng, folder, *after)


def checked_seed(seed: int, _: Path, cluster: Cluster, **options: int) -> Counter[str]:
    """Check first, once, that the cuts find bugs."""
    for bug in BUGS if seed == 0 else ():
        with pytest.raises(AssertionError):
            run_seed(0, cluster, cuts=300, every=1_000, bug=bug)
    return run_seed(seed, cluster, **options)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, cluster_of(Path(name), 1) as cluster:
        run_seeds(__doc__, partial(checked_seed, cluster=cluster), seeds=2, cuts=200, every=10)
