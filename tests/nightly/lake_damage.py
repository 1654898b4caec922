"""Damage each file of a lake, and read it: a right answer or one line, never a wrong answer.

    python -m tests.nightly.lake_damage --flips 3
    python -m tests.nightly.lake_damage --only balances      # the files whose path contains this

The lake has runs before and after a compaction. Each file is emptied, cut, deleted, and gets single
flipped bits. Each command and frame then reads the lake, and a sync runs over it, which publishes
damaged Delta tables again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dask

from nftsync import frames, lake
from nftsync.errors import NftsyncError
from nftsync.lake.tables import PUBLISHED
from tests.kit.lake_cluster import check_lake, cluster_of, command, held, published
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import Outcome

WALLETS = [wallet(number) for number in range(6)]


class Damage(NamedTuple):
    """A damage of a file."""

    name: str
    apply: Callable[[Path], object]


def flip(bit: int, path: Path) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def cut(end: int, path: Path) -> None:
    """Cut a file to some bytes."""
    path.write_bytes(path.read_bytes()[:end])


def damages(size: int, flips: int, rng: random.Random) -> Iterator[Damage]:
    """Yield the damages of a file of so many bytes."""
    yield Damage("deleted", Path.unlink)
    if size:
        for part in (0, 1 / 3, 2 / 3, 0.98):
            end = int(size * part)
            yield Damage(f"cut at {end}", partial(cut, end))
        for bit in sorted(rng.sample(range(8 * size), min(flips, 8 * size))):
            yield Damage(f"bit {bit}", partial(flip, bit))


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
            assert command("lake", "compact", folder / "lake").code == 0


def sync(folder: Path, provider: Provider, scheduler: str, *more: object) -> Outcome:
    """Sync a lake."""
    words = ("--base-url", provider.url, "--wallets-file", folder.parent / "wallets.txt")
    return command(
        *("lake", "sync", folder, *words, "--scheduler", scheduler, "--json"),
        *("--allow-removals", *more),
    )


def _rows(frame: Any) -> list[str]:
    return sorted(map(repr, frame.astype(object).to_dict("records")))


def _exported(folder: Path, run: int | None) -> tuple[Outcome, Any]:
    copy = folder.parent / "copy.db"
    copy.unlink(missing_ok=True)
    said = command("lake", "export", folder, copy, *(() if run is None else ("--run", run)))
    if said.code:
        assert not copy.exists()
        return said, None
    return said, [_rows(find(copy)) for find in (frames.holdings, frames.changes, frames.tokens)]


def _status(folder: Path) -> tuple[Outcome, Any]:
    said = command("lake", "status", folder, "--json")
    if not said.out:
        return said, None
    status = json.loads(said.out)
    fresh = [(row["what"], row["count"], row["at"]) for row in status["freshness"]]
    return said, [status["run"], status["removals_held"], status["tables"], fresh]


def answers(folder: Path, run: int | None = None) -> Iterator[tuple[str, Outcome, Any]]:
    """Read a lake in each way; yield the reader, its outcome, and its answer or None."""
    if run is None:
        yield ("status", *_status(folder))
        said = command("lake", "runs", folder, "--json")
        yield "runs", said, said.out or None
    yield ("export", *_exported(folder, run))
    for frame in (lake.holdings, lake.tokens, lake.changes):
        try:
            with dask.config.set(scheduler="synchronous"):
                answer = _rows(frame(folder, run=run).compute())
        except NftsyncError as error:
            yield frame.__name__, Outcome(1, "", f"{error}\n"), None
        else:
            yield frame.__name__, Outcome(0, "", ""), answer


def fault_of(said: Outcome, answer: Any, right: Any, before: Any) -> str | None:
    """Return the fault of an answer, or None. `before`: the answer of the previous entry."""
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
        self.original, self._damaged, self._number = folder / "lake", folder / "damaged", 0
        self._provider, self._scheduler = provider, scheduler
        make_lake(folder, provider, scheduler)
        self._damaged.mkdir()
        shutil.copy(folder / "wallets.txt", self._damaged)
        self._right = {name: answer for name, _, answer in answers(self.original)}
        self._before = {name: answer for name, _, answer in answers(self.original, 2)}
        self._held = held(self.original)

    def files(self) -> list[Path]:
        """Return the files of the lake."""
        return sorted(path for path in self.original.rglob("*") if path.is_file())

    def meet(self, path: Path, damage: Damage, *, syncs: bool) -> tuple[Counter[str], str | None]:
        """Read a lake with a damaged file; return counts of outcomes, and a fault."""
        self._number += 1  # a process caches reads of an address
        copy = self._damaged / f"lake-{self._number}"
        shutil.copytree(self.original, copy)
        own = path.relative_to(self.original)
        damage.apply(copy / own)
        counts: Counter[str] = Counter()
        # Nothing compares the content of a published file, which nftsync never reads.
        unseen = own.parts[0] in PUBLISHED and own.parts[1] != "_delta_log" and "bit" in damage.name
        try:
            self._meet(copy, own.parts[0], counts, syncs=syncs and not unseen)
        except Exception:  # noqa: BLE001 - any error is a fault
            return counts, f"{own}, {damage.name}: {traceback.format_exc()}"
        finally:
            shutil.rmtree(copy)
        return counts, None

    def _meet(self, copy: Path, kind: str, counts: Counter[str], *, syncs: bool) -> None:
        for name, said, answer in answers(copy):
            # Without a damaged newest entry of the ledger, the run before it counts.
            before = self._before.get(name, answer) if kind == "runs" else self._right[name]
            fault = fault_of(said, answer, self._right[name], before)
            assert fault is None, f"{name}: {fault}"
            assert answer is not None or kind not in PUBLISHED, f"{name} reads a published table"
            counts["one line" if answer is None else "right"] += 1
            counts["before"] += answer not in (None, self._right[name])
        if syncs:
            said = sync(copy, self._provider, self._scheduler, "--takeover-after", "1s")
            fault = fault_of(said, said.out or None, said.out, None)
            assert fault is None, f"sync: {fault}"
            counts["sync refused" if said.code else "sync ok"] += 1
            assert said.code == 0 or kind not in PUBLISHED, said
            if said.code == 0:
                assert held(copy) == published(copy) == self._held
                check_lake(copy)
                counts["published again"] += "published again" in said.err


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
