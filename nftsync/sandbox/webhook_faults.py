"""What can go wrong with a webhook's delivery on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, cast, get_args

import msgspec

from nftsync.errors import InputError

__all__ = ["FAULTS_TEXT", "NO_FAULT", "Delay", "NamedFault", "WebhookFault", "read_script"]

#: `drop`: never sent. `duplicate`: sent once more right after its first attempt, whatever came of
#: that. `reorder`: sent once the next webhook has been tried. `corrupt`: its first attempt has a
#: wrong signature. `old_secret`: its first attempt is signed with the secret before the last
#: change, so wrongly where there was none.
NamedFault: TypeAlias = Literal["drop", "duplicate", "reorder", "corrupt", "old_secret"]

_NAMES = get_args(NamedFault)

#: The faults, for people.
FAULTS_TEXT = ", ".join(f'"{name}"' for name in _NAMES) + ', {"delay": SECONDS} or null for none'


class Delay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first attempt is made so much later; the time scale does not count.

    Attributes:
        delay: seconds.
    """

    delay: float


#: One entry of a script; None lets a webhook go as usual.
WebhookFault: TypeAlias = NamedFault | Delay | None

NO_FAULT: WebhookFault = None

_LONGEST = 86_400.0


def read_script(script: Sequence[object]) -> list[WebhookFault]:
    """Check a script.

    Args:
        script: a fault for each of the next webhooks, in order: a name, `{"delay": SECONDS}` or
            None.

    Raises:
        InputError: an entry is no fault.
    """
    return [_read(entry, place) for place, entry in enumerate(script, start=1)]


def _read(entry: object, place: int) -> WebhookFault:
    if entry is None or (isinstance(entry, str) and entry in _NAMES):
        return cast("WebhookFault", entry)
    try:
        delay = msgspec.convert(entry, Delay)
    except msgspec.ValidationError:
        delay = Delay(-1)
    if not 0 <= delay.delay <= _LONGEST:
        raise InputError(f"entry {place} of the script is no fault; expected {FAULTS_TEXT}")
    return delay
