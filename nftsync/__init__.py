"""nftsync mirrors the NFTs in an organization's custody wallets into SQLite and pandas.

`nftsync.sync` reads balances and token metadata into SQLite; `nftsync.frames` opens them as pandas
DataFrames. Names load on first use, so that the import stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nftsync.errors import NftsyncError, NftsyncWarning
from nftsync.version import __version__

if TYPE_CHECKING:
    from nftsync import charts, frames
    from nftsync.notebooks.database import database
    from nftsync.notebooks.gallery import gallery
    from nftsync.pull.api import sync
    from nftsync.pull.result import SyncResult

__all__ = [
    "NftsyncError",
    "NftsyncWarning",
    "SyncResult",
    "__version__",
    "charts",
    "database",
    "frames",
    "gallery",
    "sync",
]

_HOME = {
    "SyncResult": "nftsync.pull.result",
    "database": "nftsync.notebooks.database",
    "gallery": "nftsync.notebooks.gallery",
    "load_ipython_extension": "nftsync.notebooks.display",
    "sync": "nftsync.pull.api",
    "unload_ipython_extension": "nftsync.notebooks.display",
}


def __getattr__(name: str) -> Any:
    if name in {"charts", "frames"}:
        return import_module(f"nftsync.{name}")
    if name in _HOME:
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value
    raise AttributeError(f"module 'nftsync' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
