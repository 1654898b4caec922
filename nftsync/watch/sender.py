"""Senders of messages, one per destination."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import NamedTuple

from nftsync.backoff import Backoff
from nftsync.store import leases
from nftsync.store.mirror import Mirror
from nftsync.store.outbox import (
    ClaimedMessage,
    Message,
    Settled,
    add,
    claim,
    due_messages,
    end_outage,
    make_due,
    outage_of,
    settle,
    stop_destination,
    stopped_destinations,
    store_outage,
)
from nftsync.times import age_seconds, now, shifted
from nftsync.watch.channel import Channel, SendResult
from nftsync.watch.texts import outgoing

_log = logging.getLogger("nftsync.watch")

#: Concurrent attempts per destination.
_AT_ONCE = 8
#: Shortest and longest pause of a destination that is down, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 900.0
#: Seconds between renewals of a lease of 20 s.
_RENEW = 5.0
#: Seconds until other destinations learn that a destination is down.
_REPORT_AFTER = 3_600.0


class Attempt(NamedTuple):
    """An attempt, its monotonic start, and its lease."""

    message: ClaimedMessage
    began: float
    lease: int


class MessageSender:
    """Sender of the messages to one destination.

    `others` returns reports to other destinations, `headers` extra headers of a message.
    `first_pause` is the shortest pause of a destination that is down, in seconds.
    """

    def __init__(
        self,
        mirror: Mirror,
        destination: str,
        delivery: Channel,
        others: Callable[[str, str], list[Message]],
        headers: Callable[[str, bytes], Mapping[str, str]] = lambda _rule, _body: {},
        first_pause: float = _FIRST_PAUSE,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.down: str | None = None  # the reason
        self._mirror = mirror
        self._destination = destination
        self._delivery = delivery
        self._others = others
        self._headers = headers
        self._pool = ThreadPoolExecutor(_AT_ONCE, f"nftsync-send-{destination}")
        self._running: dict[Future[SendResult], Attempt] = {}
        self._lease: int | None = None
        self._renew_at = self._succeeded_at = 0.0
        self._reported_on = ""  # the day of the last report of an outage
        self._failing: dict[int, float] = {}  # starts of first failed attempts, by message
        self._backoff = Backoff(first_pause, _LONGEST_PAUSE)

    def close(self) -> None:
        """End running attempts, and return their messages to pending."""
        self._delivery.abort()
        self._pool.shutdown(cancel_futures=True)
        self._delivery.close()
        ended = [f for f in self._running if not f.cancelled() and f.exception() is None]
        # An attempt that was cut off says nothing about its message.
        self._settle([f for f in ended if f.result().result != "down"])
        self._end_lease()

    def step(self, seconds: float) -> bool:
        """Claim due messages, settle ended attempts; return whether anything ran."""
        self._renew()
        self._claim()
        if not self._running:
            self._end_lease()
            return self._report_outage()
        done, _ = wait(self._running, seconds, FIRST_COMPLETED)
        self._settle(list(done))
        return True

    # Claiming --------------------------------------------------------------------------------

    def _claim(self) -> None:
        if self._backoff.is_paused:
            return
        # While the destination is down, one message tests it.
        room = (1 if self.down else _AT_ONCE) - len(self._running)
        connection, at = self._mirror.connection, now()
        if room <= 0 or self._destination in stopped_destinations(connection):
            return
        numbers = due_messages(connection, self._destination, at, room)
        if not numbers:
            return
        with self._mirror.transaction() as transaction:
            if self._lease is None:
                self._lease = leases.take_lease(transaction.connection, at)
                self._renew_at = time.monotonic() + _RENEW
            claimed = claim(transaction.connection, self._lease, numbers)
        for message in claimed:
            sent = self._pool.submit(self._send, message)
            self._running[sent] = Attempt(message, time.monotonic(), self._lease)

    def _send(self, message: ClaimedMessage) -> SendResult:
        extra = self._headers(message.rule, message.body)
        return self._delivery.send(outgoing(message.message_id, message.body, extra))

    def _renew(self) -> None:
        if time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + _RENEW
        at = now()
        if self._lease is not None:
            with self._mirror.transaction() as transaction:
                is_held = leases.renew_lease(transaction.connection, self._lease, at)
            if not is_held:  # `settle` skips its messages, which are pending again
                self._lease = None
        while leases.has_expired(self._mirror.connection, at):
            with self._mirror.transaction() as transaction:
                leases.take_back_expired(transaction.connection, at)

    def _end_lease(self) -> None:
        more = self._lease is not None
        while more:
            with self._mirror.transaction() as transaction:
                more = leases.end_lease(transaction.connection, self._lease or 0)
        self._lease = None

    # Settling --------------------------------------------------------------------------------

    def _settle(self, done: list[Future[SendResult]]) -> None:
        ended = [(self._running.pop(future), future) for future in done]
        outcomes = [
            (attempt, future.result()) for attempt, future in ended if attempt.lease == self._lease
        ]
        if self._lease is None or not outcomes:
            return
        is_reached = any(outcome.result in {"sent", "refused"} for _, outcome in outcomes)
        recovered = is_reached and self.down is not None
        if is_reached:
            self._succeeded_at = time.monotonic()
            self.down = None
            self._backoff.reset()
        at = now()
        settled = [self._settled(attempt, outcome, at) for attempt, outcome in outcomes]
        with self._mirror.transaction() as transaction:
            connection = transaction.connection
            states = settle(connection, self._lease, settled, at)
            for _, outcome in outcomes:
                if outcome.result == "gone":
                    stop_destination(connection, self._destination, outcome.error or "gone", at)
                    add(connection, self._others("stopped", outcome.error or "gone"), at)
            if states["dead"]:
                reason = next(one.error for one in settled if one.result == "refused")
                add(connection, self._others("failed", reason or ""), at)
            if any(outcome.result != "down" for _, outcome in outcomes):
                end_outage(connection, self._destination)
            if self.down:
                store_outage(connection, self._destination, self.down, at)
            if recovered:
                make_due(connection, self._destination, at)
        self.counts.update(states)

    def _report_outage(self) -> bool:
        at = now()
        outage = outage_of(self._mirror.connection, self._destination)
        if outage is None or self._reported_on == at[:10]:
            return False
        since, reason = outage
        if age_seconds(since, at) <= _REPORT_AFTER:
            return False
        self._reported_on = at[:10]
        with self._mirror.transaction() as transaction:
            return add(transaction.connection, self._others("down", reason), at) > 0

    def _settled(self, attempt: Attempt, outcome: SendResult, at: str) -> Settled:
        message, result, error = attempt.message, outcome.result, outcome.error
        failing_since = self._failing.pop(message.number, attempt.began)
        if result == "sent":
            return Settled(message, "sent", error)  # some recipients may have refused it
        details = {"destination": self._destination, "message_id": message.message_id}
        _log.warning("a message was not delivered: %s", error, extra=details)
        if result == "gone":
            return Settled(message, "down", error, at)
        # If others succeeded meanwhile, the message is at fault, unless the destination is busy.
        if result == "down" and (outcome.retry_after or self._succeeded_at <= failing_since):
            self._failing[message.number] = failing_since
            return Settled(message, "down", error, self._pause(outcome, at))
        return Settled(message, "refused", error)

    def _pause(self, outcome: SendResult, at: str) -> str:
        pause = self._backoff.pause(outcome.retry_after or 0.0)
        self.down = outcome.error or "no answer"
        # Later than the pause's end, so that another message tests the destination.
        return shifted(at, timedelta(seconds=pause + min(pause, _LONGEST_PAUSE)))
