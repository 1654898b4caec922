"""Reading the provider: its paths, who we are to it, how fast we ask, and what an answer means."""

from nftsync.client.auth import Auth
from nftsync.client.client import Balances, Client, Paging
from nftsync.client.config import ClientConfig
from nftsync.client.exchange import Tally
from nftsync.client.health import Health
from nftsync.client.pace import Pace

__all__ = ["Auth", "Balances", "Client", "ClientConfig", "Health", "Pace", "Paging", "Tally"]
