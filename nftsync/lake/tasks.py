"""A step of a run, made for many buckets by the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import TypeVar

from distributed import Client, Future, wait
from distributed.scheduler import KilledWorker

from nftsync.errors import CutOff
from nftsync.threads import start_thread

_T = TypeVar("_T")
#: How often a task is given out again whose workers all died.
_MOST_KILLED = 3
_LOOK_EVERY = 0.3


def each_bucket(
    client: Client,
    task: Callable[[int], _T],
    buckets: Iterable[int],
    check: Callable[[], object],
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
        CutOff: workers die of a task again and again.
    """
    tasks = {client.submit(task, bucket, pure=False): bucket for bucket in buckets}
    killed = 0
    while tasks:
        check()
        for future in _done(tasks):
            bucket = tasks.pop(future)
            try:
                result = _result_of(future, check)
            except KilledWorker as error:
                killed += 1
                if killed > _MOST_KILLED:
                    raise CutOff(f"workers died of bucket {bucket}: {error}") from error
                tasks[client.submit(task, bucket, pure=False)] = bucket
                continue
            yield bucket, result


def _result_of(future: Future[_T], check: Callable[[], object]) -> _T:
    """Return what a task returned; its worker may take long to send it.

    Dask is asked once: a call that it gives up after a time may cancel the next one.
    """
    result: futures.Future[_T] = futures.Future()
    start_thread("dask", lambda: result.set_result(future.result()), result.set_exception)
    while not futures.wait([result], _LOOK_EVERY).done:
        check()
    return result.result()


def _done(tasks: Iterable[Future[_T]]) -> set[Future[_T]]:
    """Those that are done, after a short wait for any."""
    try:
        return set(wait(list(tasks), timeout=_LOOK_EVERY, return_when="FIRST_COMPLETED").done)
    except TimeoutError:
        return set()
