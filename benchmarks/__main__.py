"""Runs benchmarks, one after the other, and puts their figures into one table.

    python -m benchmarks                  # all of them; the table is in docs/develop/performance.md
    python -m benchmarks frames sync      # these; the others' rows stay as they are
    python -m benchmarks --small          # tiny sizes, to see that they work; nothing is written

The table goes to stdout, progress to stderr. The exit code is 1 if a benchmark failed or a target
is not met.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
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
from benchmarks.report import DOCUMENT, NAMES, rows_of, table, written

MOST_SECONDS = 900.0  # of one benchmark


def run(name: str, *, small: bool) -> list[Figure] | str:
    """A benchmark's figures, from a process of its own; or why there are none."""
    if importlib.util.find_spec(f"benchmarks.{name}") is None:
        return "it is not there"
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks", name, "--into", str(into)]
        process = subprocess.Popen(
            command + ["--small"] * small,
            stdout=sys.stderr,
            start_new_session=True,  # so that what it started can be ended with it
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


def figures_into(name: str, into: Path, *, small: bool) -> None:
    """Run a benchmark in this process, and write what it found to a file."""
    found = importlib.import_module(f"benchmarks.{name}").figures(small=small)
    into.write_text(json.dumps([list(figure) for figure in found]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument(
        "--small", action="store_true", help="tiny sizes; write nothing, judge nothing"
    )
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    if given.into is not None:
        figures_into(given.names[0], given.into, small=given.small)
        return 0
    found, failed = {}, {}
    for name in given.names or NAMES:
        print(f"--- {name}", file=sys.stderr, flush=True)
        began = time.perf_counter()
        figures = run(name, small=given.small)
        print(f"    {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        if isinstance(figures, str):
            failed[name] = figures
        else:
            found[name] = rows_of(name, figures)
    print(table([row for rows in found.values() for row in rows]))
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    if found and not given.small:
        DOCUMENT.write_text(written(DOCUMENT.read_text(), found))
    met = all(row[-1] in {"yes", "–"} for rows in found.values() for row in rows)
    return 0 if (met or given.small) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
