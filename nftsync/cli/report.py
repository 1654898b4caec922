"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import say, say_line, typed_settings
from nftsync.errors import InputError

if TYPE_CHECKING:
    from nftsync.settings import Settings


@click.command()
@click.argument("file", metavar="FILE.html", type=click.Path(path_type=Path))
@options.text(
    "--database", "FILE", "SQLite file, or several. Default: data/nftsync.db", "-d", multiple=True
)
@options.with_settings()
@options.time(
    "--from",
    "end",
    "Time of the opening balance. Default: 30 days before --to, but not before the end of the "
    "first sync. TIME is",
)
@options.time("--to", "end", "Time of the closing balance. Default: now.")
@options.text("--group", "NAME", "Report on the wallets of this group.")
@options.text("--wallet", "WALLET", "Report on this wallet, by id or label.")
@options.valued("--title", "TEXT", str, "Heading of the page.", "NFT holdings")
@options.text(
    "--prices",
    "PRICES.csv",
    "Show values, as in `nftsync statement` (its help describes the CSV file).",
)
@options.text(
    "--compare", "LIST.csv", "Compare the closing holdings with a list, as `nftsync compare` does."
)
@options.flag(
    "--embed", "Embed the pictures, so that the page loads nothing. A demo's report always does."
)
def report(settings: Settings, file: Path, database: tuple[str, ...], **parameters: Any) -> None:
    """Write a report as a single HTML file, to mail or print.

    The page has the main figures of a period and their changes, a statement, the largest
    collections, growth, the holdings with pictures, transfers, concentration, data quality and
    sources. nftsync replaces FILE once the page is complete. Only its owner can read it.

    With several databases, the page has one report after the other. No wallet may be in two of
    them.

    The page is the notebook 5-report.ipynb; to open it: `nftsync notebook`.

    \b
    Examples:
      nftsync report report.html
      nftsync report october.html --from 2026-09-30 --to 2026-10-31 --title "October"
      nftsync report house.html --group house --prices prices.csv --embed
      nftsync report audit.html --to 2026-10-31 --compare console.csv
      nftsync report both.html -d acme.db -d beta.db
    """
    from nftsync.columnar.prices import read_prices
    from nftsync.columnar.second_list import read_second_list
    from nftsync.frames import wallets
    from nftsync.notebooks.report_page import write_report
    from nftsync.settings import settings_file

    group, wallet, prices = (parameters[name] for name in ("group", "wallet", "prices"))
    if group is not None and wallet is not None:
        raise click.UsageError("give --group or --wallet, not both")
    paths = [Path(path).absolute() for path in database] or [settings.database]
    for name in ("wallet", "compare"):
        if parameters[name] is not None and paths[1:]:
            raise click.UsageError(f"--{name} needs one --database, which has its wallets")
    known = wallets(paths if paths[1:] else paths[0], group=group, wallet=wallet)
    if known.empty and wallet is not None:
        raise InputError(f"wallet {wallet} is unknown; to list wallets: `nftsync wallets`")
    if prices is not None:
        parameters["prices"] = str(Path(prices).absolute())
        read_prices(prices)
    if parameters["compare"] is not None:
        parameters["compare"] = str(Path(parameters["compare"]).absolute())
        read_second_list(parameters["compare"])
    parameters |= {"start": parameters.pop("from"), "end": parameters.pop("to")}
    config = settings_file(typed_settings().get("config"))
    write_report(file, paths, config, parameters, say_line)
    say(f"Wrote {file}")
