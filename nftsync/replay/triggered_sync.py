"""A sync of all wallets that webhooks ask for, beside the replay that goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from nftsync.errors import InputError, NftsyncError, SyncRunning
from nftsync.pull.result import SyncResult
from nftsync.replay.work import Job

__all__ = ["AskedSync", "Outcome", "RunSync"]

#: Makes a sync of all tracked wallets, until the event is set.
RunSync: TypeAlias = Callable[[threading.Event], SyncResult]

#: Seconds until it is tried again: while another sync holds the database, and after a failure.
_WAIT_FOR_OTHERS = 10.0
_WAIT_AFTER_FAILURE = 60.0


class Outcome(NamedTuple):
    """What became of a sync that was asked for.

    Attributes:
        jobs: whose webhooks asked for it, before it began.
        error: why it was not made, or None.
        wait: seconds until it should be tried again; None: it was made.
    """

    jobs: Sequence[Job]
    error: str | None
    wait: float | None


class AskedSync:
    """Runs one such sync at a time, in a thread."""

    def __init__(self, run_sync: RunSync) -> None:
        """Begin with none."""
        self._run_sync = run_sync
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._jobs: Sequence[Job] = ()
        self._result: tuple[str | None, float | None] | None = None

    @property
    def is_running(self) -> bool:
        """One is under way, or its outcome has not been asked for."""
        return self._thread is not None

    def begin(self, jobs: Sequence[Job]) -> None:
        """Start a sync for the webhooks of these jobs."""
        self._jobs = jobs
        self._thread = threading.Thread(target=self._run, name="nftsync-asked-sync", daemon=True)
        self._thread.start()

    def outcome(self) -> Outcome | None:
        """What became of it, once it is over.

        Raises:
            RuntimeError: it ended in a way that nobody foresaw.
        """
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        if self._result is None:
            raise RuntimeError("the sync that webhooks asked for broke off")
        (error, wait), self._result = self._result, None
        return Outcome(self._jobs, error, wait)

    def stop(self) -> None:
        """End a sync under way; what it has read is kept."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            result = self._run_sync(self._stopped)
        except SyncRunning as error:
            self._result = str(error), _WAIT_FOR_OTHERS
        except InputError:  # no wallet is tracked, so all of them have been read
            self._result = None, None
        except NftsyncError as error:
            self._result = str(error), _WAIT_AFTER_FAILURE
        else:
            if result.status in {"ok", "partial"}:
                self._result = None, None
            else:
                why = result.error or f"the sync ended as {result.status}"
                self._result = why, _WAIT_AFTER_FAILURE
