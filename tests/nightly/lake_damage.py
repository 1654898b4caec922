"""Damage each file of a lake, and read it: the right answer or one line, never a wrong answer.

    python -m tests.nightly.lake_damage --flips 3
    python -m tests.nightly.lake_damage --only balances      # the files whose path contains this

The lake has runs before and after a compaction. Each file is emptied, cut, deleted, and gets single
flipped bits. Each command and frame then reads the lake, and a sync runs over it.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import dask

from nftsync import frames, lake
from nftsync.cli import main as run_command
from nftsync.errors import NftsyncError
from nftsync.lake.reasons import STORE_ERRORS
from tests.kit.lake_cluster import cluster_of, held
from tests.kit.provider import Provider, entry, token, wallet

WALLETS = [wallet(number) for number in range(6)]
#: A reader showed the entry before a damaged newest one, as it says.
_BEFORE = "Showing the entry before it"


class Said(NamedTuple):
    """What a command came to, and what it printed."""

    code: object
    out: str
    err: str


class Damage(NamedTuple):
    """A damage of a file."""

    name: str
    apply: Callable[[Path], object]


def told(*words: object) -> Said:
    """Run a command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run_command([*map(str, words)])
        except SystemExit as ended:
            texts = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore
            return Said(ended.code, *texts)
    raise AssertionError("a command ends with a code")


def flipped(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def damages(size: int, flips: int, rng: random.Random) -> Iterator[Damage]:
    """Yield the damages of a file of so many bytes."""
    yield Damage("deleted", Path.unlink)
    if size:
        yield Damage("emptied", lambda path: path.write_bytes(b""))
        for part in (1 / 3, 2 / 3, 0.98):
            end = int(size * part)
            yield Damage(
                f"cut at {end}",
                lambda path, end=end: path.write_bytes(  # type: ignore[misc]
                    path.read_bytes()[:end]
                ),
            )
        for bit in sorted(rng.sample(range(8 * size), min(flips, 8 * size))):
            yield Damage(f"bit {bit}", lambda path, bit=bit: flipped(path, bit))  # type: ignore[misc]


def make_lake(folder: Path, provider: Provider, scheduler: str) -> None:
    """Make a lake with three runs, of which a compaction follows the second."""
    (folder / "wallets.txt").write_text("\n".join(WALLETS))
    for run in range(3):
        for number, each in enumerate(WALLETS):
            own = [
                entry(token(number), "1", name=f"{number}"),
                entry(token(9), str(1 + run), name=f"{run}"),
            ]
            provider.holds(each, *own, *([entry(token(20 + number))] if run < 2 else []))
        more = ("--buckets", 2) if run == 0 else ()
        said = sync(folder / "lake", provider, scheduler, "--takeover-after", "1h", *more)
        assert said.code == 0, said
        if run == 1:
            assert told("lake", "compact", folder / "lake").code == 0


def sync(folder: Path, provider: Provider, scheduler: str, *more: object) -> Said:
    """Sync a lake."""
    words = ("--base-url", provider.url, "--wallets-file", folder.parent / "wallets.txt")
    return told(
        *("lake", "sync", folder, *words, "--scheduler", scheduler, "--json"),
        *("--allow-removals", *more),
    )


def _rows(frame: Any) -> list[str]:
    return sorted(map(repr, frame.astype(object).to_dict("records")))


def _exported(folder: Path, run: int | None) -> tuple[Said, Any]:
    copy = folder.parent / "copy.db"
    copy.unlink(missing_ok=True)
    said = told("lake", "export", folder, copy, *(() if run is None else ("--run", run)))
    if said.code:
        assert not copy.exists()
        return said, None
    return said, [
        _rows(frames.holdings(copy)),
        _rows(frames.changes(copy)),
        _rows(frames.tokens(copy)),
    ]


def _status(folder: Path) -> tuple[Said, Any]:
    said = told("lake", "status", folder, "--json")
    if not said.out:
        return said, None
    status = json.loads(said.out)
    fresh = [(row["what"], row["count"], row["at"]) for row in status["freshness"]]
    return said, [status["run"], status["removals_held"], status["tables"], fresh]


def answers(folder: Path, run: int | None = None) -> Iterator[tuple[str, Said, Any]]:
    """Read a lake in each way: the reader, what it said, and its answer or None."""
    if run is None:
        yield ("status", *_status(folder))
        said = told("lake", "runs", folder, "--json")
        yield "runs", said, said.out or None
    yield ("export", *_exported(folder, run))
    for frame in (lake.holdings, lake.tokens, lake.changes):
        try:
            with dask.config.set(scheduler="synchronous"):
                answer = _rows(frame(folder, run=run).compute())
        except NftsyncError as error:
            yield frame.__name__, Said(1, "", f"{error}\n"), None
        else:
            yield frame.__name__, Said(0, "", ""), answer


def fault_of(said: Said, answer: Any, right: Any, before: Any) -> str | None:
    """Return what is wrong with an answer, or None. `before`: the answer of the entry before."""
    if "Traceback" in said.err:
        return said.err
    if answer is not None:
        return None if answer in (right, before) else f"a wrong answer: {answer}, not {right}"
    if said.code == 0 or said.err.count("\n") != 1:
        return f"exit {said.code} with these lines: {said.err}"
    return None


class Lakes:
    """A lake, and damaged copies of it."""

    def __init__(self, folder: Path, provider: Provider, scheduler: str) -> None:
        self.original, self.copy = folder / "lake", folder / "damaged" / "lake"
        self._provider, self._scheduler = provider, scheduler
        make_lake(folder, provider, scheduler)
        self.copy.parent.mkdir()
        shutil.copy(folder / "wallets.txt", self.copy.parent)
        self._right = {name: answer for name, _, answer in answers(self.original)}
        self._before = {name: answer for name, _, answer in answers(self.original, 2)}
        self._held = held(self.original)

    def files(self) -> list[Path]:
        """Return the files of the lake."""
        return sorted(path for path in self.original.rglob("*") if path.is_file())

    def meet(self, path: Path, damage: Damage, *, syncs: bool) -> tuple[Counter[str], str | None]:
        """Read a lake with a damaged file: counts of outcomes, and what is wrong."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.original, self.copy)
        own = path.relative_to(self.original)
        damage.apply(self.copy / own)
        ledger = own.parts[0] == "runs"
        counts: Counter[str] = Counter()
        try:
            for name, said, answer in answers(self.copy):
                # A damaged newest entry of the ledger counts for nothing, and is told.
                before = self._before.get(name, answer) if ledger else self._right[name]
                if fault := fault_of(said, answer, self._right[name], before):
                    return counts, f"{own}, {damage.name}: {name}: {fault}"
                counts["one line" if answer is None else "right"] += 1
                if answer != self._right[name] and answer is not None:
                    counts["before"] += 1
            if syncs:
                said = sync(self.copy, self._provider, self._scheduler, "--takeover-after", "1s")
                if fault := fault_of(said, said.out or None, said.out, None):
                    return counts, f"{own}, {damage.name}: sync: {fault}"
                counts["sync ok" if said.code == 0 else "sync refused"] += 1
                if said.code == 0:
                    try:
                        now = held(self.copy)
                    except (NftsyncError, *STORE_ERRORS):
                        counts["sync ok, then one line"] += 1
                    else:
                        assert now == self._held, f"{own}, {damage.name}: after a sync: {now}"
        except Exception:  # noqa: BLE001 - that is what is looked for
            return counts, f"{own}, {damage.name}: {traceback.format_exc()}"
        return counts, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=3, help="flipped bits of each file")
    parser.add_argument("--syncs", type=int, default=3, help="sync after one of so many damages")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng, counts, faults = random.Random(arguments.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as name, Provider() as provider:
        folder = Path(name)
        (folder / "cluster").mkdir()
        with cluster_of(folder / "cluster", 1) as cluster:
            lakes = Lakes(folder, provider, cluster.address)
            for path in lakes.files():
                for damage in damages(path.stat().st_size, arguments.flips, rng):
                    if arguments.only in str(path):
                        syncs = rng.randrange(arguments.syncs) == 0
                        more, fault = lakes.meet(path, damage, syncs=syncs)
                        counts += more
                        counts["damages"] += 1
                        if fault:
                            faults += 1
                            print(f"FAULT {fault[:3000]}", flush=True)
                print(path.relative_to(lakes.original), dict(counts), flush=True)
    print(f"{dict(counts)}, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
