"""The functions that a notebook or a script calls."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from nftsync import settings as _settings
from nftsync.client import ClientConfig, Paging
from nftsync.errors import InputError, SettingsError
from nftsync.image_address import DEFAULT_GATEWAY, origin
from nftsync.models import normalize_uuid
from nftsync.store.registry import WalletLine
from nftsync.sync_plan import Request
from nftsync.sync_result import SyncResult
from nftsync.sync_run import sync_wallets
from nftsync.times import parse_duration
from nftsync.wallets_file import read_wallets_file

if TYPE_CHECKING:
    from nftsync.gallery_page import Gallery

__all__ = ["client_config", "gallery", "sync", "sync_with"]


def sync(
    wallets: Iterable[str | UUID] | str | UUID | None = None,
    *,
    wallets_file: str | Path | None = None,
    tokens: bool = False,
    older_than: str | timedelta | None = None,
    resume: bool = False,
    accept_empty: bool = False,
    progress: bool | None = None,
    config: str | Path | None = None,
    **flags: Any,
) -> SyncResult:
    """Read wallets' balances and tokens from the provider into the database.

    Args:
        wallets: wallet ids; None for those of the wallets file, else for all tracked ones.
        wallets_file: one UUID a line, or CSV with the columns wallet_id, label and group.
        tokens: also read each token those wallets hold by its id.
        older_than: skip wallets read since: a timedelta, or text such as `6h`.
        resume: go on with the newest interrupted or killed run.
        accept_empty: believe a provider that answers with empty lists for everyone.
        progress: show progress bars; None shows them on a terminal and in a notebook.
        config: the settings file, instead of the nearest `nftsync.toml`.
        **flags: settings with a flag: `base_url`, `database`, `concurrency`, `timeout`,
            `retries`, `rate_limit`.

    Returns:
        What `nftsync sync --json` prints, as an object. Wallets that failed are in `failures`.

    Raises:
        NftsyncError: nothing could be read at all, or the database cannot be used.
    """
    given = {name: _plain(value) for name, value in flags.items()}
    if wallets_file is not None:
        given["wallets_file"] = _plain(wallets_file)
    settings = _settings.load(given, config=None if config is None else Path(config))
    named = [wallets] if isinstance(wallets, str | UUID) else wallets
    request = Request(
        wallets=None if named is None else [WalletLine(str(wallet)) for wallet in named],
        tokens=tokens,
        older_than=parse_duration(older_than) if isinstance(older_than, str) else older_than,
        resume=resume,
        accept_empty=accept_empty,
    )
    return sync_with(settings, request, progress=progress)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def client_config(settings: _settings.Settings) -> ClientConfig:
    """How to read the configured provider.

    Raises:
        SettingsError: no `base_url` is set.
    """
    paging = settings.paging
    return ClientConfig(
        base_url=_settings.require_base_url(settings),
        api_token=settings.api_token,
        token_command=settings.token_command,
        headers=settings.headers,
        rate_limit=settings.rate_limit,
        timeout=settings.timeout,
        attempts=settings.retries,
        ignore_fields=settings.ignore_fields,
        paging=None if paging is None else Paging(paging.next, paging.param),
    )


def sync_with(
    settings: _settings.Settings, request: Request, *, progress: bool | None = None
) -> SyncResult:
    """Run a sync with given settings; wallets are checked, or taken from the wallets file.

    Raises:
        NftsyncError: nothing could be read at all, or the database cannot be used.
    """
    wallets = request.wallets
    if wallets:
        wallets = [
            line._replace(wallet_id=normalize_uuid(line.wallet_id, "wallet id")) for line in wallets
        ]
    elif settings.wallets_file is not None and wallets is None:
        wallets = read_wallets_file(settings.wallets_file)
    return sync_wallets(
        settings.database,
        client_config(settings),
        request._replace(wallets=wallets),
        concurrency=settings.concurrency,
        progress=progress,
    )


def gallery(
    holdings: Any = None,
    *,
    title: str | None = None,
    page_size: int = 60,
    limit: int = 2_000,
    hide_zero: bool = True,
    ipfs_gateway: str | None = None,
    base_url: str | None = None,
) -> Gallery:
    """Show NFTs: a page with search, sorting and pages, in a notebook or, saved, as a file.

    Images are loaded by the browser that shows the page, from `https:` addresses, from IPFS
    through a gateway, and from the provider's own origin; others are named, not loaded.

    Args:
        holdings: a frame with `token_id` and any other column of `frames.holdings`, and
            `collection`, if there is one, as the contract's name; or a database, as
            `frames.holdings` takes it (None: the configured one).
        title: the heading.
        page_size: NFTs shown at a time, 1 to 500.
        limit: NFTs that the page holds at most, the first of the frame; it says what it left out.
        hide_zero: leave out rows with an amount of 0.
        ipfs_gateway: the URL that IPFS content is found behind; None: the configured one.
        base_url: the provider, whose origin may show images; None: the configured one.

    Returns:
        The gallery; it shows itself at the end of a cell, and `.save(path)` writes the page.

    Raises:
        InputError: an argument or the frame cannot be used.
        StoreError: the database is missing, is not nftsync's or cannot be read.
        SettingsError: no usable database is configured, and none was given.
    """
    from nftsync.gallery_page import Images, make_gallery

    gateway, provider = ipfs_gateway, base_url
    if gateway is None or provider is None:
        configured = _image_sources()
        gateway, provider = gateway or configured[0], provider or configured[1]
    return make_gallery(
        holdings,
        title=title,
        page_size=page_size,
        limit=limit,
        hide_zero=hide_zero,
        images=Images(gateway, provider),
    )


def _image_sources() -> tuple[str, str | None]:
    """The configured IPFS gateway and provider; a warning and the defaults if they are unusable."""
    try:
        settings = _settings.load()
        for url in (settings.ipfs_gateway, settings.base_url):
            if url is not None:
                origin(url)
    except (SettingsError, InputError) as error:
        # Some images may be missing for it, but the NFTs are there to be shown.
        warnings.warn(f"gallery without settings: {error}", stacklevel=3)
        return DEFAULT_GATEWAY, None
    return settings.ipfs_gateway, settings.base_url
