"""Random mutations of the core, made by cosmic-ray, and the share that tests detect.

    make mutations COUNT=200 SEED=1

First, coverage.py records which test runs which line. Then each mutation is applied to a copy of
the checkout, where the tests of its lines run, the quick ones first. A test that fails must fail
again alone: on a busy machine, a failure could have another reason. Mutations that only change an
annotation are left out. Each one that no test detects is printed as a diff, to be judged.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB
from coverage import CoverageData

ROOT = Path(__file__).parents[2]
CORE = ("store", "pull", "replay", "receiver", "movements.py")
TESTS = ("test_movements.py", *CORE[:-1], "model", "cli", "export", "versions", "watch")
_LIMIT = 900.0  # seconds; more counts as no end
PYTEST = ("-m", "pytest", "-q", "--no-header", "--tb=line", "--hypothesis-profile=mutations")


class Mutation(NamedTuple):
    """A change of one file, and its lines."""

    file: str
    text: str
    lines: range
    diff: str


class Coverage(NamedTuple):
    """The tests of each line of a file, and the seconds that each test takes."""

    tests: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def tests_of(self, mutation: Mutation, most: int) -> list[str]:
        """Return the quickest tests of the mutated lines, or of the file: what runs at import."""
        of_line = self.tests.get(mutation.file, {})
        names = {name for line in mutation.lines for name in of_line.get(line, [])}
        names = names or {name for tests in of_line.values() for name in tests}
        return sorted(names & self.seconds.keys(), key=self.seconds.__getitem__)[:most]


def run(folder: Path, *command: str, limit: float) -> tuple[int, str]:
    """Run Python in a folder; return its exit code, -1 if it takes longer than the limit."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin:/usr/sbin", "PYTHONPATH": str(folder), "TMPDIR": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            subprocess.run(["pkill", "-9", "-s", str(process.pid)], check=False)
            process.communicate()
            return -1, ""
        return process.returncode, output


def copy_to(folder: Path) -> Path:
    for name in ("nftsync", "tests", "docs", "notebooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def recorded(folder: Path) -> Coverage:
    """Run the tests once, and record what each of them runs."""
    code, output = run(
        copy_to(folder),
        *(*PYTEST, "-n2", "--cov=nftsync", "--cov-context=test", "--cov-report="),
        *("--junitxml=seconds.xml", "-o", "junit_family=xunit1"),
        *(f"tests/{name}" for name in TESTS),
        limit=3600,
    )
    print(output.rpartition("\n=")[2], flush=True)
    if code:
        sys.exit(f"the tests fail without a mutation:\n{output}")
    data = CoverageData(str(folder / ".coverage"))
    data.read()
    tests = {
        str(Path(file).relative_to(folder)): {
            line: [context.partition("|")[0] for context in contexts if context]
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    cases = ET.parse(folder / "seconds.xml").iter("testcase")
    return Coverage(tests, {node_id(case): float(case.attrib["time"]) for case in cases})


def node_id(case: ET.Element) -> str:
    file, classes = case.attrib["file"], case.attrib["classname"].split(".")
    own = classes[len(Path(file).parts) :]
    return "::".join([file, *own, case.attrib["name"]])


def mutations(only: str) -> Iterator[Mutation]:
    """Generate each mutation of the core that changes what runs."""
    files = [
        file.relative_to(ROOT)
        for place in (ROOT / "nftsync" / name for name in CORE)
        for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))
        if re.search(only, str(file))
    ]
    with tempfile.TemporaryDirectory() as folder:
        database = WorkDB(f"{folder}/mutations.sqlite", WorkDB.Mode.create)
        init(files, database, {})
        items = [item.mutations[0] for item in database.work_items]
        database.close()
    items.sort(key=lambda item: (str(item.module_path), item.operator_name, item.occurrence))
    random.shuffle(items)
    for item in items:
        text = (ROOT / item.module_path).read_text()
        mutated = mutate_code(text, get_operator(item.operator_name)(), item.occurrence)
        if mutated and what_runs(mutated) not in (None, what_runs(text)):
            diff = difflib.unified_diff(text.splitlines(), mutated.splitlines(), n=0, lineterm="")
            lines = range(item.start_pos[0], item.end_pos[0] + 1)
            yield Mutation(str(item.module_path), mutated, lines, "\n".join([*diff][2:]))


def what_runs(text: str) -> str | None:
    """Return the syntax tree as text, without annotations; None if Python refuses the text."""
    try:
        with warnings.catch_warnings(action="error"):  # such as `is` with a literal
            compile(text, "", "exec")
    except (SyntaxError, SyntaxWarning):
        return None
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
    return ast.dump(tree)


def result(mutation: Mutation, coverage: Coverage, most: int) -> str:
    """Return the test that detects a mutation; empty if none does."""
    tests = coverage.tests_of(mutation, most)
    with tempfile.TemporaryDirectory() as name:
        folder = copy_to(Path(name) / "copy")
        (folder / mutation.file).write_text(mutation.text)
        while tests:
            (folder / "tests.txt").write_text("\n".join(tests))
            code, output = run(folder, *PYTEST, "-x", "@tests.txt", limit=_LIMIT)
            if code <= 0:
                return "(no end)" if code else ""
            failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output, re.MULTILINE)
            if failed is None or failed[1] not in tests:
                return "(no start)"
            if run(folder, *PYTEST, failed[1], limit=_LIMIT)[0]:
                return failed[1]
            tests = tests[tests.index(failed[1]) + 1 :]
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="mutations to try")
    parser.add_argument("--seed", type=int, default=1, help="which ones are tried")
    parser.add_argument("--only", default="", help="files that this regular expression finds")
    parser.add_argument("--tests", type=int, default=100, help="tests of a mutation, at most")
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as name:
        coverage = recorded(Path(name) / "copy")
    sample = list(islice(mutations(options.only), options.count))
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(options.at_once) as pool:
        results = pool.map(lambda one: result(one, coverage, options.tests), sample)
        for mutation, test in zip(sample, results, strict=True):
            counts["detected" if test else "not detected"] += 1
            print(f"{mutation.file} {test or 'NOT DETECTED'}", flush=True)
            if not test:
                print(mutation.diff, flush=True)
    print(f"{counts['detected']} of {counts.total()} mutations detected")


if __name__ == "__main__":
    main()
