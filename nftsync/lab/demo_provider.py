"""The demo's provider: first made up, then started again from its state, with the same pictures."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import msgspec

from nftsync.errors import InputError, NftsyncError, StoreError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.state import State
from nftsync.sandbox.world import World
from nftsync.store.database import connect_reader, explained
from nftsync.store.schema import open_store

__all__ = [
    "PORT",
    "address_file",
    "begin_afresh",
    "begin_provider",
    "create",
    "held",
    "in_use",
    "is_demo",
    "kept_address",
    "provider_again",
    "state_file",
]


#: In the header of the demo's databases (SQLite's application_id): they may be begun afresh.
_MARK = 0x6E667464


def state_file(database: Path) -> Path:
    """Where the provider's state is kept: `demo-provider.state` beside `demo.db`."""
    return database.with_name(f"{database.stem}-provider.state")


def address_file(database: Path) -> Path:
    """Where the provider's base URL is kept: `demo-provider.url` beside `demo.db`."""
    return database.with_name(f"{database.stem}-provider.url")


def is_demo(database: Path) -> bool:
    """Whether a demo has made this database; False where there is none that can be read."""
    try:
        with closing(connect_reader(database)) as connection, explained(database):
            return _mark(connection) == _MARK
    except StoreError:
        return False


def create(database: Path) -> None:
    """Make the empty database of a demo.

    Raises:
        StoreError: it cannot be written.
    """
    with closing(open_store(database)) as connection:
        connection.execute(f"PRAGMA application_id = {_MARK}")


@contextmanager
def in_use(database: Path) -> Iterator[None]:
    """Keep the demo from being begun afresh during a block; any number of programs may.

    The lock is on the file of the provider's address, and goes with the process, however that ends.

    Raises:
        InputError: it is being begun afresh just now.
        StoreError: the file cannot be opened or locked.
    """
    with explained(address_file(database)):
        held = os.open(address_file(database), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with explained(address_file(database)):
            fcntl.flock(held, fcntl.LOCK_SH)
        if os.fstat(held).st_nlink == 0:
            raise InputError(f"{database} is being made anew by `nftsync demo`; wait for its end")
        yield
    finally:
        os.close(held)


@contextmanager
def _alone(database: Path) -> Iterator[None]:
    """Go on only where nobody uses the demo, and let nobody begin to during the block."""
    try:
        held = os.open(address_file(database), os.O_RDWR)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InputError(
            f"{database} cannot be begun afresh: notebooks use it; "
            "end `nftsync notebook`, or name another file with --database"
        ) from error
    finally:
        os.close(held)


def begin_afresh(database: Path) -> None:
    """Remove the demo's database, what SQLite keeps beside it, and its provider's state.

    Raises:
        InputError: there is a file that no demo has made, its provider is running, or somebody
            uses it; see `in_use`.
        StoreError: the file of the provider's address cannot be opened.
    """
    if database.exists():
        with closing(connect_reader(database)) as connection, explained(database):
            if _mark(connection) != _MARK:
                raise InputError(
                    f"{database} was not made by a demo and is left as it is; "
                    "name another file with --database"
                )
    with explained(address_file(database)), _alone(database):
        _remove(database)


def _remove(database: Path) -> None:
    state = state_file(database)
    if state.exists():
        try:
            State(state).close()
        except InputError as error:
            raise InputError(
                f"{state} cannot be begun afresh: another program uses it, or no demo has made it; "
                "end `nftsync notebook`, or name another file with --database"
            ) from error
    for path, suffixes in (
        (database, ("", "-wal", "-shm", ".sync-lock")),
        (state, ("", "-wal", "-shm")),
        (address_file(database), ("",)),
    ):
        for suffix in suffixes:
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _mark(connection: sqlite3.Connection) -> int:
    mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
    return mark


#: How many NFTs have changed hands before the first sync.
_GATHERED = 300

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
        _gather(world)
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


def _gather(world: World) -> None:
    """Let some wallets hold much more than others, as in the field; no webhooks leave for that."""
    rng = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
    wallets = world.wallets()
    takers = rng.choices(wallets, [1 / rank for rank in range(1, len(wallets) + 1)], k=_GATHERED)
    for taker in takers:
        giver = rng.choice(wallets)
        token, amount = rng.choice(list(held(world, giver).items()))
        world.transfer(giver, taker, token, amount)


def held(world: World, wallet_id: str) -> dict[str, int]:
    """How many of which token a wallet holds, in the order of its list."""
    body = world.balances_body(wallet_id)
    entries = msgspec.json.decode(body or b"{}").get("nftTokenBalances", [])
    return {entry["tokenId"]: int(entry["amount"]) for entry in entries}


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
