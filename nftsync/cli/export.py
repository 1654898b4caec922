"""The commands `export`, `migrate`, `snapshot` and `backup`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nftsync.cli import options
from nftsync.cli.output import frame_warnings, say
from nftsync.text import counted

if TYPE_CHECKING:
    from nftsync.reports.export import ExportFormat
    from nftsync.settings import Settings


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@options.with_settings("database")
@click.option(
    "--format",
    type=click.Choice(["parquet", "csv", "xlsx"]),
    help="File format. xlsx is one workbook, nftsync.xlsx, with at most 1,048,575 rows per sheet. "
    "Default: parquet, or xlsx if DIR ends in .xlsx",
)
@options.time(
    "--as-of",
    "end",
    "Export balances, holdings, tokens and the history as known at this time. Wallets show their "
    "current state. TIME is",
)
def export(
    settings: Settings,
    directory: Path,
    *,
    format: ExportFormat | None,  # noqa: A002 - the option's name
    as_of: str | None,
) -> None:
    """Export all tables and views to Parquet, CSV or Excel files.

    All files show the same point in time. DIR must be new or empty. The files appear once complete;
    only you can read them.

    In Parquet and CSV, amounts are text, because they can exceed any machine integer. In CSV,
    webhook bodies are base64, and cells that a spreadsheet would run as a formula begin with a
    single quote.

    A workbook begins with the holdings, a statement, and the transfers. Amounts of more than 15
    digits are text. FILE.xlsx as DIR writes only the workbook, and replaces an existing file.

    \b
    Examples:
      nftsync export exports/today
      nftsync export audit-2025 --format csv --as-of 2025-12-31
      nftsync export for-finance.xlsx
    """
    from nftsync.reports.export import write_export

    with frame_warnings():
        manifest = write_export(settings.database, directory, file_format=format, as_of=as_of)
    rows = sum(file.rows for file in manifest.files)
    files = {file.name for file in manifest.files}
    written = f"{len(files)} files" if len(files) > 1 else files.pop()
    beside = "" if directory.is_file() else f", and manifest.json, to {directory}"
    say(f"Wrote {written} with {rows:,} rows{beside}")


@click.command()
@options.with_settings("database")
def migrate(settings: Settings) -> None:
    """Upgrade a database from an earlier version, and keep a copy.

    The copy is DATABASE.before-VERSION. Commands that write to the database also upgrade it.
    Earlier versions of nftsync refuse an upgraded database.

    \b
    Examples:
      nftsync migrate
      nftsync migrate --database backups/2025.db
    """
    from nftsync.store.schema import migrate as upgrade

    copy = upgrade(settings.database)
    if copy is None:
        say(f"{settings.database} is up to date.")
    else:
        say(f"Upgraded {settings.database}; the earlier version is saved as {copy}")


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@options.with_settings("database")
def snapshot(settings: Settings, file: Path) -> None:
    """Copy the database while it is in use.

    The copy is a single file that shows one point in time, also usable in a read-only directory.
    FILE must not exist. It appears once complete, and only its owner can read it.

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
@options.valued(
    "--keep",
    "N",
    click.IntRange(min=1),
    "After a successful copy, delete all but the newest N copies of this database in DIR. nftsync "
    "never touches other files.",
    14,
)
@options.with_settings("database")
def backup(settings: Settings, directory: Path, *, keep: int) -> None:
    """Write a dated copy of the database, and prune old copies.

    The copy's name has the time in UTC, and a suffix that tells databases of the same name apart:
    DIR/nftsync-20260131T030000Z-1a2b3c.db. It is a single file that shows one point in time. SQLite
    checks it, and only its owner can read it.

    \b
    Examples:
      nftsync backup backups
      nftsync backup /mnt/backups/nftsync --keep 30
    """
    from nftsync.export.backup import write_backup

    done = write_backup(settings.database, directory, keep=keep)
    say(f"{done.file}: {done.size / 1e6:,.1f} MB, intact ({done.check})")
    if done.left_over:
        say(f"Removed {counted(done.left_over, 'unfinished file')} of interrupted backups.")
    if done.pruned:
        deleted = counted(len(done.pruned), "older backup")
        say(f"Deleted {deleted} (--keep {keep}): {', '.join(done.pruned)}")
