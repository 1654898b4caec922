"""The command that proves the mirror, by its own rules and by fresh reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    PROVIDER,
    json_option,
    limit_option,
    named,
    one_line,
    open_existing,
    print_json,
    say,
    say_left_out,
    with_settings,
)
from nftsync.cli.tables import Column, print_table, wide_option
from nftsync.text import counted

if TYPE_CHECKING:
    from nftsync.reports.verification import Verification
    from nftsync.settings import Settings


_DIFFERENCE = (
    Column("wallet", "wallet_id", "id", name="label"),
    Column("token", "token_id", "id", name="name"),
    Column("field", "field"),
    Column("mirror", "mirror"),
    Column("provider", "provider"),
    Column("webhooks", "why", "message"),
)


@click.command()
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    metavar="N",
    help="Wallets to compare, at random; 0: only the mirror's own rules.  [default: 100]",
)
@click.option("--all", "everything", is_flag=True, help="Compare every tracked wallet.")
@click.option("--repair", is_flag=True, help="Read the wallets that differ into the mirror again.")
@with_settings("database", *PROVIDER)
@limit_option("Rows of the table; 0 shows all.", 50)
@wide_option
@json_option("Print the result as JSON.")
def verify(
    settings: Settings,
    *,
    sample: int | None,
    everything: bool,
    repair: bool,
    limit: int,
    wide: bool,
    as_json: bool,
) -> int:
    """Compare the mirror with the provider, prove its own rules.

    Reads wallets afresh, whatever ETags and digests say, and lists what the provider shows
    otherwise than the mirror, and whether a webhook should have told. Nothing is written, unless
    --repair has them read again as `nftsync sync` does. Each tracked wallet is as likely to be in
    the sample as any other. The mirror's own rules (its history comes to what is held, nothing
    hangs, the file is whole, ...) are always looked at. Exits with 1 when anything is not right.

    \b
    Examples:
      nftsync verify                      100 wallets
      nftsync verify --all --repair
      nftsync verify --sample 0           only the database, without the provider
    """
    from nftsync.pull.api import client_config
    from nftsync.reports.verification import Interrupted
    from nftsync.reports.verification import verify as look

    if everything and sample is not None:
        raise click.UsageError("give --sample or --all")
    number = None if everything else 100 if sample is None else sample
    try:
        found = look(
            settings.database,
            None if number == 0 else client_config(settings),
            sample=number,
            concurrency=settings.concurrency,
            has_receiver=settings.webhook_secret is not None,
            repair=_repairing(settings, shown=None if not as_json else False) if repair else None,
            progress=False if as_json else None,
        )
    except Interrupted:
        say("nftsync: interrupted")
        return 130
    if as_json:
        print_json(found)
    else:
        _show(found, limit=limit, wide=wide)
    return 0 if found.is_right else 1


def _repairing(settings: Settings, *, shown: bool | None) -> Any:
    """Reads wallets as a sync does, unconditionally."""
    from nftsync.pull.api import sync_with
    from nftsync.pull.plan import SyncRequest
    from nftsync.store.wallets import WalletLine, forget_answers

    def repair(wallets: Sequence[str]) -> dict[str, Any]:
        with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
            forget_answers(transaction.connection, wallets)
        request = SyncRequest(wallets=[WalletLine(wallet) for wallet in wallets])
        return sync_with(settings, request, progress=shown).as_dict()

    return repair


def _show(found: Verification, *, limit: int, wide: bool) -> None:
    import msgspec

    differences = sorted(found.differences, key=lambda x: (x.label or x.wallet_id, x.token_id))
    rows = [msgspec.structs.asdict(each) for each in differences]
    if rows:
        print_table([rows[:limit] if limit else rows], _DIFFERENCE, wide=wide)
        say_left_out(limit, found.differences_total, "differences")
        if found.untold is not None:
            click.echo(f"{found.untold[:1].upper()}{found.untold[1:]}.")
    for each in found.unread[:limit] if limit else found.unread:
        say(f"nftsync: {named(each.wallet_id, each.label)}: {one_line(each.error)}")
    say_left_out(limit, len(found.unread), "wallets that could not be read")
    if found.error is not None:
        say(f"nftsync: {one_line(found.error)}")
    for rule in found.rules:
        if rule.broken:
            places = f"{rule.broken:,} of {rule.checked:,}"
            click.echo(f"BROKEN ({places}): {rule.rule}: {one_line('; '.join(rule.examples))}")
    click.echo(_summary(found))


def _summary(found: Verification) -> str:
    """What was compared, in a line."""
    broken = sum(1 for rule in found.rules if rule.broken)
    rows = max((rule.checked for rule in found.rules), default=0)
    rules = f"{broken} of {counted(len(found.rules), 'rule')} broken"
    if not broken:
        rules = f"all {len(found.rules)} rules of the mirror hold (over {rows:,} rows)"
    if not found.sampled:
        return f"{rules[:1].upper()}{rules[1:]}."
    text = f"{found.compared:,} of {counted(found.tracked, 'wallet')} compared"
    text += f" ({counted(found.balances, 'balance')}): "
    if found.differing:
        text += f"{found.differing:,} differ, in {counted(found.differences_total, 'place')}"
    else:
        text += "none differs"
    if found.likely_at_most:
        text += f" (95 % certain: less than {found.likely_at_most:.1%} of all do)"
    if found.repaired:
        text += f"; read again, and right now: {counted(len(found.repaired), 'wallet')}"
    left = (found.read_meanwhile, "read meanwhile"), (found.never_read, "never read")
    text += "".join(f"; {count:,} {what}" for count, what in left if count)
    return f"{text}; {rules}."
