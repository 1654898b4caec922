"""The commands `export`, `migrate`, `snapshot` and `backup`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nftsync.cli.common import said_by_frames, say, time_option, with_settings

if TYPE_CHECKING:
    from nftsync.export.tables import ExportFormat
    from nftsync.settings import Settings


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@with_settings("database")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "csv", "xlsx"]),
    default="parquet",
    show_default=True,
    help="Of the files.",
)
@time_option("--as-of", "end", "What was known at this time.")
def export(
    settings: Settings, directory: Path, *, file_format: ExportFormat, as_of: str | None
) -> None:
    """Write each table and view to a file, all of one moment.

    A manifest comes with them. DIR must be new, or empty; it appears once it is whole, for its
    owner's eyes only. Amounts are text, as no machine type holds them all. CSV cells that a
    spreadsheet would run as a formula get a single quote in front; webhook bodies are base64 there.

    With --format xlsx: one Excel workbook, nftsync.xlsx, with a sheet for each of them, behind one
    that explains all columns. A sheet holds 1,048,575 rows; what has more is refused.

    With --as-of: balances, holdings and tokens as they were known then, and the logs up to then;
    wallets as they are today. TIME is ISO 8601, in UTC where it has no offset, today, yesterday, or
    7d (ago); of a day, its end.

    \b
    Examples:
      nftsync export exports/today
      nftsync export audit-2025 --format csv --as-of 2025-12-31
      nftsync export for-finance --format xlsx
    """
    from nftsync.export.tables import write_export

    with said_by_frames() as said:
        manifest = write_export(settings.database, directory, file_format=file_format, as_of=as_of)
    rows = sum(file.rows for file in manifest.files)
    files = {file.name for file in manifest.files}
    what = f"{len(files)} files" if len(files) > 1 else files.pop()
    say(f"{what} with {rows:,} rows, and manifest.json, in {directory}")
    for line in said:
        say(line)


@click.command()
@with_settings("database")
def migrate(settings: Settings) -> None:
    """Upgrade an earlier version's database, and leave a copy.

    The copy is DATABASE.before-VERSION, with the version that upgrades. Every command that writes
    upgrades the database first, too; commands that only read leave it as it is. Earlier versions
    refuse an upgraded database.

    \b
    Examples:
      nftsync migrate
      nftsync migrate --database backups/2025.db
    """
    from nftsync.store.schema import migrate as upgrade

    copy = upgrade(settings.database)
    if copy is None:
        say(f"{settings.database} is of this version already.")
    else:
        say(f"{settings.database} is upgraded; as it was before, it is at {copy}")


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@with_settings("database")
def snapshot(settings: Settings, file: Path) -> None:
    """Copy the database while others go on writing it.

    The copy is of one moment, and one file that opens anywhere, from a read-only directory too.
    FILE must not exist; it appears once it is whole, and only its owner may read it.

    \b
    Examples:
      nftsync snapshot for-ann.db
      nftsync holdings --database for-ann.db
    """
    from nftsync.export.backup import write_snapshot

    size = write_snapshot(settings.database, file)
    say(f"{file}: {size / 1e6:,.1f} MB")


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
    from nftsync.export.backup import write_backup

    done = write_backup(settings.database, directory, keep=keep)
    say(f"{done.file}: {done.size / 1e6:,.1f} MB, whole ({done.check})")
    if done.left_over:
        say(f"Removed what backups that were cut off had left: {done.left_over:,}")
    if done.pruned:
        say(f"Removed {len(done.pruned):,} older, to keep {keep:,}: {', '.join(done.pruned)}")
