"""`nftsync snapshot`: a copy of the live database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nftsync.cli.options import with_settings
from nftsync.cli.output import say

if TYPE_CHECKING:
    from nftsync.settings import Settings

__all__ = ["snapshot"]


@click.command(short_help="Copy the database while others go on writing it.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@with_settings("database")
def snapshot(settings: Settings, file: Path) -> None:
    """Copy the database to FILE as it is now, while others may go on writing it.

    The copy is one file that opens anywhere, from a read-only directory too. FILE must not exist;
    it appears once it is whole, and only its owner may read it.

    \b
    Examples:
      nftsync snapshot for-ann.db
      nftsync holdings --database for-ann.db
    """
    from nftsync.snapshot import write_snapshot

    size = write_snapshot(settings.database, file)
    say(f"{file}: {size / 1e6:,.1f} MB")
