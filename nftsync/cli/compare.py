"""The command `compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.holdings import TOKEN, WALLET
from nftsync.cli.movements import amount_pages, with_texts
from nftsync.cli.output import frame_warnings, one_line, print_json, wrapped
from nftsync.cli.tables import TableColumn, View, view_options
from nftsync.text import counted
from nftsync.times import utc_times

if TYPE_CHECKING:
    from nftsync.settings import Settings

_COLUMNS = (
    TableColumn("difference", "verdict", "state"),
    WALLET,
    TOKEN,
    TableColumn("nftsync", "amount", "number"),
    TableColumn("list", "other_amount", "number"),
    TableColumn("line", "line", "number", optional=True),
    TableColumn("on-chain id", "blockchain_token_id", "id", optional=True),
)


@click.command()
@click.argument("list_file", metavar="LIST.csv")
@options.with_settings("database")
@options.time("--at", "end", "Time of the list (default: its column as_of, or now):")
@options.text("--wallet", "WALLET", "Only this wallet, by id or label.")
@options.text("--group", "NAME", "Only wallets of this group.")
@view_options("Print the result as JSON.")
def compare(
    settings: Settings, list_file: str, *, at: str | None, view: View, **filters: Any
) -> int:
    """Compare holdings with a second list, such as an auditor's.

    LIST.csv (- for stdin) has a row per holding: wallet (id or label; without it, all wallets count
    together), token_id or contract with blockchain_token_id, and amount (default: 1). Other columns
    are ignored, so exports of nftsync are lists, too. The command exits with 1 if anything differs.
    It corrects nothing.

    \b
    Differences:
      amount differs    both have the holding, with different amounts
      only here         only nftsync has it
      only there        only the list has it
      unknown wallet    the database has no such wallet
      unknown token     the database has no such token
      in motion         nftsync observed a change of it after the time of the list

    \b
    Examples:
      nftsync compare console.csv
      nftsync compare books.csv --at 2026-10-31 --group house
      nftsync compare exports/2026-10-31/holdings.csv --json
    """
    from nftsync import frames
    from nftsync.columnar.second_list import VERDICTS

    with frame_warnings():
        frame = frames.compare(settings.database, list_file, at, **filters)
    counts = {kind: int((frame["verdict"] == kind).sum()) for kind in VERDICTS}
    differing = with_texts(frame[frame["verdict"] != "agrees"])
    order = differing["verdict"].map(VERDICTS.index).sort_values(kind="stable").index
    differing = differing.loc[order]
    if view.as_json:
        rows = [row for page in amount_pages(differing) for row in page]
        print_json({"at": frame.attrs["at"], "counts": counts, "differences": rows})
        return int(len(rows) > 0)
    at = f" at {utc_times(frame.attrs['at'])}" if frame.attrs["at"] else ""
    total = f"{counts.pop('agrees'):,} of {counted(len(frame), 'holding')}"
    text = f"{total} agree with {one_line(list_file)}{at}"
    kinds = ", ".join(f"{count:,} {_in_words(kind)}" for kind, count in counts.items() if count)
    text += f"; {len(differing):,} differ: {kinds}" if kinds else ""
    click.echo(wrapped(f"{text}."))
    if kinds:
        click.echo()
        shown = differing.assign(verdict=differing["verdict"].map(_in_words))
        columns = [one for one in _COLUMNS if one is not WALLET or frame["wallet"].notna().any()]
        view.show(shown, columns, "differences", pages=amount_pages)
    return int(len(differing) > 0)


def _in_words(verdict: str) -> str:
    return verdict.replace("_", " ")
