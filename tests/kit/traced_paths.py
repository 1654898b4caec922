"""The modules on the paths of a wallet in a sync and of a webhook, as JSON.

python -m tests.kit.traced_paths
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import nftsync
from nftsync import settings
from nftsync.receiver.app import close_app, create_app
from nftsync.replay.worker import replay_once
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.serve.schedule import replay_config
from nftsync.wsgi import HttpServer
from tests.kit.serve_process import SECRET, post, webhook


class Tracer:
    """Collects the modules whose functions run, in all later threads."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._on = False
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        # The bodies of modules and classes run once, when they are imported.
        if self._on and event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            name = frame.f_globals.get("__name__", "")
            if name.partition(".")[0] == "nftsync":
                self.modules.add(name)

    @contextmanager
    def on(self) -> Iterator[None]:
        self._on = True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._on = False


def sync_once(base: str, wallets: list[str], database: Path) -> set[str]:
    """Sync some wallets into a new database."""
    tracer = Tracer()
    with tracer.on():
        nftsync.sync(wallets, base_url=base, database=database, progress=False)
    return tracer.modules


def replay_one(base: str, wallet: str, database: Path) -> set[str]:
    """Send a webhook to a receiver, and replay it."""
    config = replay_config(settings.load({"base_url": base}, environ={}, directory=database.parent))
    tracer = Tracer()
    app = create_app(database=database, secrets=[SECRET])
    with HttpServer(app) as server, tracer.on():
        assert post(f"{server.url}/webhooks", webhook("Wallet", wallet)) == 200
        result = replay_once(database, config, threading.Event(), progress=False)
    close_app(app)
    assert result.done == 1
    return tracer.modules


def main() -> None:
    for name in [name for name in os.environ if name.startswith("NFTSYNC_")]:
        del os.environ[name]
    world = generate(wallets=8, nfts=5)
    with tempfile.TemporaryDirectory() as folder, SandboxServer(world) as provider:
        os.chdir(folder)  # no settings file
        wallets, inbox = world.wallets(), Path(folder, "inbox.db")
        paths: dict[str, set[str]] = {}
        for number in range(2):  # the first one also fills caches
            database = Path(folder, f"sync{number}.db")
            paths["wallet"] = sync_once(provider.url, wallets, database)
            paths["webhook"] = replay_one(provider.url, wallets[number], inbox)
    print(json.dumps({path: sorted(modules) for path, modules in paths.items()}))


if __name__ == "__main__":
    main()
