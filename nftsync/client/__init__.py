"""Reading the provider: its paths, who we are to it, how fast we ask, and what an answer means."""

from nftsync.client.auth import Auth
from nftsync.client.client import Balances, Client, Paging
from nftsync.client.config import Access, ClientConfig
from nftsync.client.exchange import Tally
from nftsync.client.health import Health
from nftsync.client.pace import Lane, Pace

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
