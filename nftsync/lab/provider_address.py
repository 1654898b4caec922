"""Where the provider of a database is."""

from __future__ import annotations

from pathlib import Path

from nftsync import settings
from nftsync.demo import is_demo
from nftsync.demo.provider import kept_address
from nftsync.errors import SettingsError

__all__ = ["provider_address"]


def provider_address(database: Path) -> str | None:
    """The address of the provider that a database was read from, as far as that is known.

    Args:
        database: the file.

    Returns:
        For a demo's database the address that its provider had, whether or not it runs: no other
        sent what is in there. Else the configured `base_url`, and None where there is none or the
        settings are broken.
    """
    if is_demo(database) and (kept := kept_address(database)):
        return kept
    try:
        return settings.load().base_url
    except SettingsError:
        return None
