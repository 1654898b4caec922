"""`nftsync demo`."""

from __future__ import annotations

import shlex
import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nftsync.cli.output import one_line, print_table, say

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["demo"]

_SHOWN = 15


@click.command(short_help="See the whole product work, with nothing to configure.")
@click.option(
    "--database",
    "-d",
    metavar="FILE",
    help="Where to keep what was read; begun afresh each time. Default: data/demo.db",
)
def demo(database: str | None) -> None:
    """Show the whole product on this machine, with nothing to configure.

    Starts a sandbox provider, reads its wallets, starts the receiver and registers it, lets NFTs
    change hands, reads all wallets again to see that webhooks told of everything, and shows what
    changed and who holds what. Reads neither the environment nor nftsync.toml.
    """
    from nftsync import settings
    from nftsync.demo import begin_afresh, run_demo
    from nftsync.store.connection import explained

    flags = {"database": database if database is not None else "data/demo.db"}
    path = settings.isolated(flags).database
    with explained(path):
        begin_afresh(path)
    result = run_demo(path, say)
    say(_arrival(result.seconds, result.webhooks))
    click.echo(f"\nWhat changed ({len(result.changes)} balances, each through a webhook):")
    print_table(_changes(result.changes), ("wallet", "name", "before", "after"))
    click.echo(f"Who holds what ({len(result.holdings):,} holdings, one each of {_SHOWN} wallets):")
    print_table(
        _holdings(result.holdings), ("wallet", "collection", "name", "edition", "amount", "since")
    )
    shown = one_line(str(path))
    run, file = _program(), shlex.quote(shown)
    click.echo(
        "What next:\n"
        f"  All of it (--json for scripts):  {run} holdings -d {file}\n"
        f"  The log of changes:              {run} changes -d {file}\n"
        f"  The webhooks that came:          {run} inbox -d {file}\n"
        f"  Parquet or CSV files:            {run} export DIR -d {file}\n"
        "  In Python:                       from nftsync import frames\n"
        f'                                   frames.holdings("{shown}")\n'
        f"  Notebooks, with the pictures:    {run} notebook -d {file}\n"
        f"  A provider to try things on:     {run} sandbox"
    )


def _program() -> str:
    """How to call this program from the shell that called it."""
    called = Path(sys.argv[0])
    if called.name != "nftsync":
        return f"{shlex.quote(one_line(sys.executable))} -m nftsync"
    found = shutil.which("nftsync")
    if found is not None and called.exists() and called.samefile(found):
        return "nftsync"
    return shlex.quote(one_line(sys.argv[0]))


def _arrival(seconds: list[float], webhooks: dict[str, int]) -> str:
    came = ", ".join(f"{count} {state}" for state, count in webhooks.items())
    middle = 1000 * statistics.median(seconds)
    return (
        f"Webhooks: {came}. From the change at the provider to the database: "
        f"{middle:.0f} ms in the middle, {1000 * max(seconds):.0f} ms at most."
    )


def _changes(changes: pd.DataFrame) -> list[dict[str, object]]:
    return [
        {
            "wallet": row.wallet_label,
            "name": row.name,
            "before": "-" if row.old_amount is None else row.old_amount,
            "after": "-" if row.new_amount is None else row.new_amount,
        }
        for row in changes.itertuples(index=False)
    ]


def _holdings(holdings: pd.DataFrame) -> list[dict[str, object]]:
    sample = holdings.drop_duplicates("wallet_id", keep="last").head(_SHOWN)
    shown = sample.astype(object).where(sample.notna(), None)
    return [
        {
            "wallet": row.wallet_label,
            "collection": _shortened(row.contract_address),
            "name": row.name,
            "edition": None if row.edition_id is None else f"{row.edition_id}/{row.total_edition}",
            "amount": row.amount_text,
            "since": f"{row.held_since:%Y-%m-%d %H:%M:%S}" if row.held_since else None,
        }
        for row in shown.itertuples(index=False)
    ]


def _shortened(address: str | None) -> str | None:
    """An address as people compare them; the whole is in the database."""
    if address is None or len(address) <= 12:
        return address
    return f"{address[:6]}…{address[-4:]}"
