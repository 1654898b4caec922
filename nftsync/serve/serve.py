"""`serve`: start receiver, replay and schedule together, and stop them together."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from nftsync.receiver.app import Metrics, close_app, create_app, refuse_webhooks
from nftsync.replay.config import ReplayConfig, RunSync
from nftsync.replay.worker import follow
from nftsync.serve.metrics import Freshness, serve_metrics
from nftsync.serve.schedule import keep_syncing
from nftsync.threads import Failures, start_thread
from nftsync.wsgi import HttpServer, Listener, enough_threads, stop_signals, wake_main_thread

_log = logging.getLogger("nftsync.daemon.serve")  # the name that log lines have


@dataclass(frozen=True, kw_only=True, repr=False)  # which would show the secrets
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


class Receiving:
    """What runs: the receiver, and threads beside it.

    Args:
        give_up: is called, from another thread, when a part cannot go on.

    Attributes:
        url: where webhooks are received.
        failures: of the parts; with the first one all is to end.
        stopped: set when the threads are to end.
        wake: set when there is something new for replay, or the end has come.
    """

    url = ""

    def __init__(self, give_up: Callable[[], None]) -> None:
        self.stopped = threading.Event()
        self.wake = threading.Event()
        self.failures = Failures(give_up)
        self._threads: list[threading.Thread] = []  # noqa: TID251 - its type alone

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Have a part work in a thread."""
        self._threads.append(start_thread(name, work, self.failures.of(f"the {name}")))

    def stop(self) -> None:
        """End the threads."""
        self.stopped.set()
        self.wake.set()
        for thread in self._threads:
            thread.join()


def serve(config: ServeConfig, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C, SIGTERM or SIGHUP, then finish what is in flight; for the main thread.

    Args:
        config: what to run.
        ready: is called with the URL for webhooks once they are taken.

    Raises:
        NftsyncError: it cannot start, or not go on.
    """
    with stop_signals() as wait, receiving(config, wake_main_thread) as r:
        _log.info("serving", extra={"url": r.url})
        ready(r.url)
        number = wait()
        _log.info("stopping", extra={"signal": signal.Signals(number).name})
    r.failures.raise_first()
    _log.info("stopped")


@contextmanager
def receiving(config: ServeConfig, give_up: Callable[[], None]) -> Iterator[Receiving]:
    """Run everything during a block, and end it in order: requests first, then the replay.

    Args:
        config: what to run.
        give_up: is called, from another thread, when a part cannot go on.

    Raises:
        NftsyncError: it cannot start.
    """
    parts = Receiving(give_up)
    with ExitStack() as stack:
        _start(config, parts, stack)
        yield parts


@enough_threads()
def _start(config: ServeConfig, parts: Receiving, stack: ExitStack) -> None:
    """Start everything, and note on the stack how it ends."""
    metrics = Metrics()
    app = create_app(
        database=config.database,
        secrets=config.secrets,
        organization_id=config.organization_id,
        path=config.path,
        on_stored=parts.wake.set,
        metrics=metrics,
        on_broken=parts.failures.of("the receiver"),
        healthy=lambda: not parts.failures,
    )
    stack.callback(close_app, app)
    if config.metrics_port is not None:
        metrics.registry.register(Freshness(config.database, config.sync_every))
        stack.callback(
            serve_metrics(metrics, config.metrics_port, parts.failures.of("the metrics server"))
        )
    stack.callback(parts.stop)
    listener = Listener(config.host, config.port)
    server = stack.enter_context(
        HttpServer(app, listener, on_broken=parts.failures.of("the HTTP server"))
    )
    parts.url = server.url + config.path
    database, stopped = config.database, parts.stopped
    replay, every, run_sync = config.replay, config.sync_every, config.run_sync
    if replay is not None:
        parts.start(
            "replay",
            lambda: follow(
                database,
                replay,
                stopped,
                parts.wake,
                metrics.count_replayed,
                on_damaged=partial(refuse_webhooks, app),
            ),
        )
    if every is not None and run_sync is not None:
        parts.start("sync", lambda: keep_syncing(database, every, run_sync, stopped))
