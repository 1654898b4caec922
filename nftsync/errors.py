"""All exceptions that nftsync raises on purpose.

::

    NftsyncError
    ├── SettingsError        a setting is missing, unknown or of the wrong form
    ├── InputError           an id, a time, a duration or a file that was given is unusable
    ├── StoreError           the database is missing, unreadable, full, or not nftsync's
    │   ├── NewerDatabase    it was written by a newer nftsync
    │   └── DamagedDatabase  SQLite finds it damaged
    ├── SyncRunning          another sync holds this database
    ├── CutOff               a run cannot go on, though there is more to read
    ├── ReadError            a read of the provider failed, for good
    │   ├── AccessRefused    401 or 403
    │   ├── NoConnection     nothing answered
    │   │   └── ProxyFailed  the proxy in between could not be reached, or refused
    │   └── UnusableAnswer   an answer came, but not what the provider's document promises
    └── Stopped              the caller asked to stop while a read was waiting

`NftsyncWarning` is the base of all warnings, and `EarlierDatabase` one of its kinds.
"""

from __future__ import annotations

from nftsync.text import visible


class NftsyncError(Exception):
    """The base of all errors that nftsync raises on purpose; its text is one line for a person."""

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter show instead of a traceback: the kind of error, and its text.

        The text says what happened and what to do next; frames of nftsync's own would bury it.
        """
        return [f"\x1b[31m{type(self).__name__}\x1b[39m: {visible(str(self))}"]


class NftsyncWarning(UserWarning):
    """Nothing was found, and that says nothing: the database does not know what was asked for."""


class EarlierDatabase(NftsyncWarning):
    """An earlier version of nftsync made the database, so it lacks some tables or columns."""


class SettingsError(NftsyncError):
    """A setting is missing, unknown or of the wrong form; the text names the key and variable."""


class InputError(NftsyncError):
    """An id, a time, a duration or a file that was given cannot be used."""


class StoreError(NftsyncError):
    """The database is missing, unreadable, full, locked, or is not one of nftsync's."""


class NewerDatabase(StoreError):
    """The database was written by a newer nftsync than this one."""


class DamagedDatabase(StoreError):
    """SQLite finds the database damaged; what is written to it may be lost with it."""


class SyncRunning(NftsyncError):
    """Another sync holds this database."""


class CutOff(NftsyncError):
    """A run cannot go on, through no fault of the provider, and can be resumed."""


class ReadError(NftsyncError):
    """A read of the provider failed and will not be tried again now.

    Attributes:
        status: the HTTP status of the answer, or None when none came.
        provider_down: whether the provider is unreachable or refuses everybody, whatever was asked
            for: true of 401, 403, 429 and 5xx (also where it asks to wait too long), and where no
            whole answer came; false of 404 and other 4xx, of redirects and of unusable answers, one
            that ends too early included: those are about the object that was asked for.
        passing: whether another attempt may go well: true of 429 and 5xx, of broken connections
            and of an answer that ends too early.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.passing = status is not None and (status == 429 or status >= 500)
        self.provider_down = status is not None and (status in {401, 403, 429} or status >= 500)


class AccessRefused(ReadError):
    """The provider answered 401 or 403."""


class NoConnection(ReadError):
    """No answer came: nothing listened, the connection broke, or time ran out.

    Attributes:
        connected: whether there was a connection at all.
    """

    def __init__(self, message: str, *, connected: bool = True, final: bool = False) -> None:
        """Say why; `final`: asking again has no point, as where the port speaks no TLS."""
        super().__init__(message)
        self.connected = connected
        self.provider_down = True
        self.passing = not final


class ProxyFailed(NoConnection):
    """The proxy could not be reached, or refused; the text names it and where it was configured."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        """Say why; `final`: asking it again has no point, as with a wrong password."""
        super().__init__(message, connected=False, final=final)


class UnusableAnswer(ReadError):
    """An answer came whose content is not what the provider's document promises."""


class Stopped(NftsyncError):
    """The caller asked to stop while a read was waiting for its turn."""
