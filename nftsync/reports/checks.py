"""What can be wrong before anything is read: a look at each thing that nftsync depends on."""

from __future__ import annotations

import ipaddress
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from nftsync.errors import AccessRefused, NftsyncError, NoConnection, ProxyFailed, ReadError
from nftsync.provider.client import Client
from nftsync.records import Effort
from nftsync.store.database import BUSY_SECONDS, connect_reader, explained
from nftsync.store.schema import check_schema, reading

__all__ = [
    "Check",
    "Verdict",
    "check_api",
    "check_base_url",
    "check_database",
    "check_proxy",
    "check_secret",
    "first_tracked_wallet",
    "is_this_machine",
]

#: `warning`: it works, and should still be mended.
Verdict: TypeAlias = Literal["ok", "warning", "FAILED", "skipped"]

_SHORTEST_SECRET = 16


class Check(NamedTuple):
    """What a look at one thing came to.

    Attributes:
        verdict: how it stands.
        what: what was looked at.
        message: what was found, and what to do; never a secret.
    """

    verdict: Verdict
    what: str
    message: str


def check_database(path: Path) -> list[Check]:
    """Look whether the database is there, whole, and takes writes; nothing is made or changed."""
    try:
        with explained(path):
            if not path.exists():
                return [_missing_database(path)]
        with explained(path), closing(connect_reader(path)) as connection:
            if check_schema(connection, path) == 0:
                return [Check("ok", "database", f"{path} is empty; sync makes its tables")]
        report = _look_inside(path)
        if report != "ok":
            problem = f"{path} is damaged ({report}); restore a copy, or name another --database"
            return [Check("FAILED", "database", problem)]
    except NftsyncError as error:
        return [Check("FAILED", "database", str(error))]
    return [Check("ok", "database", f"{path} is whole and takes writes")]


def _missing_database(path: Path) -> Check:
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        return Check(
            "FAILED",
            "database",
            f"there is none at {path}, and {nearest} may not be written; change its permissions, "
            "or name another --database",
        )
    return Check("ok", "database", f"there is none at {path} yet; it will be created by sync")


def first_tracked_wallet(path: Path) -> str | None:
    """The tracked wallet that has been known longest.

    Raises:
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(path) as connection:
        row = connection.execute(
            "SELECT wallet_id FROM wallets WHERE tracked ORDER BY wallet_no LIMIT 1"
        ).fetchone()
    return None if row is None else str(row[0])


def _look_inside(path: Path) -> str:
    """What SQLite's own check says, `ok` at best; raises where no write transaction can begin."""
    # Not mode=ro: there SQLite's check passes over broken constraints.
    address = f"file:{quote(str(path.absolute()))}?mode=rw"
    with (
        explained(path),
        closing(
            sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        ) as connection,
    ):
        (report,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")  # nothing is written
    return str(report)


def check_base_url(base_url: str) -> list[Check]:
    """Look whether what is read from there can be read by others on the way."""
    parts = urlsplit(base_url)
    if parts.scheme == "https" or is_this_machine(parts.hostname or ""):
        return []
    return [
        Check(
            "warning",
            "base_url",
            f"{base_url} is plain http: who is on the way can read the token and the data; "
            "use https",
        )
    ]


def check_proxy(client: Client) -> list[Check]:
    """Say which proxy stands between us and the provider, if one does."""
    return [] if client.proxy is None else [Check("ok", "proxy", f"through {client.proxy}")]


def is_this_machine(host: str) -> bool:
    """Whether a host's name or address stays on this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_api(client: Client, wallet_id: str) -> list[Check]:
    """Read a wallet's balances once, and store nothing."""
    try:
        answer = client.balances(wallet_id, Effort())
    except NftsyncError as error:
        return [Check("FAILED", "API", f"wallet {wallet_id}: {error}{_advice(error)}")]
    count = len(answer.entries or ())
    found = Check("ok", "API", f"wallet {wallet_id} was read: {count:,} balances")
    if answer.unknown_field is None:
        return [found]
    name = answer.unknown_field
    problem = (
        f"the answer has a top-level field {name!r} that nftsync doesn't know, so reads count as"
        " incomplete; if it is a page cursor set [paging], else list it in ignore_fields"
    )
    return [found, Check("warning", "API", problem)]


def _advice(error: NftsyncError) -> str:
    if isinstance(error, AccessRefused):
        if error.status == 401:
            return "; check api_token, token_command or headers"
        return "; the credentials are known but may not read this: ask for the right to"
    if isinstance(error, ProxyFailed):
        return ""  # it says which, and where it was configured
    if isinstance(error, NoConnection):
        return "; check base_url, and that this machine reaches it"
    if isinstance(error, ReadError) and error.status == 404:
        return "; check the wallet's id, and base_url"
    return ""


def check_secret(secret: str | None) -> list[Check]:
    """Look whether a webhook secret can sign anything; it is not shown."""
    what = "webhook secret"
    if secret is None:
        todo = (
            "not set; `serve` needs it: set NFTSYNC_WEBHOOK_SECRET or NFTSYNC_WEBHOOK_SECRET_FILE"
        )
        return [Check("skipped", what, todo)]
    if not secret.strip():
        return [Check("FAILED", what, "blank: anyone could sign webhooks; set it to a long text")]
    if len(secret) < _SHORTEST_SECRET:
        todo = f"shorter than {_SHORTEST_SECRET} characters; a longer random one is safer"
        return [Check("warning", what, todo)]
    return [Check("ok", what, "set")]
