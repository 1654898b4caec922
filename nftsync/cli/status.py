"""The commands `status`, `check` and `verify`."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    PROVIDER,
    duration_option,
    json_option,
    named,
    one_line,
    open_existing,
    print_json,
    say,
    say_left_out,
    with_settings,
)
from nftsync.cli.tables import TableColumn, View, print_table, view_options
from nftsync.text import counted, lasting

if TYPE_CHECKING:
    from datetime import timedelta

    from nftsync.provider.config import Paging
    from nftsync.provider.webhooks import Route
    from nftsync.reports.status import Check, StalestWallet, Status
    from nftsync.reports.verification import Verification
    from nftsync.settings import Key, Settings


#: A check is run by someone who waits; a provider that is down says so at the second try.
_ATTEMPTS = 2

_SETTING = (
    TableColumn("setting", "setting", "key"),
    TableColumn("source", "source", "key"),
    TableColumn("value", "value", "message"),
)


@click.command()
@with_settings("database")
@duration_option(
    "--max-age", "Exit with 1 when a tracked wallet was not read for longer: 90s, 15m, 6h, 7d"
)
@json_option("Print the status as JSON.")
def status(settings: Settings, *, max_age: timedelta | None, as_json: bool) -> int:
    """Show counts, freshness, the last runs and the backlog.

    With --max-age the exit code tells a monitor whether the mirror is fresh: a tracked wallet that
    was never read is stale; with none tracked nothing is.

    \b
    Examples:
      nftsync status
      nftsync status --json
      nftsync status --max-age 6h || alert "wallets are stale"
    """
    from nftsync.reports.status import read_status
    from nftsync.times import now

    at = now()
    found, stalest = read_status(settings.database, at)
    if as_json:
        print_json(found)
    else:
        _show(found, stalest, at)
        if found.warning is not None:
            say(f"nftsync: {found.warning}")
    if stalest is None or max_age is None:
        return 0
    if stalest.age_s is not None and stalest.age_s <= max_age.total_seconds():
        return 0
    read = "never read" if stalest.age_s is None else f"last read {_ago(stalest.age_s)}"
    say(f"nftsync: stale: wallet {named(stalest.wallet_id, stalest.label)} was {read}")
    return 1


def _show(found: Status, stalest: StalestWallet | None, at: str) -> None:
    from nftsync.store.database import LONG_LOG, log_bytes

    freshness = "none tracked"
    if stalest is not None:
        freshness = f"least recently read: {_ago(stalest.age_s)}"
    waiting = _by_state(found.inbox)
    if found.oldest_pending_age_s is not None:
        waiting += f"; oldest pending: {_ago(found.oldest_pending_age_s)}"
    balances = f"{found.balances:,}"
    if found.unusable_amounts:
        balances += (
            f"; of {found.unusable_amounts:,} the amount is not 1 to 100 digits, so no sum has it"
            " (frames.quality lists them)"
        )
    lines = {
        "nftsync": found.version,
        "database": found.database,
        "wallets": f"{_by_state(found.wallets)}; {freshness}",
        "tokens": f"{found.tokens:,}",
        "balances": balances,
        "changes": f"{found.changes:,}",
        "last sync": _run(found.last_sync, at),
        "last replay": _run(found.last_replay, at),
        "inbox": waiting,
    }
    if found.removals_held.since is not None:
        lines["removals"] = f"{found.removals_held} held for review: nftsync removals"
    if (size := log_bytes(Path(found.database))) >= LONG_LOG:
        lines["log"] = f"{size:,} bytes: a program reads an old state of the database; end that"
    for name, text in lines.items():
        click.echo(f"{name:<13}{one_line(text)}")


def _by_state(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items()) or "none"


def _run(run: Mapping[str, Any] | None, at: str) -> str:
    from nftsync.times import age_seconds

    if run is None:
        return "never"
    text = f"{run['status']}, {_ago(age_seconds(run['started_at'], at))} (run "
    read = counted(run["wallets_ok"], "wallet")
    text += f"{run['run_id']}: {read} ok, {run['wallets_failed']:,} failed)"
    return text if run["error"] is None else f"{text}: {run['error']}"


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{lasting(seconds, symbols=True)} ago"


@click.command()
@click.argument("wallet", required=False, metavar="[WALLET]")
@with_settings("database", "wallets_file", *PROVIDER)
def check(settings: Settings, wallet: str | None) -> int:
    """Show each setting and its source, and try them.

    Reads the balances of WALLET (an id, or a label that the database knows), or of the first wallet
    of the wallets file, else of the first tracked one, to try the API, and stores nothing. Secrets
    are not shown. Exits with 1 when something FAILED.

    \b
    Examples:
      nftsync check
      nftsync check 8d1cc10a-7fbf-42e7-b58d-5110899866aa --base-url https://api.example.com
      nftsync check Treasury
    """
    from nftsync.store.wallets import ids_from

    wallet_id = None if wallet is None else ids_from(settings.database, wallet)[0]
    heads = ("setting", "value", "source")
    print_table([[dict(zip(heads, line, strict=True)) for line in describe(settings)]], _SETTING)
    failed = 0
    for verdict, what, message in _checks(settings, wallet_id):
        click.echo(f"{verdict:<8} {what}: {one_line(message)}")
        failed += verdict == "FAILED"
    return 1 if failed else 0


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """List every key with its value as text and its source; of secrets, only whether they are set.

    A secret is `set`, `not set`, or `blank`; of the headers, the names are listed too.
    """
    from nftsync.settings import KEYS

    return [
        (key.name, _shown(key, getattr(settings, key.name)), settings.sources[key.name])
        for key in KEYS
    ]


def _shown(key: Key, value: Any) -> str:
    from nftsync.provider.config import Paging

    if value is None or value in ({}, []):
        return "not set"
    if isinstance(value, str) and not value.strip():
        return "blank"
    if key.name == "token_command":
        return _command_shown(value)
    if key.secret:
        return f"set ({', '.join(value)})" if isinstance(value, dict) else "set"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_written(entry)}" for name, entry in value.items())
    if isinstance(value, Paging):
        return _written(value)
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _command_shown(command: str) -> str:
    """Which program a command runs; there may be a secret among its arguments."""
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
    from nftsync.reports import status as look

    yield look.Check("ok", "settings", "each is of the right form")
    yield look.check_database(settings.database)
    yield from look.check_removals(settings.database)
    first_listed = yield from _check_lists(settings)
    clock_ahead = None
    try:
        config = client_config(replace(settings, retries=min(settings.retries, _ATTEMPTS)))
        client = Client(config)
    except SettingsError as error:
        yield look.Check("FAILED", "API", str(error))
    else:
        with client:
            if wallet_id is None:
                with suppress(NftsyncError):  # the line on the database says what is wrong with it
                    wallet_id = look.first_tracked_wallet(settings.database)
                wallet_id = first_listed or wallet_id
            yield from look.check_provider(client, config.base_url, wallet_id)
            clock_ahead = client.clock_ahead
    yield from look.check_clock(settings.database, clock_ahead)
    yield look.check_secret(settings.webhook_secret)


def _check_lists(settings: Settings) -> Generator[Check, None, str | None]:
    """Read the lists that a sync reads; returns the first wallet that is listed, if any is."""
    from nftsync.errors import NftsyncError
    from nftsync.pull.list_files import read_collections_file, read_wallets_file
    from nftsync.reports.status import Check

    first = None
    if settings.wallets_file == "-":
        yield Check("skipped", "wallets file", "standard input is left for the sync")
    elif settings.wallets_file is not None:
        try:
            lines = read_wallets_file(settings.wallets_file)
            first = lines[0].wallet_id if lines else None
            yield Check("ok", "wallets file", f"{settings.wallets_file}: {len(lines):,} wallets")
        except NftsyncError as error:
            yield Check("FAILED", "wallets file", str(error))
    if settings.collections_file is not None:
        try:
            names = read_collections_file(settings.collections_file)
            yield Check("ok", "collections file", f"{settings.collections_file}: {len(names):,}")
        except NftsyncError as error:
            yield Check("FAILED", "collections file", str(error))
    return first


_DIFFERENCE = (
    TableColumn("wallet", "wallet_id", "id", name="label"),
    TableColumn("token", "token_id", "id", name="name"),
    TableColumn("field", "field"),
    TableColumn("mirror", "mirror"),
    TableColumn("provider", "provider"),
    TableColumn("webhooks", "why", "message"),
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
@view_options("Print the result as JSON.")
def verify(
    settings: Settings, *, sample: int | None, everything: bool, repair: bool, view: View
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
    progress = False if view.as_json else None
    try:
        found = look(
            settings.database,
            None if number == 0 else client_config(settings),
            sample=number,
            concurrency=settings.concurrency,
            has_receiver=settings.webhook_secret is not None,
            repair=_repairing(settings, progress) if repair else None,
            progress=progress,
        )
    except Interrupted:
        say("nftsync: interrupted")
        return 130
    if view.as_json:
        print_json(found)
    else:
        _show_verification(found, view)
    return 0 if found.is_right else 1


def _repairing(settings: Settings, progress: bool | None) -> Any:
    """Reads wallets as a sync does, unconditionally."""
    from nftsync.pull.api import sync_with
    from nftsync.pull.run import SyncRequest
    from nftsync.store.wallets import WalletLine, forget_answers

    def repair(wallets: Sequence[str]) -> dict[str, Any]:
        with open_existing(settings.database) as mirror, mirror.transaction() as transaction:
            forget_answers(transaction.connection, wallets)
        request = SyncRequest(wallets=[WalletLine(wallet) for wallet in wallets])
        return sync_with(settings, request, progress=progress).as_dict()

    return repair


def _show_verification(found: Verification, view: View) -> None:
    import msgspec

    differences = sorted(found.differences, key=lambda x: (x.label or x.wallet_id, x.token_id))
    rows = [msgspec.structs.asdict(each) for each in differences]
    if rows:
        print_table([view.first(rows)], _DIFFERENCE, wide=view.wide)
        say_left_out(view.limit, found.differences_total, "differences")
        if found.untold is not None:
            click.echo(f"{found.untold[:1].upper()}{found.untold[1:]}.")
    for each in view.first(found.unread):
        say(f"nftsync: {named(each.wallet_id, each.label)}: {one_line(each.error)}")
    say_left_out(view.limit, len(found.unread), "wallets that could not be read")
    if found.error is not None:
        say(f"nftsync: {one_line(found.error)}")
    for rule in found.rules:
        if rule.broken:
            places = f"{rule.broken:,} of {rule.checked:,}"
            click.echo(f"BROKEN ({places}): {rule.rule}: {one_line('; '.join(rule.examples))}")
    click.echo(_verified(found))


def _verified(found: Verification) -> str:
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
