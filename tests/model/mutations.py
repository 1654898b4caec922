"""Deliberate breaks of the mirror and the inbox, and which level of the tests sees each.

    make mutations                                     # all of them; a table at the end
    python -m tests.model.mutations --only balances --levels batches engine

A break is a text that takes another's place in one file of a copy of this checkout. Each is shown
to the plain model (`batches`), to the simulation (`engine`) and to the tests of the rooms that it
touches (`rooms`). One that nobody sees is a test that is missing, or changes nothing that is
promised: `breaks.EQUIVALENT` says of such why.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.model.breaks import BREAKS, EQUIVALENT, Break

ROOT = Path(__file__).parents[2]
_MEMORY = Path("/dev/shm")
_PYTEST = (
    *("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"),
    "--hypothesis-profile=breaks",
)
#: What is quick, and about most of the mirror's rules.
_RULES = ("store/test_mirror_history.py", "model/test_batches.py")
_MODELS = {
    "batches": ("-m", "tests.model.batches", "--steps", "12000"),
    "engine": ("-m", "tests.model.engine", "--steps", "9000"),
}
#: Of each file the folders whose tests are about it, in the order in which they are asked: a file
#: of tests before the folder that it is in, where most is to be expected of it.
_ROOMS = {
    "store/leases": ["replay/test_queue_property.py", "replay/test_clocks.py", "replay"],
    "store/runs": [
        *("replay/test_queue_property.py", "replay/test_follow.py"),
        *("replay/test_clocks.py", "replay/test_of_syncs.py", "replay"),
        *("pull/test_kill.py", "pull"),
    ],
    "store/inbox": [
        *("receiver/test_storage.py", "replay/test_queue_property.py", "receiver", "replay"),
        *("cli/test_inbox.py", "cli/test_inbox_requeue.py"),
    ],
    "store/requeue": ["cli/test_inbox_requeue.py", "cli/test_inbox.py"],
    "store/removals": ["pull/test_removal_guard.py", "pull/test_removals.py", "store", "pull"],
    "store/day_report": ["pull/test_removal_guard.py", "pull/test_removals.py", "store", "pull"],
    "store/balances": [
        *(*_RULES, "store", "pull/test_removals.py", "pull", "replay"),
        *("export", "reports", "cli"),
    ],
    "store/wallets": ["pull/test_removals.py", "pull", "replay/test_of_syncs.py", "replay"],
    "store/mirror": [*_RULES, "replay/test_follow.py", "store", "pull", "replay"],
    "store/": [*_RULES, "store", "pull", "replay", "export", "reports", "cli"],
    "replay/": [
        "replay/test_reads.py",
        "replay/test_follow.py",
        "replay/test_trouble.py",
        "replay",
    ],
    "receiver/": ["receiver/test_storage.py", "receiver", "serve"],
    "pull/guard": ["pull/test_removal_guard.py", "pull/test_removals.py", "pull", "replay"],
    "movements": ["test_movements.py", "pull/test_removal_guard.py"],
    "pull/run": ["pull/test_kill.py", "pull/test_half_broken.py", "pull"],
    "records": ["pull/test_read_order.py"],
    "provider/": ["pull/test_read_order.py", "provider"],
    "pull/": ["pull/test_half_broken.py", "pull/test_removals.py", "pull"],
}


def _files(rooms: Iterable[str]) -> list[str]:
    """The files of tests in rooms, each once; pytest itself would forget their order."""
    files: dict[str, None] = {}
    for room in rooms:
        place = ROOT / "tests" / room
        for file in [place] if place.is_file() else sorted(place.rglob("test_*.py")):
            files[str(file.relative_to(ROOT))] = None
    return list(files)


def broken(of: Break, into: Path) -> None:
    """A copy of the checkout with the break in it."""
    for name in ("nftsync", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, into / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", into)
    file = into / of.file
    text = file.read_text()
    if text.count(of.old) != 1:
        raise SystemExit(f"{of.file} has {of.old!r} {text.count(of.old)} times: mend the break")
    file.write_text(text.replace(of.old, of.new))


class Copy:
    """A broken copy of the checkout, and what is run in it."""

    def __init__(self, folder: str, limit: float) -> None:
        self._folder = folder
        self._limit = limit

    def run(self, *command: str) -> tuple[str, str]:
        """Whether a command sees the break, and what it says."""
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self._folder,
            env={
                **os.environ,
                "PYTHONPATH": self._folder,
                "PYTHONDONTWRITEBYTECODE": "1",
                "TMPDIR": self._folder,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=self._limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return "hangs", ""
        return "seen" if process.returncode else "-", said

    def ask(self, files: list[str]) -> tuple[str, str]:
        """Whether the tests of some files see the break, and which does.

        One that fails is asked again by itself, as a machine that is busy makes tests fail, too.
        """
        chance: list[str] = []
        while True:
            told, said = self.run(*_PYTEST, *files, *(f"--deselect={each}" for each in chance))
            failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", said, re.MULTILINE)
            if told == "-" or failed is None:
                return told, ""
            name = failed[1]
            if self.run(*_PYTEST, name)[0] != "-":
                return told, name.removeprefix("tests/")
            chance.append(name)
            files = files[files.index(name.partition("::")[0]) :]


def seen(of: Break, levels: list[str], limit: float) -> dict[str, str]:
    """Of each level whether it sees the break, and of the rooms which test does (`by`)."""
    found = {}
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        broken(of, Path(folder))
        copy = Copy(folder, limit)
        for level in levels:
            if level == "rooms":
                rooms = next(rooms for part, rooms in _ROOMS.items() if part in of.file)
                found[level], found["by"] = copy.ask(_files(rooms))
            else:
                found[level], _ = copy.run(*_MODELS[level])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="breaks whose file or text this expression finds")
    parser.add_argument("--levels", nargs="+", default=["batches", "engine", "rooms"])
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each level")
    parser.add_argument("--at-once", type=int, default=2)
    asked = parser.parse_args()
    breaks = [x for x in BREAKS if re.search(asked.only or "", f"{x.file} {x.what}")]
    print(f"{'break':66} " + " ".join(f"{level:8}" for level in asked.levels))
    missed = 0
    with ThreadPoolExecutor(asked.at_once) as pool:
        results = pool.map(lambda each: seen(each, asked.levels, asked.limit), breaks)
        for each, found in zip(breaks, results, strict=True):
            name = f"{Path(each.file).stem}: {each.what}"
            shown = " ".join(f"{found[level]:8}" for level in asked.levels)
            why = found.pop("by", "")
            if set(found.values()) == {"-"}:
                why = EQUIVALENT.get(each.what, "NOBODY SEES IT")
            missed += why == "NOBODY SEES IT"
            print(f"{name:66} {shown} {why}", flush=True)
    print(f"{len(breaks)} breaks, {missed} seen by nobody")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
