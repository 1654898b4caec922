"""Reading the provider: its paths, who we are to it, how fast we ask, and what an answer means."""

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
