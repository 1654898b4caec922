"""For how long a transaction kept others from writing, less what it waited for them.

Nothing here says how quick a machine is: of two writers only one holds the lock at a time, so their
times add up to what has passed at most.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.store.database import begin_immediate, connect_writer
from nftsync.store.mirror import BatchSize, Mirror


def test_the_wait_for_another_writer_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "nftsync.db"
    with Mirror(path) as mirror, closing(connect_writer(path)) as other:
        begin_immediate(other)
        left: list[float] = []

        def leave() -> None:
            time.sleep(0.3)
            left.append(time.monotonic())
            other.execute("COMMIT")

        thread = threading.Thread(target=leave)
        thread.start()
        with mirror.transaction():
            pass
        passed = time.monotonic() - left[0]
        thread.join()
        assert 0 < mirror.held_seconds <= passed


def test_the_room_left_for_others_is_no_part_of_it(tmp_path: Path) -> None:
    with Mirror(tmp_path / "nftsync.db", air=0.3) as mirror:
        with mirror.transaction():
            began = time.monotonic()
        with mirror.transaction():
            pass
        assert 0 < mirror.held_seconds <= time.monotonic() - began - 0.3


def test_batches_are_not_sized_by_what_others_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync beside a writer that takes the lock again and again."""
    import nftsync

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "nftsync.db"
    learnt: list[float] = []
    learn = BatchSize.learn

    def listen(size: BatchSize, entries: int, seconds: float) -> None:
        learnt.append(seconds)
        learn(size, entries, seconds)

    monkeypatch.setattr(BatchSize, "learn", listen)
    over, others = threading.Event(), [0.0]

    def write() -> None:
        with closing(connect_writer(path)) as other:
            while not over.is_set():
                begin_immediate(other)
                began = time.monotonic()
                over.wait(0.2)
                others[0] += time.monotonic() - began
                other.execute("COMMIT")
                time.sleep(0.01)

    Mirror(path).close()
    world = generate(wallets=200, nfts=20, seed=3, image_base="http://127.0.0.1")
    with SandboxServer(lambda _: world) as provider:
        thread = threading.Thread(target=write)
        began = time.monotonic()
        thread.start()
        try:
            result = nftsync.sync(
                world.wallets(), base_url=provider.url, database=path, progress=False
            )
        finally:
            over.set()
            thread.join()
        passed = time.monotonic() - began
    assert result.status == "ok"
    assert len(learnt) > 1
    assert sum(learnt) + others[0] <= passed
