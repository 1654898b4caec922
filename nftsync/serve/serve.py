"""`serve`: start and stop receiver, replay and schedule together."""

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
from typing import TYPE_CHECKING

from nftsync.provider.webhooks import secret_problem
from nftsync.receiver.app import Metrics, close_app, create_app, refuse_webhooks
from nftsync.replay.config import ReplayConfig, RunSync
from nftsync.replay.worker import replay_continuously
from nftsync.serve.metrics import Freshness, serve_metrics
from nftsync.serve.schedule import sync_periodically
from nftsync.threads import Failures, start_thread
from nftsync.wsgi import HttpServer, Listener, enough_threads, stop_signals, wake_main_thread

if TYPE_CHECKING:
    from nftsync.watch.service import WatchConfig

_log = logging.getLogger("nftsync.daemon.serve")  # the logger's name in log lines


@dataclass(frozen=True, kw_only=True, repr=False)  # a repr would show the secrets
class ServeConfig:
    """Configuration of `serve`; None turns a part off, and `port` 0 picks a free one."""

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
    watch: WatchConfig | None = None


class Service:
    """A running receiver and its threads; the first failure calls `give_up`.

    `wake` is set when webhooks were stored, or to end the replay.
    """

    url = ""

    def __init__(self, give_up: Callable[[], None]) -> None:
        self.stopped = threading.Event()
        self.wake = threading.Event()
        self.failures = Failures(give_up)
        self._threads: list[threading.Thread] = []  # noqa: TID251 - only its type

    def start(self, name: str, work: Callable[[], None]) -> None:
        self._threads.append(start_thread(name, work, self.failures.of(f"the {name}")))

    def stop(self) -> None:
        self.stopped.set()
        self.wake.set()
        for thread in self._threads:
            thread.join()


def serve(config: ServeConfig, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, then finish requests; main thread only.

    Calls `ready` with the URL for webhooks.
    """
    with stop_signals() as wait, run_service(config, wake_main_thread) as service:
        for problem in filter(None, map(secret_problem, config.secrets)):
            _log.warning("the webhook secret is %s", problem)
        _log.info("serving", extra={"url": service.url})
        ready(service.url)
        number = wait()
        _log.info("stopping", extra={"signal": signal.Signals(number).name})
    service.failures.raise_first()
    _log.info("stopped")


@contextmanager
def run_service(config: ServeConfig, give_up: Callable[[], None]) -> Iterator[Service]:
    """Run the service during a block, then stop requests before the replay."""
    service = Service(give_up)
    with ExitStack() as stack:
        _start(config, service, stack)
        yield service


@enough_threads()
def _start(config: ServeConfig, service: Service, stack: ExitStack) -> None:
    metrics = Metrics()
    app = create_app(
        database=config.database,
        secrets=config.secrets,
        organization_id=config.organization_id,
        path=config.path,
        on_stored=service.wake.set,
        metrics=metrics,
        on_broken=service.failures.of("the receiver"),
        healthy=lambda: not service.failures,
    )
    stack.callback(close_app, app)
    if config.metrics_port is not None:
        rules = config.watch.all_rules if config.watch is not None else []
        metrics.registry.register(Freshness(config.database, config.sync_every, rules))
        stack.callback(
            serve_metrics(metrics, config.metrics_port, service.failures.of("the metrics server"))
        )
    stack.callback(service.stop)
    if config.watch is not None:
        # Imported late, because it loads pandas; not in a thread, because imports need descriptors.
        from nftsync.watch.service import plan_continuously, send_continuously, start_rules

        start_rules(config.database, config.watch)  # before the first webhook to forward
    listener = Listener(config.host, config.port)
    server = stack.enter_context(
        HttpServer(app, listener, on_broken=service.failures.of("the HTTP server"))
    )
    service.url = server.url + config.path
    database, stopped = config.database, service.stopped
    if config.replay is not None:
        replay = partial(
            replay_continuously,
            database,
            config.replay,
            stopped,
            service.wake,
            metrics.count_replayed,
            on_damaged=partial(refuse_webhooks, app),
        )
        service.start("replay", replay)
    if config.sync_every is not None and config.run_sync is not None:
        sync = partial(sync_periodically, database, config.sync_every, config.run_sync, stopped)
        service.start("sync", sync)
    if config.watch is not None:
        plan = partial(plan_continuously, database, config.watch, stopped)
        service.start("planner of messages", plan)
        for name in config.watch.destinations:
            send = partial(send_continuously, database, config.watch, name, stopped)
            service.start(f"sender to {name}", send)
