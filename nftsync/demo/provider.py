"""The demo's provider: generated once, restarted later from its stored state."""

from __future__ import annotations

import fcntl
import os
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from nftsync.errors import InputError, StoreError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.state import OtherVersion, State
from nftsync.sandbox.world import World
from nftsync.store.database import connect_reader, explained
from nftsync.store.schema import open_store

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
            mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
            return mark == _MARK
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
    if database.exists() and not is_demo(database):
        raise InputError(
            f"{database} was not made by a demo and is left as it is; "
            "name another file with --database"
        )
    state = state_file(database)
    with explained(address_file(database)), _alone(database):
        try:
            if state.exists():
                with suppress(OtherVersion):
                    State(state).close()
        except InputError as error:
            raise InputError(
                f"{state} cannot be begun afresh: another program uses it, or no demo has made it; "
                "end `nftsync notebook`, or name another file with --database"
            ) from error
        for path in (database, state, address_file(database)):
            for suffix in ("", "-wal", "-shm", ".sync-lock"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)


#: How many NFTs have changed hands before the first read.
_GATHERED = 300

#: The port that `nftsync sandbox` takes, too. Pictures name it, so it should be free again later.
PORT = 8788
_WALLETS = 34
_NFTS = 25
_SEED = 7

_ADDRESS = re.compile(r"(?P<url>http://127\.0\.0\.1:[0-9]{1,5})\s*")


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
def provider_again(database: Path, tell: Callable[[str], object] = lambda _: None) -> Iterator[str]:
    """See that a demo's provider runs during a block.

    Where another program runs it already, that one is used, for as long as it runs.

    Args:
        database: the demo's.
        tell: is told where it answers.

    Yields:
        Its base URL.

    Raises:
        InputError: it was not kept, or its port or its state is in use by something else.
    """
    url, state = kept_address(database), state_file(database)
    if url is None or not state.is_file():
        raise InputError(f"the provider of {database} was not kept; `nftsync demo` makes both anew")
    try:
        server = SandboxServer(_nothing_kept, port=int(url.rpartition(":")[2]), state=state)
    except InputError:
        if not _runs(state):
            raise
        tell(f"The demo's provider runs already, at {url}, until the session that began it ends.")
        yield url
        return
    with server:
        tell(f"The demo's provider answers at {url}.")
        yield url


def _runs(state: Path) -> bool:
    """Whether a provider runs: it holds its state."""
    try:
        State(state).close()
    except InputError as error:
        return isinstance(error.__cause__, sqlite3.OperationalError)
    return False


def kept_address(database: Path) -> str | None:
    """The base URL that the provider of a demo's database had, or None where it was not kept."""
    try:
        found = _ADDRESS.fullmatch(address_file(database).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return found and found["url"]


def _nothing_kept(_url: str) -> World:
    raise InputError("its state is empty; `nftsync demo` makes it anew")
