"""Reading the provider: its paths, who we are to it, how fast we ask, and what an answer means."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nftsync.provider.client import Balances, Client, Paging
    from nftsync.provider.config import Access, ClientConfig
    from nftsync.provider.credentials import Auth
    from nftsync.provider.exchange import Health, Tally
    from nftsync.provider.rate_limiter import Lane, Pace

__all__ = [
    "Access",
    "Auth",
    "Balances",
    "Client",
    "ClientConfig",
    "Health",
    "Lane",
    "Pace",
    "Paging",
    "Tally",
]

_MODULES = {
    "Access": "config",
    "Auth": "credentials",
    "Balances": "client",
    "Client": "client",
    "ClientConfig": "config",
    "Health": "exchange",
    "Lane": "rate_limiter",
    "Pace": "rate_limiter",
    "Paging": "client",
    "Tally": "exchange",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: settings need the routes beside it, and no client."""
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(f"nftsync.provider.{_MODULES[name]}"), name)
