"""Ctrl-C and SIGTERM as an event, so that work ends where nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Set an event at the first Ctrl-C or SIGTERM; a second one ends the work at once.

    Signals reach the main thread only; elsewhere this does nothing.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(_number: int, _frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    for number in before:
        signal.signal(number, stop)
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
