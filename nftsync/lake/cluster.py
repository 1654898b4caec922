"""The cluster that a lake is synced on, and how fast all of its workers together ask.

The rate limit is divided among the workers that there are. A "not now" that one of them is told
holds all of them back: it tells the scheduler, the driver hears of it and tells the others.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast

import dask
from distributed import Client, LocalCluster, Worker, WorkerPlugin, get_worker
from distributed.client import ClosedClientError

from nftsync.errors import CutOff, StoreError
from nftsync.provider.client import Access, ClientConfig
from nftsync.provider.rate_limiter import RateLimiter

__all__ = ["Pace", "connected", "pace_of_worker", "paced"]

_log = logging.getLogger(__name__)
_CONNECT_SECONDS = 10
_DASK = {
    # A task is tried on another worker when its own has died; three are soon dead by chance.
    "distributed.scheduler.allowed-failures": 20,
    # In Python 3.11 a process that looks at what its threads do may stand still for ever, if one
    # begins just then, as one does for each request: https://github.com/python/cpython/issues/106883
    "distributed.worker.profile.enabled": False,
}
#: How often workers are told of a run, should one die just then.
_MOST_REGISTERED = 10
#: What calls of a scheduler raise that has gone.
_GONE = (OSError, RuntimeError, ClosedClientError)
#: How often workers are counted anew, in seconds.
_COUNTED_EVERY = 0.5
#: And as long as there is none.
_SOON = 0.02
#: So long none is waited for in silence.
_SILENCE = 5.0
_NO_WORKERS = "The Dask scheduler has no workers: waiting for one."
_PAUSED = (
    "Dask has paused all workers, as they have used most of their memory: waiting. Should it last,"
    " put workers with a larger --memory-limit in their place."
)
#: A worker asks for nothing before it is told its share, which takes no longer, in seconds.
_TOLD_WITHIN = 60.0


@contextmanager
def connected(scheduler: str | None, workers: int | None) -> Iterator[Client]:
    """Connect to a scheduler, or start worker processes on this machine, for a block.

    Args:
        scheduler: its address (`tcp://host:port`); None starts workers here.
        workers: how many; None: one per processor.

    Raises:
        StoreError: the scheduler cannot be reached.
    """
    with ExitStack() as held:
        held.enter_context(dask.config.set(_DASK))
        log = logging.getLogger("distributed.client")  # what it tells, we do, in one line
        held.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
        if scheduler is None:
            address: Any = held.enter_context(
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    # None would be port 8787 of every address; nobody need look.
                    dashboard_address="127.0.0.1:0",
                    # Whoever reaches a scheduler runs what he likes as we: other users of this
                    # machine have no certificate of it.
                    security=True,
                    silence_logs=logging.CRITICAL,
                    preload=[__name__],  # calls `dask_setup`
                )
            )
        else:
            address = scheduler
        try:
            client = Client(address, timeout=_CONNECT_SECONDS)
        except (OSError, TypeError, ValueError) as error:  # TypeError: tls:// without certificates
            raise StoreError(f"cannot reach a Dask scheduler at {scheduler}: {error}") from error
        yield held.enter_context(client)


def dask_setup(_worker: Worker) -> None:
    """Let a worker that was started here live through a Ctrl-C or the stop of a service.

    They are for the driver, which ends it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class _Limiter(RateLimiter):
    """The limiter of a worker, which tells the others of a pause."""

    def __init__(self, worker: Worker, topic: str) -> None:
        super().__init__()
        self._worker, self._topic = worker, topic

    def pause(self, seconds: float) -> None:
        """Let nobody ask for that long, on any worker."""
        self.hold(seconds)
        self._worker.log_event(self._topic, seconds)

    def hold(self, seconds: float) -> None:
        """Let nobody of this worker ask for that long."""
        super().pause(seconds)


class Pace(WorkerPlugin):
    """On each worker, what the reads of the provider share that one driver asks for.

    Attributes:
        name: the driver's.
        lake: which lake it works on.
        stopped: set where the run is to end.
    """

    def __init__(self, name: str, lake: str, config: ClientConfig) -> None:
        self.name, self.lake = name, lake
        self._config = config

    def setup(self, worker: Worker) -> None:
        """Begin on a worker."""
        self.stopped = threading.Event()
        for other in worker.plugins.values():
            # A lake has one driver at a time: what the one before has under way is in vain.
            if isinstance(other, Pace) and other is not self and other.lake == self.lake:
                other.stopped.set()
        self._lock = threading.Lock()
        self._told = threading.Event()
        self._limiter = _Limiter(worker, self.name)
        self._access: Access | None = None

    def access(self) -> Access:
        """The limiter, and credentials of which a token command runs once per worker.

        Raises:
            SettingsError: the address, the proxy, a certificate or the credentials cannot be used.
            StoreError: nobody has told this worker how fast it may ask.
        """
        if not self._told.wait(_TOLD_WITHIN):
            raise StoreError("this worker's driver is gone")
        with self._lock:
            if self._access is None:
                self._access = self._config.access()._replace(limiter=self._limiter)
            return self._access

    def set_rate(self, rate_limit: float | None) -> None:
        """Set this worker's share."""
        self._limiter.set_rate(rate_limit)
        self._told.set()

    def hold(self, seconds: float) -> None:
        """Let nobody of this worker ask for that long."""
        self._limiter.hold(seconds)


def pace_of_worker(name: str) -> Pace:
    """The pace of the worker that runs this task, for a driver.

    Raises:
        StoreError: the driver is gone.
    """
    try:
        return cast("Pace", get_worker().plugins[name])
    except KeyError:
        raise StoreError("this worker's driver is gone") from None


def _tell(name: str, what: str, *arguments: Any, dask_worker: Worker) -> None:
    getattr(dask_worker.plugins[name], what)(*arguments)


def _stop(name: str, dask_worker: Worker) -> None:
    cast("Pace", dask_worker.plugins[name]).stopped.set()


def _register(client: Client, pace: Pace) -> None:
    """Let each worker have it, those that come later as well.

    Raises:
        CutOff: the scheduler or one worker after the other has gone.
    """
    for _ in range(_MOST_REGISTERED):
        try:
            client.register_plugin(pace, name=pace.name)
        except _GONE as error:  # a worker has just died
            last = error
            time.sleep(_COUNTED_EVERY)
        else:
            return
    raise CutOff(f"the Dask cluster cannot be used: {last}") from last


@contextmanager
def paced(
    client: Client, name: str, lake: str, config: ClientConfig
) -> Iterator[Callable[[], None]]:
    """Let the workers ask together as fast as one machine would, for a block.

    Args:
        client: of the cluster, on which there may be other drivers.
        name: this driver's.
        lake: the lake it works on.
        config: how to read the provider.

    Yields what stops all its reads that are under way.
    """
    _register(client, Pace(name, lake, config))
    over = threading.Event()

    async def pause(event: tuple[float, Any]) -> None:
        await client.run(_tell, name, "hold", event[1], on_error="ignore")

    def share() -> None:
        told: set[str] = set()
        patience = time.monotonic() + _SILENCE
        while not over.wait(_COUNTED_EVERY if told else _SOON):
            infos = client.scheduler_info(n_workers=-1).get("workers", {})
            workers = set(infos)
            if any(info.get("status") != "paused" for info in infos.values()):
                patience = max(patience, time.monotonic() + _SILENCE)
            elif time.monotonic() > patience:
                _log.warning(_PAUSED if workers else _NO_WORKERS)
                patience = float("inf")
            if workers and workers != told:
                rate = None if config.rate_limit is None else config.rate_limit / len(workers)
                with suppress(*_GONE):
                    client.run(
                        *(_tell, name, "set_rate", rate), workers=list(workers), on_error="ignore"
                    )
                    told = workers

    client.subscribe_topic(name, pause)
    sharing = threading.Thread(target=share, name="nftsync-share", daemon=True)
    sharing.start()

    def stop() -> None:
        with suppress(*_GONE):  # the scheduler has gone, and all with it
            client.run(_stop, name, on_error="ignore")

    try:
        yield stop
    finally:
        over.set()
        sharing.join()
        with suppress(*_GONE):
            client.unsubscribe_topic(name)
            client.unregister_worker_plugin(name)
