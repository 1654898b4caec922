"""`nftsync backup`: dated copies of the database, of which the newest are kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nftsync.cli.common import say, with_settings

if TYPE_CHECKING:
    from nftsync.settings import Settings

__all__ = ["backup"]


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=14,
    show_default=True,
    metavar="N",
    help="Copies of this database in DIR, the new one included; the oldest go.",
)
@with_settings("database")
def backup(settings: Settings, directory: Path, *, keep: int) -> None:
    """Copy the database with its date, and keep the newest copies.

    Writes DIR/nftsync-20260131T030000Z-1a2b3c.db: the name of the database, the time in UTC, and
    what tells it from others of that name. It is one file, of one moment, while others go on
    writing; SQLite checks it before it has its name, and only its owner may read it. DIR is made if
    it is missing. Then the oldest copies of this database in DIR are removed. Other files are not
    touched, and nothing is removed if the copy failed.

    \b
    Examples:
      nftsync backup backups
      nftsync backup /mnt/backups/nftsync --keep 30
    """
    from nftsync.reports.backup import write_backup

    done = write_backup(settings.database, directory, keep=keep)
    say(f"{done.file}: {done.size / 1e6:,.1f} MB, whole ({done.check})")
    if done.left_over:
        say(f"Removed what backups that were cut off had left: {done.left_over:,}")
    if done.pruned:
        say(f"Removed {len(done.pruned):,} older, to keep {keep:,}: {', '.join(done.pruned)}")
