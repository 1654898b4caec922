"""The commands for removals that a lake holds for review."""

from __future__ import annotations

import shlex
from typing import Any

import click

from nftsync.cli.common import (
    cluster_options,
    json_option,
    limit_option,
    program,
    takeover_option,
)
from nftsync.cli.removals import accept_options, confirmed, print_accepted, print_held
from nftsync.cli.tables import wide_option


class _Group(click.Group):
    """A group that lists unless the first word is a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


def review_command(url: str, *words: str) -> str:
    """Return the command that lists the removals of a lake, or another of its subcommands."""
    return shlex.join([*shlex.split(program()), "lake", "removals", *words, url])


@click.group(cls=_Group, subcommand_metavar="LAKE | COMMAND [ARGS]...")
def removals() -> None:
    """List the removals that a lake holds for review, or approve them.

    `nftsync removals --help` explains when removals are held. A later read that shows the NFTs
    again clears them.

    \b
    Examples:
      nftsync lake removals data/lake
      nftsync lake removals accept data/lake Treasury
      nftsync lake removals accept data/lake
    """


@removals.command("list")
@click.argument("url", metavar="LAKE")
@limit_option("Rows of the table; 0 shows all.", 50)
@wide_option
@json_option("Print all removals held for review as JSON.")
def list_(url: str, *, limit: int, wide: bool, as_json: bool) -> None:
    """List the removals that a lake holds for review: what `nftsync lake removals LAKE` does."""
    from nftsync.lake.held import find_held

    found = find_held(url)
    approve = review_command(url, "accept")
    print_held(
        found.rows, found.counts, found.share, approve, limit=limit, wide=wide, as_json=as_json
    )


@removals.command("accept")
@click.argument("url", metavar="LAKE")
@click.argument("named", nargs=-1, metavar="[WALLET]...")
@accept_options
@cluster_options
@takeover_option
def accept(
    url: str,
    named: tuple[str, ...],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    scheduler: str | None,
    workers: int | None,
    takeover_after: str,
) -> int:
    """Approve removals that a lake holds for review: all of them, or those of some wallets.

    WALLET is an id, or a label that only one wallet has. Without WALLET, all that was removed so
    far no longer counts towards the limit. The removals are applied by a run of their own, which
    asks the provider for nothing and is pinned like a sync. A sync that is at work must end first.
    On a terminal, the command asks for confirmation.
    """
    from nftsync.lake.held import find_held
    from nftsync.lake.run import Where, approve_in_lake
    from nftsync.times import parse_duration

    where = Where(scheduler, workers, silence=parse_duration(takeover_after).total_seconds())
    found = find_held(url, named)
    more: dict[str, Any] = {}
    if found.counts.since is not None and not dry_run:
        if not confirmed(found.counts, "the lake", yes=yes):
            return 1
        result = approve_in_lake(url, found.wallets, where, progress=False if as_json else None)
        if result.status != "ok":
            return {"interrupted": 130}.get(result.status, 1)
        more["run_id"] = result.run_id
    print_accepted(found.counts, found.rows, dry_run=dry_run, as_json=as_json, **more)
    return 0
