"""Rate limit, pause after a 429, give-up rule and credentials that the threads of a run share.

The provider's document does not show the authentication scheme (section Authentication), so it is
a setting.
"""

from __future__ import annotations

import random
import re
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping

from nftsync.errors import SettingsError, Stopped
from nftsync.provider.programs import LONGEST_OUTPUT, TooMuchOutput, run_program
from nftsync.text import decoded

#: The longest delay before a waiting request notices a stop, in seconds.
_SLICE = 0.25
#: The longest interval between two requests, in seconds; clock functions fail on far longer ones.
_LONGEST_INTERVAL = 86_400.0
#: The run gives up after this many refusals at its start, or requests in a row without connection.
_REFUSALS = 20
_UNANSWERED = 50
_COMMAND = "token_command (NFTSYNC_TOKEN_COMMAND)"
#: What to do after a refusal, with and without credentials.
_ADVICE = "check api_token, token_command or headers"
_NO_CREDENTIALS = "no token is set: set NFTSYNC_API_TOKEN, NFTSYNC_API_TOKEN_FILE or headers"


class RateLimiter:
    """A rate limiter that spaces requests, bounds the number in flight, and can pause all of them.

    Requests reserve no time ahead, so urgent ones overtake ordinary ones.
    """

    def __init__(self, rate_limit: float | None = None, *, at_once: int | None = None) -> None:
        """Limit the requests per second and in flight, over all clients."""
        self._bounded = at_once is not None
        self._slots = at_once or 0
        self._lock = threading.Lock()
        self.set_rate(rate_limit)
        self._next_at = 0.0
        self._resume_at = 0.0
        # One event per waiting request, so that only the first in line is woken.
        self._urgent: deque[threading.Event] = deque()
        self._ordinary: deque[threading.Event] = deque()

    def set_rate(self, rate_limit: float | None) -> None:
        """Set the requests per second; None: no limit."""
        self._interval = min(1.0 / rate_limit, _LONGEST_INTERVAL) if rate_limit else 0.0
        self._free = not self._interval and not self._bounded

    @property
    def waiting(self) -> int:
        return len(self._urgent) + len(self._ordinary)

    def pause(self, seconds: float) -> None:
        with self._lock:
            self._resume_at = max(self._resume_at, time.monotonic() + seconds)

    def take_slot(self, stopped: threading.Event, *, urgent: bool) -> bool:
        """Wait for a slot; return False if a pause or a stop came first."""
        pause = self._resume_at - time.monotonic()
        if pause > 0.0:
            # Jitter keeps threads from returning at the same instant.
            stopped.wait(pause + random.uniform(0.0, 0.1 + pause / 4))  # noqa: S311 - not for security
            return False
        return self._free or self._wait_in_line(stopped, self._urgent if urgent else self._ordinary)

    def _wait_in_line(self, stopped: threading.Event, line: deque[threading.Event]) -> bool:
        mine = threading.Event()
        with self._lock:
            line.append(mine)
        try:
            while not stopped.is_set():
                with self._lock:
                    mine.clear()
                    at = time.monotonic()
                    if at < self._resume_at:
                        return False
                    wait = self._wait_of(mine, at)
                    if wait <= 0.0:
                        self._next_at = at + self._interval
                        self._slots -= self._bounded
                        return True
                mine.wait(min(wait, _SLICE))
            return False
        finally:
            with self._lock:
                line.remove(mine)
                self._wake_first()

    def _wait_of(self, mine: threading.Event, at: float) -> float:
        first = (self._urgent or self._ordinary)[0]
        if mine is not first or (self._bounded and self._slots <= 0):
            return _SLICE
        return self._next_at - at

    def give_back(self) -> None:
        if self._bounded:
            with self._lock:
                self._slots += 1
                self._wake_first()

    def _wake_first(self) -> None:
        line = self._urgent or self._ordinary
        if line:
            line[0].set()


class Slots:
    """One client's access to a shared limiter: a context manager around each attempt.

    A thread inside must not enter again. If `stopped` is set, every waiting or later request raises
    `Stopped`.
    """

    def __init__(self, limiter: RateLimiter, *, urgent: bool = False) -> None:
        """Join a limiter; urgent requests go before ordinary ones."""
        self.stopped = threading.Event()
        self._limiter = limiter
        self._urgent = urgent

    def __enter__(self) -> None:
        while not self.stopped.is_set():
            if self._limiter.take_slot(self.stopped, urgent=self._urgent):
                return
        raise Stopped("stopped")

    def __exit__(self, *_: object) -> None:
        self._limiter.give_back()


class GiveUpRule:
    """Rule that stops a run's clients once further requests are pointless; `reason` says why."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._lock = threading.Lock()
        self._to_stop: list[threading.Event] = []
        self._responses = 0
        self._all_refused = True
        self._unanswered = 0

    def register(self, stopped: threading.Event) -> None:
        """Set `stopped` once the run gives up, so that its client stops."""
        with self._lock:
            self._to_stop.append(stopped)
            if self.reason is not None:
                stopped.set()

    def count_response(self, status: int, advice: str = _ADVICE) -> None:
        """Count a response; `advice` is for giving up because of refusals."""
        if self._responses >= _REFUSALS and not self._unanswered:
            return
        with self._lock:
            self._unanswered = 0
            self._responses += 1
            self._all_refused &= status in {401, 403}
            if self._responses == _REFUSALS and self._all_refused:
                self._give_up(
                    f"the first {_REFUSALS} responses were all 401 or 403: the provider gives no "
                    f"access; {advice}"
                )

    def count_failure(self, error: str, *, final: bool = False) -> None:
        """Count a request without a connection; `final`: no retry can succeed."""
        with self._lock:
            self._unanswered += 1
            if final and not self._responses:
                self._give_up(error)
            elif self._unanswered == _UNANSWERED:
                self._give_up(
                    f"{_UNANSWERED} requests in a row got no connection ({error}); check that the "
                    "provider is up and base_url is right"
                )

    def _give_up(self, reason: str) -> None:
        self.reason = self.reason or reason
        for stopped in self._to_stop:
            stopped.set()


class Auth:
    """The headers of every request, and the renewal of the token after a 401.

    `advice` is for people after a refusal; `generation` numbers the current token.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        token_command: str | None = None,
        command_timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Store the credentials; the token command runs when needed."""
        try:
            self._command = shlex.split(token_command or "")
        except ValueError as error:
            raise SettingsError(f"{_COMMAND} is not a valid command line: {error}") from None
        self._timeout = command_timeout
        self.can_renew = bool(self._command)
        self.is_set = bool(token or token_command or headers)
        self.advice = _ADVICE if self.is_set else _NO_CREDENTIALS
        self._fixed = dict(headers or {})
        self._token = token
        self._lock = threading.Lock()
        self.generation = 0
        self._failure: SettingsError | None = None

    def headers(self) -> tuple[dict[str, str], int]:
        """Return the headers and the generation of their token."""
        if self._command and not self.generation:
            self.renew(0)
        # Read before the token: an old token with a new number would be renewed needlessly.
        generation = self.generation
        if self._token is None:
            return self._fixed, generation
        # The token is the more specific setting; providers refuse two such headers.
        others = {k: v for k, v in self._fixed.items() if k.lower() != "authorization"}
        return {**others, "Authorization": f"Bearer {self._token}"}, generation

    def renew(self, generation: int) -> None:
        """Run the token command, once for all threads whose token has this generation."""
        failure = self._failure
        with self._lock:
            if self.generation != generation:
                return
            if self._failure is not failure:  # another thread's attempt failed meanwhile
                raise SettingsError(str(self._failure))
            try:
                self._token = _token_from(self._command, self._timeout)
            except SettingsError as error:
                self._failure = error
                raise
            self.generation += 1


def _token_from(command: list[str], timeout: float) -> str:
    try:
        code, output = run_program(command, timeout)
    except OSError as error:
        problem = f"cannot be run: {error.strerror}"
    except ValueError:
        problem = "cannot be run: it contains a NUL"
    except subprocess.TimeoutExpired:
        problem = f"took more than {timeout:g} s"
    except TooMuchOutput:
        most = LONGEST_OUTPUT // 1024
        problem = f"printed more than {most} KiB: expected one line with the token"
    else:
        token = decoded(output, "replace")
        if not code and re.fullmatch("[!-~]+", token):
            return token
        problem = "printed no valid token: expected one line of printable ASCII without spaces"
        if code:
            problem = f"failed with exit code {code}; run it by hand to see why"
    raise SettingsError(f"{_COMMAND} {problem}")
