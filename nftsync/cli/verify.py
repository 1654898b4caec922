"""The command `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.output import one_line, open_existing, print_json, say, say_truncated, wallet_name
from nftsync.cli.tables import TableColumn, View, view_options
from nftsync.text import counted, sentence
from nftsync.times import utc_times

if TYPE_CHECKING:
    from nftsync.reports.verification import Verification
    from nftsync.settings import Settings

_DIFFERENCE = (
    TableColumn("wallet", "wallet_id", "id", name="label", short="wallet"),
    TableColumn("token", "token_id", "id", name="name", short="nft"),
    TableColumn("field", "field"),
    TableColumn("database", "mirror"),
    TableColumn("provider", "provider"),
    TableColumn("webhooks", "why", "message"),
)


@click.command()
@options.valued(
    "--sample",
    "N",
    click.IntRange(min=0),
    "Number of random wallets; 0 checks only the database. Default: 100",
)
@options.flag("--all", "Compare all tracked wallets.", "everything")
@options.flag("--repair", "Sync the wallets that differ.")
@options.with_settings("database", *options.PROVIDER)
@view_options("Print the result as JSON.")
def verify(
    settings: Settings, *, sample: int | None, everything: bool, repair: bool, view: View
) -> int:
    """Verify the database, and compare it with the provider.

    verify checks the database's internal consistency: history matches balances, no stuck work, file
    intact. Then it reads a random sample of the tracked wallets. It lists every difference, and
    whether a webhook announced it. Without --repair, it writes nothing. It exits with 1 if anything
    differs, is broken, or could not be read.

    \b
    Examples:
      nftsync verify                      100 wallets
      nftsync verify --all --repair
      nftsync verify --sample 0           only the database, without the provider
    """
    from nftsync.pull.api import client_config, heartbeat
    from nftsync.reports.verification import verify as run_verification

    if everything and sample is not None:
        raise click.UsageError("--sample and --all cannot be used together")
    number = None if everything else 100 if sample is None else sample
    progress = False if view.as_json else None
    with heartbeat(settings) as reported:
        reported.start()
        report = run_verification(
            settings.database,
            None if number == 0 else client_config(settings),
            sample=number,
            concurrency=settings.concurrency,
            has_receiver=settings.webhook_secret is not None,
            repair=_repairing(settings, progress) if repair else None,
            progress=progress,
        )
        reported.problem = None if report.is_right else report.error or _summary(report)
    if view.as_json:
        print_json(report)
    else:
        _show_verification(report, view)
    return 0 if report.is_right else 1


def _repairing(settings: Settings, progress: bool | None) -> Any:
    from nftsync.pull.api import sync_with
    from nftsync.pull.plan import SyncRequest
    from nftsync.store.wallets import WalletLine, forget_answers

    unreported = replace(settings, ping_url=None)  # the verification is reported

    def repair(wallets: Sequence[str]) -> dict[str, Any]:
        with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
            forget_answers(transaction.connection, wallets)
        request = SyncRequest(wallets=[WalletLine(wallet) for wallet in wallets])
        return sync_with(unreported, request, progress=progress).as_dict()

    return repair


def _show_verification(report: Verification, view: View) -> None:
    import msgspec

    differences = sorted(report.differences, key=lambda x: (x.label or x.wallet_id, x.token_id))
    rows = [{**msgspec.structs.asdict(row), "why": utc_times(row.why)} for row in differences]
    view.show(rows, _DIFFERENCE, "differences", total=report.differences_total)
    if report.untold is not None:
        click.echo(sentence(utc_times(report.untold)))
    for wallet in report.unread[: view.limit or None]:
        say(f"nftsync: {wallet_name(wallet.wallet_id, wallet.label)}: {one_line(wallet.error)}")
    say_truncated(view.limit, len(report.unread), "wallets that could not be read")
    if report.error is not None:
        say(f"nftsync: {one_line(report.error)}")
    for rule in report.rules:
        if rule.broken:
            places = f"{rule.broken:,} of {rule.checked:,}"
            click.echo(f"BROKEN ({places}): {rule.rule}: {one_line('; '.join(rule.examples))}")
    click.echo(_summary(report))


def _summary(report: Verification) -> str:
    broken = sum(1 for rule in report.rules if rule.broken)
    rows = max((rule.checked for rule in report.rules), default=0)
    rules = f"{broken} of {counted(len(report.rules), 'consistency rule')} broken"
    if not broken:
        rules = f"all {len(report.rules)} consistency rules hold ({rows:,} rows)"
    if not report.sampled:
        return sentence(rules)
    text = f"{report.compared:,} of {counted(report.tracked, 'wallet')} compared"
    text += f" ({counted(report.balances, 'balance')}): "
    if report.differing:
        text += f"{report.differing:,} differ, in {counted(report.differences_total, 'place')}"
    else:
        text += "none differs now" if report.repaired else "none differs"
    if report.likely_at_most:
        text += f" (95 % confidence: less than {report.likely_at_most:.1%} of all wallets differ)"
    if report.repaired:
        text += f"; {counted(len(report.repaired), 'wallet')} repaired"
    skipped = (
        (len(report.unread), "could not be read"),
        (report.read_meanwhile, "skipped (read meanwhile)"),
        (report.never_read, "never read"),
    )
    text += "".join(f"; {count:,} {reason}" for count, reason in skipped if count)
    return f"{text}; {rules}."
