"""`nftsync replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nftsync.cli.options import PROVIDER, with_settings
from nftsync.cli.output import one_line, print_json, say

if TYPE_CHECKING:
    from nftsync.settings import Settings

__all__ = ["replay"]


@click.command()
@with_settings("database", *PROVIDER)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def replay(context: click.Context, settings: Settings, *, as_json: bool) -> None:
    """Work off the webhooks that are due, once.

    Many webhooks on one object cost one read. `nftsync serve` does this as webhooks come; both may
    run at the same time, and beside a sync. Exits with 1 when a webhook ended as failed or dead, or
    the provider was down; webhooks that were not worked off wait for the next time.

    \b
    Examples:
      nftsync replay
      nftsync replay --json
      nftsync inbox requeue --state dead && nftsync replay
    """
    import logging

    from nftsync.interruption import interruptible
    from nftsync.replay.run import replay_once
    from nftsync.replay_setup import replay_config

    logging.getLogger("nftsync").addHandler(logging.NullHandler())  # the result says it all
    with interruptible() as interrupted:
        result = replay_once(
            settings.database,
            replay_config(settings),
            interrupted,
            progress=False if as_json else None,
        )
    if as_json:
        print_json(result.as_dict())
    else:
        click.echo(result.summary())
    if interrupted.is_set():
        say("Interrupted; what was read is saved, and the rest waits. Go on with: nftsync replay")
        context.exit(130)
    if result.error is not None:
        say(f"nftsync: webhooks wait: {one_line(result.error)}")
    if result.failed or result.dead:
        say("nftsync: see which failed, and why: nftsync inbox --state failed (or dead)")
    if result.unrouted:
        say("nftsync: types without a route: nftsync routes suggest")
    context.exit(1 if result.failed or result.dead or result.error is not None else 0)
