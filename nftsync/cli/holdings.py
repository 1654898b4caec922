"""`nftsync holdings`: who holds what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.json_rows import print_json_rows
from nftsync.cli.options import with_settings
from nftsync.cli.output import print_table, say

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.settings import Settings

__all__ = ["holdings"]


@click.command(short_help="Show who holds what.")
@with_settings("database")
@click.option("--wallet", metavar="ID", help="Only what this wallet holds.")
@click.option("--contract", metavar="ADDR", help="Only NFTs of this contract.")
@click.option("--as-of", metavar="TIME", help="As it was known at this time, metadata included.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="N",
    help="Rows of the table; 0 shows all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all holdings as JSON.")
def holdings(
    settings: Settings,
    *,
    wallet: str | None,
    contract: str | None,
    as_of: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show who holds what: a row per wallet and NFT that the provider lists.

    TIME is ISO 8601, in UTC where it has no offset; a bare date is the end of that day. With
    --as-of each row also says how certain it is; `nftsync evidence` tells more.

    \b
    Examples:
      nftsync holdings
      nftsync holdings --wallet 8d1cc10a-7fbf-42e7-b58d-5110899866aa
      nftsync holdings --contract 0x06012c8cf97BEaD5deAe237070F9587f8E7A266d --limit 0
      nftsync holdings --as-of 2026-01-31 --json
    """
    from nftsync import frames
    from nftsync.frame_rows import rows_of
    from nftsync.tables import columns_of

    columns = list(columns_of("holdings", as_of=as_of is not None))
    frame = frames.holdings(settings.database, wallet=wallet, contract=contract, as_of=as_of)
    if as_json:
        print_json_rows(
            [dict(zip(columns, row, strict=True)) for row in rows]
            for rows in rows_of(frame, columns)
        )
    elif frame.empty:
        say("Nothing is held, as far as this database knows; `nftsync sync` reads the wallets.")
    else:
        _show(frame, columns, limit)


def _show(frame: pd.DataFrame, columns: list[str], limit: int) -> None:
    from nftsync.frame_rows import rows_of

    shown = frame.head(limit) if limit else frame
    rows = [
        dict(zip(columns, row, strict=True)) for part in rows_of(shown, columns) for row in part
    ]
    lines = [_line(row) for row in rows]
    print_table(lines, list(lines[0]))
    if len(shown) < len(frame):
        say(f"{len(shown):,} of {len(frame):,} holdings; all with --limit 0, or with --json.")


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the table shows of a holding."""
    since = row["held_since"]
    line = {
        "wallet": row["wallet_label"] or row["wallet_id"],
        "contract": row["contract_address"],
        "chain id": row["blockchain_token_id"],
        "name": row["name"],
        "edition": _edition(row["edition_id"], row["total_edition"]),
        "amount": row["amount"],
        "held since": since and f"{since[:19]}Z",
    }
    return line | {"certainty": row["certainty"]} if "certainty" in row else line


def _edition(number: int | None, total: int | None) -> str | None:
    if total is None:
        return None if number is None else str(number)
    return f"of {total}" if number is None else f"{number} of {total}"
