"""Cut the power of `lake sync` into a folder at many moments, and check the lake.

    python -m tests.nightly.lake_powercuts --cuts 200
    python -m tests.nightly.lake_powercuts --seed 17 --cuts 200     # only one seed

A recording has some runs of a driver and its worker, between which the provider changes. After each
cut, the lake must show the newest run whose `ok` was printed, or a newer one, with the rows of that
run. After some cuts, the next sync must succeed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import get_args

from nftsync.errors import NftsyncError
from nftsync.lake.pinned import pinned
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from tests.kit.lake_cluster import (
    Cluster,
    check_lake,
    cluster_of,
    command,
    environment,
    held,
    played,
    published,
    runs_of,
)
from tests.kit.worlds import listed
from tests.nightly.powercuts import left_by, run_command
from tests.nightly.recorded_disk import Disk, How, recording

BUCKETS, WALLETS, RUNS = 2, 8, 3
_OK = re.compile(rb'"run_id": (\d+),\s+"status": "ok"')
#: Syncs several times on one worker; between two runs, it asks the provider for changes.
_RUNS = """
import json, sys, urllib.request
from distributed import LocalCluster
from nftsync import whole_files
from nftsync.lake import ledger_table
{mutation}
from nftsync.cli import main
def run():
    runs, url, moves, *words = sys.argv[1:]
    own = {{"dashboard_address": "127.0.0.1:0", "preload": ["nftsync.lake.cluster"]}}
    with LocalCluster(n_workers=1, threads_per_worker=1, **own) as cluster:
        for number in range(int(runs)):
            try:
                main(["lake", "sync", "--scheduler", cluster.scheduler_address, *words])
            except SystemExit as ended:
                assert not ended.code, ended.code
            sys.stdout.flush()
            for move in json.loads(moves)[number]:
                urllib.request.urlopen(urllib.request.Request(
                    url + "/sandbox/" + move[0], json.dumps(move[1]).encode(),
                    {{"content-type": "application/json"}}))
if __name__ == "__main__":
    run()
"""
#: Faults that the cuts must find.
MUTATIONS = {
    "": "",
    "a run is pinned before its files are synced": "whole_files.sync_to_disk = lambda _: None",
    "the ledger is not synced": "ledger_table.sync_table = lambda *_: None",
}


class Recorded:
    """A recording: the writes, and the rows and the time of the `ok` of each run by its number."""

    def __init__(self, disk: Disk, lake: Path) -> None:
        self.disk = disk
        self.rows = {run.run_id: held(lake, run.run_id) for run in runs_of(lake)}
        self.ended: dict[int, int] = {}
        for at, printed in disk.printed:
            if (result := _OK.search(printed)) is not None:
                self.ended[int(result[1])] = at
        assert len(self.ended) == len(self.rows) == RUNS


def _moves(provider: SandboxServer, rng: random.Random) -> list[list[tuple[str, object]]]:
    """Return the requests for changes after each run."""
    wallets, holdings, every = provider.world.wallets(), listed(provider.world), []
    for number in range(RUNS):
        moves: list[tuple[str, object]] = []
        for wallet, token in rng.sample(sorted(holdings), 2):
            minted = {"walletId": wallet, "amount": "2", "metadata": {"name": f"M{number}"}}
            moves.append((f"tokens/{token}", {"metadata": {"name": f"N{number}"}}))
            moves.append(("mint", minted))
        giver, taker = wallets[number], wallets[-1 - number]
        token = min(token for wallet, token in holdings if wallet == giver)
        move = {"fromWalletId": giver, "toWalletId": taker, "tokenId": token}
        moves.append(("transfer", move | {"amount": holdings[giver, token]}))
        every.append(moves)
    return every


def recorded_lake(folder: Path, provider: SandboxServer, seed: int, mutation: str = "") -> Recorded:
    """Record some runs of a lake in `folder / "data"`."""
    rng = random.Random(seed)
    (folder / "data").mkdir(parents=True)
    (folder / "before").mkdir()
    (folder / "wallets.txt").write_text("\n".join(provider.world.wallets()))
    (folder / "runs.py").write_text(_RUNS.format(mutation=MUTATIONS[mutation]))
    lake = folder / "data" / "lake"
    words = [lake, "--base-url", provider.url, "--wallets-file", folder / "wallets.txt"]
    words += ["--buckets", BUCKETS, "--allow-removals", "--json"]
    call = [sys.executable, folder / "runs.py", RUNS, provider.url]
    call += [json.dumps(_moves(provider, rng)), *words]
    subprocess.run(
        [*recording(folder / "trace"), *map(str, call)],
        env=environment(),
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
    )
    return Recorded(Disk(folder / "data", folder / "before", folder / "trace"), lake)


def table(
    recorded: Recorded, at: int, how: How, rng: random.Random, folder: Path
) -> tuple[int, str | None]:
    """Cut the power at a moment, and open the lake; return the run that it shows, and a fault."""
    lake = left_by(recorded.disk, at, how, rng, folder) / "lake"
    least = max((run for run, ended in recorded.ended.items() if ended < at), default=0)
    try:
        shown = pinned(lake).run.run_id, held(lake), played(lake)
    except (*STORE_ERRORS, NftsyncError, AssertionError) as error:
        return 0, f"run {least} was ok: {error!r}" if least else None
    if shown[0] < least:
        return shown[0], f"run {least} was ok, run {shown[0]} is shown"
    if not shown[1] == shown[2] == recorded.rows[shown[0]]:
        return shown[0], f"run {shown[0]} has other rows"
    return shown[0], None


def syncs_again(folder: Path, provider: SandboxServer, cluster: Cluster, *more: str) -> str | None:
    """Sync the lake after a cut; return a fault."""
    lake = folder / "lake"
    words = [lake, "--base-url", provider.url, "--scheduler", cluster.address, *more]
    words += ["--wallets-file", folder.parent / "wallets.txt", "--allow-removals"]
    words += [] if lake.exists() else ["--buckets", BUCKETS]
    done = command("lake", "sync", *words, "--takeover-after", "1s")
    if "damaged or missing" in done.said and more:
        return syncs_again(folder, provider, cluster)
    if done.code or "Traceback" in done.said:
        return f"exit {done.code}: {done.said}"
    try:
        check_lake(lake)
        # A resumed run may have reads from before the provider's last changes.
        assert more or held(lake) == listed(provider.world), "other balances than the provider's"
        assert published(lake) == held(lake), "other balances are published"
    except (NftsyncError, AssertionError) as error:
        return f"after the next sync, {more}: {error!r}"
    return syncs_again(folder, provider, cluster) if more else None


def run_seed(
    seed: int, cuts: int, every: int, cluster: Cluster, mutation: str = ""
) -> tuple[Counter[str], str | None]:
    """Cut a new recording at some moments; return counts, and the first fault.

    A sync on the cluster follows one of `every` cuts.
    """
    rng = random.Random(seed)
    figures: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name,
        SandboxServer(
            lambda url: generate(wallets=WALLETS, nfts=3, seed=seed, image_base=url)
        ) as provider,
    ):
        folder = Path(name).resolve() / "recorded"
        recorded = recorded_lake(folder, provider, seed, mutation)
        disk = recorded.disk
        figures += Counter(recordings=1, syncs=len(disk.syncs))
        for number in range(cuts):
            # Half of the cuts follow a sync of a file or an `ok`.
            after = [*disk.syncs, *(at + 1 for at in recorded.ended.values())]
            at = rng.choice(after) if number % 2 else rng.randrange(disk.end + 1)
            how: How = rng.choice(get_args(How))
            left = folder / f"left-{number}"  # a process caches reads of an address
            run, fault = table(recorded, at, how, rng, left)
            figures += Counter({"cuts": 1, how: 1, f"run {run} shown": 1})
            if fault is None and number % every == every - 1:
                resume = ["--resume"] * rng.randrange(2)
                fault = syncs_again(left, provider, cluster, *resume)
                figures["synced"] += 1
            shutil.rmtree(left)
            if fault is not None:
                return figures, f"seed {seed}, cut {number} at {at} of {disk.end} ({how}): {fault}"
    return figures, None


def main() -> int:
    """Run some seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--mutation", choices=MUTATIONS, default="")
    with tempfile.TemporaryDirectory() as name, cluster_of(Path(name), 1) as cluster:
        return run_command(
            parser,
            lambda seed, given: run_seed(seed, given.cuts, given.every, cluster, given.mutation),
            {name: partial(run_seed, 0, 300, 1_000, cluster, name) for name in MUTATIONS if name},
        )


if __name__ == "__main__":
    sys.exit(main())
