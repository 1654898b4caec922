"""Progress bars, and a graceful stop on Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType


def progress_bar(
    label: str, total: int, *, unit: str, done: int = 0, shown: bool | None = None
) -> Any:
    """Return a tqdm bar on standard error, or as a notebook's widget.

    `unit` is a plural. `shown` None means on a terminal and in a notebook.
    """
    in_notebook = _is_notebook() and not sys.stderr.isatty()
    if in_notebook and shown is not False and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm
    else:
        from tqdm import tqdm
    # tqdm's own lock is one of processes, for which Python 3.14 starts a further process. A monitor
    # would be a thread for each class.
    bar: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    bar.set_lock(threading.RLock())
    hidden = not (sys.stderr.isatty() or in_notebook) if shown is None else not shown
    shape = {"unit": f" {unit}", "dynamic_ncols": True, "miniters": 1}
    return bar(desc=label, total=total, initial=done, disable=hidden, **shape)


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def interruptible(*more: int) -> Iterator[threading.Event]:
    """Set an event at the first signal (Ctrl-C, SIGTERM, …); the next raises KeyboardInterrupt.

    Outside the main thread, signals do not set it.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, *more)}

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
