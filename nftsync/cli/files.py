"""`nftsync export`: the database as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nftsync.cli.common import say, with_settings

if TYPE_CHECKING:
    from nftsync.reports.export import ExportFormat
    from nftsync.settings import Settings

__all__ = ["export", "snapshot"]


@click.command(short_help="Write each table and view to a file, all of one moment.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@with_settings("database")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "csv"]),
    default="parquet",
    show_default=True,
    help="Of the files.",
)
@click.option("--as-of", metavar="TIME", help="What was known at this time.")
def export(
    settings: Settings, directory: Path, *, file_format: ExportFormat, as_of: str | None
) -> None:
    """Write each table and view to a file in DIR, all of one moment, with a manifest.

    DIR must be new, or empty; it appears once it is whole, for its owner's eyes only. Amounts are
    text, as no machine type holds them all. CSV cells that a spreadsheet would run as a formula
    get a single quote in front; webhook bodies are base64 there.

    With --as-of: balances, holdings and tokens as they were known then, and the logs up to then;
    wallets as they are today. TIME is ISO 8601; a bare date is the end of that day.

    \b
    Examples:
      nftsync export exports/today
      nftsync export audit-2025 --format csv --as-of 2025-12-31
    """
    from nftsync.reports.export import write_export
    from nftsync.times import parse_time

    moment = None if as_of is None else parse_time(as_of)
    manifest = write_export(settings.database, directory, file_format=file_format, as_of=moment)
    rows = sum(file.rows for file in manifest.files)
    say(f"{len(manifest.files)} files with {rows:,} rows, and manifest.json, in {directory}")


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
    from nftsync.reports.snapshot import write_snapshot

    size = write_snapshot(settings.database, file)
    say(f"{file}: {size / 1e6:,.1f} MB")
