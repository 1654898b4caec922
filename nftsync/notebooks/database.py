"""The database that a notebook opens: the configured one, or the demo's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from nftsync import settings
from nftsync.demo.provider import is_demo, remove_demo, stored_address
from nftsync.errors import SettingsError


def provider_address(database: Path) -> str | None:
    """The address of the provider that a database was read from, as far as that is known.

    Args:
        database: the file.

    Returns:
        For a demo's database the address that its provider had, whether or not it runs: no other
        sent what is in there. Else the configured `base_url`, and None where there is none or the
        settings are broken.
    """
    if is_demo(database) and (kept := stored_address(database)):
        return kept
    try:
        return settings.load().base_url
    except SettingsError:
        return None


_DEFAULT = Path("data") / "nftsync.db"
_DEMO = Path("data") / "demo.db"


def database(path: str | Path | None = None) -> Path:
    """Which database a notebook opens.

    Args:
        path: the one to open. None for the one that the environment or `nftsync.toml` names; else
            the nearest `data/nftsync.db` from the working directory upwards; else the demo's: the
            nearest `data/demo.db`, or a new one that a run of the demo makes in the working
            directory.

    Returns:
        Its absolute path. A database that is named need not exist yet.

    Raises:
        SettingsError: the configured database is of the wrong form.
        NftsyncError: the demo's database cannot be made.
    """
    if path is not None:
        return Path(path).expanduser().absolute()
    configured, source = settings.database_and_source()
    return named_or_demo(configured, source, click.echo)


def named_or_demo(configured: Path, source: str, tell: Callable[[str], object]) -> Path:
    """The configured database if it is named, else the nearest, else the demo's; see `database`.

    Args:
        configured: the setting `database`.
        source: where that came from, as in `Settings.sources`.
        tell: is told what happens, a line at a time.

    Raises:
        NftsyncError: the demo's database cannot be made.
    """
    if source != "default":
        return configured
    here = Path.cwd()
    if found := _nearest(here / _DEFAULT, Path.is_file):
        return found
    from nftsync.demo.run import run_demo

    if found := _nearest(here / _DEMO, is_demo):
        tell(f"No database is named, and there is no {_DEFAULT}: this is the demo's.")
        return found
    made = here / _DEMO
    tell(f"No database is named, and there is no {_DEFAULT}: the demo makes {made} ...")
    remove_demo(made)
    run_demo(made, lambda _: None)
    return made


def _nearest(file: Path, fits: Callable[[Path], bool]) -> Path | None:
    """A file of the same name and folder, from where this one is upwards."""
    for folder in file.parents[1:]:
        candidate = folder / file.parent.name / file.name
        with suppress(OSError):  # a folder that may not be looked into
            if fits(candidate):
                return candidate
    return None
