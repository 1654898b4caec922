"""The demo's provider: first made up, then started again from its state, with the same pictures."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from nftsync.demo.files import address_file, state_file
from nftsync.demo.happenings import gather
from nftsync.errors import InputError, NftsyncError, StoreError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from nftsync.store.connection import connect_reader, explained

__all__ = ["PORT", "begin_provider", "kept_address", "provider_again"]

#: The port that `nftsync sandbox` takes, too. Pictures name it, so it should be free again later.
PORT = 8788
_WALLETS = 40
_NFTS = 25
_SEED = 7

_ADDRESS = re.compile(r"(?P<url>http://127\.0\.0\.1:[0-9]{1,5})\s*")
#: Seconds for a provider on this machine to tell which one it is.
_PATIENCE = 10.0
#: Seconds until a provider that others ran is run from here.
_LOOK_EVERY = 0.2


@contextmanager
def begin_provider(database: Path, port: int = PORT) -> Iterator[SandboxServer]:
    """Run a new provider during a block, and keep it beside the database.

    Args:
        database: the demo's; its folder exists.
        port: where it listens, unless that is taken; 0 takes any free one.

    Raises:
        NftsyncError: it cannot be kept, or not be started.
    """

    def build(url: str) -> World:
        world = generate(wallets=_WALLETS, nfts=_NFTS, seed=_SEED, image_base=url)
        gather(world)
        return world

    state = state_file(database)
    try:
        server = SandboxServer(build, port=port, state=state)
    except InputError:  # the port is taken
        server = SandboxServer(build, state=state)
    with server:
        with explained(address_file(database)):
            address_file(database).write_text(f"{server.url}\n", encoding="utf-8")
        yield server


@contextmanager
def provider_again(database: Path) -> Iterator[str]:
    """See that a demo's provider runs during a block.

    Where another program runs it already, it is shared, and run from here once that one ends.

    Args:
        database: the demo's.

    Yields:
        Its base URL.

    Raises:
        InputError: it was not kept, or its port or its state is in use by something else.
    """
    url = _kept(database)
    try:
        server = _start(database)
    except InputError:
        if not _answers(url, database):
            raise
        with _taken_over(database):
            yield url
        return
    with server:
        yield url


def _start(database: Path) -> SandboxServer:
    port = int(_kept(database).rpartition(":")[2])
    return SandboxServer(_nothing_kept, port=port, state=state_file(database))


@contextmanager
def _taken_over(database: Path) -> Iterator[None]:
    """Run the provider during the block as soon as nobody else does: once its port is free."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_LOOK_EVERY):
            with suppress(NftsyncError), _start(database):
                ended.wait()

    thread = threading.Thread(target=run, name="nftsync-demo-provider", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def kept_address(database: Path) -> str | None:
    """The base URL that the provider of a demo's database had, or None where it was not kept."""
    try:
        found = _ADDRESS.fullmatch(address_file(database).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return found and found["url"]


def _kept(database: Path) -> str:
    url = kept_address(database)
    if url is None or not state_file(database).is_file():
        raise InputError(f"the provider of {database} was not kept; `nftsync demo` makes both anew")
    return url


def _nothing_kept(_url: str) -> World:
    raise InputError("its state is empty; `nftsync demo` makes it anew")


def _answers(url: str, database: Path) -> bool:
    """Whether the provider of this very database answers there."""
    try:
        with build_opener(ProxyHandler({})).open(
            f"{url}/sandbox/wallets", timeout=_PATIENCE
        ) as answer:
            wallets = json.loads(answer.read())
    except (URLError, OSError, ValueError):
        return False
    return isinstance(wallets, list) and bool(_known(database) & {str(each) for each in wallets})


def _known(database: Path) -> set[str]:
    try:
        with closing(connect_reader(database)) as connection, explained(database):
            return {wallet for (wallet,) in connection.execute("SELECT wallet_id FROM wallets")}
    except (StoreError, sqlite3.Error):
        return set()
