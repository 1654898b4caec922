"""Dask cluster that syncs a lake."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from nftsync.provider.rate_limit import GiveUpRule, RateLimiter
from nftsync.pull.api import client_config
from nftsync.settings import KEYS, load
from nftsync.threads import start_thread

if TYPE_CHECKING:
    from nftsync.provider.client import Access

#: Settings that the driver sends; credentials, proxy and certificates stay on each machine.
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
    "volatile_fields",
    "paging",
)
_OWN = tuple(name for name in ClientConfig.__struct_fields__ if name not in _SHARED)


def shared_part(config: ClientConfig) -> ClientConfig:
    """Return the part of a configuration that workers may receive, without secrets."""
    return ClientConfig(**{name: getattr(config, name) for name in _SHARED})


def names_of_own(config: ClientConfig) -> list[str]:
    """Return the names of settings that workers do not receive."""
    return [key.name for key in KEYS if key.name in _OWN and getattr(config, key.name)]


def completed(shared: ClientConfig, required: Sequence[str]) -> ClientConfig:
    """Complete a configuration with this worker's settings."""
    own = client_config(load({"base_url": shared.base_url}))
    missing = [key for key in KEYS if key.name in required and not getattr(own, key.name)]
    if missing:
        names = " and ".join(key.name for key in missing)
        variables = " and ".join(
            f"{key.variable} (or {key.variable}_FILE)" if key.secret else str(key.variable)
            for key in missing
        )
        raise SettingsError(
            f"this worker lacks {names}, which `lake sync` does not send; set {variables} in its"
            " environment, and restart it"
        )
    return msgspec.structs.replace(shared, **{name: getattr(own, name) for name in _OWN})


_T = TypeVar("_T")
_A = TypeVar("_A")
_log = logging.getLogger(__name__)
#: Seconds for a scheduler to accept a client, to reach all workers, and to clean up.
_CONNECT_SECONDS = 7.0
_REACH_SECONDS = 60.0
_END_SECONDS = 5.0
_POLL_EVERY = 0.3
_DASK = {
    # Workers that a task may lose; Dask's default of three is easily reached by chance.
    "distributed.scheduler.allowed-failures": 20,
    # Profiling can deadlock Python 3.11 when a thread starts:
    # https://github.com/python/cpython/issues/106883
    "distributed.worker.profile.enabled": False,
}
#: Attempts to send the plugin, as a worker may die meanwhile.
_MOST_REGISTERED = 10
#: Errors of calls to a lost scheduler.
_CONNECTION_LOST = (OSError, RuntimeError, ClosedClientError)
#: Seconds between counts of the workers.
_COUNT_EVERY = 0.5
#: Seconds between counts until the first worker.
_FIRST_COUNTS = 0.02
#: Seconds without a worker before a warning.
_WARN_AFTER = 5.0
_NO_WORKERS = "The Dask scheduler has no workers. Waiting for one."
_PAUSED = (
    "Dask has paused all workers because their memory is nearly full. Waiting. If this persists,"
    " restart the workers with a larger --memory-limit."
)
#: Seconds within which a worker must receive its rate; it sends no request before.
_RATE_WITHIN = 60.0


def _stop_if(interrupted: threading.Event) -> None:
    if interrupted.is_set():
        raise KeyboardInterrupt


def within(seconds: float, call: Callable[[], _T], check: Callable[[], object]) -> _T:
    """Run a Dask call, which alone would ignore signals and could wait forever.

    `check` is called every 0.3 s; its error ends the wait.
    """
    result: futures.Future[_T] = futures.Future()
    start_thread("dask", lambda: result.set_result(call()), result.set_exception)
    until = time.monotonic() + seconds
    while not futures.wait([result], min(_POLL_EVERY, seconds)).done:
        check()
        if time.monotonic() > until:
            raise TimeoutError(f"no answer within {seconds:g} s")
    return result.result()


@contextmanager
def connected(
    scheduler: str | None, workers: int | None, interrupted: threading.Event
) -> Iterator[Client]:
    """Connect to a scheduler, or start workers on this machine, for a block.

    Without the scheduler's address, starts `workers` here; None: one per processor.
    """
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_DASK))
        for name in ("distributed", "distributed.client"):  # nftsync reports their errors
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
                    # None would open port 8787 on all addresses.
                    dashboard_address="127.0.0.1:0",
                    # TLS, as any client of a scheduler can run code as this user.
                    security=True,
                    silence_logs=logging.CRITICAL,
                    preload=[__name__],  # calls `dask_setup`
                )
            )
            client = stack.enter_context(Client(cluster, timeout=_CONNECT_SECONDS))
        _stop_if(interrupted)
        yield client


async def _connect_and_close(scheduler: str) -> None:
    """Raise the reason why a client cannot connect.

    Dask leaves a client open after an invalid answer, which delays the exit by 14 seconds.
    """
    client = Client(scheduler, timeout=_CONNECT_SECONDS, asynchronous=True, set_as_default=False)
    try:
        await client
    finally:
        await client.close()


def _client_of(scheduler: str, interrupted: threading.Event) -> Client:
    def connect() -> Client:
        asyncio.run(_connect_and_close(scheduler))
        # Not the default: Dask would keep a failed client as its default for a while.
        return Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)

    try:
        return within(_CONNECT_SECONDS, connect, partial(_stop_if, interrupted))
    except TimeoutError:
        reason = f"no answer within {_CONNECT_SECONDS:g} s"
    except MemoryError:  # Dask reads the first bytes as a length
        reason = "another kind of server answers there"
    except Exception as error:  # noqa: BLE001 - an unknown server's bytes may raise anything
        reason = str(error)
    raise StoreError(
        f"cannot reach a Dask scheduler at {scheduler or repr('')}: {reason}. Check the address:"
        " the scheduler's default port is 8786; port 8787 is its dashboard"
    )


def dask_setup(_worker: Worker) -> None:
    """Make a local worker ignore Ctrl-C and SIGTERM; the driver ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class _Limiter(RateLimiter):
    def __init__(self, worker: Worker, topic: str) -> None:
        super().__init__()
        self._worker, self._topic = worker, topic

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        self._worker.log_event(self._topic, seconds)


class SharedRateLimit(WorkerPlugin):
    """Worker plugin with the rate limit and credentials of one driver's reads."""

    def __init__(
        self, name: str, lake: str, config: ClientConfig, required: Sequence[str] | None
    ) -> None:
        """Prepare the plugin. Workers must have `required` settings; None: `config` is complete."""
        self.name, self.lake = name, lake
        self._config, self._required = config, required

    def setup(self, worker: Worker) -> None:
        self._worker = worker
        self.stopped = threading.Event()
        self.rule = GiveUpRule()
        for other in worker.plugins.values():
            # A lake has one driver at a time: reads for an earlier one are useless.
            if isinstance(other, SharedRateLimit) and other is not self and other.lake == self.lake:
                other.stopped.set()
        self._lock = threading.Lock()
        self._rate_known = threading.Event()
        self._limiter = _Limiter(worker, self.name)
        self._access: Access | None = None

    def access(self) -> Access:
        """Return the rate limiter and the credentials; a token command runs once per worker."""
        from nftsync.provider.client import access_to  # loads httpx, which only workers need

        if not self._rate_known.wait(_RATE_WITHIN):
            raise StoreError("this worker's driver has disconnected")
        with self._lock:
            if self._access is None:
                config = self._config
                if self._required is not None:
                    config = completed(config, self._required)
                self._access = access_to(config)._replace(limiter=self._limiter)
            return self._access

    @contextmanager
    def worker_named(self) -> Iterator[None]:
        """Add the worker's name to errors about its own settings."""
        try:
            yield
        except SettingsError as error:
            if self._required is None:
                raise
            name, address = self._worker.name, self._worker.address
            where = address if name == address else f"{name} ({address})"
            raise SettingsError(f"worker {where}: {error}") from None

    def set_rate(self, rate_limit: float | None) -> None:
        self._limiter.set_rate(rate_limit)
        self._rate_known.set()

    def hold(self, seconds: float) -> None:
        """Pause the requests of this worker only."""
        RateLimiter.pause(self._limiter, seconds)

    def stop(self) -> None:
        self.stopped.set()


def rate_limit_of_worker(name: str) -> SharedRateLimit:
    try:
        return cast("SharedRateLimit", get_worker().plugins[name])
    except KeyError:
        raise StoreError("this worker's driver has disconnected") from None


def _call(name: str, method: str, *arguments: Any, dask_worker: Worker) -> None:
    getattr(dask_worker.plugins[name], method)(*arguments)


def _register(client: Client, limit: SharedRateLimit, interrupted: threading.Event) -> None:
    register = partial(client.register_plugin, limit, name=limit.name)
    for left in reversed(range(_MOST_REGISTERED)):
        try:
            within(_REACH_SECONDS, register, partial(_stop_if, interrupted))
            break
        except _CONNECTION_LOST as error:  # a worker may have died; a timeout is not repeated
            if isinstance(error, TimeoutError) or not left:
                raise RunInterrupted(f"the Dask cluster cannot be used: {error}") from error
        time.sleep(_COUNT_EVERY)


@contextmanager
def shared_rate_limit(
    client: Client,
    name: str,
    lake: str,
    config: ClientConfig,
    interrupted: threading.Event,
    on_failure: Callable[[Exception], None],
) -> Iterator[None]:
    """Apply one rate limit to all workers for a block; stop their reads at its end.

    Only workers started here receive secrets in `config`, over TLS; other workers have their own.
    """
    limit = SharedRateLimit(name, lake, config, None)
    if client.cluster is None:
        limit = SharedRateLimit(name, lake, shared_part(config), names_of_own(config))
    _register(client, limit, interrupted)
    over = threading.Event()

    async def pause(event: tuple[float, Any]) -> None:
        await client.run(_call, name, "hold", event[1], on_error="ignore")

    def share() -> None:
        informed: set[str] = set()
        patience = time.monotonic() + _WARN_AFTER
        while not over.wait(_COUNT_EVERY if informed else _FIRST_COUNTS):
            with suppress(*_CONNECTION_LOST):
                infos = client.scheduler_info(n_workers=-1).get("workers", {})
                if over.is_set():  # the call may have waited
                    return
                workers = set(infos)
                if any(info.get("status") != "paused" for info in infos.values()):
                    patience = max(patience, time.monotonic() + _WARN_AFTER)
                elif time.monotonic() > patience:
                    _log.warning(_PAUSED if workers else _NO_WORKERS)
                    patience = float("inf")
                if workers and workers != informed:
                    rate = config.rate_limit and config.rate_limit / len(workers)
                    call = (_call, name, "set_rate", rate)
                    client.run(*call, workers=list(workers), on_error="ignore")
                    informed = workers

    client.subscribe_topic(name, pause)
    sharing = start_thread("share", share, on_failure)

    def end() -> None:
        client.run(_call, name, "stop", on_error="ignore")
        client.unsubscribe_topic(name)
        client.unregister_worker_plugin(name)

    try:
        yield
    finally:
        over.set()
        with suppress(*_CONNECTION_LOST):  # without the scheduler, nothing is left to stop
            within(_END_SECONDS, end, lambda: None)
        sharing.join(_END_SECONDS)  # the scheduler may not answer


#: Resubmissions, over all buckets, of tasks whose workers died.
_MOST_KILLED = 3


def each_bucket(
    client: Client,
    task: Callable[[int, _A], _T],
    arguments: Mapping[int, _A],
    check: Callable[[], object],
) -> Iterator[tuple[int, _T]]:
    """Run a task for each bucket and its argument; yield buckets and results as tasks finish.

    `check` is called every 0.3 s; its error ends all tasks.
    """

    def submit(bucket: int) -> Future[_T]:
        return client.submit(task, bucket, arguments[bucket], pure=False)

    tasks = {submit(bucket): bucket for bucket in arguments}
    killed = 0
    while tasks:
        check()
        done: Iterable[Future[_T]] = ()
        with suppress(TimeoutError):
            done = wait(list(tasks), timeout=_POLL_EVERY, return_when="FIRST_COMPLETED").done
        for future in done:
            bucket = tasks.pop(future)
            try:
                # One call without Dask's timeout, as a timed-out call may cancel the next one.
                result = within(math.inf, future.result, check)
            except KilledWorker as error:
                killed += 1
                if killed > _MOST_KILLED:
                    raise RunInterrupted(f"workers died at bucket {bucket}: {error}") from error
                tasks[submit(bucket)] = bucket
            else:
                yield bucket, result
