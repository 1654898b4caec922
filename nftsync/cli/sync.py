"""`nftsync sync`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nftsync.cli.options import PROVIDER, with_settings
from nftsync.cli.output import one_line, print_json, say

if TYPE_CHECKING:
    from nftsync.settings import Settings
    from nftsync.sync_result import SyncResult

__all__ = ["sync"]

#: Failures shown to a person; `--json` and `nftsync wallets` show all.
_SHOWN = 20


@click.command(short_help="Read wallets' balances and tokens into the database.")
@click.argument("wallet_ids", nargs=-1, metavar="[WALLET_ID]...")
@with_settings("database", "wallets_file", *PROVIDER)
@click.option("--tokens", is_flag=True, help="Also read each token those wallets hold by its id.")
@click.option("--older-than", metavar="DURATION", help="Skip what was read since: 90s, 15m, 6h, 7d")
@click.option(
    "--resume", is_flag=True, help="Go on with the newest interrupted or killed run, if any."
)
@click.option(
    "--accept-empty",
    is_flag=True,
    help="Believe a provider that answers with empty lists for one wallet after the other.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def sync(
    context: click.Context,
    settings: Settings,
    wallet_ids: tuple[str, ...],
    *,
    tokens: bool,
    older_than: str | None,
    resume: bool,
    accept_empty: bool,
    as_json: bool,
) -> None:
    """Read wallets' balances, with their tokens, into the database.

    Reads the named wallets; none named, those of the wallets file; no file, every tracked wallet.
    Wallets that fail don't hold up the others: they are listed, and the exit code is 1.

    \b
    Examples:
      nftsync sync --base-url https://api.example.com --wallets-file wallets.csv
      nftsync sync                        all tracked wallets again
      nftsync sync --older-than 6h        only those not read for six hours
      nftsync sync --resume               go on after Ctrl-C, a crash or a power cut
    """
    from nftsync.api import sync_with
    from nftsync.store.registry import WalletLine
    from nftsync.sync_plan import Request
    from nftsync.times import parse_duration

    request = Request(
        wallets=[WalletLine(wallet_id) for wallet_id in wallet_ids] or None,
        tokens=tokens,
        older_than=None if older_than is None else parse_duration(older_than),
        resume=resume,
        accept_empty=accept_empty,
    )
    result = sync_with(settings, request, progress=False if as_json else None)
    if as_json:
        print_json(result.as_dict())
    else:
        click.echo(result.summary())
    _say_what_failed(result)
    if result.status == "interrupted":
        say("Interrupted; what was fetched is saved. Go on with: nftsync sync --resume")
    context.exit({"ok": 0, "interrupted": 130}.get(result.status, 1))


def _say_what_failed(result: SyncResult) -> None:
    if result.error is not None:
        say(f"nftsync: {one_line(result.error)}")
        return
    for failure in result.failures[:_SHOWN]:
        what = failure.wallet_id if failure.token_id is None else f"token {failure.token_id}"
        say(f"nftsync: {what}: {one_line(failure.error)}")
    if len(result.failures) > _SHOWN:
        say(f"nftsync: and {len(result.failures) - _SHOWN:,} more; see `nftsync wallets`")
