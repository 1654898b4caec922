"""What becomes of the webhooks of an object when its reads are over."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from nftsync.replay.work import Job
from nftsync.store.inbox_queue import ObjectKey, Settlement
from nftsync.times import format_time

__all__ = ["PUT_OFF", "Outcomes", "after", "given_back"]

_log = logging.getLogger("nftsync.replay")

#: An object that the provider refuses to answer for is put off so long at first, in seconds, and
#: twice as long each time, up to the second figure.
PUT_OFF = 5.0
_LONGEST_PUT_OFF = 900.0


class Outcomes:
    """Decides, and remembers which objects were put off.

    Attributes:
        refused: why webhooks were put off that still wait, or None.
    """

    def __init__(self, look_again_after: float | None) -> None:
        """Begin with nothing put off.

        Args:
            look_again_after: seconds after which an object is read once more that had not
                changed; None: it is not.
        """
        self.refused: str | None = None
        self._look_again_after = look_again_after
        self._put_off: dict[ObjectKey, int] = {}

    def has_put_off(self, key: ObjectKey) -> bool:
        """Whether the provider has refused this object before, and not answered for it since."""
        return key in self._put_off

    def of(self, job: Job) -> Settlement:
        """Decide on a job whose reads are over, or one of whose reads the provider refused."""
        if job.down:
            times = self._put_off[job.key] = self._put_off.get(job.key, -1) + 1
            wait = min(_LONGEST_PUT_OFF, PUT_OFF * 2.0**times)
            self.refused = f"{job.key.resource_type} {job.key.resource_id}: {job.error}"
            return given_back(job, job.error, wait)
        if self._put_off.pop(job.key, None) is not None and not self._put_off:
            self.refused = None
        if job.error is not None:
            _log_failure(job)
            return Settlement(
                job.key, "failed", job.error, look=job.look, webhook_id=job.webhook_id
            )
        again = None if job.changed or job.look else self._look_again_after
        return Settlement(
            job.key,
            "done",
            look=job.look,
            look_again_at=None if again is None else after(again),
            webhook_id=job.webhook_id,
        )

    def sync_was_not_made(self, why: str | None) -> None:
        """Note why a sync that webhooks ask for was not made; None: it was."""
        self.refused = why or (self.refused if self._put_off else None)

    def put_off(self) -> list[ObjectKey]:
        """The objects that were put off, and not answered for since."""
        return list(self._put_off)


def given_back(job: Job, error: str | None, wait: float | None) -> Settlement:
    """The settlement of a job that is to be worked on again.

    Args:
        job: the job.
        error: why, or None to leave its webhooks the error that they had.
        wait: seconds until it is due; None: as it was.
    """
    return Settlement(
        job.key,
        "pending",
        error,
        due_at=None if wait is None else after(wait),
        look=job.look,
        look_again_at=after(wait or 0.0) if job.look else None,
        webhook_id=job.webhook_id,
    )


def after(seconds: float) -> str:
    """The time so many seconds from now, in the stored form."""
    return format_time(datetime.now(UTC) + timedelta(seconds=seconds))


def _log_failure(job: Job) -> None:
    _log.warning(
        "a webhook's read failed",
        extra={
            "resource_type": job.key.resource_type,
            "resource_id": job.key.resource_id,
            "webhook_id": job.webhook_id,
            "error": job.error,
        },
    )
