"""The demo's provider."""

from __future__ import annotations

import fcntl
import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from nftsync.errors import InputError, StoreError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.state import InUse, OtherVersion, State
from nftsync.sandbox.world import World
from nftsync.store.database import connect_reader, explained
from nftsync.store.schema import open_store

#: Where a demo keeps its database by default, below the working directory.
DEMO = Path("data") / "demo.db"
#: SQLite's application_id that marks a demo's database, which a new demo may replace.
_MARK = 0x6E667464


def state_file(database: Path) -> Path:
    return database.with_name(f"{database.stem}-provider.state")


def address_file(database: Path) -> Path:
    return database.with_name(f"{database.stem}-provider.url")


def is_demo(database: Path) -> bool:
    try:
        with closing(connect_reader(database)) as connection, explained(database):
            mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
            return mark == _MARK
    except StoreError:
        return False


def nearest(file: Path, fits: Callable[[Path], bool] = is_demo) -> Path | None:
    """Return the nearest fitting `data/FILE` from a folder upwards, or None."""
    candidates = (folder / file.parent.name / file.name for folder in file.parents[1:])
    return next(filter(fits, candidates), None)


def create_database(database: Path) -> None:
    with closing(open_store(database)) as connection:
        connection.execute(f"PRAGMA application_id = {_MARK}")


@contextmanager
def demo_in_use(database: Path) -> Iterator[None]:
    """Prevent the demo's removal during a block; InputError if it is being recreated."""
    with ExitStack() as stack:
        with explained(address_file(database)):
            file = stack.enter_context(address_file(database).open("a"))
            fcntl.flock(file, fcntl.LOCK_SH)
        if os.fstat(file.fileno()).st_nlink == 0:
            raise InputError(f"`nftsync demo` is recreating {database}; wait for it to end")
        yield


@contextmanager
def _exclusively(database: Path) -> Iterator[None]:
    with ExitStack() as stack:
        with suppress(FileNotFoundError):
            file = stack.enter_context(address_file(database).open("r+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"{database} cannot be recreated while notebooks use it; "
                    "end `nftsync notebook`, or name another file with --database"
                ) from error
        yield


def remove_demo(database: Path) -> None:
    """Remove the demo's database and provider; InputError if they are not its, or in use."""
    if database.exists() and not is_demo(database):
        raise InputError(
            f"{database} was not made by a demo and stays unchanged; "
            "name another file with --database"
        )
    state = state_file(database)
    with explained(address_file(database)), _exclusively(database):
        try:
            if state.exists():
                with suppress(OtherVersion):
                    State(state).close()
        except InputError as error:
            raise InputError(
                f"{state} cannot be recreated: another program uses it, or no demo made it. "
                "End `nftsync notebook`, or name another file with --database"
            ) from error
        for path in (database, state, address_file(database)):
            for suffix in ("", "-wal", "-shm", ".sync-lock"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)


#: Transfers before the first read.
_EXTRA = 300

#: Beside `nftsync sandbox`'s. Picture URLs contain it, so a later session needs it again.
_PORT = 8789
_ADVICE = "end that program, or recreate the demo: `nftsync demo`"
_WALLETS = 34
_NFTS = 25
_SEED = 7

_ADDRESS = re.compile(r"(?P<url>http://127\.0\.0\.1:[0-9]{1,5})\s*")


@contextmanager
def new_provider(database: Path) -> Iterator[SandboxServer]:
    """Run a new provider with a state file during a block, on its usual port if that is free."""

    def build(url: str) -> World:
        world = generate(wallets=_WALLETS, nfts=_NFTS, seed=_SEED, image_base=url)
        _concentrate(world)
        return world

    state = state_file(database)
    try:
        server = SandboxServer(build, port=_PORT, state=state)
    except InputError:  # the port is taken
        server = SandboxServer(build, state=state)
    with server:
        with explained(address_file(database)):
            address_file(database).write_text(f"{server.url}\n", encoding="utf-8")
        yield server


def _concentrate(world: World) -> None:
    rng = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
    wallets = world.wallets()
    targets = rng.choices(wallets, [1 / rank for rank in range(1, len(wallets) + 1)], k=_EXTRA)
    for target in targets:
        sender = rng.choice(wallets)
        token, amount = rng.choice(list(world.amounts(sender).items()))
        world.transfer(sender, target, token, amount)


@contextmanager
def stored_provider(database: Path, log: Callable[[str], object] = lambda _: None) -> Iterator[str]:
    """Run a demo's stored provider during a block, or use its running one; yield its URL."""
    url, state = stored_address(database), state_file(database)
    if url is None or not state.is_file():
        raise InputError(f"the provider of {database} is missing; to recreate both: `nftsync demo`")
    port = int(url.rpartition(":")[2])
    try:
        server = SandboxServer(_refuse_empty_state, port=port, advice=_ADVICE, state=state)
    except InUse:
        log(f"The demo's provider is already running at {url}, in another session.")
        yield url
        return
    with server:
        log(f"The demo's provider is running at {url}.")
        yield url


def stored_address(database: Path) -> str | None:
    """Return the base URL of a demo's provider, or None."""
    try:
        match = _ADDRESS.fullmatch(address_file(database).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return match and match["url"]


def _refuse_empty_state(_url: str) -> World:
    raise InputError("the provider's state is empty; `nftsync demo` recreates it")
