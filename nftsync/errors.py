"""Exceptions that nftsync raises deliberately.

::

    NftsyncError
    ├── SettingsError
    ├── InputError
    ├── StoreError
    │   ├── NoDatabase
    │   ├── NewerDatabase
    │   └── DamagedDatabase
    ├── SyncRunning
    ├── RunInterrupted
    ├── ReadError
    │   ├── AccessRefused
    │   ├── NoConnection
    │   │   └── ProxyFailed
    │   └── UnusableResponse
    └── Stopped
"""

from __future__ import annotations

from nftsync.text import visible


class NftsyncError(Exception):
    """Base of all errors that nftsync raises deliberately; the text is one line."""

    def _render_traceback_(self) -> list[str]:
        """Return the text for IPython and Jupyter: the message without a traceback."""
        return [f"\x1b[31m{type(self).__name__}\x1b[39m: {visible(str(self))}"]


class NftsyncWarning(UserWarning):
    """Base of all warnings: a result is empty or partial because data is missing."""


class EarlierDatabase(NftsyncWarning):
    """The database has an earlier version and lacks some tables or columns."""


class SettingsError(NftsyncError):
    """A setting is missing, unknown or invalid; the text names the key and its variable."""


class InputError(NftsyncError):
    """An id, time, duration or file from the caller is invalid."""


class StoreError(NftsyncError):
    """The database is missing, unreadable, full, locked, or not nftsync's."""


class NoDatabase(StoreError):
    """There is no file at the database's path."""


class NewerDatabase(StoreError):
    """A newer nftsync wrote the database."""


class DamagedDatabase(StoreError):
    """SQLite reports a damaged database; new writes to it may be lost."""


class SyncRunning(NftsyncError):
    """Another sync is using this database or lake."""


class RunInterrupted(NftsyncError):
    """A run was interrupted for a reason other than the provider; it can be resumed."""


def may_pass(status: int) -> bool:
    """Return whether a later request may succeed: 408, 421, 425, 429 and 5xx (RFC 9110, 8470)."""
    return status in {408, 421, 425, 429} or status >= 500


class ReadError(NftsyncError):
    """A read from the provider failed; `passing` tells whether a retry may succeed.

    Attributes:
        provider_down: the provider is unreachable or refuses every request. Other errors, truncated
            responses included, concern one object.
        reason: the provider's reason for a 4xx; blank if it repeats a part of a secret.
    """

    reason = ""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.passing = status is not None and may_pass(status)
        self.provider_down = self.passing or status in {401, 403}


class AccessRefused(ReadError):
    """The provider answered 401 or 403."""


class NoConnection(ReadError):
    """The provider did not respond; `connected` tells whether it was reached."""

    def __init__(self, message: str, *, connected: bool = True, final: bool = False) -> None:
        """Set the message; `final`: no retry can succeed, as at a port without TLS."""
        super().__init__(message)
        self.connected = connected
        self.provider_down = True
        self.passing = not final


class ProxyFailed(NoConnection):
    """The proxy is unreachable or refused."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        """Set the message; `final`: as with a wrong password."""
        super().__init__(message, connected=False, final=final)


class UnusableResponse(ReadError):
    """The response's content does not match the provider's document."""


class Stopped(NftsyncError):
    """The caller asked to stop while a read was waiting."""
