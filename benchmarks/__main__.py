"""Run benchmarks in turn, and write their results to docs/develop/performance.md.

    python -m benchmarks                  # all
    python -m benchmarks frames sync      # these; keeps the rows of the others
    python -m benchmarks --small          # tiny sizes, to check that they run; writes nothing

The table, with targets, goes to stdout, and progress to stderr. The exit code is 1 if a benchmark
fails or misses a target.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.report import DOCUMENT, HEAD, NAMES, rows_of, table, with_targets, written

MOST_SECONDS = 900.0  # of one benchmark


def run(name: str, *, small: bool) -> list[Figure] | str:
    """Run a benchmark in a process of its own; return its figures, or the reason for none."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks", name, "--into", str(into)]
        process = subprocess.Popen(
            command + ["--small"] * small,
            stdout=sys.stderr,
            start_new_session=True,  # to end its child processes, too
        )
        try:
            code = process.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return f"not done after {MOST_SECONDS:.0f} s"
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                process.wait()
        if code or not into.exists():
            return f"it ended with exit code {code}"
        return [Figure(*values) for values in json.loads(into.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--small", action="store_true", help="tiny sizes; write nothing")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    if options.into is not None:
        module = importlib.import_module(f"benchmarks.{options.names[0]}")
        options.into.write_text(json.dumps(module.figures(small=options.small)))
        return 0
    rows, measured, failed = {}, [], {}
    for name in options.names or NAMES:
        print(f"--- {name}", file=sys.stderr, flush=True)
        began = time.perf_counter()
        figures = run(name, small=options.small)
        print(f"    {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        if isinstance(figures, str):
            failed[name] = figures
        else:
            rows[name] = rows_of(name, figures)
            measured += with_targets(name, figures)
    print(table(measured, [*HEAD, "target", "met"]))
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    if rows and not options.small:
        DOCUMENT.write_text(written(DOCUMENT.read_text(), rows))
    met = all(row[-1] in {"yes", "–"} for row in measured)
    return 0 if (met or options.small) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
