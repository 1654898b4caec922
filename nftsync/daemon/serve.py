"""`serve`: the receiver, the replay and periodic syncs in one process, begun and ended together."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from nftsync.daemon.schedule import keep_syncing
from nftsync.receiver import close_app, create_app
from nftsync.receiver.telemetry import Metrics, serve_metrics
from nftsync.replay.config import ReplayConfig, RunSync
from nftsync.replay.result import ReplayResult
from nftsync.replay.run import follow
from nftsync.store import STATES
from nftsync.wsgi import HttpServer, Listener, stop_signals

__all__ = ["Receiving", "ServeConfig", "receiving", "serve"]

_log = logging.getLogger("nftsync.daemon.serve")

#: Bytes. A body is taken in before its signature can be looked at, from anybody, and lies on the
#: disk where it is large: all connections together must not fill that. Yet it is more than the app
#: takes, as the app's 413 arrives whole, and the server's may not.
_LARGEST_BODY = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """What `serve` runs.

    Attributes:
        database: created or migrated where needed.
        secrets: the webhook secret, then the one before it while it is being rotated.
        organization_id: webhooks of others are quarantined.
        host: the address to listen on.
        port: 0 takes any free one.
        path: where webhooks are received.
        metrics_port: where Prometheus asks, on loopback; None: nowhere.
        replay: None: webhooks are only stored.
        sync_every: from the start of one full sync to the next; None: there are none.
        run_sync: makes one.
    """

    database: Path
    secrets: Sequence[str]
    organization_id: str | None = None
    host: str = "127.0.0.1"
    port: int = 8787
    path: str = "/webhooks"
    metrics_port: int | None = None
    replay: ReplayConfig | None = None
    sync_every: timedelta | None = None
    run_sync: RunSync | None = None

    def __repr__(self) -> str:
        return f"ServeConfig(database={self.database!r}, ...)"


class Receiving:
    """What runs.

    Attributes:
        url: where webhooks are received.
    """

    def __init__(self, url: str, threads: _Threads) -> None:
        self.url = url
        self._threads = threads

    def raise_what_ended_it(self) -> None:
        """Raise what a part met that it could not go on after, if one did."""
        if self._threads.error is not None:
            raise self._threads.error


def serve(config: ServeConfig, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, then finish what is in flight; for the main thread.

    Args:
        config: what to run.
        ready: is called with the URL for webhooks once they are taken.

    Raises:
        NftsyncError: it cannot start, or not go on.
    """
    with stop_signals() as wait, receiving(config, _wake_main_thread) as r:
        _log.info("serving", extra={"url": r.url})
        ready(r.url)
        number = wait()
        _log.info("stopping", extra={"signal": signal.Signals(number).name})
    r.raise_what_ended_it()
    _log.info("stopped")


def _wake_main_thread() -> None:
    # To that thread alone: any other one would take the signal, and the main thread sleep on.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


@contextmanager
def receiving(config: ServeConfig, give_up: Callable[[], None]) -> Iterator[Receiving]:
    """Run everything during a block, and end it in order: requests first, then the replay.

    Args:
        config: what to run.
        give_up: is called, from another thread, when a part cannot go on.

    Raises:
        NftsyncError: it cannot start.
    """
    metrics = Metrics()
    wake = threading.Event()
    threads = _Threads(wake, give_up)
    with ExitStack() as stack:
        app = create_app(
            database=config.database,
            secrets=config.secrets,
            organization_id=config.organization_id,
            path=config.path,
            on_stored=wake.set,
            metrics=metrics,
            on_broken=threads.fail,
        )
        stack.callback(close_app, app)
        if config.metrics_port is not None:
            stack.callback(serve_metrics(metrics, config.metrics_port))
        stack.callback(threads.stop)
        listener = Listener(config.host, config.port)
        server = stack.enter_context(HttpServer(app, listener, largest_body=_LARGEST_BODY))
        _start_work(config, threads, wake, metrics)
        yield Receiving(server.url + config.path, threads)


def _start_work(
    config: ServeConfig, threads: _Threads, wake: threading.Event, metrics: Metrics
) -> None:
    stopped, replay = threads.stopped, config.replay
    if replay is not None:
        observer = _Counting(metrics)
        threads.start("replay", lambda: follow(config.database, replay, stopped, wake, observer))
    every, run_sync = config.sync_every, config.run_sync
    if every is not None and run_sync is not None:
        threads.start("sync", lambda: keep_syncing(config.database, every, run_sync, stopped))


class _Threads:
    """The parts beside the receiver.

    Attributes:
        stopped: set when they are to end.
        error: what one of them met that it could not go on after.
    """

    def __init__(self, wake: threading.Event, give_up: Callable[[], None]) -> None:
        self.stopped = threading.Event()
        self.error: Exception | None = None
        self._wake = wake
        self._give_up = give_up
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised again in the main thread
                self.fail(error)

        thread = threading.Thread(target=run, name=f"nftsync-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def fail(self, error: Exception) -> None:
        """A part met what it cannot go on after; the first to do so tells why all ends."""
        self.error = self.error or error
        self._give_up()

    def stop(self) -> None:
        self.stopped.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()


class _Counting:
    """Turns what a replay tells into metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def settled(self, counts: ReplayResult) -> None:
        """Count webhooks by the state they came to, and reads."""
        by_name = counts.as_counts()
        for state in STATES:
            if by_name.get(state):
                self._metrics.replayed(state, by_name[state])
        if counts.fetches:
            self._metrics.replay_reads(counts.fetches)
