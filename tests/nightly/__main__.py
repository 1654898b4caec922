"""Run all long runs, one after another, and print a table of their results.

python -m tests.nightly                  # hours; each run's output is in build/nightly
python -m tests.nightly soak powercuts   # some of them
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

#: Targets of the Makefile.
RUNS = (
    *("soak", "fuzz", "load", "attacks", "network", "stops", "powercuts", "flips"),
    *("lakekills", "lakerounds", "lakedamage", "watchkills", "mutations"),
)
LOGS = Path("build/nightly")
ROW = "{:12} {:7} {:>8}  {}"


def main() -> None:
    runs = sys.argv[1:] or RUNS
    if unknown := set(runs) - {*RUNS}:
        raise SystemExit(f"unknown runs: {', '.join(sorted(unknown))}. Known: {', '.join(RUNS)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    results = set()
    print(ROW.format("run", "result", "time", "last line"))
    for run in runs:
        began, log = time.monotonic(), LOGS / f"{run}.log"
        with log.open("w") as output:
            code = subprocess.run(["make", run], stdout=output, stderr=output).returncode
        results.add("failed" if code else "ok")
        *_, last = ["", *log.read_text().splitlines()]
        minutes = (time.monotonic() - began) / 60
        print(ROW.format(run, "failed" if code else "ok", f"{minutes:.0f} min", last[:60]))
    sys.exit("failed" in results)


if __name__ == "__main__":
    main()
