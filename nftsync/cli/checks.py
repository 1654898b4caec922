"""The tests of `nftsync check`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nftsync.alerts import Destination, Forward, WatchRule
from nftsync.errors import NftsyncError, SettingsError
from nftsync.provider.client import Client
from nftsync.pull.api import client_config
from nftsync.pull.list_files import read_collections_file, read_hidden_file, read_wallets_file
from nftsync.reports import checks
from nftsync.reports.checks import Check, checked
from nftsync.settings import Settings
from nftsync.store.hidden import note_unknown
from nftsync.store.schema import reading

#: Attempts per request: few, because a user waits for the result.
_ATTEMPTS = 2
_TLS_FILES = ("ca_file", "client_certificate", "client_key")


def run_checks(settings: Settings, wallet_id: str | None) -> Iterator[Check]:
    """Test everything that the settings name."""
    files = {name: getattr(settings, name) for name in _TLS_FILES}
    lost = [
        f"{name}: no file {file}" for name, file in files.items() if file and not file.is_file()
    ]
    yield Check("FAILED" if lost else "ok", "settings", "; ".join(lost) or "all valid")
    yield checks.check_database(settings.database)
    yield from checks.check_removals(settings.database)
    first_listed = yield from _check_files(settings)
    clock_ahead = None
    try:
        config = client_config(replace(settings, retries=min(settings.retries, _ATTEMPTS)))
        client = Client(config)
    except SettingsError as error:
        yield Check("FAILED", "API", str(error))
    else:
        with client:
            wallet_id = wallet_id or first_listed
            if wallet_id is None:
                with suppress(NftsyncError):  # check_database reports the error
                    wallet_id = checks.first_tracked_wallet(settings.database)
            yield from checks.check_provider(client, config.base_url, wallet_id)
            clock_ahead = client.clock_ahead
    yield from checks.check_clock(settings.database, clock_ahead)
    yield checks.check_secret(settings.webhook_secret)
    if settings.destinations or settings.watch or settings.forward:
        yield from _check_watch(settings)


def _check_watch(settings: Settings) -> Iterator[Check]:
    # Slow to import, because rules read columns.
    from nftsync.watch.delivery import open_delivery
    from nftsync.watch.service import check_rule, watch_config

    try:
        config = watch_config(settings)
    except NftsyncError as error:
        yield Check("FAILED", "destinations", str(error))
        return

    def opened(destination: Destination) -> str:
        open_delivery(destination, config.network).close()
        return destination.shown

    def valid(rule: WatchRule | Forward, parts: list[str]) -> str:
        check_rule(settings.database, rule)
        return f"{', '.join(parts) or '*'} to {', '.join(rule.to)}"

    for name, destination in config.destinations.items():
        yield checked(f"destination {name}", opened, destination)
    for name, rule in config.rules.items():
        yield checked(f"watch {name}", valid, rule, rule.on)
    for name, forward in config.forwards.items():
        yield checked(f"forward {name}", valid, forward, forward.types)


def _check_files(settings: Settings) -> Generator[Check, None, str | None]:
    """Check the files; return the first wallet's id."""
    first = None

    def wallets(path: Path) -> str:
        nonlocal first
        entries = read_wallets_file(path)
        first = entries[0].wallet_id
        return f"{path}: {len(entries):,} wallets"

    def collections(path: Path) -> str:
        return f"{path}: {len(read_collections_file(path)):,}"

    def hidden(path: Path) -> str:
        entries, note = read_hidden_file(path), ""
        with suppress(NftsyncError), reading(settings.database) as connection:
            note = note_unknown(connection, entries)
        return f"{path}: {len(entries):,}{note and f'; {note}'}"

    for name, describe in {
        "wallets": wallets,
        "collections": collections,
        "hidden": hidden,
    }.items():
        path = getattr(settings, f"{name}_file")
        if path == "-":
            yield Check("skipped", f"{name} file", "stdin is not read by this command")
        elif path is not None:
            yield checked(f"{name} file", describe, path)
    return first
