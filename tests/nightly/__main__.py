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


def main() -> None:
    runs = sys.argv[1:] or RUNS
    if unknown := set(runs) - {*RUNS}:
        raise SystemExit(f"unknown runs: {', '.join(sorted(unknown))}. Known: {', '.join(RUNS)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    rows, failed = [], False
    for run in runs:
        began, log = time.monotonic(), LOGS / f"{run}.log"
        print(f"{run} ...", file=sys.stderr, flush=True)
        with log.open("w") as output:
            code = subprocess.run(["make", run], stdout=output, stderr=output).returncode
        lines = log.read_text().splitlines() or [""]
        minutes = (time.monotonic() - began) / 60
        rows.append((run, "failed" if code else "ok", f"{minutes:.0f} min", lines[-1][:60]))
        failed = failed or bool(code)
    for row in [("run", "result", "time", "last line"), *rows]:
        print("{:12} {:7} {:>8}  {}".format(*row))
    sys.exit(failed)


if __name__ == "__main__":
    main()
