"""nftsync mirrors the NFTs that an organization's custody wallets hold, for notebooks.

`nftsync.sync` reads balances and token metadata into SQLite; `nftsync.frames` opens them as
pandas DataFrames. Every name is loaded when it is first used, so that the import stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nftsync.errors import NftsyncError
from nftsync.version import __version__

if TYPE_CHECKING:
    from nftsync import frames
    from nftsync.api import sync

__all__ = ["NftsyncError", "__version__", "frames", "sync"]

_HOME = {"sync": "nftsync.api"}


def __getattr__(name: str) -> Any:
    if name == "frames":
        return import_module("nftsync.frames")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'nftsync' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
