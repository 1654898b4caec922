"""Commands that tell how things stand: the database, the settings and the routes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.cli.common import (
    PROVIDER,
    json_option,
    named,
    one_line,
    print_json,
    say,
    with_settings,
)
from nftsync.cli.tables import Column, print_table, wide_option
from nftsync.text import counted

if TYPE_CHECKING:
    from nftsync.reports.status import Check, StalestWallet, Status
    from nftsync.settings import Settings


#: Units of an age in words, and of a duration as the settings take it.
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_DURATIONS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))

#: A check is run by someone who waits; a provider that is down says so at the second try.
_ATTEMPTS = 2

#: What is listed of a route.
_ROUTE = (
    Column("type", "type", "key"),
    Column("kind", "kind"),
    Column("path", "path", "key"),
    Column("at most every", "at_most_every"),
    Column("holders too", "holders"),
    Column("wallets", "wallets"),
    Column("tokens", "tokens"),
    Column("source", "source"),
)
_SETTING = (
    Column("setting", "setting", "key"),
    Column("source", "source", "key"),
    Column("value", "value", "message"),
)


@click.command()
@with_settings("database")
@click.option(
    "--max-age",
    metavar="DURATION",
    help="Exit with 1 when a tracked wallet was not read for longer: 90s, 15m, 6h, 7d",
)
@json_option("Print the status as JSON.")
def status(settings: Settings, *, max_age: str | None, as_json: bool) -> int:
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
    from nftsync.times import now, parse_duration

    allowed = None if max_age is None else parse_duration(max_age)
    at = now()
    found, stalest = read_status(settings.database, at)
    if as_json:
        print_json(found)
    else:
        _show(found, stalest, at)
        if found.warning is not None:
            say(f"nftsync: {found.warning}")
    if stalest is None or allowed is None:
        return 0
    if stalest.age_s is not None and stalest.age_s <= allowed.total_seconds():
        return 0
    read = "never read" if stalest.age_s is None else f"last read {_ago(stalest.age_s)}"
    say(f"nftsync: stale: wallet {named(stalest.wallet_id, stalest.label)} was {read}")
    return 1


def _show(found: Status, stalest: StalestWallet | None, at: str) -> None:
    from nftsync.store.checkpoints import LONG_LOG, log_bytes

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
    from nftsync.reports.status import age_seconds

    if run is None:
        return "never"
    text = f"{run['status']}, {_ago(age_seconds(run['started_at'], at))} (run "
    read = counted(run["wallets_ok"], "wallet")
    text += f"{run['run_id']}: {read} ok, {run['wallets_failed']:,} failed)"
    return text if run["error"] is None else f"{text}: {run['error']}"


def _ago(seconds: float | None) -> str:
    """An age in its largest whole unit: `3 min ago`."""
    if seconds is None:
        return "never"
    for size, unit in _AGES:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "less than 1 s ago"


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
    from nftsync.settings import describe
    from nftsync.store.labels import ids_from

    wallet_id = None if wallet is None else ids_from(settings.database, wallet)[0]
    heads = ("setting", "value", "source")
    print_table([[dict(zip(heads, line, strict=True)) for line in describe(settings)]], _SETTING)
    failed = 0
    for verdict, what, message in _checks(settings, wallet_id):
        click.echo(f"{verdict:<8} {what}: {one_line(message)}")
        failed += verdict == "FAILED"
    return 1 if failed else 0


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


@click.group(invoke_without_command=True)
@with_settings("database")
@wide_option
@json_option("Print them as JSON.")
def routes(settings: Settings, *, wide: bool, as_json: bool) -> None:
    """Show which read follows which webhook; suggest more.

    Without a subcommand it lists the routes in force. Types other than Token, Nft and Wallet need a
    [routes.TYPE] table in nftsync.toml, as the provider's document shows no paths for them.

    \b
    Examples:
      nftsync routes
      nftsync routes suggest
    """
    _list_routes(settings, wide=wide, as_json=as_json)


@routes.command("list")
@with_settings()
@wide_option
@json_option("Print them as JSON.")
def list_routes(settings: Settings, *, wide: bool, as_json: bool) -> None:
    """List the routes in force: what `nftsync routes` does by itself."""
    _list_routes(settings, wide=wide, as_json=as_json)


def _list_routes(settings: Settings, *, wide: bool, as_json: bool) -> None:
    import msgspec

    from nftsync.provider.routes import merged

    rows: list[dict[str, Any]] = [
        {
            "type": name,
            **msgspec.structs.asdict(route),
            "at_most_every": _duration(route.at_most_every),
            "source": "nftsync.toml" if name in settings.routes else "built in",
        }
        for name, route in merged(settings.routes).by_type.items()
    ]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            row["holders"] = "yes" if row["holders"] else None
            row["wallets"], row["tokens"] = ", ".join(row["wallets"]), ", ".join(row["tokens"])
        print_table([rows], _ROUTE, wide=wide)


def _duration(value: timedelta | None) -> str | None:
    """A duration as the settings take it: `15m`."""
    if value is None:
        return None
    seconds = round(value.total_seconds())
    unit, size = next(each for each in _DURATIONS if seconds % each[1] == 0)
    return f"{seconds // size}{unit}"


@routes.command("suggest")
@with_settings("database")
def suggest(settings: Settings) -> None:
    """Print TOML for webhooks that no route follows, or not wholly.

    Looks for the ids of known wallets and tokens in stored webhooks (their object's id and their
    changes) and in the objects that were read after them: of each type, the newest 10,000.

    \b
    Examples:
      nftsync routes suggest > suggested.toml
      nftsync inbox requeue --state unrouted
    """
    from nftsync.provider.routes import merged
    from nftsync.reports.suggestions import as_toml
    from nftsync.reports.suggestions import suggest as look

    found = look(settings.database, merged(settings.routes))
    if not found.routes:
        say("Nothing to suggest: each type in the inbox, if there is any, has its route.")
        return
    click.echo(as_toml(found), nl=False)
    say(
        "Put what is right into nftsync.toml, start `nftsync serve` again, and have waiting "
        "webhooks read with `nftsync inbox requeue --state unrouted`."
    )
