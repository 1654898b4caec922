"""Sync on Dask into Delta Lake, for more data than fits one machine.

A lake is a set of nftsync databases, its buckets. A driver sends each step of a run to Dask
workers, bucket by bucket, and at the end pins all files in the ledger. Readers and later runs see
only pinned files.

Shared parameters:

- `lake`: a folder, or an address that Delta knows (`s3://bucket/folder`), with credentials in the
  environment.
- `run`: the number of a finished run; None: the last one.
- `buckets`: the lake's number of buckets.
- `takeover_after`: the takeover timeout, in seconds without a heartbeat.
- `progress`: show a progress bar; None: on a terminal and in a notebook.
- `interrupted`: set by Ctrl-C and SIGTERM; raises `KeyboardInterrupt`.

Shared errors:

- `StoreError`: the lake does not exist, or cannot be read or written.
- `InputError`: an invalid time, no finished run, or an unknown or expired one.
- `SyncRunning`: another driver is at work, or has taken over the run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nftsync.extras import require

require("scale", "lakes", "cryptography", "dask", "deltalake", "distributed")

if TYPE_CHECKING:
    from nftsync.lake.frames import (
        changes,
        holding_ages,
        holdings,
        quality,
        tokens,
        transfers,
        versions,
        wallet_states,
    )
    from nftsync.lake.measures import collections, concentration, overlap
    from nftsync.lake.status import freshness

__all__ = [
    "changes",
    "collections",
    "concentration",
    "freshness",
    "holding_ages",
    "holdings",
    "overlap",
    "quality",
    "tokens",
    "transfers",
    "versions",
    "wallet_states",
]

_HOME = {
    **dict.fromkeys(("changes", "holding_ages", "holdings", "quality", "tokens"), "frames"),
    **dict.fromkeys(("transfers", "versions", "wallet_states"), "frames"),
    **dict.fromkeys(("collections", "concentration", "overlap"), "measures"),
    "freshness": "status",
}


# Loaded on first use, because a sync's workers do not need pandas.
def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"nftsync.lake.{_HOME[name]}"), name)
    raise AttributeError(f"module 'nftsync.lake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
