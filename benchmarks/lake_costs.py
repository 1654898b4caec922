"""Costs of a lake, in comparison with a database; the sandbox is the provider.

    python -m benchmarks.lake_costs compare --world wallets.jsonl.gz --rounds 3
    python -m benchmarks.lake_costs compare --wallets 52895 --nfts 4 --latency-ms 20
    python -m benchmarks.lake_costs requests --wallets 2000 --buckets 64 256

All other options go to the sandbox. Seconds are those of whole commands; CPU seconds add up all
processes of a command, including Dask's workers. `--package DIR` alternates the command of another
checkout (DIR/.venv/bin/nftsync) with the command of this environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from benchmarks.commands import running

S3_SERVER = Path(__file__).parents[1] / "tests/lake/s3_server.py"
RUNS = ("first", "unchanged")
#: Variables of the shell that would change a measurement.
FOREIGN = re.compile(r"NFTSYNC_|AWS_|PYTHONDONTWRITEBYTECODE$|\w+_proxy$", re.IGNORECASE)


class Cost(NamedTuple):
    """Elapsed seconds and CPU seconds of a command."""

    seconds: float
    cpu: float


class Setup(NamedTuple):
    """Options, the path of each package's `nftsync`, and the environment of its commands."""

    options: argparse.Namespace
    programs: dict[str, Path]
    environment: dict[str, str]
    folder: Path


def children_cpu() -> float:
    """CPU seconds of the processes that this process has waited for, and of their children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def sync(setup: Setup, package: str, run: str, *words: str | Path | int) -> Cost:
    """Run a sync; exit if it fails, or if the run is not `first` or `unchanged` as expected."""
    command = [str(setup.programs[package]), *map(str, words), "--json"]
    os.sync()  # earlier writes must not keep the disk busy
    cpu, began = children_cpu(), time.perf_counter()
    done = subprocess.run(
        command, env=setup.environment, cwd=setup.folder, capture_output=True, text=True
    )
    cost = Cost(time.perf_counter() - began, children_cpu() - cpu)
    if done.returncode:
        raise SystemExit(f"{package}: exit code {done.returncode}: {done.stderr[-300:]}")
    wallets = json.loads(done.stdout)["wallets"]
    if wallets["unchanged"] != (wallets["total"] if run == "unchanged" else 0):
        raise SystemExit(f"{package}: not a run of kind {run}: {wallets}")
    line = f"  {package}, {run}: {medians([cost])}: {' '.join(command[1:-1])}"
    print(line, file=sys.stderr, flush=True)
    return cost


def compare(setup: Setup) -> None:
    """Compare lakes with databases, both on the local disk."""
    one = ("--wallets-file", setup.folder / "one.txt")
    for number, package in enumerate(setup.programs):  # compiles its modules
        sync(setup, package, "first", "sync", "-d", setup.folder / f"warm-{number}.db", *one)
        sync(setup, package, "first", "lake", "sync", setup.folder / f"warm-{number}", *one)
    costs: defaultdict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    for _ in range(setup.options.rounds):
        with tempfile.TemporaryDirectory(dir=setup.folder) as name:
            for run in RUNS:
                for number, package in enumerate(setup.programs):
                    key, database = (package, run), Path(name, f"{number}.db")
                    costs[*key, "database"].append(sync(setup, *key, "sync", "-d", database))
                    for workers in setup.options.workers:
                        lake = Path(name, f"{number}-{workers}")
                        cost = sync(setup, *key, "lake", "sync", lake, "--workers", workers)
                        costs[*key, f"lake, workers: {workers}"].append(cost)
    for (package, run, target), rounds in costs.items():
        line = f"{package}, {run}, {target}: {medians(rounds)}"
        if target != "database":
            pairs = zip(rounds, costs[package, run, "database"], strict=True)
            ratios = [Cost(one[0] / other[0], one[1] / other[1]) for one, other in pairs]
            line += f"; lake/database: {medians(ratios, ' times')}"
        print(line)


def medians(costs: list[Cost], unit: str = " s") -> str:
    seconds, cpu = map(statistics.median, zip(*costs, strict=True))
    return f"{seconds:.2f}{unit}, CPU {cpu:.2f}{unit}"


def requests(setup: Setup) -> None:
    """Count the requests of a lake on S3 by method and by folder, without heartbeats."""
    log = setup.folder / "requests.log"
    with object_store(log) as variables:
        setup.environment.update(variables)
        for buckets in setup.options.buckets:
            for number, package in enumerate(setup.programs):
                lake = f"s3://lakes/{number}-{buckets}"
                # Such a timeout leaves no time for a heartbeat.
                words = ("--buckets", buckets, "--workers", 2, "--takeover-after", "1d")
                for run in RUNS:
                    log.write_text("")
                    sync(setup, package, run, "lake", "sync", lake, *words)
                    lines = [line.split() for line in log.read_text().splitlines()]
                    methods = Counter(method for method, *_ in lines)
                    # /lakes/LAKE/FOLDER/...; a list names its folder in the query.
                    folders = Counter("/".join(path.split("/")[3:4]) for _, path, *_ in lines)
                    line = f"{package}, {buckets} buckets, {run}: {methods.total():,}"
                    print(line, dict(methods), dict(folders), flush=True)


@contextmanager
def object_store(log: Path, faults: float = 0.0) -> Iterator[dict[str, str]]:
    """Run an S3 with the bucket `lakes`; yield its environment variables.

    `faults` is the share of requests that fail.
    """
    command = [sys.executable, str(S3_SERVER), str(log), str(faults)]
    with (
        log.with_suffix(".err").open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            key = {"Authorization": "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/x"}
            urlopen(Request(f"{url}/lakes", method="PUT", headers=key)).close()
            names = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
            yield names | {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}
        finally:
            server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measure", choices=("compare", "requests"))
    parser.add_argument("--package", action="append", default=[], metavar="DIR")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="of `compare`")
    parser.add_argument("--buckets", type=int, nargs="+", default=[64], help="of `requests`")
    options, sandbox = parser.parse_known_args()
    programs = {"this": Path(sys.executable).with_name("nftsync")}
    programs |= {name: Path(name).resolve() / ".venv/bin/nftsync" for name in options.package}
    environment = {name: text for name, text in os.environ.items() if not FOREIGN.match(name)}
    with (
        tempfile.TemporaryDirectory() as name,
        running("sandbox", *sandbox, path="/sandbox/wallets") as (url, _),
    ):
        folder, ids = Path(name), json.load(urlopen(f"{url}/sandbox/wallets"))
        (file := folder / "wallets.txt").write_text("\n".join(ids))
        (folder / "one.txt").write_text(ids[0])
        source = {"NFTSYNC_BASE_URL": url, "NFTSYNC_WALLETS_FILE": str(file)}
        measure = {"compare": compare, "requests": requests}[options.measure]
        measure(Setup(options, programs, environment | source, folder))


if __name__ == "__main__":
    main()
