"""`nftsync evidence`: what a wallet held at a time, and how that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nftsync.cli.options import with_settings
from nftsync.cli.output import print_json, print_table, visible

if TYPE_CHECKING:
    from nftsync.evidence import Evidence
    from nftsync.settings import Settings

__all__ = ["evidence"]

_HOLDINGS = {
    "token_id": "token_id",
    "contract": "contract_address",
    "chain id": "blockchain_token_id",
    "name": "name",
    "amount": "amount",
    "held since": "held_since",
}
_READS = (
    *("first_read_at", "last_read_at", "reads", "body_sha256"),
    *("run_id", "run_started_at", "run_finished_at", "run_status"),
)


@click.command()
@click.argument("wallet_id", metavar="WALLET_ID")
@with_settings("database")
@click.option("--at", required=True, metavar="TIME", help="The time in question.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def evidence(settings: Settings, wallet_id: str, *, at: str, as_json: bool) -> None:
    """Tell what a wallet held at a time, and how that is known.

    \b
    The proof is in the reads around that time:
      bracketed   the same state was read before and after it
      gap         what was read next differed, so it changed in between
      open        the wallet was not read since
      unknown     the wallet had not been read by then

    Each read is named by its time, its run, and the SHA-256 of the provider's answer. TIME is
    ISO 8601, in UTC where it has no offset; a bare date is the end of that day.

    \b
    Examples:
      nftsync evidence 8d1cc10a-7fbf-42e7-b58d-5110899866aa --at 2026-01-31
      nftsync evidence 8d1cc10a-7fbf-42e7-b58d-5110899866aa --at 2026-01-31T12:00:00+01:00 --json
    """
    from nftsync.evidence import find_evidence
    from nftsync.times import parse_time

    found = find_evidence(settings.database, wallet_id, parse_time(at))
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: Evidence) -> None:
    name = found.wallet_id if found.label is None else f"{visible(found.label)} ({found.wallet_id})"
    click.echo(f"{name} at {found.at}: {found.certainty}\n\n{found.statement}\n")
    if found.holdings:
        rows = [{head: row[key] for head, key in _HOLDINGS.items()} for row in found.holdings]
        print_table(rows, list(_HOLDINGS), title=f"Holdings ({len(rows):,})")
    else:
        click.echo("No holdings.\n")
    if found.reads:
        # A run's number is no long id, which the heading would make of it.
        reads = [{_heading(key): getattr(state, key) for key in _READS} for state in found.reads]
        print_table(reads, [_heading(key) for key in _READS], title="Reads around that time")


def _heading(key: str) -> str:
    return key.replace("run_id", "run")
