"""Stopping a call of the client while it is under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from nftsync.errors import NftsyncError, Stopped


def ends_in_stopped(
    call: Callable[[], Any], before: Callable[[], None], stop: Callable[[], None]
) -> float:
    """Stop a call under way in another thread; how long it went on, in seconds."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except NftsyncError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    before()
    began = time.monotonic()
    stop()
    thread.join(20)
    took = time.monotonic() - began
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [Stopped]
    return took
