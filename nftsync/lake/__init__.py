"""The same sync on Dask into Delta Lake, for more data than one machine carries."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nftsync.errors import NftsyncError

if missing := [
    name for name in ("cryptography", "dask", "deltalake", "distributed") if find_spec(name) is None
]:
    raise NftsyncError(f"a lake needs {', '.join(missing)}: pip install 'nftsync[scale]'")

if TYPE_CHECKING:
    from nftsync.lake.frames import changes, holdings, tokens, versions
    from nftsync.lake.measures import collections, concentration, overlap
    from nftsync.lake.status import freshness

__all__ = [
    "changes",
    "collections",
    "concentration",
    "freshness",
    "holdings",
    "overlap",
    "tokens",
    "versions",
]

_HOME = {
    **dict.fromkeys(("changes", "holdings", "tokens", "versions"), "frames"),
    **dict.fromkeys(("collections", "concentration", "overlap"), "measures"),
    "freshness": "status",
}


# Workers of a sync need no pandas of their own.
def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"nftsync.lake.{_HOME[name]}"), name)
    raise AttributeError(f"module 'nftsync.lake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
