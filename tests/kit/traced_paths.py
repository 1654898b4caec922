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


@contextmanager
def traced(paths: dict[str, set[str]], name: str) -> Iterator[None]:
    """Collect the modules whose functions run in a block, in all threads that start there."""
    modules = paths[name] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        # The bodies of modules and classes run once, when they are imported.
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            module = frame.f_globals.get("__name__", "")
            if module.partition(".")[0] == "nftsync":
                modules.add(module)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> None:
    for name in [name for name in os.environ if name.startswith("NFTSYNC_")]:
        del os.environ[name]
    paths: dict[str, set[str]] = {}
    world = generate(wallets=8, nfts=5)
    with tempfile.TemporaryDirectory() as folder, SandboxServer(world) as provider:
        os.chdir(folder)  # no settings file
        wallets, inbox, base = world.wallets(), Path(folder, "inbox.db"), {"base_url": provider.url}
        config = replay_config(settings.load(base, environ={}, directory=Path(folder)))
        for number in range(2):  # the first one also fills caches
            with traced(paths, "wallet"):
                database = Path(folder, f"sync{number}.db")
                nftsync.sync(wallets, database=database, progress=False, **base)
            with traced(paths, "webhook"):
                app = create_app(database=inbox, secrets=[SECRET])
                with HttpServer(app) as server:
                    assert post(f"{server.url}/webhooks", webhook("Wallet", wallets[number])) == 200
                    result = replay_once(inbox, config, threading.Event(), progress=False)
                close_app(app)
            assert result.done == 1
    print(json.dumps({path: sorted(modules) for path, modules in paths.items()}))


if __name__ == "__main__":
    main()
