"""The commands `status`, `check` and `verify`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli import options
from nftsync.cli.cells import colored
from nftsync.cli.output import (
    one_line,
    open_existing,
    print_json,
    say,
    say_truncated,
    unreadable_shown,
    wallet_name,
    wrapped,
)
from nftsync.cli.tables import TableColumn, View, print_table, view_options
from nftsync.text import counted, lasting, sentence, toml_string
from nftsync.times import utc_times

if TYPE_CHECKING:
    from datetime import timedelta

    from nftsync.alerts import Forward, WatchRule
    from nftsync.provider.config import Paging
    from nftsync.provider.webhooks import Route
    from nftsync.reports.status import Check, StalestWallet, Status
    from nftsync.reports.verification import Verification
    from nftsync.settings import Key, Settings


#: Attempts per request: few, because a user waits for the result.
_ATTEMPTS = 2
_TLS_FILES = ("ca_file", "client_certificate", "client_key")

_SETTING = (
    TableColumn("setting", "setting", "key"),
    TableColumn("source", "source", "key"),
    TableColumn("value", "value", "message"),
)


@click.command()
@options.with_settings("database")
@options.duration(
    "--max-age",
    "Exit with 1 if a tracked wallet was not read within this time (6h, 7d), or was never read.",
)
@options.json("Print the status as JSON.")
def status(settings: Settings, *, max_age: timedelta | None, as_json: bool) -> int:
    """Show counts, freshness, the last runs and the backlog.

    \b
    Examples:
      nftsync status
      nftsync status --json
      nftsync status --max-age 6h || alert "wallets are stale"
    """
    from nftsync.reports.status import read_status
    from nftsync.times import now

    at = now()
    rules: list[WatchRule | Forward] = [*settings.watch.values(), *settings.forward.values()]
    report, stalest = read_status(settings.database, at, rules)
    if as_json:
        print_json(report)
    else:
        _show(report, stalest, at)
        if report.warning is not None:
            say(f"nftsync: {utc_times(report.warning)}")
    if stalest is None or max_age is None:
        return 0
    if stalest.age_s is not None and stalest.age_s <= max_age.total_seconds():
        return 0
    read = "never read" if stalest.age_s is None else f"last read {_ago(stalest.age_s)}"
    say(f"nftsync: stale: wallet {wallet_name(stalest.wallet_id, stalest.label)} was {read}")
    return 1


def _show(report: Status, stalest: StalestWallet | None, at: str) -> None:
    from nftsync.store.checkpoints import LONG_LOG, log_bytes

    freshness = f"least recently read: {_ago(stalest.age_s)}" if stalest else "none tracked"
    backlog = _by_state(report.inbox)
    if report.oldest_pending_age_s is not None:
        backlog += f"; oldest pending: {_ago(report.oldest_pending_age_s)}"
    backlog += "; reasons: nftsync inbox --state quarantined" * ("quarantined" in report.inbox)
    balances = f"{report.balances:,}"
    if report.unusable_amounts:
        balances += (
            f"; sums leave out {report.unusable_amounts:,} with an amount that is not 1 to 100"
            " digits (list: frames.quality)"
        )
    lines = {
        "nftsync": report.version,
        "database": report.database,
        "wallets": f"{_by_state(report.wallets)}; {freshness}",
        "tokens": f"{report.tokens:,}",
        "balances": balances,
        "changes": f"{report.changes:,}",
        "last sync": _run(report.last_sync, at),
        "last replay": _run(report.last_replay, at),
        "inbox": backlog,
    }
    if report.outbox:
        lines["outbox"] = _by_state(report.outbox)
        if report.oldest_message_age_s is not None:
            lines["outbox"] += f"; oldest unsent: {_ago(report.oldest_message_age_s)}"
    lines["stopped"] = "; ".join(
        f"{name}: {reason}; to restart it: nftsync watch send {name}"
        for name, reason in report.stopped_destinations.items()
    )
    lines["rules"] = "; ".join(f"{name}: {why}" for name, why in report.rule_problems.items())
    if report.unreadable:
        lines["unreadable"] = unreadable_shown(report.unreadable)
    if report.always_changing is not None:
        lines["history"] = (
            f"nearly all tokens changed in each of the last 3 syncs, mostly in their field"
            f" {report.always_changing}. To store it without history:"
            f" volatile_fields = [{toml_string(report.always_changing)}]"
        )
    if report.removals_held.since is not None:
        lines["removals"] = f"{report.removals_held} held for review: nftsync removals"
    if (size := log_bytes(Path(report.database))) >= LONG_LOG:
        lines["log"] = f"{size:,} bytes, because a program reads an old state; stop that program"
    for name, text in lines.items():
        if text:
            click.echo(f"{name:<13}{one_line(text)}")


def _by_state(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items()) or "none"


def _run(run: Mapping[str, Any] | None, at: str) -> str:
    from nftsync.times import age_seconds

    if run is None:
        return "never"
    text = f"{run['status']}, {_ago(age_seconds(run['started_at'], at))} (run "
    more = f", {run['wallets_failed']:,} incomplete or failed" if run["wallets_failed"] else ""
    text += f"{run['run_id']}: {counted(run['wallets_ok'], 'wallet')} ok{more})"
    return text if run["error"] is None else f"{text}: {run['error']}"


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{lasting(seconds, symbols=True)} ago"


@click.command()
@click.argument("wallet", required=False, metavar="[WALLET]")
@options.flag("--all", "Also show the settings that you have not set.", "everything")
@options.with_settings("database", "wallets_file", *options.PROVIDER)
def check(settings: Settings, wallet: str | None, *, everything: bool) -> int:
    """Show the settings that you have set, and test the setup.

    check reads the balances of WALLET (an id or a label), otherwise of the first wallet in the
    wallets file, otherwise of the first tracked wallet. It stores nothing, never shows secrets, and
    exits with 1 if a test FAILED.

    \b
    Examples:
      nftsync check
      nftsync check 8d1cc10a-7fbf-42e7-b58d-5110899866aa --base-url https://api.example.com
      nftsync check Treasury
      nftsync check --all                 also the settings that are not set
    """
    from nftsync.store.wallets import ids_from

    wallet_id = None if wallet is None else ids_from(settings.database, wallet)[0]
    rows = describe(settings)
    shown = [
        row
        for row in rows
        if everything or row["setting"] == "database" or row["source"] != "default"
    ]
    print_table([shown], _SETTING)
    if more := len(rows) - len(shown):
        click.echo(f"{counted(more, 'other setting')} not set. Show all: nftsync check --all")
    click.echo()
    failed = 0
    for verdict, subject, message in _checks(settings, wallet_id):
        space = " " * (8 - len(verdict))
        click.echo(wrapped(f"{colored(verdict)}{space} {subject}: {one_line(utc_times(message))}"))
        failed += verdict == "FAILED"
    return 1 if failed else 0


def describe(settings: Settings) -> list[dict[str, str]]:
    """Return each setting with its source and its value as text, without secrets."""
    from nftsync.settings import KEYS

    return [
        {
            "setting": key.name,
            "source": settings.sources[key.name],
            "value": _shown(key, getattr(settings, key.name)),
        }
        for key in KEYS
    ]


def _shown(key: Key, value: Any) -> str:
    if value is None or value in ({}, []):
        return "not set"
    if isinstance(value, str) and not value.strip():
        return "blank"
    if key.name == "token_command":
        return _command_shown(value)
    if key.secret:
        return f"set ({', '.join(value)})" if isinstance(value, dict) else "set"
    if key.name == "routes":
        return "; ".join(f"{name}: {_written(route)}" for name, route in value.items())
    if key.name == "paging":
        return _written(value)
    if isinstance(value, list | dict):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _command_shown(command: str) -> str:
    """Return a command's program, without its arguments, which may be secret."""
    try:
        program, *arguments = shlex.split(command)
    except ValueError:
        return "set"
    return f"{program} …; {len(arguments)} arguments, not shown" if arguments else program


def _written(table: Route | Paging) -> str:
    entries = {name: getattr(table, name) for name in table.__struct_fields__}
    return " ".join(f"{name}={value}" for name, value in entries.items() if value)


def _checks(settings: Settings, wallet_id: str | None) -> Iterator[Check]:
    from nftsync.errors import NftsyncError, SettingsError
    from nftsync.provider.client import Client
    from nftsync.pull.api import client_config
    from nftsync.reports import status as reports

    files = {name: getattr(settings, name) for name in _TLS_FILES}
    lost = [
        f"{name}: no file {file}" for name, file in files.items() if file and not file.is_file()
    ]
    yield reports.Check("FAILED" if lost else "ok", "settings", "; ".join(lost) or "all valid")
    yield reports.check_database(settings.database)
    yield from reports.check_removals(settings.database)
    first_listed = yield from _check_lists(settings)
    clock_ahead = None
    try:
        config = client_config(replace(settings, retries=min(settings.retries, _ATTEMPTS)))
        client = Client(config)
    except SettingsError as error:
        yield reports.Check("FAILED", "API", str(error))
    else:
        with client:
            wallet_id = wallet_id or first_listed
            if wallet_id is None:
                with suppress(NftsyncError):  # check_database reports the error
                    wallet_id = reports.first_tracked_wallet(settings.database)
            yield from reports.check_provider(client, config.base_url, wallet_id)
            clock_ahead = client.clock_ahead
    yield from reports.check_clock(settings.database, clock_ahead)
    yield reports.check_secret(settings.webhook_secret)
    yield from _check_watch(settings)


def _check_watch(settings: Settings) -> Iterator[Check]:
    from nftsync.alerts import WatchRule
    from nftsync.errors import NftsyncError
    from nftsync.reports.status import Check

    if not (settings.destinations or settings.watch or settings.forward):
        return
    from nftsync.watch.delivery import open_delivery
    from nftsync.watch.service import check_rule, watch_config

    try:
        config = watch_config(settings)
    except NftsyncError as error:
        yield Check("FAILED", "destinations", str(error))
        return
    for name, destination in config.destinations.items():
        try:
            open_delivery(destination, config.network).close()
            yield Check("ok", f"destination {name}", destination.shown)
        except NftsyncError as error:
            yield Check("FAILED", f"destination {name}", str(error))
    for one in config.all_rules:
        kind, parts = ("watch", one.on) if isinstance(one, WatchRule) else ("forward", one.types)
        try:
            check_rule(settings.database, one)
            shown = f"{', '.join(parts) or '*'} to {', '.join(one.to)}"
            yield Check("ok", f"{kind} {one.name}", shown)
        except NftsyncError as error:
            yield Check("FAILED", f"{kind} {one.name}", str(error))


def _check_lists(settings: Settings) -> Generator[Check, None, str | None]:
    from nftsync.errors import NftsyncError
    from nftsync.pull import list_files
    from nftsync.reports.status import Check
    from nftsync.store.hidden import note_unknown
    from nftsync.store.schema import reading

    first = None
    files: list[tuple[str, Any, Callable[[Any], Any]]] = [
        ("wallets file", settings.wallets_file, list_files.read_wallets_file),
        ("collections file", settings.collections_file, list_files.read_collections_file),
        ("hidden file", settings.hidden_file, list_files.read_hidden_file),
    ]
    for name, path, read in files:
        if path == "-":
            yield Check("skipped", name, "stdin is not read by this command")
        elif path is not None:
            try:
                entries = read(path)
            except NftsyncError as error:
                yield Check("FAILED", name, str(error))
                continue
            note = ""
            if name == "wallets file":
                first, note = entries[0].wallet_id, " wallets"
            elif name == "hidden file":
                with suppress(NftsyncError), reading(settings.database) as connection:
                    note = note_unknown(connection, entries)
                    note = note and f"; {note}"
            yield Check("ok", name, f"{path}: {len(entries):,}{note}")
    return first


_DIFFERENCE = (
    TableColumn("wallet", "wallet_id", "id", name="label", short="wallet"),
    TableColumn("token", "token_id", "id", name="name", short="nft"),
    TableColumn("field", "field"),
    TableColumn("database", "mirror"),
    TableColumn("provider", "provider"),
    TableColumn("webhooks", "why", "message"),
)


@click.command()
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of random wallets; 0 checks only the database.  [default: 100]",
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
    intact. Then it reads a random sample of the tracked wallets, ignoring ETags and digests. It
    lists every difference, and whether a webhook announced it. Without --repair, it writes nothing.

    It exits with 1 if anything differs, is broken, or could not be read.

    \b
    Examples:
      nftsync verify                      100 wallets
      nftsync verify --all --repair
      nftsync verify --sample 0           only the database, without the provider
    """
    from nftsync.pull.api import client_config
    from nftsync.reports.verification import verify as run_verification

    if everything and sample is not None:
        raise click.UsageError("--sample and --all cannot be used together")
    number = None if everything else 100 if sample is None else sample
    progress = False if view.as_json else None
    report = run_verification(
        settings.database,
        None if number == 0 else client_config(settings),
        sample=number,
        concurrency=settings.concurrency,
        has_receiver=settings.webhook_secret is not None,
        repair=_repairing(settings, progress) if repair else None,
        progress=progress,
    )
    if view.as_json:
        print_json(report)
    else:
        _show_verification(report, view)
    return 0 if report.is_right else 1


def _repairing(settings: Settings, progress: bool | None) -> Any:
    from nftsync.pull.api import sync_with
    from nftsync.pull.plan import SyncRequest
    from nftsync.store.wallets import WalletLine, forget_answers

    def repair(wallets: Sequence[str]) -> dict[str, Any]:
        with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
            forget_answers(transaction.connection, wallets)
        request = SyncRequest(wallets=[WalletLine(wallet) for wallet in wallets])
        return sync_with(settings, request, progress=progress).as_dict()

    return repair


def _show_verification(report: Verification, view: View) -> None:
    import msgspec

    differences = sorted(report.differences, key=lambda x: (x.label or x.wallet_id, x.token_id))
    rows = [{**msgspec.structs.asdict(row), "why": utc_times(row.why)} for row in differences]
    if rows:
        print_table([view.first(rows)], _DIFFERENCE, wide=view.wide)
        say_truncated(view.limit, report.differences_total, "differences")
        if report.untold is not None:
            click.echo(sentence(utc_times(report.untold)))
    for wallet in view.first(report.unread):
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
