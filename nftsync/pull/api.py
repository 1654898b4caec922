"""`nftsync.sync`: a sync of wallets."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from nftsync import settings as _settings
from nftsync.errors import InputError
from nftsync.provider.config import ClientConfig
from nftsync.provider.heartbeat import Heartbeat
from nftsync.pull.guard import RemovalLimits
from nftsync.pull.list_files import read_collections_file, read_hidden_file, read_wallets_file
from nftsync.pull.plan import NoWallets, SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.pull.run import sync_wallets
from nftsync.store.wallets import WalletLine, ids_from
from nftsync.text import quoted
from nftsync.times import parse_duration

if TYPE_CHECKING:
    from nftsync.provider.client import Access


def sync(
    wallets: Iterable[str | UUID] | str | UUID | None = None,
    *,
    wallets_file: str | Path | None = None,
    tokens: bool = False,
    older_than: str | timedelta | None = None,
    resume: bool = False,
    allow_removals: bool = False,
    progress: bool | None = None,
    config: str | Path | None = None,
    **flags: Any,
) -> SyncResult:
    """Read wallets' balances and tokens from the provider into the database.

    Args:
        wallets: ids, or labels that one wallet of the database has. If None, the wallets file names
            them; without a file, all tracked wallets are read. An empty list is an error.
        wallets_file: one UUID per line, or CSV with the columns wallet_id, label and group.
        tokens: also read each token of those wallets by its id.
        older_than: skip wallets read within this time: a timedelta, or text such as `6h`.
        resume: resume the newest interrupted or killed run; not with `wallets`.
        allow_removals: apply all removals, however many.
        progress: show progress bars; None: on a terminal and in a notebook.
        config: the settings file, instead of the nearest `nftsync.toml`.
        **flags: settings: `base_url`, `database`, `concurrency`, `timeout`, `retries`,
            `rate_limit`.

    Returns:
        The data of `nftsync sync --json`. Wallets that failed are in `failures`.

    Raises:
        NftsyncError: nothing could be read, or the database is unusable.
    """
    values = _without_paths({**flags, "wallets_file": wallets_file})
    settings = _settings.load(values, config=None if config is None else Path(config))
    named = [wallets] if isinstance(wallets, str | UUID) else wallets
    if not isinstance(named, Iterable | None):
        raise InputError(f"wallets must be an id, a label or a list of them, not {named!r}")
    request = SyncRequest(
        wallets=None if named is None else [WalletLine(str(wallet)) for wallet in named],
        tokens=tokens,
        older_than=parse_duration(older_than) if isinstance(older_than, str) else older_than,
        resume=resume,
        allow_removals=allow_removals,
    )
    return sync_with(settings, request, progress=progress)


def client_config(settings: _settings.Settings) -> ClientConfig:
    """Return the client configuration; SettingsError without a `base_url`."""
    names = (name for name in ClientConfig.__struct_fields__ if hasattr(settings, name))
    values = _without_paths({name: getattr(settings, name) for name in names})
    values |= {"base_url": _settings.require_base_url(settings), "attempts": settings.retries}
    return ClientConfig(**values, proxy_source=settings.sources["proxy"])


def _without_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(x) if isinstance(x, Path) else x for name, x in values.items()}


def heartbeat(settings: _settings.Settings) -> Heartbeat:
    """Return the requests to `ping_url` about a run."""
    own = replace(settings, base_url="", client_certificate=None, client_key=None)
    return Heartbeat(settings.ping_url, client_config(own))


def removal_limits(settings: _settings.Settings) -> RemovalLimits:
    """Return the limits of the removal guard."""
    return RemovalLimits(settings.removal_limit, settings.removal_rows)


def sync_with(
    settings: _settings.Settings,
    request: SyncRequest,
    *,
    progress: bool | None = None,
    access: Access | None = None,
    stopped: threading.Event | None = None,
) -> SyncResult:
    """Run a sync with loaded settings, and report it to `ping_url`; see `sync`."""
    with heartbeat(settings) as reported:
        request = _completed(settings, request)
        result = sync_wallets(
            settings.database,
            client_config(settings),
            request,
            concurrency=settings.concurrency,
            progress=progress,
            access=access,
            stopped=stopped,
            on_start=reported.start,
        )
        reported.problem = result.problem
    return result


def _completed(settings: _settings.Settings, request: SyncRequest) -> SyncRequest:
    """Return a request with the wallets, the files and the limits of the settings."""
    wallets = request.wallets
    if wallets is not None and not wallets:
        raise NoWallets
    if wallets and request.resume:
        named = quoted(wallets[0].wallet_id) + (", …" if len(wallets) > 1 else "")
        raise InputError(
            f"--resume reads the wallets of the interrupted run, but wallets were named: {named}."
            " Use one or the other"
        )
    if wallets:
        ids = ids_from(settings.database, [line.wallet_id for line in wallets])
        wallets = [line._replace(wallet_id=one) for line, one in zip(wallets, ids, strict=True)]
    elif settings.wallets_file is not None and wallets is None:
        wallets = read_wallets_file(settings.wallets_file)
    if settings.collections_file is not None:
        request = request._replace(collections=read_collections_file(settings.collections_file))
    if settings.hidden_file is not None:
        request = request._replace(hidden=read_hidden_file(settings.hidden_file))
    return request._replace(wallets=wallets, limits=removal_limits(settings))
