"""Deliberate breaks of the mirror and the inbox, and the tests that detect them.

    make mutations
    python -m tests.model.mutations --only balances --levels batches engine

Each break (`breaks.txt`) is applied to a copy of the checkout. There, the plain model (`batches`),
the simulation (`engine`) and the tests of the broken module (`packages`) run. A failure by an error
of the code itself, such as a `NameError`, detects nothing: the break is "broken". The exit code is
1 if a break is broken, or if no test detects it and no reason is given.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.model.breaks import ROOT, Break, read_breaks

_MEMORY = Path("/dev/shm")
_PYTEST = (
    *("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line"),
    "--hypothesis-profile=breaks",
)
_CRASH = re.compile(r"\b(?:NameError|UnboundLocalError|SyntaxError|ImportError|AttributeError)\b")
_MODELS = {
    "batches": ("-m", "tests.model.batches", "--steps", "12000"),
    "engine": ("-m", "tests.model.engine", "--steps", "9000"),
}
#: Tests of modules, by a part of the path; the tests that are most likely to fail come first.
_TESTS = {
    "store/leases": "replay/test_queue_property.py replay",
    "store/runs": "replay/test_queue_property.py replay/test_follow.py"
    " replay pull/test_processes.py pull",
    "store/inbox": "receiver/test_storage.py replay/test_queue_property.py receiver replay cli",
    "store/requeue": "cli/test_inbox.py",
    "store/removals": "pull/test_removal_guard.py pull/test_removals.py store pull",
    "store/history": "pull/test_removal_guard.py pull/test_removals.py store pull",
    "store/day_report": "pull/test_removal_guard.py pull/test_removals.py store pull",
    "store/wallets": "pull/test_removals.py pull replay/test_of_syncs.py replay",
    "store/": "store/test_mirror_history.py model/test_batches.py store pull/test_removals.py pull"
    " replay export reports cli",
    "replay/": "replay/test_reads.py replay/test_follow.py replay/test_trouble.py replay",
    "receiver/": "receiver/test_storage.py receiver serve",
    "pull/guard": "pull/test_removal_guard.py pull/test_removals.py pull replay",
    "movements": "test_movements.py pull/test_removal_guard.py",
    "records": "pull/test_reads.py",
    "provider/": "pull/test_reads.py provider",
    "pull/": "pull/test_failures.py pull/test_reads.py pull/test_removals.py pull replay",
}


def test_files(broken_file: str) -> list[str]:
    """Return the files of a module's tests, each once; pytest itself would sort them."""
    names = next(names for part, names in _TESTS.items() if part in broken_file)
    files: dict[str, None] = {}
    for place in (ROOT / "tests" / name for name in names.split()):
        for file in [place] if place.is_file() else sorted(place.rglob("test_*.py")):
            files[str(file.relative_to(ROOT))] = None
    return list(files)


class Copy:
    """A broken copy of the checkout."""

    def __init__(self, one: Break, folder: Path, limit: float) -> None:
        self._folder, self._limit = folder, limit
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("nftsync", "tests"):
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.file, text = one.apply()
        (folder / self.file).write_text(text)

    def run(self, *command: str) -> tuple[str, str]:
        """Run a command; return whether it detects the break, and its output."""
        folder = str(self._folder)
        variables = {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": folder}
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=self._limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return "hangs", ""
        if not process.returncode:
            return "-", output
        return ("broken" if _CRASH.search(output) else "detected"), output

    def run_tests(self) -> tuple[str, str]:
        """Run the module's tests; return whether they detect the break, and which one does.

        A failed test runs again alone, because tests may also fail on a busy machine.
        """
        files, passed_alone = test_files(self.file), list[str]()
        while True:
            skipped = (f"--deselect={name}" for name in passed_alone)
            result, output = self.run(*_PYTEST, *files, *skipped)
            failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", output, re.MULTILINE)
            if result == "-" or failed is None:
                return result, ""
            name = failed[1]
            if self.run(*_PYTEST, name)[0] != "-":
                return result, name.removeprefix("tests/")
            passed_alone.append(name)
            files = files[files.index(name.partition("::")[0]) :]


def results_of(one: Break, levels: list[str], limit: float) -> tuple[list[str], str]:
    """Return the result of each level, and the test that detects the break."""
    results, test = [], ""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        copy = Copy(one, Path(folder), limit)
        for level in levels:
            result, test = copy.run_tests() if level == "packages" else copy.run(*_MODELS[level])
            results.append(result)
    return results, test if levels[-1] == "packages" else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="breaks whose file or text this finds")
    parser.add_argument("--levels", nargs="+", default=[*_MODELS, "packages"])
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each level")
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    breaks = [x for x in read_breaks() if re.search(options.only, f"{x.apply()[0]} {x.what}")]
    print(f"{'break':66} " + " ".join(f"{level:8}" for level in options.levels))
    failures = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        rows = pool.map(lambda one: results_of(one, options.levels, options.limit), breaks)
        for one, (results, remark) in zip(breaks, rows, strict=True):
            if set(results) == {"-"}:
                remark = one.reason or "NO TEST DETECTS IT"
                failures += not one.reason
            failures += "broken" in results
            name = f"{Path(one.apply()[0]).stem}: {one.what}"
            shown = " ".join(f"{result:8}" for result in results)
            print(f"{name:66} {shown} {remark}", flush=True)
    print(f"{len(breaks)} breaks, {failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
