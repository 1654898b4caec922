"""Threads that read: as many as help, and never fewer than a stalling provider needs."""

from __future__ import annotations

import threading
import time

import pytest

from nftsync.pull.pool import Fetchers
from nftsync.records import WalletRead


def wallet_read(name: str) -> WalletRead:
    return WalletRead(wallet_id=name, ticket=1, started_at="", outcome="ok")


def take_all(fetchers: Fetchers[str, WalletRead], count: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [read.wallet_id for read in fetchers.take(10, patience=0.05)]
    return found


def test_each_task_is_read_once_whatever_keeps_the_threads_busy() -> None:
    def busy_read(task: str) -> WalletRead:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return wallet_read(task)

    tasks = [str(number) for number in range(300)]
    with Fetchers(busy_read, 8) as fetchers:
        fetchers.submit(tasks)
        assert sorted(take_all(fetchers, 300)) == sorted(tasks)
        assert fetchers.idle


def test_a_stall_after_quick_answers_brings_the_other_threads_back() -> None:
    """Quick answers leave one thread at work; when it hangs, the others must take over."""
    stalled = threading.Event()
    release = threading.Event()

    def read(task: str) -> WalletRead:
        if task == "stalls":
            stalled.set()
            assert release.wait(30)
        until = time.thread_time() + 0.003
        while time.thread_time() < until:
            pass
        return wallet_read(task)

    quick = [str(number) for number in range(300)]
    with Fetchers(read, 4) as fetchers:
        fetchers.submit(quick)
        assert len(take_all(fetchers, 300)) == 300
        fetchers.submit(["stalls"])
        assert stalled.wait(30)
        fetchers.submit(quick)
        assert sorted(take_all(fetchers, 300)) == sorted(quick)
        release.set()
        assert take_all(fetchers, 1) == ["stalls"]


def test_what_a_thread_meets_that_is_no_failed_read_is_raised_to_the_taker() -> None:
    def read(task: str) -> WalletRead:
        raise ZeroDivisionError(task)

    with Fetchers(read, 2) as fetchers:
        fetchers.submit(["a"])
        with pytest.raises(ZeroDivisionError, match="a"):
            take_all(fetchers, 1)
