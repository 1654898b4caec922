"""Webhooks on their way: made, due, tried, finished."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from nftsync.provider.webhooks import sign
from nftsync.sandbox.journal import Journal, NoJournal
from nftsync.sandbox.retries import RetrySchedule
from nftsync.sandbox.webhook_config import WebhookConfig
from nftsync.sandbox.webhook_faults import Delay, WebhookFault, read_script
from nftsync.sandbox.webhooks import Attempt, Delivery, Webhook

__all__ = ["Outbox", "Task"]

#: So many finished webhooks are remembered.
_REMEMBERED = 20_000
_SUCCESS = 200


class Task(NamedTuple):
    """One attempt to make.

    Attributes:
        delivery: what it is an attempt of.
        url: where it goes.
        signature: of the body, for the header.
    """

    delivery: Delivery
    url: str
    signature: str


class Outbox:
    """The organization's webhook configuration and the webhooks that wait; for many threads.

    A webhook is made only while the configuration is enabled, has a URL and names its type (Events
    2 and 3 of the provider's document); else there is none. Whether a webhook that was made leaves
    is decided at each attempt: it goes to the URL of that moment, signed with the secret of that
    moment, so that a rotation meets retries as it would in the field. While the configuration is
    disabled, or no secret was ever set, webhooks wait and use up no attempt; a type that is no
    longer chosen stops only new ones. The body is the same bytes every time.

    Args:
        journal: is told of each change.
        config: the configuration to begin with.
        waiting: undelivered webhooks to begin with, oldest first.
        time_scale: see `RetrySchedule`.
        seed: see `RetrySchedule`.

    Raises:
        InputError: the time scale is out of its range.
    """

    def __init__(
        self,
        *,
        journal: Journal | None = None,
        config: WebhookConfig | None = None,
        waiting: Sequence[Delivery] = (),
        time_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        self._journal: Journal = journal or NoJournal()
        self._config = config or WebhookConfig()
        self._schedule = RetrySchedule(time_scale=time_scale, seed=seed)
        self._condition = threading.Condition()
        self._closed = False
        self._script: deque[WebhookFault] = deque()
        self._known: dict[str, Delivery] = {}
        self._finished: deque[str] = deque()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Delivery]] = []
        # Those that wait for the next webhook, and, once there is one, by its id.
        self._aside: list[Delivery] = []
        self._released_by: dict[str, list[Delivery]] = {}
        with self._condition:
            for delivery in waiting:
                self._known[delivery.id] = delivery
                self._push(delivery, delivery.next_attempt_at or datetime.now(UTC))

    @property
    def config(self) -> WebhookConfig:
        """The configuration now."""
        with self._condition:
            return self._config

    def configure(self, body: bytes) -> WebhookConfig:
        """Change the configuration by a PATCH's body; see `WebhookConfig.patched`."""
        with self._journal.transaction(), self._condition:
            changed = self._config.patched(body)
            self._journal.keep_config(changed)
            self._config = changed
            self._condition.notify_all()
            return changed

    def script(self, entries: Sequence[object]) -> None:
        """Let the next webhooks go wrong, one entry each; it adds to what is left of earlier ones.

        Args:
            entries: see `read_script`.

        Raises:
            InputError: an entry is no fault.
        """
        faults = read_script(entries)
        with self._condition:
            self._script.extend(faults)

    def make(self, webhook_type: str, webhook: Webhook) -> Delivery | None:
        """Take a webhook on, for `put`; None where the configuration wants none of its type.

        To be called inside a transaction of the journal, with the edit that causes it.
        """
        with self._condition:
            if not self._config.takes(webhook_type):
                return None
            fault = self._script.popleft() if self._script else None
        delivery = Delivery(webhook_type, webhook, msgspec.json.encode(webhook), fault)
        if fault == "drop":
            delivery.state = "dropped"
            return delivery
        if fault != "reorder":
            delay = fault.delay if isinstance(fault, Delay) else 0.0
            delivery.next_attempt_at = datetime.now(UTC) + timedelta(seconds=delay)
        self._journal.keep_delivery(delivery)
        return delivery

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """Let webhooks that were made go, once what caused them has been kept."""
        with self._condition:
            for delivery in deliveries:
                self._known[delivery.id] = delivery
                if delivery.state == "dropped":
                    self._remember(delivery)
                elif delivery.next_attempt_at is None:
                    self._aside.append(delivery)
                else:
                    if self._aside:
                        self._released_by[delivery.id], self._aside = self._aside, []
                    self._push(delivery, delivery.next_attempt_at)

    def claim(self) -> Task | None:
        """Wait until a webhook is due and may leave; None once the outbox is closed."""
        with self._condition:
            while not self._closed:
                seconds = self._seconds_to_next()
                if seconds is not None and seconds <= 0:
                    delivery = heapq.heappop(self._due)[2]
                    # Whoever was woken for this one may be the only one awake.
                    self._condition.notify()
                    return self._task(delivery)
                self._condition.wait(seconds)
            return None

    def settle(self, task: Task, attempt: Attempt) -> None:
        """Note how an attempt ended, and plan the next one where there is to be one."""
        delivery = task.delivery
        with self._journal.transaction(), self._condition:
            for held in self._released_by.pop(delivery.id, ()):
                self._push(held, datetime.now(UTC))
            next_at = self._next(delivery, attempt)
            delivery.attempts.append(msgspec.structs.replace(attempt, next_attempt_at=next_at))
            if next_at is not None:
                self._push(delivery, next_at)
                self._journal.keep_delivery(delivery)
            else:
                delivered = any(each.status == _SUCCESS for each in delivery.attempts)
                delivery.state = "delivered" if delivered else "failed"
                delivery.next_attempt_at = None
                self._remember(delivery)
                self._journal.drop_delivery(delivery)

    def put_back(self, task: Task) -> None:
        """Let a webhook be due still, as its attempt was not made."""
        with self._condition:
            self._push(task.delivery, task.delivery.next_attempt_at or datetime.now(UTC))

    def deliveries(self) -> list[dict[str, object]]:
        """Each webhook with its attempts, newest last; of the finished ones the latest 20,000."""
        with self._condition:
            return [delivery.shown() for delivery in self._known.values()]

    def close(self) -> None:
        """Let every `claim` end; what waits stays in the journal."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _seconds_to_next(self) -> float | None:
        if not self._due or not self._config.may_send:
            return None
        return self._due[0][0] - time.monotonic()

    def _task(self, delivery: Delivery) -> Task:
        config = self._config
        first = not delivery.attempts
        secret = config.shared_secret
        if first and delivery.fault == "old_secret":
            secret = config.previous_secret
        of = delivery.body + b" " if first and delivery.fault == "corrupt" else delivery.body
        return Task(delivery, config.url or "", sign(secret, of))

    def _next(self, delivery: Delivery, attempt: Attempt) -> datetime | None:
        """When the next attempt is to be made after this one, which is not yet listed."""
        ended = attempt.at + timedelta(milliseconds=attempt.ms)
        doubled = delivery.fault == "duplicate"
        if doubled and not delivery.attempts:
            return ended
        if any(each.status == _SUCCESS for each in (*delivery.attempts, attempt)):
            return None
        wait = self._schedule.wait(len(delivery.attempts) + 1 - doubled)
        return None if wait is None else ended + timedelta(seconds=wait)

    def _push(self, delivery: Delivery, at: datetime) -> None:
        delivery.next_attempt_at = at
        # The wall clock may jump; what waits in this process goes by the other.
        due = time.monotonic() + (at - datetime.now(UTC)).total_seconds()
        heapq.heappush(self._due, (due, next(self._numbers), delivery))
        self._condition.notify()

    def _remember(self, delivery: Delivery) -> None:
        self._finished.append(delivery.id)
        if len(self._finished) > _REMEMBERED:
            del self._known[self._finished.popleft()]
