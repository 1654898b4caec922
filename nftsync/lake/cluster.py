"""The Dask cluster that syncs a lake, and the request rate of all its workers together.

The rate limit is divided among the workers that there are. A "not now" that one of them is told
holds all of them back: it tells the scheduler, the driver hears of it and tells the others.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import dask
import msgspec
from distributed import Client, Future, LocalCluster, Worker, WorkerPlugin, get_worker, wait
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker

from nftsync.errors import RunInterrupted, SettingsError, StoreError
from nftsync.provider.config import ClientConfig
from nftsync.provider.limits import GiveUpRule, RateLimiter
from nftsync.pull.api import client_config
from nftsync.settings import KEYS, load
from nftsync.threads import start_thread

if TYPE_CHECKING:
    from nftsync.provider.access import Access

#: What the driver sends. All else belongs to a machine: credentials, the proxy and certificates.
_SHARED = (
    "base_url",
    "rate_limit",
    "timeout",
    "attempts",
    "first_wait",
    "max_bytes",
    "max_entries",
    "large_bytes",
    "ignore_fields",
    "paging",
)
_OWN = tuple(name for name in ClientConfig.__struct_fields__ if name not in _SHARED)


def shared_part(config: ClientConfig) -> ClientConfig:
    """Return the part of a configuration that may be sent: it holds no secret."""
    return ClientConfig(**{name: getattr(config, name) for name in _SHARED})


def names_of_own(config: ClientConfig) -> list[str]:
    """Return the names of the settings that are set here and not sent."""
    return [key.name for key in KEYS if key.name in _OWN and getattr(config, key.name)]


def completed(shared: ClientConfig, required: Sequence[str]) -> ClientConfig:
    """Return a configuration completed with the settings of this process.

    Args:
        shared: the part that the driver sent.
        required: the names of the settings that are set where the driver runs.

    Raises:
        SettingsError: one of them is not set here, or a setting cannot be used.
    """
    own = client_config(load({"base_url": shared.base_url}))
    missing = [key for key in KEYS if key.name in required and not getattr(own, key.name)]
    if missing:
        names = " and ".join(key.name for key in missing)
        variables = " and ".join(
            f"{key.variable} (or {key.variable}_FILE)" if key.secret else str(key.variable)
            for key in missing
        )
        raise SettingsError(
            f"no {names}, which `lake sync` has but sends to no worker: set {variables} in the"
            " worker's environment, and restart it"
        )
    return msgspec.structs.replace(shared, **{name: getattr(own, name) for name in _OWN})


_T = TypeVar("_T")
_log = logging.getLogger(__name__)
#: How long a scheduler may take, in seconds: to accept a client, to reach all workers, and at the
#: end, when nobody depends on its answer.
_CONNECT_SECONDS = 7.0
_REACH_SECONDS = 60.0
_END_SECONDS = 5.0
_LOOK_EVERY = 0.3
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


def _stop_if(interrupted: threading.Event) -> None:
    """Raise `KeyboardInterrupt` once the event is set."""
    if interrupted.is_set():
        raise KeyboardInterrupt


def within(seconds: float, call: Callable[[], _T], check: Callable[[], object]) -> _T:
    """Return what a call of Dask returns, which alone might wait forever and heed no signal.

    Args:
        seconds: how long it may take.
        call: the call. It is made in a thread of its own, which ends with this process at the
            latest.
        check: called every 0.3 s; what it raises ends the wait.

    Raises:
        TimeoutError: it takes longer.
    """
    result: futures.Future[_T] = futures.Future()
    start_thread("dask", lambda: result.set_result(call()), result.set_exception)
    until = time.monotonic() + seconds
    while not futures.wait([result], min(_LOOK_EVERY, seconds)).done:
        check()
        if time.monotonic() > until:
            raise TimeoutError(f"no answer within {seconds:g} s")
    return result.result()


@contextmanager
def connected(
    scheduler: str | None, workers: int | None, interrupted: threading.Event
) -> Iterator[Client]:
    """Connect to a scheduler, or start worker processes on this machine, for a block.

    Args:
        scheduler: its address (`tcp://host:port`); None starts workers here.
        workers: how many; None: one per processor.
        interrupted: set by Ctrl-C and SIGTERM.

    Raises:
        StoreError: the scheduler cannot be reached.
        KeyboardInterrupt: the event was set.
    """
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_DASK))
        for name in ("distributed", "distributed.client"):  # we report what they log, in one line
            log = logging.getLogger(name)
            stack.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL + 1)
        if scheduler is not None:
            client = stack.enter_context(_client_of(scheduler, interrupted))
            stack.enter_context(client.as_current())
        else:
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    # None would be port 8787 of every address; nobody needs it.
                    dashboard_address="127.0.0.1:0",
                    # Whoever reaches a scheduler can run any code as this user: other users of
                    # this machine have no certificate for it.
                    security=True,
                    silence_logs=logging.CRITICAL,
                    preload=[__name__],  # calls `dask_setup`
                )
            )
            client = stack.enter_context(Client(cluster, timeout=_CONNECT_SECONDS))
        _stop_if(interrupted)
        yield client


async def _connect_and_close(scheduler: str) -> None:
    """Raise what a client cannot connect for.

    Dask itself closes a client that gets no connection, but not one that fails to understand the
    answer: that one is closed when it is collected, which at the end of the process takes 14
    seconds and prints a traceback.
    """
    client = Client(scheduler, timeout=_CONNECT_SECONDS, asynchronous=True, set_as_default=False)
    try:
        await client
    finally:
        await client.close()


def _client_of(scheduler: str, interrupted: threading.Event) -> Client:
    def connect() -> Client:
        asyncio.run(_connect_and_close(scheduler))
        # As the default, one that cannot connect would stay Dask's scheduler for a while.
        return Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)

    try:
        return within(_CONNECT_SECONDS, connect, partial(_stop_if, interrupted))
    except TimeoutError:
        reason = f"no answer within {_CONNECT_SECONDS:g} s"
    except MemoryError:  # it takes the first bytes for a length
        reason = "something else answers there"
    except Exception as error:  # noqa: BLE001 - whatever Dask makes of the bytes of a stranger
        reason = str(error)
    raise StoreError(
        f"cannot reach a Dask scheduler at {scheduler or repr('')}: {reason}. Check the address: a"
        " scheduler's port is 8786 by default, and its dashboard's is 8787"
    )


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
        rule: when this worker gives up, for all buckets that it reads.
    """

    def __init__(
        self, name: str, lake: str, config: ClientConfig, required: Sequence[str] | None
    ) -> None:
        """Prepare for the workers of a driver.

        Args:
            name: the driver's.
            lake: the lake it works on.
            config: how to read the provider.
            required: the settings that each worker must have itself; None: `config` has them all.
        """
        self.name, self.lake = name, lake
        self._config, self._required = config, required

    def setup(self, worker: Worker) -> None:
        """Begin on a worker."""
        self._worker = worker
        self.stopped = threading.Event()
        self.rule = GiveUpRule()
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
        from nftsync.provider.access import access_to  # loads httpx, which only workers need

        if not self._told.wait(_TOLD_WITHIN):
            raise StoreError("this worker's driver is gone")
        with self._lock:
            if self._access is None:
                config = self._config
                if self._required is not None:
                    config = completed(config, self._required)
                self._access = access_to(config)._replace(limiter=self._limiter)
            return self._access

    @contextmanager
    def naming_the_worker(self) -> Iterator[None]:
        """Add the worker's name to an error of its own settings."""
        try:
            yield
        except SettingsError as error:
            if self._required is None:
                raise
            name, address = self._worker.name, self._worker.address
            where = address if name == address else f"{name} ({address})"
            raise SettingsError(f"worker {where}: {error}") from None

    def set_rate(self, rate_limit: float | None) -> None:
        """Set this worker's share."""
        self._limiter.set_rate(rate_limit)
        self._told.set()

    def hold(self, seconds: float) -> None:
        """Let nobody of this worker ask for that long."""
        self._limiter.hold(seconds)

    def stop(self) -> None:
        """Stop the reads of this worker."""
        self.stopped.set()


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


def _register(client: Client, pace: Pace, interrupted: threading.Event) -> None:
    """Send a run's pace to each worker, also to those that come later.

    Raises:
        RunInterrupted: the scheduler or one worker after the other has gone.
        KeyboardInterrupt: the event was set.
    """
    for _ in range(_MOST_REGISTERED):
        try:
            register = partial(client.register_plugin, pace, name=pace.name)
            within(_REACH_SECONDS, register, partial(_stop_if, interrupted))
        except TimeoutError as error:
            raise RunInterrupted(f"the Dask cluster cannot be used: {error}") from None
        except _GONE as error:  # a worker has just died
            last = error
            time.sleep(_COUNTED_EVERY)
        else:
            return
    raise RunInterrupted(f"the Dask cluster cannot be used: {last}") from last


@contextmanager
def paced(
    client: Client,
    name: str,
    lake: str,
    config: ClientConfig,
    interrupted: threading.Event,
    on_failure: Callable[[Exception], None],
) -> Iterator[None]:
    """Let the workers ask together as fast as one machine would, for a block.

    At its end all reads of the workers that are under way are stopped.

    Args:
        client: of the cluster, on which there may be other drivers.
        name: this driver's.
        lake: the lake it works on.
        config: how to read the provider. Only workers that were started here are sent its
            secrets, over TLS; others have their own.
        interrupted: set by Ctrl-C and SIGTERM.
        on_failure: called, from another thread, when workers that join can no longer be given their
            share.
    """
    shared = (
        (shared_part(config), names_of_own(config)) if client.cluster is None else (config, None)
    )
    pace = Pace(name, lake, *shared)
    _register(client, pace, interrupted)
    over = threading.Event()

    async def pause(event: tuple[float, Any]) -> None:
        await client.run(_tell, name, "hold", event[1], on_error="ignore")

    def share() -> None:
        told: set[str] = set()
        patience = time.monotonic() + _SILENCE
        while not over.wait(_COUNTED_EVERY if told else _SOON):
            with suppress(*_GONE):
                infos = client.scheduler_info(n_workers=-1).get("workers", {})
                if over.is_set():  # it may have waited
                    return
                workers = set(infos)
                if any(info.get("status") != "paused" for info in infos.values()):
                    patience = max(patience, time.monotonic() + _SILENCE)
                elif time.monotonic() > patience:
                    _log.warning(_PAUSED if workers else _NO_WORKERS)
                    patience = float("inf")
                if workers and workers != told:
                    rate = None if config.rate_limit is None else config.rate_limit / len(workers)
                    call = (_tell, name, "set_rate", rate)
                    client.run(*call, workers=list(workers), on_error="ignore")
                    told = workers

    client.subscribe_topic(name, pause)
    sharing = start_thread("share", share, on_failure)

    def end() -> None:
        client.run(_tell, name, "stop", on_error="ignore")
        client.unsubscribe_topic(name)
        client.unregister_worker_plugin(name)

    try:
        yield
    finally:
        over.set()
        with suppress(*_GONE):  # the scheduler has gone, and all with it
            within(_END_SECONDS, end, lambda: None)
        sharing.join(_END_SECONDS)  # it may wait for a scheduler that does not answer


#: How often a task is given out again whose workers all died.
_MOST_KILLED = 3


def each_bucket(
    client: Client, task: Callable[[int], _T], buckets: Iterable[int], check: Callable[[], object]
) -> Iterator[tuple[int, _T]]:
    """Have a task made for each of some buckets, by whichever worker is free.

    Args:
        client: of the cluster.
        task: takes a bucket's number; what it raises is raised here.
        buckets: which.
        check: called every 0.3 s; what it raises ends all.

    Yields:
        A bucket's number and what its task returned, as they come.

    Raises:
        RunInterrupted: workers die of a task again and again.
    """
    tasks = {client.submit(task, bucket, pure=False): bucket for bucket in buckets}
    killed = 0
    while tasks:
        check()
        for future in _done(tasks):
            bucket = tasks.pop(future)
            try:
                # Dask is asked once: a call that it gives up after a time may cancel the next one.
                result = within(math.inf, future.result, check)
            except KilledWorker as error:
                killed += 1
                if killed > _MOST_KILLED:
                    raise RunInterrupted(f"workers died of bucket {bucket}: {error}") from error
                tasks[client.submit(task, bucket, pure=False)] = bucket
                continue
            yield bucket, result


def _done(tasks: Iterable[Future[_T]]) -> set[Future[_T]]:
    """Those that are done, after a short wait for any."""
    try:
        return set(wait(list(tasks), timeout=_LOOK_EVERY, return_when="FIRST_COMPLETED").done)
    except TimeoutError:
        return set()
