"""The database that a notebook opens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from nftsync import settings
from nftsync.demo.provider import DEMO, is_demo, nearest, remove_demo, stored_address
from nftsync.errors import SettingsError


def demo_address(database: Path) -> str | None:
    """Return the address of a demo's provider, which may not be running."""
    return stored_address(database) if is_demo(database) else None


def provider_address(database: Path) -> str | None:
    """Return the address of the provider that a database was read from."""
    if address := demo_address(database):
        return address
    try:
        return settings.load().base_url
    except SettingsError:
        return None


_DEFAULT = Path("data") / "nftsync.db"


def database(path: str | Path | None = None) -> Path:
    """Return the absolute path of the database to open.

    Args:
        path: the database, which need not exist yet. None: the configured one, or else the nearest
            `data/nftsync.db` from the working directory upwards, or else the nearest
            `data/demo.db`, which a run of the demo creates if there is none.
    """
    if path is not None:
        return Path(path).expanduser().absolute()
    configured, source = settings.database_and_source()
    return named_or_demo(configured, source, click.echo)


def named_or_demo(configured: Path, source: str, tell: Callable[[str], object]) -> Path:
    """Return the database to open if none was given; see `database`."""
    if source != "default":
        return configured
    here = Path.cwd()
    if own := nearest(here / _DEFAULT, os.path.isfile):
        return own
    from nftsync.demo.run import run_demo

    if demo := nearest(here / DEMO):
        tell(f"No database is configured, and there is no {_DEFAULT}. Opening the demo's database.")
        return demo
    demo = here / DEMO
    tell(f"No database is configured, and there is no {_DEFAULT}. Running the demo, in {demo} ...")
    remove_demo(demo)
    run_demo(demo, lambda _: None)
    return demo
