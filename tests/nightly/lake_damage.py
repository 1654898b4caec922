"""Damage each file of a lake, and read it: a right answer or one line, never a wrong answer.

The lake has runs before and after a compaction. A seed empties, cuts or deletes a file, or flips
one bit. Each command and frame then reads the lake, and a sync runs over it, which publishes
damaged Delta tables again.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask

from nftsync import frames, lake
from nftsync.errors import NftsyncError
from nftsync.lake.tables import PUBLISHED
from tests.kit import lakes
from tests.kit.lake_cluster import Cluster, cluster_of, sync_words
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import Outcome
from tests.kit.worlds import run_command as command
from tests.nightly.rounds import run_seeds

WALLETS = [wallet(number) for number in range(6)]


def damage(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    how = rng.choice(["deleted", "cut", "bit", "bit"]) if content else "deleted"
    if how == "deleted":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: int(len(content) * rng.choice([0, 1 / 3, 2 / 3, 0.98]))])
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    return how


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


class Lakes:
    """A lake with three runs, of which a compaction follows the second, and damaged copies."""

    def __init__(self, folder: Path, provider: Provider, cluster: Cluster) -> None:
        self.original, self._url, self._cluster = folder / "lake", provider.url, cluster
        for run in range(3):
            for number, each in enumerate(WALLETS):
                own = [
                    entry(token(number), "1", name=f"{number}"),
                    entry(token(9), str(1 + run), name=f"{run}"),
                ]
                provider.holds(each, *own, *([entry(token(20 + number))] if run < 2 else []))
            self._sync(self.original, "--takeover-after", "1h").says()
            if run == 1:
                command("lake", "compact", self.original).says()
        self._right = {name: answer for name, _, answer in answers(self.original)}
        self._before = {name: answer for name, _, answer in answers(self.original, 2)}
        self._held = lakes.held(self.original)

    def _sync(self, path: Path, *more: object) -> Outcome:
        words = sync_words(path, WALLETS, self._url, self._cluster)
        return command(*words, "--json", "--allow-removals", *more)

    def files(self, pattern: str = "**/*") -> list[Path]:
        return sorted(path for path in self.original.glob(pattern) if path.is_file())

    def meet(self, seed: int, folder: Path, path: Path, *, syncs: bool) -> Counter[str]:
        """Read a copy with a damaged file; return counts of outcomes."""
        # A process caches reads of an address.
        copy = shutil.copytree(self.original, folder / f"lake-{seed}")
        own = path.relative_to(self.original)
        how = damage(copy / own, random.Random(seed))
        # Nothing compares the content of a published file, which nftsync never reads.
        unseen = how == "bit" and own.parts[0] in PUBLISHED and own.parts[1] != "_delta_log"
        try:
            return self._meet(copy, own.parts[0], syncs=syncs and not unseen)
        except Exception as error:
            raise AssertionError(f"{own}, {how}: {traceback.format_exc()}") from error

    def _meet(self, copy: Path, kind: str, *, syncs: bool) -> Counter[str]:
        counts = Counter[str]()
        for name, said, answer in answers(copy):
            right = self._right[name]
            # Without a damaged newest entry of the ledger, the run before it counts.
            before = self._before.get(name, answer) if kind == "runs" else right
            assert "Traceback" not in said.err, name
            if answer is None:
                assert said.code, name
                assert said.err.count("\n") == 1, (name, said)
                assert kind not in PUBLISHED, f"{name} reads a published table"
            else:
                assert answer in (right, before), f"{name}: {answer}, not {right}"
            counts["one line" if answer is None else "right"] += 1
        if syncs:
            said = self._sync(copy, "--takeover-after", "1s")
            assert "Traceback" not in said.err
            counts["sync refused" if said.code else "sync ok"] += 1
            if said.code:
                assert kind not in PUBLISHED, said
                assert said.out or said.err.count("\n") == 1, said
            else:
                assert lakes.held(copy) == lakes.published(copy) == self._held
                lakes.check_lake(copy)
        return counts


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as name,
        Provider() as provider,
        cluster_of(Path(name, "cluster"), 1) as cluster,
    ):
        whole = Lakes(Path(name), provider, cluster)
        files = whole.files()

        def run_seed(seed: int, folder: Path) -> Counter[str]:
            return whole.meet(seed, folder, files[seed % len(files)], syncs=seed % 3 == 0)

        run_seeds(__doc__, run_seed, seeds=140)
